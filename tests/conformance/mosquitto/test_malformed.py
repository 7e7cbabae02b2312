"""Packets that no client may send (Mosquitto: 01-bad-*, 02-*-invalid-utf8, 03-publish-bad-flags, 13-malformed-*)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from conformance.mosquitto.steps import BOTH, SURROGATES, ended, packet, properties, publish, stays, text, u16, u32
from harness import Live, live
from tidegate import wire

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node() -> AsyncIterator[Live]:
    """One for all rows: none of them may leave it the worse for it."""
    async with live() as running:
        yield running
        assert running.node.status()["bugs"] == 0


MALFORMED = {0x81}
WRONG = {0x82}
# 4.7.0-1 and 3.3.2-2 name no reason code; 0x90 and 0x8F say it best, 0x81 (Mosquitto) and 0x82 are as good
NO_TOPIC = {0x81, 0x82, 0x90}
NO_FILTER = {0x81, 0x82, 0x8F}

PUBLISHES = [
    ("empty topic", 0x30, {"topic": b""}, WRONG),  # 3.3.2.1 says protocol error, Mosquitto 0x81
    ("DUP at QoS 0", 0x38, {}, MALFORMED),
    ("QoS 3", 0x36, {}, MALFORMED),
    ("QoS 3 with an id", 0x36, {"pid": 1234}, MALFORMED),
    ("QoS 1 with id 0", 0x32, {"pid": 0}, WRONG),
    ("QoS 2 with id 0", 0x34, {"pid": 0}, WRONG),
    ("U+0000 in the topic", 0x30, {"topic": b"top\0\0"}, MALFORMED),
    ("U+D800 in the topic", 0x30, {"topic": SURROGATES[0]}, MALFORMED),
    ("U+DFFF in the topic", 0x30, {"topic": SURROGATES[1]}, MALFORMED),
    ("bytes that are no UTF-8", 0x30, {"topic": b"to\xffic"}, MALFORMED),
    ("+ in the topic", 0x30, {"topic": b"+opic"}, NO_TOPIC),
    ("# in the topic", 0x30, {"topic": b"#opic"}, NO_TOPIC),
]


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(
    ("first", "fields", "reasons"), [row[1:] for row in PUBLISHES], ids=[row[0] for row in PUBLISHES]
)
async def test_publish_is_refused(
    node: Live, version: int, first: int, fields: dict[str, Any], reasons: set[int]
) -> None:
    client = await node.connect("client", version=version)
    await client.raw(publish(version, first, **fields))
    assert await ended(client) in (reasons if version == wire.V5 else {None})


# identifier and value of each property; in a PUBLISH from a client only those of OWN have a place
VALUES = {
    1: b"\1",
    2: u32(1),
    3: text("p"),
    8: text("p"),
    9: text("p"),
    35: u16(1),
    38: text("p") + text("q"),
    **dict.fromkeys((23, 25, 36, 37, 40, 41, 42), b"\x00"),
    **{number: u32(1) for number in (17, 24, 39)},
    **{number: u16(5) for number in (19, 33, 34)},
    **{string: text("p") for string in (18, 21, 22, 26, 28, 31)},
}
OWN = (1, 2, 3, 8, 9, 35, 38)
BAD_PROPERTIES = [
    # 2.2.2.2: one that does not belong to the packet is malformed; Mosquitto says 0x82
    *((f"{id} has no place", bytes((id,)) + value, MALFORMED) for id, value in VALUES.items() if id not in OWN),
    *((f"{id} without its value", bytes((id,)), MALFORMED) for id in VALUES),
    *((f"{id} twice", (bytes((id,)) + VALUES[id]) * 2, WRONG) for id in OWN if id != 38),
    *((f"{id} does not exist", bytes((id, 1)), MALFORMED) for id in (0, 4, 5, 6, 7, 10, 12, 16, 20, 27, 29, 32, 127)),
    *((f"{id.hex()} does not exist", id + b"\1", MALFORMED) for id in (b"\x80\x01", b"\xff\x7f", b"\x80\x80\x80\x01")),
    ("payload format 2", b"\1\2", WRONG),
    ("user property without its value", b"\x26" + text("p"), MALFORMED),
    ("topic alias above the maximum", b"\x23" + u16(65), {0x94}),
    ("topic alias 0", b"\x23" + u16(0), {0x94}),
    ("subscription identifier", b"\x0b\1", WRONG),
    ("subscription identifier 0", b"\x0b\0", WRONG),
    ("subscription identifier in five bytes", b"\x0b\x80\x80\x80\x80\x01", MALFORMED),
    ("response topic with a wildcard", b"\x08" + text("a/#"), NO_TOPIC),
    ("content type that is no UTF-8", b"\x03" + text(b"\xff"), MALFORMED),
]


@pytest.mark.parametrize(
    ("raw", "reasons"), [row[1:] for row in BAD_PROPERTIES], ids=[row[0] for row in BAD_PROPERTIES]
)
async def test_properties_of_a_publish_are_refused(node: Live, raw: bytes, reasons: set[int]) -> None:
    client = await node.connect("client")
    await client.raw(publish(wire.V5, 0x32, pid=1234, props=raw))
    assert await ended(client) in reasons


@pytest.mark.parametrize("version", BOTH)
async def test_alias_that_was_never_set_is_refused(node: Live, version: int) -> None:
    client = await node.connect("client")
    await client.raw(publish(wire.V5, 0x30, topic=b"", props=b"\x23" + u16(3)))
    assert await ended(client) in WRONG


def subscribe(*entries: bytes, pid: int = 1, props: bytes | None = b"") -> tuple[bytes, bytes]:
    """A SUBSCRIBE in both versions."""
    middle = [b"" if props is None else properties(version, props) for version in BOTH]
    return packet(0x82, u16(pid), middle[0], *entries), packet(0x82, u16(pid), middle[1], *entries)


def unsubscribe(*entries: bytes, pid: int = 1, props: bytes = b"") -> tuple[bytes, bytes]:
    return (
        packet(0xA2, u16(pid), *entries),
        packet(0xA2, u16(pid), properties(wire.V5, props), *entries),
    )


REQUESTS = [
    ("subscribe without filters", subscribe(), WRONG),
    ("subscribe with id 0", subscribe(text("a") + b"\0", pid=0), WRONG),
    ("subscribe at QoS 3", subscribe(text("a") + b"\3"), WRONG | MALFORMED),
    ("subscribe with an empty filter", subscribe(text("") + b"\0"), NO_FILTER),
    ("subscribe without options", subscribe(text("a")), MALFORMED),
    ("subscribe with reserved options", subscribe(text("a") + b"\xc0"), MALFORMED),
    ("subscribe to a/#/b", subscribe(text("a/#/b") + b"\0"), NO_FILTER),
    ("subscribe to a#", subscribe(text("a#") + b"\0"), NO_FILTER),
    ("subscribe to a+", subscribe(text("a+/b") + b"\0"), NO_FILTER),
    ("subscribe with U+0000", subscribe(text("a\0b") + b"\0"), MALFORMED | NO_FILTER),
    ("subscribe with U+D800", subscribe(text(SURROGATES[0]) + b"\0"), MALFORMED),
    ("second filter is bad", subscribe(text("a") + b"\0", text("b/#/c") + b"\0"), NO_FILTER),
    ("unsubscribe without filters", unsubscribe(), WRONG),
    ("unsubscribe with id 0", unsubscribe(text("a"), pid=0), WRONG),
    ("unsubscribe with an empty filter", unsubscribe(text("")), NO_FILTER),
    ("unsubscribe with U+D800", unsubscribe(text(SURROGATES[0])), MALFORMED),
    ("subscribe with wrong flags", (packet(0x80, u16(1), text("a"), b"\0"),) * 2, MALFORMED),
    ("unsubscribe with wrong flags", (packet(0xA0, u16(1), text("a")),) * 2, MALFORMED),
    ("pubrel with wrong flags", (packet(0x60, u16(1)),) * 2, MALFORMED),
    ("puback with id 0", (packet(0x40, u16(0)),) * 2, WRONG),
    ("pubrec with id 0", (packet(0x50, u16(0)),) * 2, WRONG),
    ("puback cut short", (packet(0x40, b"\1"),) * 2, MALFORMED),
    ("ping with flags", (b"\xc1\x00",) * 2, MALFORMED),
    ("ping with a body", (b"\xc0\x02\x33\x33",) * 2, MALFORMED),
    ("packet type 0", (b"\x0a\x00",) * 2, MALFORMED | WRONG),
    ("length in five bytes", (b"\x30\x80\x80\x80\x80\x01",) * 2, MALFORMED),
    ("disconnect with flags", (b"\xe1\x00",) * 2, MALFORMED),
    ("connack from a client", (packet(0x20, b"\0\0"), packet(0x20, b"\0\0\0")), WRONG),
    ("suback from a client", (packet(0x90, u16(1), b"\0"), packet(0x90, u16(1), b"\0\0")), WRONG),
    ("pingresp from a client", (b"\xd0\x00",) * 2, WRONG),
]


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(("raw", "reasons"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS])
async def test_request_is_refused(node: Live, version: int, raw: tuple[bytes, bytes], reasons: set[int]) -> None:
    client = await node.connect("client", version=version)
    await client.raw(raw[version == wire.V5])
    assert await ended(client) in (reasons if version == wire.V5 else {None})


V5_REQUESTS = [
    ("retain handling 3", subscribe(text("a") + b"\x30")[1], WRONG),
    ("two subscription identifiers", subscribe(text("a") + b"\0", props=b"\x0b\1\x0b\2")[1], WRONG),
    ("subscription identifier 0", subscribe(text("a") + b"\0", props=b"\x0b\0")[1], WRONG),
    ("subscribe with a content type", subscribe(text("a") + b"\0", props=b"\x03" + text("p"))[1], MALFORMED),
    ("no local on a shared subscription", subscribe(text("$share/group/a") + b"\5")[1], WRONG),
    ("shared subscription without a filter", subscribe(text("$share/group") + b"\0")[1], NO_FILTER),
    ("shared subscription without a name", subscribe(text("$share//a") + b"\0")[1], NO_FILTER),
    ("shared subscription with a wildcard name", subscribe(text("$share/g+/a") + b"\0")[1], NO_FILTER),
    ("unsubscribe with an identifier", unsubscribe(text("a"), props=b"\x0b\1")[1], MALFORMED),
    ("properties past the end", packet(0x82, u16(1), b"\x20", text("a"), b"\0"), MALFORMED),
    ("puback with a reason that is none", packet(0x40, u16(1), b"\x77"), MALFORMED),
    ("disconnect with a reason that is none", packet(0xE0, b"\x77"), MALFORMED),
    ("auth without a method before", packet(0xF0, b"\x18", properties(wire.V5, b"\x15" + text("m"))), WRONG),
]


@pytest.mark.parametrize(("raw", "reasons"), [row[1:] for row in V5_REQUESTS], ids=[row[0] for row in V5_REQUESTS])
async def test_mqtt5_request_is_refused(node: Live, raw: bytes, reasons: set[int]) -> None:
    client = await node.connect("client")
    await client.raw(raw)
    assert await ended(client) in reasons


def connect(
    flags: int, *payload: bytes, version: int, props: bytes = b"", level: int | None = None, name: str = "MQTT"
) -> bytes:
    kept = bytes((version if level is None else level, flags)) + u16(10)
    return packet(0x10, text(name), kept, properties(version, props), *payload)


ID = text("client")
CONNECTS = [
    ("reserved flag", 0x03, (ID,)),
    ("will QoS without a will", 0x0A, (ID,)),
    ("will retain without a will", 0x22, (ID,)),
    ("will at QoS 3", 0x1E, (ID, b"\0", text("will"), text("gone"))),
    ("will without a payload", 0x06, (ID, b"\0", text("will"))),
    ("will with an empty topic", 0x06, (ID, b"\0", text(""), text("gone"))),
    ("will with a wildcard", 0x06, (ID, b"\0", text("will/#"), text("gone"))),
    ("will with U+D800", 0x06, (ID, b"\0", text(SURROGATES[0]), text("gone"))),
    ("client id that is no UTF-8", 0x02, (text(b"\xff"),)),
    ("client id with U+0000", 0x02, (text("a\0"),)),
    ("user name that is missing", 0x82, (ID,)),
    ("user name that is no UTF-8", 0x82, (ID, text(SURROGATES[1]))),
    ("password that is missing", 0xC2, (ID, text("user"))),
    ("bytes too many", 0x02, (ID, b"\0")),
    ("no client id", 0x02, ()),
]


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(("flags", "payload"), [row[1:] for row in CONNECTS], ids=[row[0] for row in CONNECTS])
async def test_connect_is_refused(node: Live, version: int, flags: int, payload: tuple[bytes, ...]) -> None:
    """3.1.1 is told nothing; 5.0 may be told (4.13.1), with a CONNACK that is no success."""
    if version == wire.V311 and flags & 0x04:
        payload = (payload[0], *payload[2:])  # no will properties
    client = await node.socket()
    await client.raw(connect(flags, *payload, version=version))
    rest = await client.closed()
    if version == wire.V311:
        assert rest == b""
    else:
        assert rest == b"" or (rest[0] == 0x20 and rest[3] >= 0x80)


CONNECT_PROPERTIES = [
    ("receive maximum 0", b"\x21" + u16(0)),
    ("maximum packet size 0", b"\x27" + u32(0)),
    ("request problem information 2", b"\x17\2"),
    ("session expiry twice", (b"\x11" + u32(1)) * 2),
    ("authentication data without a method", b"\x16" + text("data")),
    ("a property of CONNACK", b"\x24\1"),
    ("a property that does not exist", b"\x7f\1"),
]


@pytest.mark.parametrize("raw", [row[1] for row in CONNECT_PROPERTIES], ids=[row[0] for row in CONNECT_PROPERTIES])
async def test_properties_of_a_connect_are_refused(node: Live, raw: bytes) -> None:
    client = await node.socket()
    await client.raw(connect(0x02, ID, version=wire.V5, props=raw))
    rest = await client.closed()
    assert rest == b"" or (rest[0] == 0x20 and rest[3] >= 0x80)


@pytest.mark.parametrize(
    ("name", "level"), [("MQTT", 3), ("MQTT", 6), ("MQTT", 0), ("MQIsdp", 4), ("mqtt", 4), ("", 4)]
)
async def test_unknown_protocol_is_refused(node: Live, name: str, level: int) -> None:
    """[MQTT-3.1.2-2] return code 1 for a level that is unknown."""
    client = await node.socket()
    await client.raw(connect(0x02, ID, version=wire.V311, level=level, name=name))
    assert await client.closed() in (b"\x20\x02\x00\x01", b"")


@pytest.mark.parametrize("version", BOTH)
async def test_second_connect_is_refused(node: Live, version: int) -> None:
    client = await node.connect("client", version=version)
    await client.send(wire.Connect(version=version, client_id="client", clean_start=True, keep_alive=0))
    assert await ended(client) in (WRONG if version == wire.V5 else {None})


@pytest.mark.parametrize("kind", [kind for kind in range(16) if kind != wire.Type.CONNECT])
async def test_first_packet_must_be_connect(node: Live, kind: int) -> None:
    """Refused from its first byte: nothing of the 100 MB it announces is waited for."""
    client = await node.socket()
    await client.raw(bytes((kind << 4,)) + b"\x80\x80\x80\x32" + b"\1" * 1000)
    assert await client.closed() == b""


@pytest.mark.parametrize("version", BOTH)
async def test_password_without_a_user_name(node: Live, version: int) -> None:
    """3.1.1 [MQTT-3.1.2-22] forbids it, 5.0 allows it."""
    client = await node.socket()
    await client.raw(connect(0x42, ID, text("secret"), version=version))
    if version == wire.V311:
        assert await client.closed() == b""
    else:
        assert (await client.expect(wire.Connack)).reason == 0


@pytest.mark.parametrize(("limits", "first", "reason"), [("max_qos: 1", 0x34, 0x9B), ("retain: false", 0x31, 0x9A)])
async def test_what_connack_ruled_out_is_refused(limits: str, first: int, reason: int) -> None:
    async with live(f"limits: {{{limits}}}") as node:
        client = await node.connect("client")
        assert 0 in (client.connack.properties.retain_available, 0 if client.connack.properties.maximum_qos == 1 else 1)
        await client.raw(publish(wire.V5, first, pid=1 if first & 6 else None))
        assert await ended(client) == reason


ACCEPTED = [
    ("U+2A6D4", 0x30, {"topic": "A\U0002a6d4".encode()}),
    ("retained without a payload", 0x31, {"payload": b""}),
    ("below a $ of nobody", 0x30, {"topic": b"$test/test"}),
    ("128 levels", 0x30, {"topic": b"/" * 127}),
    # 1.5.4: these SHOULD NOT be sent and MAY be refused, as Mosquitto does
    ("U+0001", 0x30, {"topic": b"top\x01p"}),
    ("U+009F", 0x30, {"topic": b"to\xc2\x9fp"}),
    ("U+FEFF is part of the topic", 0x30, {"topic": b"\xef\xbb\xbfab"}),
]


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(("first", "fields"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
async def test_unusual_publish_is_delivered(node: Live, version: int, first: int, fields: dict[str, Any]) -> None:
    client = await node.connect("client", version=version)
    topic = fields.get("topic", b"topic").decode()
    await client.subscribe(topic)
    await client.raw(publish(version, first, **fields))
    assert (await client.message()).topic == topic
    await client.silent()


GOOD_PROPERTIES = [
    *(bytes((id,)) + VALUES[id] for id in OWN),
    (b"\x26" + text("p") + text("q")) * 2,
    b"\x26" + text("") + text("p"),
    b"\x26" + text("p") + text(""),
    b"\x26" + text("") + text(""),
    b"\x09" + text(""),
    b"\x03" + text(""),
    b"\x01\x00",
    b"\x02" + u32(0),
]


@pytest.mark.parametrize("raw", GOOD_PROPERTIES, ids=lambda raw: raw.hex())
async def test_properties_of_a_publish_are_accepted(node: Live, raw: bytes) -> None:
    client = await node.connect("client", **stays(wire.V5))
    await client.raw(publish(wire.V5, 0x32, pid=1234, props=raw))
    acknowledged = await client.expect(wire.Puback)
    assert acknowledged == wire.Puback(packet_id=1234, reason=wire.Reason.NO_MATCHING_SUBSCRIBERS)
    await client.silent()
