"""The index of a segment: one entry of 64 bytes per batch, in a file beside it.

It spares readers from walking: the entry for an offset is found by halving, and the last entry holds the earliest and
latest time of the whole segment up to it, so that one read tells whether a segment can be passed over.
An entry is written after its batch is on the disk, so what has an entry is safe. It is written without forcing
it to the disk: each entry has a checksum, and what is missing or wrong is made again from the segment.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tidegate.store.journal.frame import Place

SIZE: Final = 64
_HEADER: Final = b"tidegate journal index 1\n".ljust(SIZE, b"\0")
_ENTRY: Final = struct.Struct("<QQQIqqqq")  # position, length, first, rows, low, high, low and high so far
_SUM: Final = struct.Struct("<I")
_POSITION, _FIRST = Place._fields.index("position"), Place._fields.index("first")


class Entry(NamedTuple):
    """A batch, and the times of the segment up to and with it."""

    place: Place
    low: int
    high: int


def entry_after(before: Entry | None, place: Place) -> Entry:
    if before is None:
        return Entry(place, place.low, place.high)
    return Entry(place, min(before.low, place.low), max(before.high, place.high))


def to_bytes(entry: Entry) -> bytes:
    packed = _ENTRY.pack(*entry.place, entry.low, entry.high)
    return packed + _SUM.pack(zlib.crc32(packed))


class Index:
    """An index for reading, empty if there is no file. Anybody may be writing it meanwhile."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._file = -1

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def __len__(self) -> int:
        if self._file < 0 or os.pread(self._file, SIZE, 0) != _HEADER:
            return 0  # of another version, or damaged: as if there were none
        return max(0, os.fstat(self._file).st_size // SIZE - 1)

    def entry(self, number: int) -> Entry | None:
        """None if it is not there, or wrong."""
        if number < 0 or self._file < 0:
            return None
        data = os.pread(self._file, SIZE, (number + 1) * SIZE)
        if len(data) < SIZE or zlib.crc32(data[: _ENTRY.size]) != _SUM.unpack_from(data, _ENTRY.size)[0]:
            return None
        position, length, first, rows, low, high, low_so_far, high_so_far = _ENTRY.unpack_from(data)
        return Entry(Place(position, length, first, rows, low, high), low_so_far, high_so_far)

    def last(self) -> Entry | None:
        """The last good one: after a power failure the end may be zeros."""
        entries = map(self.entry, range(len(self) - 1, -1, -1))
        return next((entry for entry in entries if entry is not None), None)

    def at_offset(self, offset: int) -> Place | None:
        """The batch that holds this offset, or else the last one before it; None: look from the beginning."""
        entry = self.entry(self._search(_FIRST, offset))
        return None if entry is None else entry.place

    def from_position(self, position: int) -> Iterator[Place]:
        for number in range(max(self._search(_POSITION, position), 0), len(self)):
            entry = self.entry(number)
            if entry is not None and entry.place.position >= position:
                yield entry.place

    def _search(self, field: int, value: int) -> int:
        """The number of the last entry whose field is no greater than this, or -1. Wrong entries make it less."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            if entry is None or entry.place[field] > value:
                high = middle
            else:
                low = middle + 1
        return low - 1


def read_last(path: Path) -> Entry | None:
    with Index(path) as index:
        return index.last()


def write_new(path: Path, places: Iterable[Place]) -> Entry | None:
    """Makes the index anew; the last entry. Readers see the old one or the new one."""
    data = bytearray(_HEADER)
    entry: Entry | None = None
    for place in places:
        entry = entry_after(entry, place)
        data += to_bytes(entry)
    new = path.with_name(path.name + ".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as stream:
        stream.write(data)
    new.replace(path)
    return entry
