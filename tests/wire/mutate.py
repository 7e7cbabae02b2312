"""Frames that are nearly right: the table of cases, damaged at random but reproducibly.

`mutations(seed, count)` gives the same frames for the same seed wherever it runs. Most keep a remaining length
that fits, so that the damage reaches the body's decoder; some do not, so that it reaches the framing.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator

from tidegate.wire import V5, V311
from wire.cases import CASES, Case
from wire.notation import length

SHARE_OF_FRAMING = 0.1  # how many frames keep a length that may not fit
SHARE_OF_OTHER_VERSION = 0.1  # how many are read as the version they were not written for
BYTES = bytes([0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x7F, 0x80, 0x81, 0xC0, 0xED, 0xFE, 0xFF, *b"+#/$a"])
WORDS = (b"\x00\x00", b"\x00\x01", b"\x00\xff", b"\x7f\xff", b"\xff\xff", b"\x80\x00", b"\xff\x7f")
PIECES = (
    *(b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f"),
    *(b"\x00\x04MQTT", b"\x00\x06MQIsdp", b"$share/", b"/#", b"+/", b"\x00\x01a", b"\x80\x80\x80\x80\x01"),
    *(bytes([id, 0, 1, 0x61]) for id in (3, 8, 9, 18, 21, 22, 26, 28, 31)),  # properties with a text or data
    *(bytes([id, 1]) for id in (1, 11, 23, 25, 36, 37, 40, 41, 42)),  # of one byte
    *(bytes([id, 0, 0, 0, 1]) for id in (2, 17, 24, 39)),  # of four
    *(bytes([id, 0, 1]) for id in (19, 33, 34, 35)),  # of two
    b"\x26\x00\x01k\x00\x01v",
)

Mutation = Callable[[random.Random, bytearray], None]


def _flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice(BYTES)


def _step(rng: random.Random, data: bytearray) -> None:
    """One more or one less: the off-by-one of every length field."""
    if data:
        at = rng.randrange(len(data))
        data[at] = (data[at] + rng.choice((-1, 1))) % 256


def _word(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    data[at : at + 2] = rng.choice(WORDS)


def _insert(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(PIECES) if rng.random() < 0.5 else rng.randbytes(rng.randrange(1, 5))


def _delete(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.randrange(1, 5)]


def _repeat(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + rng.randrange(1, 12)]
    data[at:at] = piece * rng.randrange(1, 4)


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _splice(rng: random.Random, data: bytearray) -> None:
    """The end of another packet in place of the end of this one."""
    other = _any_case(rng).body
    data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other) + 1) :]


def _swap(rng: random.Random, data: bytearray) -> None:
    if len(data) > 1:
        one, two = rng.randrange(len(data)), rng.randrange(len(data))
        data[one], data[two] = data[two], data[one]


# by version and type, so that the many reason codes of DISCONNECT do not crowd out the one CONNECT with everything
_groups: dict[tuple[int, int], list[Case]] = defaultdict(list)
for _case in CASES:
    _groups[_case.version, _case.first >> 4].append(_case)
GROUPS = tuple(_groups.values())


def _any_case(rng: random.Random) -> Case:
    """Any, but from large packets rather than small ones: there is more to break."""
    group = rng.choice(GROUPS)
    one, two = rng.choice(group), rng.choice(group)
    return one if len(one.frame) > len(two.frame) else two


MUTATIONS: tuple[Mutation, ...] = (_flip, _set, _step, _word, _insert, _delete, _repeat, _cut, _splice, _swap)


def mutations(seed: int, count: int) -> Iterator[tuple[int, bytes]]:
    """`count` pairs of a protocol version and the bytes of one damaged frame."""
    rng = random.Random(seed)
    for _ in range(count):
        case = _any_case(rng)
        version = case.version
        if rng.random() < SHARE_OF_OTHER_VERSION:
            version = V311 if version == V5 else V5
        if rng.random() < SHARE_OF_FRAMING:
            whole = bytearray(case.frame)
            for _ in range(rng.randrange(1, 4)):
                rng.choice(MUTATIONS)(rng, whole)
            yield version, bytes(whole)
            continue
        body = bytearray(case.body)
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
            rng.choice(MUTATIONS)(rng, body)
        first = case.first
        if rng.random() < 0.1:
            first = rng.choice(CASES).first if rng.random() < 0.5 else rng.randrange(256)
        yield version, bytes([first]) + length(len(body)) + bytes(body)
