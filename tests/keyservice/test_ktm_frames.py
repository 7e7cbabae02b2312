"""Frames between nodes and the key service: what they carry comes back, and no bytes do harm."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import KeysError, ProtocolError
from tidegate.keys import Group, TopicKey
from tidegate.keyservice.ktm import frames
from tidegate.keyservice.ktm.frames import Answer, Failure, Op, Told, Wrong

GROUP = Group.of(filter="t/#", conditions=["c"], preferences=["p"], owner="mary", domain="d", topic="t/1", context=b"c")
KEY = TopicKey(id="k1", group=GROUP, secret=bytes(range(32)), made=1.0, valid_until=2.0, readable_until=3.0)

Plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def body(frame: bytes) -> object:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frames.content(frame[4:])


def test_what_is_said_comes_back() -> None:
    frames.read_hello(body(frames.hello()))
    frames.read_welcome(body(frames.welcome()))
    asked = frames.read_request(body(frames.request(7, Op.PUT, {"key": frames.packed(KEY)})))
    assert (asked.number, asked.op) == (7, Op.PUT)
    assert frames.unpacked(asked.said["key"]) == KEY
    assert frames.read_reply(body(frames.answer(7, None))) == Answer(number=7, value=None)
    failed = frames.read_reply(body(frames.failure(7, Wrong.UNAVAILABLE, "away")))
    assert failed == Failure(number=7, problem=Wrong.UNAVAILABLE, text="away")
    told = frames.read_reply(body(frames.told([KEY], ["k2"])))
    assert told == Told(keys=[KEY], revoked=["k2"])
    group = frames.read_group(body(frames.frame(asdict(GROUP))))
    assert asdict(group) == asdict(GROUP)


def test_no_secret_is_printed() -> None:
    asked = frames.read_request(body(frames.request(7, Op.PUT, {"key": frames.packed(KEY)})))
    answered = frames.read_reply(body(frames.answer(7, frames.packed(KEY))))
    assert repr(KEY.secret)[2:-1] not in repr(asked) + repr(answered) + repr(Told(keys=[KEY], revoked=[]))


@given(Plain)
def test_plain_values_pass(value: Any) -> None:
    try:
        data = cbor2.dumps(value)
        assert frames.content(data) == value
    except ProtocolError:
        assert abs(value) > 2**63 if isinstance(value, int) else True  # larger ones have a tag, deep ones are refused


@given(st.binary(max_size=200))
def test_any_bytes_are_understood_or_refused(data: bytes) -> None:
    for read in (frames.read_hello, frames.read_welcome, frames.read_request, frames.read_reply, frames.read_group):
        try:
            read(frames.content(data))
        except ProtocolError:
            pass


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_frame_of_which_a_byte_was_changed_is_understood_or_refused(at: int, byte: int) -> None:
    data = bytearray(frames.told([KEY], ["k2"])[4:])
    data[at % len(data)] = byte
    try:
        frames.read_reply(frames.content(bytes(data)))
    except ProtocolError:
        pass


@pytest.mark.parametrize("end", range(1, 60))
def test_a_frame_that_was_cut_is_refused(end: int) -> None:
    with pytest.raises(ProtocolError):
        frames.content(frames.told([KEY], ["k2"])[4:][:-end])


@pytest.mark.parametrize(
    "data",
    [
        b"\xd8\x23\x61\x28",  # a regular expression
        b"\xc2\x49\x01" + bytes(8),  # a number of any size
        b"\xd8\x1e\x82\x01\x00",  # a fraction over zero
        b"\x9b" + b"\xff" * 8,  # more items than there are bytes in the world
        b"\x5b\x7f" + b"\xff" * 7,
        b"\x9f\xff",  # a list without a length
        b"\x81" * 5000 + b"\x00",
        b"\xf7",  # undefined
        b"\xf8\x20",  # a simple value that nobody knows
        b"\x00\x00",
        b"",
        b"\x62\xff\xff",
    ],
)
def test_what_makes_a_reader_work_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        frames.content(data)


def test_a_map_in_a_key_of_a_map_is_no_group() -> None:
    with pytest.raises(ProtocolError):
        frames.read_group(frames.content(b"\xa1\xa1\x00\x00\x00"))


@pytest.mark.parametrize("said", [["tidegate-ktm", [2, 3]], ["tidegate-ktm", []], ["http", [1]], 5, ["tidegate-ktm"]])
def test_other_greetings_are_refused(said: object) -> None:
    with pytest.raises(ProtocolError):
        frames.read_hello(said)


def test_a_refusal_is_told() -> None:
    with pytest.raises(ProtocolError, match="CN=eve is not listed"):
        frames.read_welcome(body(frames.welcome("CN=eve is not listed")))


def test_too_much_is_not_sent() -> None:
    with pytest.raises(KeysError, match="too many"):
        frames.frame(bytes(frames.MAX))


async def receive(data: bytes, **limits: float) -> object:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    return await frames.receive(reader, **{"idle": 0.05, "whole": 0.05, **limits})


async def test_a_frame_has_a_limit_and_a_time() -> None:
    assert await receive(frames.frame([1])) == [1]
    with pytest.raises(ProtocolError, match="up to 131072"):
        await receive((frames.MAX + 1).to_bytes(4, "big"))
    with pytest.raises(ProtocolError):
        await receive(bytes(4))
    with pytest.raises(TimeoutError):
        await receive(b"")
    with pytest.raises(TimeoutError):
        await receive(frames.frame([1])[:-1], idle=10)
