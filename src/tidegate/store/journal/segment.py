"""The files of one shard: their names, a window to read them through, and the one being written.

A segment is `<first offset>.arrow`, an Arrow IPC stream, with `<first offset>.index` beside it. Its batches come one
after the other; a segment that is full ends with Arrow's end-of-stream mark. The one being written does not, and need
not: an Arrow reader takes the end of the file between two batches as the end of the stream. In the middle of a batch
that is being written it raises ArrowInvalid or OSError after the last whole one.

A segment comes into being with its header complete, by renaming, and there is always a last one: its name and what is
in it tell the next offset even when everything before it is gone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tidegate.errors import StoreError
from tidegate.store.disk import sync_path
from tidegate.store.journal import index
from tidegate.store.journal.frame import END, Place
from tidegate.store.journal.rows import Stream

SUFFIX: Final = ".arrow"
NEW: Final = ".new"  # on its way to become a segment or an index
_READ_AHEAD: Final = 256 * 1024
_LONGEST_HEADER: Final = 1 << 20


def folder_of(data: Path, stream: Stream, shard: int) -> Path:
    return data / "journal" / stream.name / str(shard)


def segment_of(folder: Path, first: int) -> Path:
    return folder / f"{first:020d}{SUFFIX}"


def index_of(segment: Path) -> Path:
    return segment.with_suffix(".index")


def first_offsets(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(name[: -len(SUFFIX)]) for name in names if name.endswith(SUFFIX) and name[:20].isdecimal())


class Window:
    """Bytes of a segment, read ahead. Never mapped: a file that is cut meanwhile would kill the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._start = 0
        self._data = b""

    @property
    def size(self) -> int:
        return os.fstat(self._file).st_size

    def at(self, position: int, length: int) -> memoryview:
        """Fewer than asked for only at the end."""
        begin = position - self._start
        if begin < 0 or begin + length > len(self._data):
            # No more than there is: a length read from garbage must not make us reserve that much.
            most = max(0, min(max(length, _READ_AHEAD), self.size - position))
            self._data = os.pread(self._file, most, position)
            self._start, begin = position, 0
        return memoryview(self._data)[begin : begin + length]

    def forget(self) -> None:
        """The next look sees the file as it is then."""
        self._data = b""

    def read_header(self) -> bytes | None:
        """The message with the schema that a segment begins with; None if it is not all there."""
        prefix = self.at(0, 8)
        size = int.from_bytes(prefix[4:8], "little")
        if len(prefix) < 8 or bytes(prefix[:4]) != b"\xff\xff\xff\xff" or not 0 < size <= _LONGEST_HEADER:
            return None
        header = bytes(self.at(0, 8 + size))
        return header if len(header) == 8 + size else None

    def close(self) -> None:
        os.close(self._file)


class Segment:
    """The segment being written. Every method may raise OSError; nothing counts as written unless `append` returns."""

    def __init__(self, path: Path, *, first: int, end: int, last: index.Entry | None, entries: int, sync: bool) -> None:
        """Goes on with an existing one whose last whole batch ends at `end`."""
        self.path = path
        self.first = first
        self.next = first if last is None else last.place.next
        self.end = end
        self.last = last
        self._entries = entries
        self._sync = sync
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._index = os.open(index_of(path), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            os.close(self._file)
            raise

    @classmethod
    def create(cls, folder: Path, first: int, header: bytes, *, sync: bool) -> Segment:
        """A new one, empty. What was there under that name is replaced."""
        path = segment_of(folder, first)
        new = path.with_name(path.name + NEW)
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(file, header, 0)
            os.fsync(file)
        finally:
            os.close(file)
        index.write_new(index_of(path), ())
        new.replace(path)
        sync_path(folder)
        return cls(path, first=first, end=len(header), last=None, entries=0, sync=sync)

    @property
    def gone(self) -> bool:
        """Somebody has deleted the file; what is written to it would be lost."""
        return os.fstat(self._file).st_nlink == 0

    @property
    def size(self) -> int:
        return self.end + (self._entries + 1) * index.SIZE

    def append(self, message: bytearray, place: Place) -> None:
        """Writes one batch, then its entry in the index. To be called again with the same after an OSError."""
        if place.first != self.next:
            raise StoreError(f"{self.path}: the next offset is {self.next}, not {place.first}")
        if self.gone:
            raise FileNotFoundError(2, "the file was deleted while it was written", str(self.path))
        _write(self._file, message, self.end)
        if self._sync:
            os.fdatasync(self._file)
        entry = index.entry_after(self.last, place._replace(position=self.end))
        _write(self._index, index.to_bytes(entry), (self._entries + 1) * index.SIZE)
        self._entries += 1
        self.last = entry
        self.end += len(message)
        self.next = place.next

    def cut(self) -> None:
        """Removes what a failed `append` has left. After a failed fdatasync only writing it again helps."""
        os.ftruncate(self._file, self.end)

    def flush(self) -> None:
        os.fdatasync(self._file)

    def finish(self) -> None:
        """Marks the end. Nothing is appended after that."""
        _write(self._file, END, self.end)

    def close(self) -> None:
        os.close(self._file)
        os.close(self._index)


def _write(file: int, data: bytes | bytearray, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, position)
        view = view[written:]
        position += written
