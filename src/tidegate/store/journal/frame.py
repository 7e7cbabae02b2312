"""Rows ⇄ bytes: one batch is one Arrow IPC message that carries its own stamp.

A stamp says how long the message is, which offsets and times it covers, and its checksum. It is a fixed-width
text in the message's custom metadata, so that any Arrow reader skips it, and that walking over a file, checking
it and rebuilding its index take neither pyarrow nor a second file. A message whose stamp and checksum agree is whole;
whatever else stands there is not, be it cut off, zeros, or garbage.

The stamp is looked for in the message's header only, where nothing stands that came from outside.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidegate.store.journal.rows import Row, Stream
from tidegate.store.journal.schema import arrow, schema

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.store.journal.segment import Window

END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # Arrow's end of stream
_PREFIX: Final = struct.Struct("<iI")  # continuation marker, length of the header
_LONGEST_HEADER: Final = 1 << 20
_MARK: Final = b"tidegate-1:"
_STAMP: Final = struct.Struct(">IQQIqq")  # checksum, length, first, rows, low, high: as hexadecimal digits
_WIDTH: Final = len(_MARK) + 2 * _STAMP.size
_BLANK: Final = (_MARK + b"0" * (2 * _STAMP.size)).decode()
_CHECKSUM: Final = 8  # digits of it, the first ones; they count as zeros in the checksum itself
_COMPRESS: Final = 64 * 1024  # bytes from which compression pays for its time
_LATEST: Final = 253_402_300_799.0  # seconds: the end of the year 9999, the last that Python's dates know


class Place(NamedTuple):
    """One whole batch in a segment."""

    position: int
    length: int
    first: int  # offset of its first row
    rows: int
    low: int  # earliest and latest time in it, in µs
    high: int

    @property
    def end(self) -> int:
        return self.position + self.length

    @property
    def next(self) -> int:
        return self.first + self.rows


def encode(stream: Stream, shard: int, first: int, rows: Sequence[Row], *, compress: bool) -> tuple[bytearray, Place]:
    """The message for these rows, and its place (at 0). Any exception means that some row does not fit its columns."""
    pa = arrow()

    layout = schema(stream)
    columns = list(zip(*rows, strict=True))
    times = [int(time * 1_000_000) for time in _sane(columns[0])]
    arrays = [
        pa.repeat(pa.scalar(shard, pa.int32()), len(rows)),
        pa.array(range(first, first + len(rows)), pa.int64()),
        pa.array(times, layout.field(2).type),
    ]
    arrays += (pa.array(column, layout.field(index).type) for index, column in enumerate(columns[1:], 3))
    batch = pa.RecordBatch.from_arrays(arrays, schema=layout)
    return encode_batch(batch, stream, Place(0, 0, first, len(rows), min(times), max(times)), compress=compress)


def encode_batch(batch: pa.RecordBatch, stream: Stream, place: Place, *, compress: bool) -> tuple[bytearray, Place]:
    """The message for a batch of the current columns, and its place (at 0), which is otherwise as `place` says."""
    pa = arrow()

    squeeze = "zstd" if compress and batch.nbytes >= _COMPRESS else None
    sink = pa.BufferOutputStream()
    # use_threads starts a pool of threads, for nothing at this size.
    writer = pa.ipc.new_stream(
        sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=squeeze, use_threads=False)
    )
    writer.write_batch(batch, custom_metadata={"tidegate": _BLANK})
    message = bytearray(memoryview(sink.getvalue())[len(header(stream)) :])
    place = place._replace(position=0, length=len(message))
    _stamp(message, place)
    return message, place


def header(stream: Stream) -> bytes:
    """What a segment begins with: the schema, as an IPC message."""
    header: bytes = schema(stream).serialize().to_pybytes()
    return header


def decode(message: memoryview, layout: pa.Schema) -> pa.RecordBatch:
    """A whole message as a record batch, which refers to the same memory."""
    pa = arrow()

    return pa.ipc.read_record_batch(pa.py_buffer(message), layout)


def peek(source: Window, position: int) -> Place | None:
    """What the stamp at this position says, unchecked; None if there is none, or an end."""
    prefix = source.at(position, _PREFIX.size)
    if len(prefix) < _PREFIX.size:
        return None
    marker, size = _PREFIX.unpack(prefix)
    if marker != -1 or not _WIDTH < size <= _LONGEST_HEADER:
        return None
    head = bytes(source.at(position, _PREFIX.size + size))
    where = head.find(_MARK)
    if len(head) < _PREFIX.size + size or where < 0:
        return None
    try:
        values = _STAMP.unpack(bytes.fromhex(head[where + len(_MARK) : where + _WIDTH].decode("ascii")))
    except (ValueError, struct.error):
        return None
    _, length, first, rows, low, high = values
    return Place(position, length, first, rows, low, high) if length >= len(head) and rows else None


def whole(source: Window, place: Place) -> memoryview | None:
    """The message, if it is all there and unharmed."""
    message = source.at(place.position, place.length)
    if len(message) < place.length:
        return None
    size = _PREFIX.unpack(message[: _PREFIX.size])[1]
    where = bytes(message[: _PREFIX.size + size]).find(_MARK) + len(_MARK)
    said = bytes(message[where : where + _CHECKSUM])
    return message if said == b"%08x" % _checksum(message, where) else None


def walk(source: Window, position: int, least: int) -> Iterator[Place]:
    """The whole batches from here on, up to the first that is not; their offsets are `least` or more, and rise."""
    while (place := peek(source, position)) is not None and place.first >= least and whole(source, place) is not None:
        yield place
        position, least = place.end, place.next


def _stamp(message: bytearray, place: Place) -> None:
    size = _PREFIX.unpack_from(message)[1]
    where = message.index(_MARK, 0, _PREFIX.size + size) + len(_MARK)
    said = _STAMP.pack(0, place.length, place.first, place.rows, place.low, place.high).hex().encode()
    message[where : where + len(said)] = said
    message[where : where + _CHECKSUM] = b"%08x" % _checksum(memoryview(message), where)


def _checksum(message: memoryview, where: int) -> int:
    start = zlib.crc32(b"0" * _CHECKSUM, zlib.crc32(message[:where]))
    return zlib.crc32(message[where + _CHECKSUM :], start)


def _sane(times: Sequence[float]) -> Sequence[float]:
    """A clock may say anything; a date has to come out."""
    if min(times) >= 0.0 and max(times) <= _LATEST:
        return times
    return [min(max(time, 0.0), _LATEST) for time in times]
