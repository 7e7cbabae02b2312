"""The generator's own bytes, against the specifications' and against another library's reading of them."""

from __future__ import annotations

import pytest
from bench.load import frames


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001"), (268435455, "ffffff7f")],
)
def test_variable_byte_integer(value: int, expected: str) -> None:
    assert frames.varint(value).hex() == expected


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (frames.connect("ab", version=4, clean=True), "100e00044d5154540402000000026162"),
        (frames.connect("ab", version=4, clean=False), "100e00044d5154540400000000026162"),
        (frames.connect("ab", version=5, clean=True), "100f00044d515454050200000000026162"),
        (frames.connect("ab", version=5, clean=False), "101400044d5154540500000005110000 0e1000026162"),
        (frames.connect("ab", version=4, clean=True, login="me"), "101600044d51545404c20000000261620002 6d6500026d65"),
        (
            frames.connect("a", version=5, clean=True, pairs=[("s", "1")]),
            "101500044d515454050200000726000173000131000161",
        ),
        (
            frames.connect("a", version=5, clean=False, pairs=[("s", "1")]),
            "101a00044d5154540500 00000c110000 0e10 26000173000131 000161",
        ),
        (frames.subscribe(1, ["a"], qos=0, version=5, pairs=[("s", "1")]), "820e0001 0726000173000131 00016100"),
        (
            frames.publish("a", b"x", qos=0, packet_id=0, version=5, pairs=[("s", "1")]),
            "300c000161 0726000173000131 78",
        ),
        (frames.publish("a", b"x", qos=0, packet_id=0, version=4, pairs=[("s", "1")]), "300400016178"),
        (frames.subscribe(1, ["a/b"], qos=1, version=4), "820800010003612f6201"),
        (frames.subscribe(258, ["a", "b"], qos=2, version=5), "820b0102000001610200016202"),
        (frames.unsubscribe(1, ["a"], version=4), "a2050001000161"),
        (frames.unsubscribe(1, ["a"], version=5), "a206000100000161"),
        (frames.publish("a", b"xy", qos=0, packet_id=7, version=4), "30050001617879"),
        (frames.publish("a", b"xy", qos=0, packet_id=7, version=5), "3006000161007879"),
        (frames.publish("a", b"xy", qos=1, packet_id=7, version=4), "320700016100077879"),
        (frames.publish("a", b"xy", qos=2, packet_id=7, version=5), "34080001610007007879"),
        (frames.answer(frames.PUBREL, 0x1234), "62021234"),
    ],
)
def test_packets(packet: bytes, expected: str) -> None:
    assert packet == bytes.fromhex(expected)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("payload", [5, 175])
def test_packet_id_is_where_it_is_said_to_be(version: int, payload: int) -> None:
    frame = frames.publish("bench/k00", bytes(payload), qos=1, packet_id=0xABCD, version=version)
    place = frames.packet_id_offset("bench/k00", payload, version=version)
    assert frame[place : place + 2] == b"\xab\xcd"


@pytest.mark.parametrize("size", [0, 5, 127, 128, 175, 16384])
def test_total_length_needs_the_whole_length_field(size: int) -> None:
    frame = frames.publish("t", bytes(size), qos=0, packet_id=0, version=4)
    field = len(frames.varint(size + 3))
    assert frames.total_length(frame[: 1 + field]) == len(frame)
    assert frames.total_length(frame[:field]) is None
