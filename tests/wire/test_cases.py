"""The table of cases, used every way it can be: read, written, cut short, drawn out, split and joined."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tidegate.errors import MalformedPacket, PacketError, ProtocolError
from tidegate.wire import (
    V5,
    V311,
    Connect,
    Packet,
    Properties,
    Publish,
    Reason,
    Type,
    Will,
    decode,
    encode,
    frame,
    level,
)
from tidegate.wire.properties import ALLOWED, PROPERTIES, WILL
from tidegate.wire.reasons import REASONS
from wire.cases import CASES, Case
from wire.notation import length

LIMIT = 1 << 20
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each
def test_decode(case: Case) -> None:
    packet = decode(case.first, case.body, case.version)
    assert packet == case.packet
    # True equals 1, but only one of them belongs in a field
    assert repr(packet) == repr(case.packet)


@each
def test_encode(case: Case) -> None:
    encoded = encode(case.packet, case.version)
    assert type(encoded) is bytes
    if case.canonical:
        assert encoded.hex(" ") == case.frame.hex(" ")
    else:
        found = frame(encoded, 0, LIMIT)
        assert found is not None
        first, start, end = found
        assert end == len(encoded)
        assert decode(first, encoded[start:end], case.version) == case.packet


@each
def test_cut_short_at_every_index(case: Case) -> None:
    survived = set()
    for size in range(len(case.body)):
        try:
            decode(case.first, case.body[:size], case.version)
        except (MalformedPacket, ProtocolError):
            continue
        survived.add(size)
    assert survived == case.cuts


@each
def test_a_byte_too_many(case: Case) -> None:
    body = case.body + b"\xff"
    if isinstance(case.packet, Publish):
        longer = decode(case.first, body, case.version)
        assert isinstance(longer, Publish)
        assert longer.payload == case.packet.payload + b"\xff"
    else:
        with pytest.raises(PacketError):
            decode(case.first, body, case.version)


@each
def test_frame_split_at_every_byte(case: Case) -> None:
    size = len(case.frame)
    for have in range(size):
        assert frame(case.frame[:have], 0, LIMIT) is None
    start = size - len(case.body)
    assert frame(case.frame, 0, LIMIT) == (case.first, start, size)
    # among other bytes, which it must not touch
    assert frame(b"\xff\xff\xff" + case.frame + b"\xff", 3, LIMIT) == (case.first, start + 3, size + 3)
    # as large as allowed, and one byte more
    assert frame(case.frame, 0, size) == (case.first, start, size)
    with pytest.raises(ProtocolError) as caught:
        frame(case.frame[:start], 0, size - 1)
    assert caught.value.reason == Reason.PACKET_TOO_LARGE


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 4096, LIMIT])
def test_a_stream_of_all_in_chunks(version: int, chunk: int) -> None:
    cases = [case for case in CASES if case.version == version]
    stream = b"".join(case.frame for case in cases)
    read: list[Packet] = []
    buffer = b""
    for at in range(0, len(stream), chunk):
        buffer += stream[at : at + chunk]
        pos = 0
        while (found := frame(buffer, pos, LIMIT)) is not None:
            first, start, pos = found
            read.append(decode(first, buffer[start:pos], version))
        buffer = buffer[pos:]
    assert buffer == b""
    assert read == [case.packet for case in cases]


def test_version_does_not_matter_for_connect() -> None:
    for case in CASES:
        if case.first >> 4 == Type.CONNECT:
            for version in (0, V311, V5):
                assert decode(case.first, case.body, version) == case.packet
            assert level(case.body) == case.version


def test_level_of_what_is_no_connect() -> None:
    assert level(b"") is None
    assert level(b"\x00\x04MQTT") is None
    assert level(b"\x00\x06MQIsdp\x03") is None
    assert level(b"\x00\x04MQTT\x06") == 6


def test_cases_are_complete() -> None:
    """Every type, property and reason code of both versions stands in the table."""
    for version, types in ((V311, set(Type) - {Type.AUTH}), (V5, set(Type))):
        assert {case.first >> 4 for case in CASES if case.version == version} == types
    names = {row.name: row.id for row in PROPERTIES}
    assert list(names) == [field.name for field in fields(Properties)]
    assert sorted(names.values()) == list(names.values())
    seen: dict[int, set[int]] = {kind: set() for kind in Type}
    wills: set[int] = set()
    reasons: dict[int, set[int]] = {kind: set() for kind in REASONS}
    for case in CASES:
        if case.version != V5:
            continue
        kind = case.first >> 4
        if kind in REASONS:
            reasons[kind] |= set(getattr(case.packet, "reasons", None) or [getattr(case.packet, "reason", 0)])
        seen[kind] |= present(getattr(case.packet, "properties", None), names)
        wills |= present(getattr(getattr(case.packet, "will", None), "properties", None), names)
    assert seen == ALLOWED
    assert wills == WILL
    assert reasons == REASONS
    assert set().union(*reasons.values()) == set(Reason)


def present(properties: Properties | None, names: dict[str, int]) -> set[int]:
    if properties is None:
        return set()
    return {id for name, id in names.items() if getattr(properties, name) not in (None, ())}


@pytest.mark.parametrize("size", [126, 127, 128, 129, 16383, 16384, 16385, 2097151, 2097152])
def test_where_the_remaining_length_grows(size: int) -> None:
    packet = Publish(topic="a", payload=bytes(size - 3))
    data = encode(packet, V311)
    header = b"\x30" + length(size)
    assert data.startswith(header + b"\x00\x01a")
    assert len(data) == len(header) + size
    assert frame(data, 0, len(data)) == (0x30, len(header), len(data))
    assert frame(data[:-1], 0, len(data)) is None
    assert decode(0x30, data[len(header) :], V311) == packet


def test_the_longest_fields() -> None:
    """65,535 bytes, the most that a length of two bytes can say."""
    topic, text = "é" * 32767 + "x", "x" * 65535
    for packet in (
        Publish(topic=topic, payload=b"", properties=Properties(user_properties=((text, text),))),
        Publish(topic="a", payload=b"", properties=Properties(correlation_data=bytes(65535))),
        Connect(
            version=V5,
            client_id=text,
            clean_start=True,
            keep_alive=0,
            username=text,
            password=bytes(65535),
            will=Will(topic=topic, payload=bytes(65535), qos=0, retain=False),
        ),
    ):
        data = encode(packet, V5)
        found = frame(data, 0, LIMIT)
        assert found is not None
        assert decode(found[0], data[found[1] :], V5) == packet
