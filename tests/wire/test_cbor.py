"""CBOR from outside: plain values or MalformedPacket, and nothing else."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import MalformedPacket
from tidegate.wire import cbor

leaves = st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.text(max_size=9) | st.binary(max_size=9)
values = st.recursive(
    leaves | st.floats(allow_nan=False), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(values)
def test_plain_values_are_read_as_they_were_written(value: Any) -> None:
    data = cbor.canonical(value)
    assert cbor.plain(data, 40) == value
    assert cbor.plain_canonical(data, 40) == value
    for wrong in (data[:-1], data + b"\0"):
        with pytest.raises(MalformedPacket):
            cbor.plain(wrong, 40)


@given(st.binary(max_size=40))
def test_bytes_raise_nothing_else(data: bytes) -> None:
    try:
        cbor.plain(data)
    except MalformedPacket:
        pass


@pytest.mark.parametrize(
    "data",
    [
        "",
        "9fff",  # a list without a length
        "5f4100ff",
        "c06568656c6c6f",  # a date
        "c249ffffffffffffffffff",  # a number without bounds
        "d81c81d81d00",  # a list in itself
        "f7",
        "f820",
        "8181818181818180",
        "5bffffffffffffffff",
        "9bffffffffffffffff",
        "61ff",  # no UTF-8
    ],
)
def test_what_is_no_plain_value_is_malformed(data: str) -> None:
    with pytest.raises(MalformedPacket):
        cbor.plain(bytes.fromhex(data))


@pytest.mark.parametrize("data", ["1800", "a2616201616101", "a2616101616102", "fb3ff8000000000000", "590001ff"])
def test_there_is_one_way_to_write_a_value(data: str) -> None:
    cbor.plain(bytes.fromhex(data))
    with pytest.raises(MalformedPacket, match="canonical"):
        cbor.plain_canonical(bytes.fromhex(data))


def test_nesting_is_bounded() -> None:
    deep: list[Any] = []
    for _ in range(6):
        deep = [deep]
    assert cbor.plain(cbor2.dumps(deep)) == deep
    with pytest.raises(MalformedPacket, match="deep"):
        cbor.plain(cbor2.dumps([[deep]]))
