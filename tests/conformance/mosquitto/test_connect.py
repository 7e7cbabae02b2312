"""Connecting (Mosquitto: 01-connect-*, 09-auth-bad-method, 10-listener-*, 12-prop-assigned-*, -server-*)."""

from __future__ import annotations

import asyncio

import pytest

from conformance.mosquitto.steps import BOTH, ended, later, stays
from harness import Client, Live, live
from tidegate import wire

USER = "directory: {users: {user: {password: 'plain:password'}}}\n"
NAMED = 'listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: false}]\n'


@pytest.mark.parametrize("version", BOTH)
async def test_take_over_disconnects_the_older(version: int) -> None:
    async with live() as node:
        first = await node.connect("same", version=version)
        second = await node.connect("same", version=version)
        assert await ended(first) in ({0x8E} if version == wire.V5 else {None})
        await second.silent()


ZERO_LENGTH = [
    (wire.V311, True, 0),
    (wire.V311, False, 2),  # [MQTT-3.1.3-8]
    (wire.V5, True, 0),
    (wire.V5, False, 0),
]


@pytest.mark.parametrize(("version", "clean", "code"), ZERO_LENGTH)
async def test_zero_length_client_id(version: int, clean: bool, code: int) -> None:
    async with live() as node:
        client = await node.socket()
        client.version = version
        # as bytes: what 3.1.1 forbids cannot be encoded
        await client.raw(
            b"\x10" + bytes((12 + (version == 5),)) + b"\0\4MQTT" + bytes((version, 2 if clean else 0)) + b"\0\0"
            + (b"\0" if version == wire.V5 else b"") + b"\0\0"
        )  # fmt: skip
        connack = await client.expect(wire.Connack)
        assert (connack.reason, connack.session_present) == (code, False)
        assigned = connack.properties.assigned_client_identifier
        assert bool(assigned) == (version == wire.V5)
        if code:
            assert await client.closed() == b""
        else:
            await client.silent()


async def test_assigned_client_ids_differ_and_can_be_resumed() -> None:
    async with live() as node:
        first = await node.connect("", **stays(wire.V5))
        second = await node.connect("", **stays(wire.V5))
        name = first.connack.properties.assigned_client_identifier
        assert name
        assert name != second.connack.properties.assigned_client_identifier
        await first.disconnect()
        assert (await node.connect(name, **stays(wire.V5))).connack.session_present


DISCONNECTS = {
    "no reason": b"\xe0\x00",
    "reason": b"\xe0\x01\x00",
    "reason, no properties": b"\xe0\x02\x00\x00",
    "user property": b"\xe0\x0f\x00\x0d\x26\x00\x03key\x00\x05value",
    "reason string": b"\xe0\x07\x00\x05\x1f\x00\x02ok",
}


@pytest.mark.parametrize("raw", DISCONNECTS.values(), ids=DISCONNECTS.keys())
async def test_every_form_of_disconnect_discards_the_will(raw: bytes) -> None:
    async with live() as node:
        watcher = await node.connect("watcher")
        await watcher.subscribe("gone")
        will = wire.Will(topic="gone", payload=b"x", qos=0, retain=False)
        client = await node.connect("client", will=will)
        await client.raw(raw)
        assert await client.closed() == b""
        await watcher.silent()


# users configured, anonymous allowed, (user name, password), reason in 5.0, return code in 3.1.1
ACCOUNTS = [
    (True, True, ("user", "password"), 0, 0),
    (True, True, (None, None), 0, 0),
    (False, True, ("user", "password"), 0, 0),
    (False, True, (None, None), 0, 0),
    (True, False, ("user", "password"), 0, 0),
    (True, False, (None, None), 0x87, 5),
    (False, False, ("user", "password"), 0x86, 4),  # Mosquitto answers any refusal with 0x87 and 5
    (False, False, (None, None), 0x87, 5),
    (True, False, ("user", "password9"), 0x86, 4),
    (True, False, ("user", None), 0x86, 4),
    (True, False, ("nobody", "password"), 0x86, 4),
]


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(("users", "anonymous", "given", "reason", "code"), ACCOUNTS)
async def test_user_name_and_password(
    users: bool, anonymous: bool, given: tuple[str | None, str | None], reason: int, code: int, version: int
) -> None:
    async with live((USER if users else "") + ("" if anonymous else NAMED)) as node:
        name, password = given
        expect = reason if version == wire.V5 else code
        secret = None if password is None else password.encode()
        client = await node.connect("client", version=version, username=name, password=secret, expect=expect)
        if expect:
            assert await client.closed() == b""
        else:
            await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_refused_connect_touches_nothing_of_the_session(version: int) -> None:
    """A wrong password under a client id in use neither takes over nor fires its will."""
    async with live(USER + NAMED) as node:
        will = wire.Will(topic="will/test", payload=b"x", qos=0, retain=False)
        client = await node.connect("same", version=version, username="user", password=b"password", will=will)
        await client.subscribe("will/test")
        refusal = 0x86 if version == wire.V5 else 4
        await node.connect("same", version=version, username="user", password=b"password9", expect=refusal)
        await client.silent()


async def test_unknown_authentication_method_is_refused() -> None:
    async with live() as node:
        asked = wire.Properties(authentication_method="basic")
        client = await node.connect("client", properties=asked, expect=0x8C)
        assert await client.closed() == b""


@pytest.mark.parametrize(("asked", "told"), [(61, 60), (60, None), (10, None), (0, 60)])
async def test_server_keep_alive(asked: int, told: int | None) -> None:
    async with live("limits: {max_keep_alive: 60s}") as node:
        client = await node.connect("client", keep_alive=asked)
        assert client.connack.properties.server_keep_alive == told


async def test_longer_keep_alive_of_an_older_client_is_its_own() -> None:
    """Mosquitto refuses it with 2, "identifier rejected"; 3.1.1 knows no such refusal."""
    async with live("limits: {max_keep_alive: 100s}") as node:
        await (await node.connect("client", version=wire.V311, keep_alive=101)).silent()


@pytest.mark.parametrize("version", BOTH)
async def test_silent_client_is_disconnected_after_one_and_a_half_keep_alives(version: int) -> None:
    async with live() as node:
        watcher = await node.connect("watcher", version=version)
        await watcher.subscribe("gone")
        will = wire.Will(topic="gone", payload=b"x", qos=0, retain=False)
        client = await node.connect("client", version=version, keep_alive=10, will=will)
        await later(node, 14)
        await watcher.silent()
        await later(node, 2)
        assert (await watcher.message()).payload == b"x"
        assert await ended(client) in ({0x8D} if version == wire.V5 else {None})


async def _gone(node: Live, wanted: int) -> None:
    async with asyncio.timeout(10):
        while sum(len(one.connections) for one in node.node.listeners.bound.values()) > wanted:
            await asyncio.sleep(0.005)


async def test_max_connections_of_a_listener() -> None:
    text = 'listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true, max_connections: 10}]'
    async with live(text) as node:
        for _ in range(2):
            clients: list[Client] = [await node.connect(f"client-{number}") for number in range(10)]
            extra = await node.socket()
            assert await extra.closed() == b""
            for client in clients:
                await client.silent()
                await client.disconnect()
            await _gone(node, 0)


async def test_very_many_user_properties_are_read_and_thousands_refused() -> None:
    """A CONNECT full of them is not slow enough to matter; Mosquitto has no bound."""
    async with live() as node:
        many = tuple(("key", "value") for _ in range(1000))
        await (await node.connect("client", properties=wire.Properties(user_properties=many))).silent()
        await node.connect("client", properties=wire.Properties(user_properties=many * 5), expect=0x97)


@pytest.mark.parametrize("problems", [None, 0, 1])
@pytest.mark.parametrize("maximum", [None, 10, 5])
async def test_disconnect_fits_the_maximum_packet_size(problems: int | None, maximum: int | None) -> None:
    """[MQTT-3.14.2-3] no reason string that makes it too long. Larger than 16, so that CONNACK fits."""
    async with live() as node:
        size = None if maximum is None else maximum + 16
        asked = wire.Properties(request_problem_information=problems, maximum_packet_size=size)
        client = await node.connect("client", properties=asked)
        await client.raw(b"\x36\x02\x00\x00")
        rest = await client.closed()
        assert rest[0] == 0xE0
        assert rest[2] == 0x81
        assert size is None or len(rest) <= size


@pytest.mark.parametrize("maximum", [1, 5, 10, 15, 16, 20])
async def test_connack_fits_the_maximum_packet_size(maximum: int) -> None:
    """[MQTT-3.1.2-24] what does not fit is not sent; without a CONNACK there is no connection."""
    async with live() as node:
        client = await node.socket()
        asked = wire.Properties(maximum_packet_size=maximum)
        connect = wire.Connect(version=5, client_id="p", clean_start=True, keep_alive=0, properties=asked)
        await client.send(connect)
        async with asyncio.timeout(10):
            answer = await client.reader.read(100)
        assert len(answer) <= maximum
        if answer:
            assert answer[0] == 0x20
