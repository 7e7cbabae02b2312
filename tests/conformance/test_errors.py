"""What is answered to each malformed packet and protocol error: 4.13, and the sections of the packets.

MQTT 5 is sent DISCONNECT with the reason code, 3.1.1 nothing; then the connection is closed. In a CONNECT the answer
is CONNACK. All other clients go on.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.acts import BOTH, dismissed
from harness import Live, live
from tidegate import wire
from tidegate.wire import Reason

MALFORMED = Reason.MALFORMED_PACKET
PROTOCOL = Reason.PROTOCOL_ERROR
FILTER = Reason.TOPIC_FILTER_INVALID
TOPIC = Reason.TOPIC_NAME_INVALID


def case(name: str, hexadecimal: str, reason: int = MALFORMED) -> Any:
    return pytest.param(bytes.fromhex(hexadecimal), reason, id=name)


# What is wrong in both versions (fixed headers, 3.1.1 bodies that MQTT 5 finds wrong for the same reason).
HEADERS = [
    case("packet type 0", "00 00"),
    case("packet type 0 with flags", "0f 00"),
    case("PUBLISH with QoS 3", "36 05 0001 61 0001"),  # [MQTT-3.3.1-4]
    case("PUBLISH with DUP at QoS 0", "38 04 0001 61 00"),  # [MQTT-3.3.1-2]
    case("PUBACK with flags", "41 02 0001"),  # [MQTT-2.1.3-1], 3.1.1 [MQTT-2.2.2-2]
    case("PUBREC with flags", "52 02 0001"),
    case("PUBREL without its flag", "60 02 0001"),  # [MQTT-3.6.1-1]
    case("PUBREL with other flags", "63 02 0001"),
    case("PUBCOMP with flags", "78 02 0001"),
    case("SUBSCRIBE without its flag", "80 06 0001 0001 61 00"),  # [MQTT-3.8.1-1]
    case("SUBSCRIBE with other flags", "8a 06 0001 0001 61 00"),
    case("UNSUBSCRIBE without its flag", "a0 05 0001 0001 61"),  # [MQTT-3.10.1-1]
    case("PINGREQ with flags", "c1 00"),
    case("PINGREQ with a body", "c0 01 00"),
    case("DISCONNECT with flags", "e1 00"),  # [MQTT-3.14.1-1]
    case("length of five bytes", "30 ff ff ff ff 01"),  # [MQTT-1.5.5-1]
    case("length of more bytes than needed", "c0 80 00"),  # [MQTT-1.5.5-1]
    case("PUBLISH with a length of more bytes than needed", "30 84 00 0001 61 00"),  # [MQTT-1.5.5-1]
    case("PUBLISH without a topic", "30 00"),
    case("PUBLISH with a topic cut short", "30 03 0005 61"),
    case("PUBLISH without an identifier", "32 04 0001 61 00"),
    case("PUBLISH with bad UTF-8", "30 05 0002 c328 00"),  # [MQTT-1.5.4-1]
    case("PUBLISH with a surrogate", "30 06 0003 eda080 00"),  # [MQTT-1.5.4-1]
    case("PUBLISH with U+0000", "30 06 0003 610062 00"),  # [MQTT-1.5.4-2]
    case("PUBACK without an identifier", "40 01 00"),
    case("SUBSCRIBE without an identifier", "82 01 00"),
    case("UNSUBSCRIBE without an identifier", "a2 01 00"),
]


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(("packet", "reason"), HEADERS)
async def test_malformed(broker: Live, version: int, packet: bytes, reason: int) -> None:
    """[MQTT-4.13.1-1] [MQTT-4.8.0-1], 3.1.1 [MQTT-4.8.0-1]: told why, and closed."""
    bystander = await broker.connect("bystander")
    client = await broker.connect("c", version=version)
    await client.raw(packet)
    await dismissed(client, reason)
    await bystander.silent()


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(
    "kind",
    ["20 02 00 00", "20 03 00 00 00", "90 04 0001 00 00", "90 03 0001 00", "d0 00", "b0 02 0001", "b0 04 0001 00 00"],
)
async def test_packets_only_servers_send(broker: Live, version: int, kind: str) -> None:
    """4.13.1, table 2-1: CONNACK, SUBACK, UNSUBACK and PINGRESP never come from a client."""
    client = await broker.connect("c", version=version)
    await client.raw(bytes.fromhex(kind))
    answer = await client.closed()
    if version == wire.V5:
        assert answer[:1] == b"\xe0"
        assert answer[2] in (MALFORMED, PROTOCOL)
    else:
        assert answer == b""


BODIES_5 = [
    # PUBLISH, 3.3
    case("PUBLISH with identifier 0", "32 07 0001 61 0000 00 78", PROTOCOL),  # [MQTT-2.2.1-3]
    case("PUBLISH without property length", "30 03 0001 61"),
    case("PUBLISH with properties past its end", "30 05 0001 61 05 01"),
    case("PUBLISH with an unknown property", "30 06 0001 61 02 7f 00"),
    case("PUBLISH with a property of CONNECT", "30 09 0001 61 05 11 00000001"),
    case("PUBLISH with reason string", "30 08 0001 61 04 1f 0001 61"),
    case("PUBLISH with payload format twice", "30 08 0001 61 04 0100 0101", PROTOCOL),
    case("PUBLISH with payload format 2", "30 06 0001 61 02 0102", PROTOCOL),
    case("PUBLISH with expiry twice", "30 0e 0001 61 0a 02 00000001 02 00000001", PROTOCOL),
    case("PUBLISH with expiry cut short", "30 07 0001 61 03 02 0001"),
    case("PUBLISH with alias twice", "30 0a 0001 61 06 23 0001 23 0001", PROTOCOL),
    case("PUBLISH with alias 0", "30 07 0001 61 03 23 0000", Reason.TOPIC_ALIAS_INVALID),  # [MQTT-3.3.2-8]
    case("PUBLISH without topic and alias", "30 03 0000 00", PROTOCOL),
    case("PUBLISH with response topic twice", "30 0c 0001 61 08 08 0001 61 08 0001 61", PROTOCOL),
    case("PUBLISH with a wildcard in response topic", "30 09 0001 61 05 08 0002 612b", PROTOCOL),  # [MQTT-3.3.2-14]
    case("PUBLISH with correlation data twice", "30 0c 0001 61 08 09 0001 61 09 0001 61", PROTOCOL),
    case("PUBLISH with content type twice", "30 0c 0001 61 08 03 0001 61 03 0001 61", PROTOCOL),
    case("PUBLISH with bad UTF-8 in content type", "30 08 0001 61 04 03 0001 ff"),  # [MQTT-3.3.2-19]
    case("PUBLISH with a user property cut short", "30 08 0001 61 04 26 0001 61"),
    case("PUBLISH with U+0000 in a user property", "30 0b 0001 61 07 26 0001 61 0001 00"),
    case("PUBLISH with subscription identifier", "30 06 0001 61 02 0b 01", PROTOCOL),  # [MQTT-3.3.4-6]
    case("PUBLISH with a wildcard", "30 05 0002 612b 00", TOPIC),  # [MQTT-3.3.2-2]
    case("PUBLISH with property length too long", "30 08 0001 61 80808000 78"),  # [MQTT-1.5.5-1]
    # acknowledgements, 3.4 to 3.7
    case("PUBACK with an unknown reason", "40 03 0001 01"),
    case("PUBREC with a reason of PUBREL", "50 03 0001 92"),
    case("PUBREL with a reason of PUBREC", "62 03 0001 10"),
    case("PUBCOMP with an unknown reason", "70 03 0001 80"),
    case("PUBACK with too many bytes", "40 05 0001 00 00 00"),
    case("PUBACK with a foreign property", "40 07 0001 00 03 23 0001"),
    case("PUBACK with reason string twice", "40 0c 0001 00 08 1f 0001 61 1f 0001 61", PROTOCOL),
    # SUBSCRIBE, 3.8
    case("SUBSCRIBE without a filter", "82 03 0001 00", PROTOCOL),  # [MQTT-3.8.3-2]
    case("SUBSCRIBE with identifier 0", "82 07 0000 00 0001 61 00", PROTOCOL),  # [MQTT-2.2.1-3]
    case("SUBSCRIBE without options", "82 06 0001 00 0001 61"),
    case("SUBSCRIBE with QoS 3", "82 07 0001 00 0001 61 03", PROTOCOL),  # 3.8.3.1
    case("SUBSCRIBE with retain handling 3", "82 07 0001 00 0001 61 30", PROTOCOL),  # 3.8.3.1
    case("SUBSCRIBE with reserved bit 6", "82 07 0001 00 0001 61 40"),  # [MQTT-3.8.3-5]
    case("SUBSCRIBE with reserved bit 7", "82 07 0001 00 0001 61 80"),  # [MQTT-3.8.3-5]
    case("SUBSCRIBE with a shared No Local", "82 10 0001 00 000a 2473686172652f672f61 04", PROTOCOL),  # [MQTT-3.8.3-4]
    case("SUBSCRIBE with subscription identifier 0", "82 09 0001 02 0b00 0001 61 00", PROTOCOL),  # 3.8.2.1.2
    case("SUBSCRIBE with two identifiers", "82 0b 0001 04 0b01 0b02 0001 61 00", PROTOCOL),  # 3.8.2.1.2
    case("SUBSCRIBE with a foreign property", "82 0c 0001 05 11 00000001 0001 61 00"),
    case("SUBSCRIBE with an empty filter", "82 06 0001 00 0000 00", FILTER),  # [MQTT-4.7.3-1]
    case("SUBSCRIBE with # in the middle", "82 09 0001 00 0003 232f61 00", FILTER),  # [MQTT-4.7.1-1]
    case("SUBSCRIBE with # behind a letter", "82 08 0001 00 0002 6123 00", FILTER),  # [MQTT-4.7.1-1]
    case("SUBSCRIBE with + behind a letter", "82 08 0001 00 0002 612b 00", FILTER),  # [MQTT-4.7.1-2]
    case("SUBSCRIBE with bad UTF-8", "82 07 0001 00 0001 ff 00"),  # [MQTT-3.8.3-1]
    case("SUBSCRIBE with U+0000", "82 07 0001 00 0001 00 00"),  # [MQTT-4.7.3-2]
    # UNSUBSCRIBE, 3.10
    case("UNSUBSCRIBE without a filter", "a2 03 0001 00", PROTOCOL),  # [MQTT-3.10.3-2]
    case("UNSUBSCRIBE with identifier 0", "a2 06 0000 00 0001 61", PROTOCOL),  # [MQTT-2.2.1-3]
    case("UNSUBSCRIBE with a subscription identifier", "a2 08 0001 02 0b01 0001 61"),
    case("UNSUBSCRIBE with bad UTF-8", "a2 06 0001 00 0001 ff"),  # [MQTT-3.10.3-1]
    # DISCONNECT, 3.14
    case("DISCONNECT with an unknown reason", "e0 01 01"),
    case("DISCONNECT with too many bytes", "e0 03 00 00 00"),
    case("DISCONNECT with a foreign property", "e0 05 00 03 21 0001"),
    case("DISCONNECT with session expiry twice", "e0 0c 00 0a 11 00000000 11 00000000", PROTOCOL),
    # AUTH, 3.15
    case("AUTH with flags", "f1 00"),  # [MQTT-3.15.1-1]
    case("AUTH without a method", "f0 02 18 00", PROTOCOL),
    case("AUTH with an unknown reason", "f0 02 01 00"),
    case("AUTH although CONNECT named no method", "f0 00", PROTOCOL),  # [MQTT-4.12.0-7]
]


@pytest.mark.parametrize(("packet", "reason"), BODIES_5)
async def test_malformed_5(broker: Live, packet: bytes, reason: int) -> None:
    """[MQTT-4.13.1-1] and the statement beside each: the reason code the specification names, then the end."""
    client = await broker.connect("c")
    await client.raw(packet)
    await dismissed(client, reason)


BODIES_311 = [
    case("PUBLISH with identifier 0", "32 06 0001 61 0000 78"),  # [MQTT-2.3.1-1]
    case("PUBLISH with an empty topic", "30 02 0000"),  # [MQTT-4.7.3-1]
    case("PUBLISH with a wildcard", "30 05 0002 612b 78"),  # [MQTT-3.3.2-2]
    case("PUBACK with three bytes", "40 03 0001 00"),
    case("SUBSCRIBE without a filter", "82 02 0001"),  # [MQTT-3.8.3-3]
    case("SUBSCRIBE with identifier 0", "82 06 0000 0001 61 00"),  # [MQTT-2.3.1-1]
    case("SUBSCRIBE without a QoS", "82 05 0001 0001 61"),
    case("SUBSCRIBE with QoS 3", "82 06 0001 0001 61 03"),  # [MQTT-3-8.3-4]
    case("SUBSCRIBE with reserved bits", "82 06 0001 0001 61 04"),  # [MQTT-3-8.3-4]
    case("SUBSCRIBE with an empty filter", "82 05 0001 0000 00"),  # [MQTT-4.7.3-1]
    case("SUBSCRIBE with # in the middle", "82 08 0001 0003 232f61 00"),  # [MQTT-4.7.1-2]
    case("SUBSCRIBE with + behind a letter", "82 07 0001 0002 612b 00"),  # [MQTT-4.7.1-3]
    case("UNSUBSCRIBE without a filter", "a2 02 0001"),  # [MQTT-3.10.3-2]
    case("DISCONNECT with a body", "e0 01 00"),  # [MQTT-3.14.1-1]
    case("AUTH", "f0 00"),
]


@pytest.mark.parametrize(("packet", "reason"), BODIES_311)
async def test_malformed_311(broker: Live, packet: bytes, reason: int) -> None:
    """3.1.1 [MQTT-4.8.0-1] and the statement beside each: closed without a word."""
    client = await broker.connect("c", version=wire.V311)
    await client.raw(packet)
    assert await client.closed() == b""


# -- before and in CONNECT

NOT_CONNECT = [
    pytest.param(b"\xc0\x00", id="PINGREQ"),
    pytest.param(b"\xe0\x00", id="DISCONNECT"),
    pytest.param(bytes.fromhex("30 04 0001 61 00"), id="PUBLISH"),
    pytest.param(bytes.fromhex("82 07 0001 00 0001 61 00"), id="SUBSCRIBE"),
    pytest.param(b"\xf0\x00", id="AUTH"),
    pytest.param(b"\x20\x02\x00\x00", id="CONNACK"),
    pytest.param(b"\x11\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00", id="CONNECT with flags"),
    pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01", id="TLS"),
    pytest.param(b"\x00" * 64, id="zeros"),
    pytest.param(b"\xff" * 64, id="ones"),
    pytest.param(b"\x10\xff\xff\xff\xff\x01", id="length of five bytes"),
]


@pytest.mark.parametrize("sent", NOT_CONNECT)
async def test_first_packet_is_not_connect(broker: Live, sent: bytes) -> None:
    """[MQTT-3.1.0-1] [MQTT-3.14.0-1]: closed, without DISCONNECT, which must not come before a CONNACK."""
    client = await broker.socket()
    await client.raw(sent)
    assert await client.closed() == b""


def connect(name: str, body: str, reason: int = MALFORMED) -> Any:
    raw = bytes.fromhex(body)
    return pytest.param(bytes((0x10, len(raw))) + raw, reason, id=name)


CONNECT_5 = [
    connect("reserved flag", "0004 4d515454 05 03 003c 00 0001 61"),  # [MQTT-3.1.2-3]
    connect("will QoS 3", "0004 4d515454 05 1e 003c 00 0001 61 00 0001 77 0001 78"),  # [MQTT-3.1.2-12]
    connect("will QoS without will", "0004 4d515454 05 0a 003c 00 0001 61"),  # [MQTT-3.1.2-11]
    connect("will retain without will", "0004 4d515454 05 22 003c 00 0001 61"),  # [MQTT-3.1.2-13]
    connect("cut short", "0004 4d515454 05 02 003c 00"),
    connect("too many bytes", "0004 4d515454 05 02 003c 00 0001 61 00"),
    connect("user name flag without user name", "0004 4d515454 05 82 003c 00 0001 61"),  # [MQTT-3.1.2-17]
    connect("user name without its flag", "0004 4d515454 05 02 003c 00 0001 61 0001 75"),  # [MQTT-3.1.2-16]
    connect("bad UTF-8 in client id", "0004 4d515454 05 02 003c 00 0001 ff"),  # [MQTT-3.1.3-4]
    connect("U+0000 in client id", "0004 4d515454 05 02 003c 00 0001 00"),
    connect("bad UTF-8 in user name", "0004 4d515454 05 82 003c 00 0001 61 0001 ff"),  # [MQTT-3.1.3-12]
    connect("bad UTF-8 in will topic", "0004 4d515454 05 06 003c 00 0001 61 00 0001 ff 0001 78"),  # [MQTT-3.1.3-11]
    connect("unknown property", "0004 4d515454 05 02 003c 02 7f00 0001 61"),
    connect("property of PUBLISH", "0004 4d515454 05 02 003c 03 23 0001 0001 61"),
    connect("session expiry twice", "0004 4d515454 05 02 003c 0a 11 00000001 11 00000001 0001 61", PROTOCOL),
    connect("receive maximum 0", "0004 4d515454 05 02 003c 03 21 0000 0001 61", PROTOCOL),
    connect("maximum packet size 0", "0004 4d515454 05 02 003c 05 27 00000000 0001 61", PROTOCOL),
    connect("request problem information 2", "0004 4d515454 05 02 003c 02 1702 0001 61", PROTOCOL),
    connect("request response information 2", "0004 4d515454 05 02 003c 02 1902 0001 61", PROTOCOL),
    connect("authentication data without method", "0004 4d515454 05 02 003c 04 16 0001 61 0001 61", PROTOCOL),
    connect("will delay among CONNECT's", "0004 4d515454 05 02 003c 05 18 00000001 0001 61"),
    connect("wildcard in will topic", "0004 4d515454 05 06 003c 00 0001 61 00 0002 612b 0001 78", TOPIC),
    connect("session expiry in the will", "0004 4d515454 05 06 003c 00 0001 61 05 11 00000001 0001 77 0001 78"),
]


@pytest.mark.parametrize(("packet", "reason"), CONNECT_5)
async def test_malformed_connect_5(broker: Live, packet: bytes, reason: int) -> None:
    """[MQTT-3.1.4-1] [MQTT-4.13.1-1]: closed; the server may say why in a CONNACK first, and this one does."""
    client = await broker.socket()
    await client.raw(packet)
    connack = await client.expect(wire.Connack)
    assert (connack.reason, connack.session_present) == (reason, False)
    assert await client.closed() == b""


CONNECT_311 = [
    connect("reserved flag", "0004 4d515454 04 03 003c 0001 61"),  # [MQTT-3.1.2-3]
    connect("will QoS 3", "0004 4d515454 04 1e 003c 0001 61 0001 77 0001 78"),  # [MQTT-3.1.2-14]
    connect("will QoS without will", "0004 4d515454 04 0a 003c 0001 61"),  # [MQTT-3.1.2-13]
    connect("will retain without will", "0004 4d515454 04 22 003c 0001 61"),  # [MQTT-3.1.2-15]
    connect("password without user name", "0004 4d515454 04 42 003c 0001 61 0001 70"),  # [MQTT-3.1.2-22]
    connect("user name flag without user name", "0004 4d515454 04 82 003c 0001 61"),  # [MQTT-3.1.2-19]
    connect("user name without its flag", "0004 4d515454 04 02 003c 0001 61 0001 75"),  # [MQTT-3.1.2-18]
    connect("no client id", "0004 4d515454 04 02 003c"),  # [MQTT-3.1.3-3]
    connect("bad UTF-8 in client id", "0004 4d515454 04 02 003c 0001 ff"),  # [MQTT-3.1.3-4]
    connect("too many bytes", "0004 4d515454 04 02 003c 0001 61 00"),
]


@pytest.mark.parametrize(("packet", "reason"), CONNECT_311)
async def test_malformed_connect_311(broker: Live, packet: bytes, reason: int) -> None:
    """3.1.1 [MQTT-3.1.4-1] [MQTT-3.2.2-6]: closed without a CONNACK."""
    client = await broker.socket()
    await client.raw(packet)
    assert await client.closed() == b""


# -- around an error


@pytest.mark.parametrize("version", BOTH)
async def test_nothing_behind_an_error_is_processed(broker: Live, version: int) -> None:
    """[MQTT-4.13.1-1]: the connection is closed there and then."""
    watcher = await broker.connect("w")
    await watcher.subscribe("#")
    client = await broker.connect("c", version=version)
    await client.raw(b"\x00\x00" + wire.encode(wire.Publish(topic="a", payload=b"x", qos=1, packet_id=1), version))
    await dismissed(client, MALFORMED)
    await watcher.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_what_came_before_an_error_is_processed_and_answered(broker: Live, version: int) -> None:
    """4.13, 4.6: packets in front of the broken one were whole."""
    watcher = await broker.connect("w")
    await watcher.subscribe("#", qos=1)
    client = await broker.connect("c", version=version)
    await client.raw(wire.encode(wire.Publish(topic="a", payload=b"x", qos=1, packet_id=1), version) + b"\x00\x00")
    assert (await client.expect(wire.Puback)).packet_id == 1
    await dismissed(client, MALFORMED)
    assert (await watcher.message()).payload == b"x"


async def test_errors_keep_the_session(broker: Live) -> None:
    """4.13.1, 3.1.2.11.2: a session outlives a connection that ended in an error."""
    fields = {"clean_start": False, "properties": wire.Properties(session_expiry_interval=100)}
    client = await broker.connect("c", **fields)
    await client.subscribe("a", qos=1)
    await client.raw(b"\x00\x00")
    await dismissed(client, MALFORMED)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"x", qos=1)
    client = await broker.connect("c", **fields)
    assert client.connack.session_present
    assert (await client.message()).payload == b"x"


async def test_server_disconnect_has_no_session_expiry(broker: Live) -> None:
    """[MQTT-3.14.2-2] a server never sends session expiry in DISCONNECT."""
    client = await broker.connect("c", properties=wire.Properties(session_expiry_interval=100))
    await client.raw(b"\x00\x00")
    packet = await dismissed(client, MALFORMED)
    assert packet is not None
    assert packet.properties.session_expiry_interval is None


@pytest.mark.parametrize("version", BOTH)
async def test_no_bug_was_met(version: int) -> None:
    """4.13: errors are answered, never met by accident: after all of the above at once the node reports no bug."""
    table = HEADERS + (BODIES_5 if version == wire.V5 else BODIES_311)
    async with live() as broker:
        for entry in table:
            packet = entry.values[0]
            assert isinstance(packet, bytes)
            client = await broker.connect("c", version=version)
            await client.raw(packet)
            await client.closed()
        assert broker.node.status()["bugs"] == 0
