"""Bytes may arrive split anywhere; what is answered does not depend on it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pure import End, World
from tidegate import wire

BIG = b"y" * 70_000  # a length field of three bytes


def script(version: int) -> list[wire.Packet]:
    """A client that does a bit of everything, to itself."""
    packets: list[wire.Packet] = [
        wire.Connect(version=version, client_id="c", clean_start=True, keep_alive=0),
        wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter="#", qos=2),)),
        wire.Publish(topic="a", payload=b"0"),
        wire.Publish(topic="a", payload=b"1" * 200),  # a length field of two bytes, known route
        wire.Publish(topic="a", payload=b"2", qos=1, packet_id=2),
        wire.Puback(packet_id=1),
        wire.Publish(topic="b", payload=b"3", qos=2, packet_id=3),
        wire.Pubrel(packet_id=3),
        wire.Pubrec(packet_id=2),
        wire.Pubcomp(packet_id=2),
        wire.Publish(topic="a", payload=BIG),
        wire.Publish(topic="a", payload=BIG, qos=1, packet_id=4),
        wire.Publish(topic="a", payload=b"", retain=True),
        wire.Unsubscribe(packet_id=5, filters=("#",)),
        wire.Publish(topic="a", payload=b"nobody"),
        wire.Pingreq(),
    ]
    if version == wire.V5:
        packets[4:4] = [
            wire.Publish(topic="a", payload=b"p", properties=wire.Properties(user_properties=(("k", "v"),))),
            wire.Publish(topic="x", payload=b"q", properties=wire.Properties(topic_alias=3)),
            wire.Publish(topic="", payload=b"r", properties=wire.Properties(topic_alias=3)),
        ]
    return packets


def answers(version: int, chunks: list[bytes]) -> list[wire.Packet]:
    world = World()
    end = End(world)
    end.version = version
    for chunk in chunks:
        end.feed(chunk)
        world.turn()
    assert not end.closed
    return end.take()


def whole(version: int) -> bytes:
    return b"".join(wire.encode(packet, version) for packet in script(version))


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
def test_packet_by_packet_equals_all_at_once(version: int) -> None:
    expected = answers(version, [wire.encode(packet, version) for packet in script(version)])
    assert answers(version, [whole(version)]) == expected
    payloads = [packet.payload[:3] for packet in expected if isinstance(packet, wire.Publish)]
    common = [b"0", b"111", b"2", b"3", b"yyy", b"yyy", b""]
    assert payloads == (common if version == wire.V311 else [*common[:2], b"p", b"q", b"r", *common[2:]])


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
def test_byte_by_byte_equals_all_at_once(version: int) -> None:
    data = whole(version)
    assert answers(version, [data[i : i + 1] for i in range(len(data))]) == answers(version, [data])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([wire.V311, wire.V5]), st.lists(st.integers(0, 150_000), max_size=20))
def test_any_split_equals_all_at_once(version: int, cuts: list[int]) -> None:
    data = whole(version)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    chunks = [data[a:b] for a, b in pairwise(places)]
    assert answers(version, chunks) == answers(version, [data])


@pytest.mark.parametrize("first", [0x30, 0x32, 0x82, 0xE0])
@pytest.mark.parametrize("length", [b"\xff\xff\x7f", b"\x81\x80\x40", b"\xff\xff\xff\x7f"])
def test_a_declared_length_over_the_limit_is_refused_from_the_header(first: int, length: bytes) -> None:
    end = World().peer("c")
    end.take()
    end.feed(bytes((first,)) + length)
    (said,) = end.take()
    assert isinstance(said, wire.Disconnect)
    assert said.reason == wire.Reason.PACKET_TOO_LARGE
    assert end.closed


def test_the_limit_itself_is_allowed() -> None:
    world = World()
    end = world.peer("c")
    end.take()
    end.subscribe("a")
    end.take()
    frame = wire.encode(wire.Publish(topic="a", payload=b"z" * (2**20 - 8)), wire.V5)
    assert len(frame) == 2**20
    end.feed(frame)
    assert len(end.messages()) == 1
    end.feed(wire.encode(wire.Publish(topic="a", payload=b"z" * (2**20 - 7)), wire.V5))
    assert end.closed


def test_a_length_of_five_bytes_is_malformed() -> None:
    end = World().peer("c")
    end.take()
    end.feed(b"\x30\x80\x80\x80\x80\x01")
    (said,) = end.take()
    assert isinstance(said, wire.Disconnect)
    assert said.reason == wire.Reason.MALFORMED_PACKET


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\x00\x00", b"\xff" * 10, b"\xc0\x00", b"\x10\x00"],
)
def test_what_is_not_mqtt_is_closed_without_an_answer(garbage: bytes) -> None:
    end = End(World())
    end.feed(garbage)
    assert end.closed
    assert end.buffer == b""


def test_packets_sent_ahead_of_connack_are_read_after_it() -> None:
    world = World()
    end = End(world)
    end.feed(
        wire.encode(wire.Connect(version=5, client_id="c", clean_start=True, keep_alive=0), 5)
        + wire.encode(wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter="a"),)), 5)
        + wire.encode(wire.Publish(topic="a", payload=b"x"), 5)
    )
    kinds = [type(packet) for packet in end.take()]
    assert kinds == [wire.Connack, wire.Suback, wire.Publish]


def test_a_route_with_a_stage_never_takes_the_fast_lane_unasked() -> None:
    """A known topic in a frame whose name runs over the end of the frame is malformed, not a hit."""
    world = World()
    end = world.peer("c")
    end.subscribe("aaaa")
    end.send(wire.Publish(topic="aaaa", payload=b"x"))
    end.take()
    end.feed(b"\x30\x05\x00\x04aaa" + b"a\x00")
    assert end.closed
