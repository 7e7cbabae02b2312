"""What a sceptic tries first: orders and numbers of messages that are unusual and allowed, older brokers, crashes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from guard.guarded import HERE, around, broker, drained, gathered, guarded, guarding, restartable
from guard.test_gone import WAIT, service
from guard.test_monitors_and_shares import RULES, twice
from guard.test_relay import Old, numbered
from harness import Client, free_port
from processes import File, Process, Served, on_uvloop, until
from sockets.acts import BOTH, come, policy
from tidegate import wire
from tidegate.guard import GuardedScope
from tidegate.wire.envelope import seal

UNLIMITED = "allow_anonymous true\npersistence false\nmax_inflight_messages 0\nmax_queued_messages 0\n"
ONE = wire.Properties(receive_maximum=1)
WILL = wire.Will(topic="open/will", payload=b"gone", qos=1, retain=False)


def scope_of(node: Served) -> GuardedScope:
    scope = node.node.scopes["legacy"]
    assert isinstance(scope, GuardedScope)
    return scope


@contextlib.asynccontextmanager
async def in_front_of_an_older_one(folder: Path) -> AsyncIterator[Served]:
    """A guard whose broker speaks 3.1.1 only."""
    with broker() as port:
        Old.backend = port
        server = await asyncio.get_running_loop().create_server(Old, "127.0.0.1", old := free_port())
        try:
            async with guarded(folder, old) as node:
                yield node
        finally:
            server.close()


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_qos_2_is_released_in_any_order(tmp_path: Path, version: int) -> None:
    """The broker publishes with PUBREL, so that an older message can come behind a newer one. None comes twice."""
    with broker() as port:
        async with guarded(tmp_path, port, scope={**HERE, "secret": "1" * 32}) as node:
            mary, bob = await come(node, "mary", version=version), await come(node, "bob", version=version)
            attacker = await around(node, port)
            await attacker.subscribe("open/#", qos=2)
            await mary.subscribe("open/#", qos=2)
            for pid in (1, 2, 3):
                await bob.send(wire.Publish(topic="open/a", payload=b"%d" % pid, qos=2, packet_id=pid))
            for _ in range(3):
                await bob.expect(wire.Pubrec)
            for pid in (3, 1, 2):
                await bob.send(wire.Pubrel(packet_id=pid))
            for _ in range(3):
                await bob.expect(wire.Pubcomp)
            got = await gathered(3, mary)
            assert [payload for _, payload, _ in got] == [b"3", b"1", b"2"]
            for _, genuine, _ in await gathered(3, attacker):
                await attacker.send(wire.Publish(topic="open/a", payload=genuine, qos=2, packet_id=100))
                await drained(attacker)
            assert await drained(mary) == []


@on_uvloop
async def test_clocks_of_guards_differ(tmp_path: Path) -> None:
    """A publisher that goes on at another guard, whose clock is behind, is heard at once; each message once."""
    with broker() as port:
        async with guarded(tmp_path, port, scope={**HERE, "secret": "1" * 32}) as node:
            mary, bob = await come(node, "mary"), await come(node, "bob")
            other = await around(node, port)
            await other.subscribe("open/#", qos=1)
            await mary.subscribe("open/#", qos=1)
            await bob.publish("open/a", b"1", qos=1)
            genuine = (await gathered(1, other))[0][1]
            await other.unsubscribe("open/#")
            assert await gathered(1, mary) == [("open/a", b"1", 1)]
            scope = scope_of(node)
            known, _ = scope.envelopes.opened(genuine)

            async def says(guard: int, number: int, behind: float) -> list[bytes]:
                at = known.published - behind
                static, key, text = known.static.data, scope.settings.key, b"%d" % number
                sealed = seal(static, bytes([guard]) * 14, number, 0, at, None, 1, False, text, key)
                await other.publish("open/a", sealed, qos=1)
                return [payload for _, payload, _ in await drained(mary)]

            for behind, number in ((2.0, 10), (1.9, 11)):
                assert await says(7, number, behind) == [b"%d" % number]
                assert await says(7, number, behind) == []
            await bob.publish("open/a", b"2", qos=1)
            assert await gathered(1, mary) == [("open/a", b"2", 1)]
            await other.publish("open/a", genuine, qos=1)
            assert await drained(mary) == []
            assert await says(7, 11, 1.9) == []
            assert await says(7, 12, 1.8) == [b"12"]
            assert await says(8, 1, 120.0) == []  # nobody's clock is wrong by so much


@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_what_monitors_add_comes_though_it_is_sent_over_another_connection(tmp_path: Path, qos: int) -> None:
    """To the same topic: the guard's own connection and that of the client are not in one order."""
    states = {"s": [{"on": "open/door", "emit": ["same", {"topic": "open/door", "payload": "copy"}]}]}
    monitor = {**twice("im_pub"), "automaton": {"start": "s", "states": states}}
    with broker(UNLIMITED) as port:
        async with guarded(tmp_path, port, RULES, monitors=[monitor]) as node:
            mary, bob = await come(node, "mary"), await come(node, "bob")
            await mary.subscribe("open/#", qos=2)
            for pid in range(1, 20):
                await bob.send(wire.Publish(topic="open/door", payload=b"%d" % pid, qos=qos, packet_id=pid))
            got = await gathered(38, mary, bob)
            assert sorted(payload for _, payload, _ in got) == sorted(
                [b"copy"] * 19 + [b"%d" % n for n in range(1, 20)]
            )


@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_what_monitors_add_keeps_to_the_receive_maximum(tmp_path: Path, qos: int) -> None:
    with broker() as port:
        async with guarded(tmp_path, port, RULES, monitors=[twice("im_sub")]) as node:
            mary, bob = await come(node, "mary", properties=ONE), await come(node, "bob")
            await mary.subscribe("open/#", qos=2)
            for _ in range(3):
                await bob.publish("open/door", b"door", qos=qos)
            assert sorted(topic for topic, _ in [await one_by_one(mary) for _ in range(6)]) == [
                *["open/copy"] * 3,
                *["open/door"] * 3,
            ]


async def one_by_one(client: Client) -> tuple[str, bytes]:
    """The next message, before which nothing else may come than its own exchange."""
    packet = await client.expect(wire.Publish)
    await client.silent()
    if packet.qos == 1:
        await client.send(wire.Puback(packet_id=packet.packet_id))
    else:
        await client.send(wire.Pubrec(packet_id=packet.packet_id))
        await client.expect(wire.Pubrel)
        await client.silent()
        await client.send(wire.Pubcomp(packet_id=packet.packet_id))
    return packet.topic, packet.payload


@on_uvloop
async def test_an_older_broker_is_not_told_the_receive_maximum(tmp_path: Path) -> None:
    async with in_front_of_an_older_one(tmp_path) as node:
        mary, bob = await come(node, "mary", properties=ONE), await come(node, "bob")
        await mary.subscribe("open/#", qos=2)
        for number in range(4):
            await bob.publish("open/a", b"%d" % number, qos=1 + number % 2)
        assert [await one_by_one(mary) for _ in range(4)] == [("open/a", b"%d" % number) for number in range(4)]


@on_uvloop
async def test_an_older_broker_does_not_know_when_messages_expire(tmp_path: Path) -> None:
    async with in_front_of_an_older_one(tmp_path) as node:
        mary, bob = await come(node, "mary", stays=True), await come(node, "bob")
        await mary.subscribe("open/#", qos=2)
        await mary.disconnect()
        await mary.closed()
        for payload, seconds in ((b"old", 1), (b"new", 600)):
            said = wire.Properties(message_expiry_interval=seconds)
            await bob.publish("open/a", payload, qos=1, properties=said)
        scope = scope_of(node)
        expired = scope.site.counters.expired
        published = scope.site.wall
        await until(lambda: scope.site.wall > published + 1.1)
        mary = await come(node, "mary", stays=True)
        message = await mary.message()
        assert message.payload == b"new"
        assert 0 < (message.properties.message_expiry_interval or 0) < 600
        assert scope.site.counters.expired == expired + 1


@on_uvloop
async def test_subscription_identifiers_outlive_the_broker(tmp_path: Path) -> None:
    """A broker that has lost the session is asked for its subscriptions again, as they were."""
    with restartable(tmp_path) as server:
        async with guarded(tmp_path, server.port, scope=WAIT) as node:
            mary, bob = await come(node, "mary"), await come(node, "bob")
            await mary.subscribe("open/#", qos=2, properties=numbered(7))
            await mary.subscribe("mary/#", qos=2, properties=numbered(9))
            server.stop()
            owners = scope_of(node).owners
            await until(lambda: all(session.upstream is None for session in owners.values()))
            server.start()
            await until(lambda: all(session.upstream is not None for session in owners.values()))
            await mary.silent()
            await bob.publish("open/a", b"1", qos=1)
            assert (await mary.message()).properties.subscription_identifiers == (7,)
            await mary.publish("mary/a", b"2")
            assert (await mary.message()).properties.subscription_identifiers == (9,)


@on_uvloop
async def test_nobody_comes_as_the_guard_itself(tmp_path: Path) -> None:
    """Its own connection to the broker has a client identifier too, which no client may take over."""
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            await until(lambda: service(node))
            own = scope_of(node).service
            since = own.since
            await come(node, "bob", client=own.name, expect=0x85)
            assert own.upstream is not None
            assert own.since == since


@on_uvloop
async def test_clients_are_told_what_the_broker_takes(tmp_path: Path) -> None:
    with broker("allow_anonymous true\npersistence false\nmax_packet_size 10000\n") as port:
        async with guarded(tmp_path, port) as node:
            await until(lambda: service(node))
            bob = await come(node, "bob")
            assert bob.connack.properties.maximum_packet_size == 10000
            said = await bob.publish("open/a", bytes(9900), qos=1)  # there is no room for its envelope
            assert isinstance(said, wire.Puback)
            assert said.reason == 0x97
            old = await come(node, "mary", version=wire.V311)
            await old.publish("open/a", bytes(9900), qos=1)  # which it is not told, but the audit
            await old.silent()
            assert node.node.site.counters.denied == 2


@on_uvloop
async def test_a_will_outlives_the_guard(tmp_path: Path) -> None:
    """`kill -9` of the guard: when it is there again, it publishes the wills of sessions that last."""
    (tmp_path / "node").mkdir()
    with broker() as port:
        text = guarding(port, data=True, log={"format": "json"})
        file = File(tmp_path / "node", text)
        guard = await started(file)
        try:
            outside, bob = await greeted(port, "outside"), await greeted(file.ports["PORT"], "bob", will=WILL)
            await outside.subscribe("open/#", qos=1)
            files = tmp_path / "node"
            await until(lambda: any(b"open/will" in path.read_bytes() for path in files.rglob("*") if path.is_file()))
            guard.kill()
            bob.abort()
            guard = await started(file)
            message = await outside.message()
            assert (message.topic, message.payload[-4:]) == ("open/will", b"gone")
            outside.abort()
        finally:
            await asyncio.to_thread(guard.stop)
        guard.check()


async def started(file: File) -> Process:
    guard = Process(file)
    await asyncio.to_thread(guard.wait_for, "ready", 1, 60.0)
    return guard


async def greeted(port: int, name: str, **fields: object) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = Client(reader, writer)
    properties = wire.Properties(session_expiry_interval=600)
    await client.send(
        wire.Connect(version=wire.V5, client_id=name, clean_start=True, keep_alive=0, properties=properties, **fields)  # type: ignore[arg-type]
    )
    assert (await client.expect(wire.Connack)).reason == 0
    return client


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_a_broker_that_takes_any_name_proves_none(tmp_path: Path, version: int) -> None:
    """Whoever says to be mary there is nobody in particular, also as soon as such a broker is back."""
    rules = (policy("all", "open/#"), policy("mary", "mary/#", subject="user:mary"))
    lies = {"username": "mary", "password": b"anything", "version": version}
    with restartable(tmp_path) as server:
        async with guarded(tmp_path, server.port, *rules, scope={}) as node:
            first = await asyncio.gather(*(node.connect(f"c{number}", **lies) for number in range(3)))
            for client in first:
                said = await client.subscribe("open/#", "mary/#")
                assert said.reasons == (0, 0x87 if version == wire.V5 else 0x80)
            assert "any name" in node.node.guards.status()[0]["error"]
            server.stop()
            for client in first:
                await client.closed()
            server.start()
            scope_of(node).service.renew()
            await until(lambda: service(node))
            late = await node.connect("late", **lies)
            assert (await late.subscribe("mary/#")).reasons[0] >= 0x80


@on_uvloop
async def test_who_is_nobody_needs_a_listener_for_that(tmp_path: Path) -> None:
    listeners = [{"url": "mqtt://127.0.0.1:PORT"}]
    with broker() as port:
        async with guarded(tmp_path, port, scope={}, listeners=listeners) as node:
            await node.connect("c", expect=0x87, username="mary", password=b"anything")


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_a_client_is_released_from_what_it_may_not_have_any_more(tmp_path: Path, version: int) -> None:
    """Its PUBREC was lost, and it is denied the message now: the identifier must be free for the next one."""
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            mary, bob = await come(node, "mary", version=version, stays=True), await come(node, "bob")
            await mary.subscribe("open/#", qos=2)
            await bob.publish("open/a", b"1", qos=2)
            had = await mary.expect(wire.Publish)
            mary.abort()
            open_to_all = policy("all", "open/#")
            await node.reload(guarding(port, open_to_all, policy("no", "open/a", "read", effect="deny")))
            mary = await come(node, "mary", version=version, stays=True)
            assert (await mary.expect(wire.Pubrel)).packet_id == had.packet_id
            await mary.send(wire.Pubcomp(packet_id=had.packet_id))
            await bob.publish("open/b", b"2", qos=2)
            assert (await mary.message()).payload == b"2"
