"""CBOR from outside, read as plain values: numbers, texts, bytes, lists, maps, true, false and null.

Invariants
- Bytes raise MalformedPacket and nothing else, however they were made.
- None of the tags with which CBOR makes a reader compute reach the decoder, nor items without a length; nesting is
  bounded, and what is read is not larger than the data.
"""

from __future__ import annotations

from typing import Final

import cbor2

from tidegate.errors import MalformedPacket

DEPTH: Final = 8
_EARLY: Final = "CBOR that ends too early"


def plain(data: bytes, depth: int = DEPTH) -> object:
    """The one item that the data is."""
    _check(data, depth)
    try:
        value: object = cbor2.loads(data)
    except (cbor2.CBORDecodeError, ValueError, OverflowError, RecursionError, TypeError):
        raise MalformedPacket("it is no CBOR") from None
    return value


def plain_canonical(data: bytes, depth: int = DEPTH) -> object:
    """The same of data that is written in the one canonical way: no two texts of it mean the same."""
    value = plain(data, depth)
    if canonical(value) != data:
        raise MalformedPacket("CBOR that is not canonical")
    return value


def canonical(value: object) -> bytes:
    return cbor2.dumps(value, canonical=True)


def _check(data: bytes, depth: int) -> None:
    """One item of plain types, as long as the data: a decoder sees nothing else, whatever it would do with it."""
    at, left = 0, [1]  # items that are still to come, on each level
    while left:
        if not left[-1]:
            left.pop()
            continue
        left[-1] -= 1
        if at >= len(data):
            raise MalformedPacket(_EARLY)
        major, value = data[at] >> 5, data[at] & 31
        at += 1
        if value > 27 or major == 6 or (major == 7 and not (20 <= value <= 22 or value >= 25)):
            raise MalformedPacket("CBOR with something in it that is no plain value")
        if value > 23:
            size = 1 << (value - 24)
            value = int.from_bytes(data[at : at + size], "big")
            at += size
        if 2 <= major <= 5:
            if value > len(data):
                raise MalformedPacket(_EARLY)
            if major <= 3:
                at += value
            else:
                left.append(value * (major - 3))
        if at > len(data) or len(left) > depth:
            raise MalformedPacket("CBOR that ends too early, or is too deep")
    if at != len(data):
        raise MalformedPacket("CBOR that goes on behind its end")
