"""CONNECT and CONNACK: chapters 3.1 and 3.2, and keep-alive."""

from __future__ import annotations

import pytest

from conformance.acts import BOTH, dismissed, kept, lasting, leave, lose, properties, will
from conformance.clock import Clock
from harness import Live, live
from tidegate import wire
from tidegate.wire import Reason


@pytest.mark.parametrize("version", BOTH)
async def test_first_packet_from_the_server_is_connack(broker: Live, version: int) -> None:
    """[MQTT-3.2.0-1] [MQTT-3.2.2-2], 3.1.1 [MQTT-3.2.0-1]: CONNACK first, with no session present."""
    client = await broker.connect("c", version=version)
    assert not client.connack.session_present
    await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_only_one_connack(broker: Live, version: int) -> None:
    """[MQTT-3.2.0-2] no more than one CONNACK in a connection."""
    client = await broker.connect("c", version=version)
    await client.subscribe("a")
    await client.publish("b", qos=1)
    await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_second_connect_ends_the_connection(broker: Live, version: int) -> None:
    """[MQTT-3.1.0-2] a second CONNECT is a protocol error."""
    client = await broker.connect("c", version=version)
    await client.send(wire.Connect(version=version, client_id="c", clean_start=True, keep_alive=0))
    await dismissed(client, Reason.PROTOCOL_ERROR)


@pytest.mark.parametrize("version", BOTH)
async def test_packets_right_behind_connect_are_taken(broker: Live, version: int) -> None:
    """3.1.4: clients may send packets without waiting for CONNACK; they are answered after it."""
    client = await broker.socket()
    client.version = version
    ahead = [
        wire.Connect(version=version, client_id="c", clean_start=True, keep_alive=0),
        wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter="a", qos=1),)),
        wire.Publish(topic="a", payload=b"x", qos=1, packet_id=2),
        wire.Pingreq(),
    ]
    await client.raw(b"".join(wire.encode(packet, version) for packet in ahead))
    assert (await client.expect(wire.Connack)).reason == 0
    assert (await client.expect(wire.Suback)).packet_id == 1
    rest = [await client.receive() for _ in range(3)]
    assert {type(packet) for packet in rest} == {wire.Publish, wire.Puback, wire.Pingresp}


@pytest.mark.parametrize("version", BOTH)
async def test_connect_byte_by_byte(broker: Live, version: int) -> None:
    """4.2: a byte stream; packets may come in any pieces."""
    client = await broker.socket()
    client.version = version
    for byte in wire.encode(wire.Connect(version=version, client_id="c", clean_start=True, keep_alive=0), version):
        await client.raw(bytes((byte,)))
    assert (await client.expect(wire.Connack)).reason == 0


# -- the client identifier


async def test_empty_client_id_is_assigned_one(broker: Live) -> None:
    """[MQTT-3.1.3-6] [MQTT-3.1.3-7] [MQTT-3.2.2-16] a unique one, told in CONNACK, under which it can come back."""
    first = await broker.connect("", **lasting())
    second = await broker.connect("")
    assigned = first.connack.properties.assigned_client_identifier
    assert assigned
    assert assigned != second.connack.properties.assigned_client_identifier
    await leave(first)
    assert (await broker.connect(assigned, **lasting())).connack.session_present


async def test_client_id_of_its_own_is_not_told_back(broker: Live) -> None:
    """3.2.2.3.7: the property is for identifiers the server made."""
    assert (await broker.connect("mine")).connack.properties.assigned_client_identifier is None


async def test_empty_client_id_without_clean_start(broker: Live) -> None:
    """[MQTT-3.1.3-6] MQTT 5 allows it: there is no session to resume, and a new one is made."""
    client = await broker.connect("", clean_start=False)
    assert not client.connack.session_present
    assert client.connack.properties.assigned_client_identifier


async def test_empty_client_id_311(broker: Live) -> None:
    """3.1.1 [MQTT-3.1.3-6] [MQTT-3.1.3-7]: with a clean session it is served."""
    await (await broker.connect("", version=wire.V311)).silent()


async def test_empty_client_id_with_session_is_refused_311(broker: Live) -> None:
    """3.1.1 [MQTT-3.1.3-8] [MQTT-3.1.3-9]: return code 2, then the connection is closed."""
    client = await broker.socket()
    client.version = wire.V311
    await client.raw(bytes.fromhex("10 0c 0004 4d515454 04 00 003c 0000"))
    assert await client.closed() == b"\x20\x02\x00\x02"


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(
    "name", ["a", "x" * 23, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "é/+#\ufeff 中"]
)
async def test_client_ids_that_must_be_taken(broker: Live, version: int, name: str) -> None:
    """[MQTT-3.1.3-4] [MQTT-3.1.3-5], 3.1.1 [MQTT-3.1.3-4] [MQTT-3.1.3-5]; longer and other ones may be taken."""
    await (await broker.connect(name, version=version)).silent()


@pytest.mark.parametrize("version", BOTH)
async def test_longest_client_id(broker: Live, version: int) -> None:
    """1.5.4: strings have up to 65,535 bytes."""
    await (await broker.connect("x" * 65535, version=version)).silent()


# -- take-over


@pytest.mark.parametrize("old", BOTH)
@pytest.mark.parametrize("new", BOTH)
async def test_same_client_id_takes_over(broker: Live, old: int, new: int) -> None:
    """[MQTT-3.1.4-3], 3.1.1 [MQTT-3.1.4-2]: the existing connection is ended with 0x8E."""
    first = await broker.connect("c", version=old)
    second = await broker.connect("c", version=new)
    await dismissed(first, Reason.SESSION_TAKEN_OVER)
    await second.silent()


# -- protocol name, version and flags


@pytest.mark.parametrize(
    "connect",
    [
        pytest.param("10 0c 0004 4d515454 06 02 003c 0000", id="level 6"),
        pytest.param("10 0c 0004 4d515454 00 02 003c 0000", id="level 0"),
        pytest.param("10 0e 0006 4d5149736470 04 02 003c 0000", id="name of MQTT 3.1 with another level"),
        pytest.param("10 0c 0004 6d717474 04 02 003c 0000", id="name in small letters"),
        pytest.param("10 0a 0002 686a 04 02 003c 0000", id="another name"),
    ],
)
async def test_other_protocols_are_refused(broker: Live, connect: str) -> None:
    """[MQTT-3.1.2-1] [MQTT-3.1.2-2], 3.1.1 the same: CONNACK with 0x84 (3.1.1: 1) if any, and the end."""
    client = await broker.socket()
    await client.raw(bytes.fromhex(connect))
    assert await client.closed() in (b"", b"\x20\x02\x00\x01", b"\x20\x03\x00\x84\x00")


# -- user name and password

SECRET = 'directory: {users: {mary: {password: "plain:secret"}}}\n'
LISTENER = 'listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: false}]\n'


async def test_password_is_checked() -> None:
    """[MQTT-3.1.4-2] [MQTT-3.2.2-7] refused with 0x86 (3.1.1: 4) and closed."""
    async with live(LISTENER + SECRET) as broker:
        await broker.connect("a", username="mary", password=b"secret")
        await broker.connect("b", version=wire.V311, username="mary", password=b"secret")
        for user, password in (("mary", b"wrong"), ("john", b"secret"), ("mary", None)):
            five = await broker.connect("c", username=user, password=password, expect=0x86)
            assert await five.closed() == b""
            three = await broker.connect("d", version=wire.V311, username=user, password=password, expect=4)
            assert await three.closed() == b""


async def test_nobody_without_credentials() -> None:
    """[MQTT-3.1.4-2]: 0x87 (3.1.1: 5) for who does not say who it is."""
    async with live(LISTENER + SECRET) as broker:
        assert await (await broker.connect("a", expect=0x87)).closed() == b""
        assert await (await broker.connect("b", version=wire.V311, expect=5)).closed() == b""


async def test_nothing_behind_a_refused_connect_is_processed() -> None:
    """[MQTT-3.1.4-6] what was sent ahead of a refusal is not looked at."""
    async with live(LISTENER + SECRET) as broker:
        watcher = await broker.connect("w", username="mary", password=b"secret")
        await watcher.subscribe("#")
        client = await broker.socket()
        connect = wire.Connect(
            version=5, client_id="c", clean_start=True, keep_alive=0, username="mary", password=b"no"
        )
        publish = wire.Publish(topic="t", payload=b"x")
        await client.raw(wire.encode(connect, 5) + wire.encode(publish, 5) + wire.encode(wire.Pingreq(), 5))
        assert (await client.expect(wire.Connack)).reason == Reason.BAD_USER_NAME_OR_PASSWORD
        assert await client.closed() == b""
        await watcher.silent()


async def test_what_comes_while_the_password_is_checked_is_kept() -> None:
    """3.1.4: packets sent ahead of CONNACK are processed after it."""
    async with live(LISTENER + SECRET) as broker:
        client = await broker.socket()
        connect = wire.Connect(
            version=5, client_id="c", clean_start=True, keep_alive=0, username="mary", password=b"secret"
        )
        await client.raw(wire.encode(connect, 5))
        await client.raw(wire.encode(wire.Pingreq(), 5))
        assert (await client.expect(wire.Connack)).reason == 0
        await client.expect(wire.Pingresp)


async def test_password_without_user_name_is_legal_in_5(broker: Live) -> None:
    """3.1.2.9: unlike 3.1.1, MQTT 5 allows a password without a user name."""
    await (await broker.connect("c", password=b"token")).silent()


async def test_password_without_user_name_is_refused_in_311(broker: Live) -> None:
    """3.1.1 [MQTT-3.1.2-22]."""
    client = await broker.socket()
    await client.raw(bytes.fromhex("10 10 0004 4d515454 04 42 003c 0001 61 0001 62"))
    assert await client.closed() == b""


# -- session present


@pytest.mark.parametrize("version", BOTH)
async def test_session_present(broker: Live, version: int) -> None:
    """[MQTT-3.1.2-4] [MQTT-3.1.2-5] [MQTT-3.1.2-6] [MQTT-3.2.2-2] [MQTT-3.2.2-3], 3.1.1 [MQTT-3.2.2-1..3]."""
    first = await broker.connect("c", version=version, **kept(version))
    assert not first.connack.session_present
    await leave(first)
    second = await broker.connect("c", version=version, **kept(version))
    assert second.connack.session_present
    await leave(second)
    third = await broker.connect("c", version=version)
    assert not third.connack.session_present
    await leave(third)
    assert not (await broker.connect("c", version=version, **kept(version))).connack.session_present


async def test_refusal_has_no_session_present() -> None:
    """[MQTT-3.2.2-6], 3.1.1 [MQTT-3.2.2-4]: session present is 0 in a refusal, even where there is a session."""
    async with live(LISTENER + SECRET) as broker:
        client = await broker.connect("c", username="mary", password=b"secret", **lasting())
        await leave(client)
        refused = await broker.connect("c", username="mary", password=b"x", expect=0x86, **lasting())
        assert not refused.connack.session_present


# -- what CONNACK tells


async def test_connack_tells_limits() -> None:
    """3.2.2.3: receive maximum, maximum packet size and topic aliases as configured; the rest is available."""
    text = (
        'listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true, max_packet: 5000}]\n'
        "limits: {receive_maximum: 7, topic_aliases: 3}\n"
    )
    async with live(text) as broker:
        told = (await broker.connect("c")).connack.properties
        assert (told.receive_maximum, told.maximum_packet_size, told.topic_alias_maximum) == (7, 5000, 3)
        assert told.maximum_qos is None
        assert told.retain_available in (None, 1)
        assert told.wildcard_subscription_available in (None, 1)
        assert told.subscription_identifier_available in (None, 1)
        assert told.shared_subscription_available in (None, 1)


async def test_connack_does_not_send_what_was_not_asked_for(broker: Live) -> None:
    """[MQTT-3.1.2-28] [MQTT-4.12.0-6]: no response information, no authentication unless asked."""
    told = (await broker.connect("c")).connack.properties
    assert told.response_information is None
    assert told.authentication_method is None
    assert told.authentication_data is None
    assert told.session_expiry_interval is None
    assert told.server_keep_alive is None


async def test_session_expiry_is_limited() -> None:
    """3.2.2.3.2: a shorter session expiry than was asked for is told."""
    async with live("limits: {session_expiry: 100s}\n") as broker:
        assert (await broker.connect("a", **lasting(50))).connack.properties.session_expiry_interval is None
        assert (await broker.connect("b", **lasting(500))).connack.properties.session_expiry_interval == 100
        assert (await broker.connect("c", **lasting(0xFFFFFFFF))).connack.properties.session_expiry_interval == 100


async def test_connack_311_is_four_bytes(broker: Live) -> None:
    """3.1.1, 3.2: no properties."""
    client = await broker.socket()
    await client.raw(bytes.fromhex("10 0d 0004 4d515454 04 02 003c 0001 61"))
    assert await client.reader.readexactly(4) == b"\x20\x02\x00\x00"
    await client.silent()


# -- keep-alive


@pytest.mark.parametrize("version", BOTH)
async def test_silence_ends_the_connection(broker: Live, clock: Clock, version: int) -> None:
    """[MQTT-3.1.2-22], 3.1.1 [MQTT-3.1.2-24]: after one and a half times the keep-alive."""
    client = await broker.connect("c", version=version, keep_alive=10)
    await clock.advance(14)
    await client.silent()
    await clock.advance(14)
    await client.silent()
    await clock.advance(15.1)
    await dismissed(client, Reason.KEEP_ALIVE_TIMEOUT)


@pytest.mark.parametrize("version", BOTH)
async def test_any_packet_counts_against_silence(broker: Live, clock: Clock, version: int) -> None:
    """3.1.2.10: it is the client's packets that count, whichever they are; what it is sent does not."""
    client = await broker.connect("c", version=version, keep_alive=10)
    other = await broker.connect("o")
    await client.subscribe("a")
    await clock.advance(10)
    await client.publish("b")
    await clock.advance(10)
    await client.silent()
    await clock.advance(10)
    await other.publish("a")
    await client.expect(wire.Publish)
    await clock.advance(5.1)
    await dismissed(client, Reason.KEEP_ALIVE_TIMEOUT)


@pytest.mark.parametrize("version", BOTH)
async def test_keep_alive_zero_is_for_ever(broker: Live, clock: Clock, version: int) -> None:
    """3.1.2.10: 0 turns it off."""
    client = await broker.connect("c", version=version, keep_alive=0)
    await clock.advance(100_000)
    await client.silent()


async def test_server_keep_alive() -> None:
    """[MQTT-3.1.2-21] [MQTT-3.2.2-22] a longer one than allowed (or none) is replaced, and that is what counts."""
    async with live("limits: {max_keep_alive: 60s}\n") as broker:
        clock = Clock(broker)
        assert (await broker.connect("a", keep_alive=60)).connack.properties.server_keep_alive is None
        assert (await broker.connect("b", keep_alive=0)).connack.properties.server_keep_alive == 60
        client = await broker.connect("c", keep_alive=120)
        assert client.connack.properties.server_keep_alive == 60
        await clock.advance(91)
        await dismissed(client, Reason.KEEP_ALIVE_TIMEOUT)


async def test_keep_alive_fires_the_will(broker: Live, clock: Clock) -> None:
    """[MQTT-3.1.2-8]: silence is one of the ways a connection ends without DISCONNECT."""
    watcher = await broker.connect("w")
    await watcher.subscribe("will")
    client = await broker.connect("c", keep_alive=10, will=will())
    await clock.advance(15.1)
    await dismissed(client, Reason.KEEP_ALIVE_TIMEOUT)
    assert (await watcher.message()).payload == b"gone"


@pytest.mark.parametrize("version", BOTH)
async def test_ping(broker: Live, version: int) -> None:
    """[MQTT-3.12.4-1] PINGREQ is answered."""
    client = await broker.connect("c", version=version)
    await client.raw(b"\xc0\x00\xc0\x00")
    assert await client.reader.readexactly(4) == b"\xd0\x00\xd0\x00"


# -- before CONNECT


async def test_no_connect_in_time() -> None:
    """3.1.4: a client that does not send CONNECT within a reasonable time is closed."""
    text = 'listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true, connect_timeout: 5s}]\n'
    async with live(text) as broker:
        clock = Clock(broker)
        silent = await broker.socket()
        partial = await broker.socket()
        await partial.raw(b"\x10\x0d\x00\x04MQ")
        done = await broker.connect("c")
        await clock.advance(5.1)
        assert await silent.closed() == b""
        assert await partial.closed() == b""
        await done.silent()


# -- a limited server


async def test_maximum_qos() -> None:
    """[MQTT-3.2.2-9] [MQTT-3.2.2-10] [MQTT-3.2.2-11] [MQTT-3.2.2-12]: told, subscriptions taken, the rest refused."""
    for highest in (0, 1):
        async with live(f"limits: {{max_qos: {highest}}}\n") as broker:
            client = await broker.connect("c")
            assert client.connack.properties.maximum_qos == highest
            granted = (await client.subscribe("a", qos=2)).reasons[0]
            assert granted <= highest
            await client.send(wire.Publish(topic="a", payload=b"", qos=highest + 1, packet_id=9))
            await dismissed(client, Reason.QOS_NOT_SUPPORTED)
            refused = await broker.connect("d", will=will(qos=highest + 1), expect=Reason.QOS_NOT_SUPPORTED)
            assert await refused.closed() == b""


async def test_retain_not_available() -> None:
    """[MQTT-3.2.2-13] [MQTT-3.2.2-14]: a retained will or message is refused with 0x9A."""
    async with live("limits: {retain: false}\n") as broker:
        client = await broker.connect("c")
        assert client.connack.properties.retain_available == 0
        await client.send(wire.Publish(topic="a", payload=b"x", retain=True))
        await dismissed(client, Reason.RETAIN_NOT_SUPPORTED)
        refused = await broker.connect("d", will=will(retain=True), expect=Reason.RETAIN_NOT_SUPPORTED)
        assert await refused.closed() == b""


async def test_wildcards_not_available() -> None:
    """3.2.2.3.11: told in CONNACK; a wildcard is then a protocol error that ends the connection with 0xA2."""
    async with live("limits: {wildcard_subscriptions: false}\n") as broker:
        client = await broker.connect("c")
        assert client.connack.properties.wildcard_subscription_available == 0
        assert (await client.subscribe("a/b")).reasons == (0,)
        await client.send(wire.Subscribe(packet_id=9, subscriptions=(wire.Subscription(filter="a/+"),)))
        await dismissed(client, Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED)


async def test_shared_subscriptions_not_available() -> None:
    """3.2.2.3.13: told in CONNACK; a shared one is then a protocol error that ends the connection with 0x9E."""
    async with live("limits: {shared_subscriptions: false}\n") as broker:
        client = await broker.connect("c")
        assert client.connack.properties.shared_subscription_available == 0
        await client.send(wire.Subscribe(packet_id=9, subscriptions=(wire.Subscription(filter="$share/g/a"),)))
        await dismissed(client, Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)


async def test_unavailable_subscriptions_fail_in_311() -> None:
    """3.1.1 [MQTT-3.8.4-5]: that version is told 0x80 for the filter, and goes on."""
    async with live("limits: {wildcard_subscriptions: false, shared_subscriptions: false}\n") as broker:
        client = await broker.connect("c", version=wire.V311)
        assert (await client.subscribe("a", "b/#", "$share/g/a", qos=1)).reasons == (1, 0x80, 0x80)


async def test_reason_string_only_if_wanted(broker: Live) -> None:
    """[MQTT-3.1.2-29]: with request problem information 0 no reason string but in CONNACK and DISCONNECT."""
    client = await broker.connect("c", properties=properties(request_problem_information=0))
    suback = await client.subscribe("a")
    unsuback = await client.unsubscribe("nothing")
    puback = await client.publish("$SYS/mine", qos=1)
    assert isinstance(puback, wire.Puback)
    for packet in (suback, unsuback, puback):
        assert packet.properties.reason_string is None
        assert packet.properties.user_properties == ()


async def test_lost_before_connack_leaves_nothing(broker: Live) -> None:
    """4.1: there is no session before CONNECT is accepted."""
    client = await broker.socket()
    await client.raw(b"\x10\x0d\x00\x04MQ")
    await lose(client)
    assert not broker.node.scopes["main"].sessions
