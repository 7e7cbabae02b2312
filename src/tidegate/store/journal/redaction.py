"""What somebody has sent goes from a journal: the content of their rows, from every segment that is complete.

The rows stay, with their offsets, so that no reader loses its place; their payload, properties and content type are
null. A segment is replaced as a whole, by renaming. Its index is taken away first and made anew afterwards: a reader
that finds none looks from the beginning, and one that has the old segment open goes on in that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.store.disk import sync_path
from tidegate.store.journal import frame, index
from tidegate.store.journal.frame import END, Place
from tidegate.store.journal.rows import Happening, Stream
from tidegate.store.journal.schema import arrow, conform, read_schema
from tidegate.store.journal.segment import NEW, Window, first_offsets, folder_of, index_of, segment_of

if TYPE_CHECKING:
    import pyarrow as pa

_CONTENT: Final = ("payload", "properties", "content_type")


@dataclass(slots=True)
class Redacted:
    rows: int = 0
    unread: int = 0
    """Segments that are damaged, and were left as they are."""


def redact(data: Path, stream: Stream, since: Mapping[str, float], before: float, shard: int = 0) -> Redacted:
    """The rows of each of these users that were received since a time of theirs and before another; blocks.

    The newest segment is left alone: the node writes it, and begins another when it is asked to (`Writer.roll`).
    """
    folder, done = folder_of(data, stream, shard), Redacted()
    for first in first_offsets(folder)[:-1]:
        try:
            _redact(segment_of(folder, first), first, stream, since, before, done)
        except FileNotFoundError:
            continue  # retention was faster
    return done


def _redact(path: Path, first: int, stream: Stream, since: Mapping[str, float], before: float, done: Redacted) -> None:
    with closing(Window(path)) as window:
        header = window.read_header()
        layout = None if header is None else read_schema(header, stream)
        if header is None or layout is None:
            done.unread += 1
            return
        places = list(frame.walk(window, len(header), first))
        end = places[-1].end if places else len(header)
        batches, rows = [], 0
        for place in places:
            message = frame.whole(window, place)
            assert message is not None
            batch = conform(frame.decode(memoryview(bytes(message)), layout), stream)
            theirs = _theirs(batch, since, before)
            count = theirs.true_count
            rows += count
            batches.append((place, _without_content(batch, theirs) if count else batch))
        if rows and bytes(window.at(end, len(END))) != END:
            done.unread += 1
            return
    if rows:
        _replace(path, stream, batches)
        done.rows += rows


def _theirs(batch: pa.RecordBatch, since: Mapping[str, float], before: float) -> pa.BooleanArray:
    """Rows of them that have content."""
    pa = arrow()
    import pyarrow.compute as pc

    names = set(batch.schema.names)
    times, users = batch.column("received_at" if "received_at" in names else "at"), batch.column("user")
    theirs = pa.repeat(pa.scalar(False), batch.num_rows)
    for user, began in since.items():
        own = pc.and_(pc.equal(users, user), pc.greater_equal(times, _instant(began)))
        theirs = pc.or_(theirs, pc.fill_null(own, False))
    if "event" in names:  # of `traffic`; who was connected, and to what, a replay needs
        theirs = pc.and_(theirs, pc.equal(batch.column("event"), Happening.MESSAGE.value))
    content = pa.repeat(pa.scalar(False), batch.num_rows)
    for name in names.intersection(_CONTENT):
        content = pc.or_(content, pc.is_valid(batch.column(name)))
    return pc.and_(pc.and_(theirs, content), pc.less(times, _instant(before)))


def _instant(time: float) -> pa.Scalar:
    pa = arrow()
    return pa.scalar(int(time * 1_000_000), pa.timestamp("us", tz="UTC"))


def _without_content(batch: pa.RecordBatch, theirs: pa.BooleanArray) -> pa.RecordBatch:
    pa = arrow()
    import pyarrow.compute as pc

    keep = pc.invert(theirs)
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name not in _CONTENT:
            columns.append(column)
        elif pa.types.is_list(field.type):  # there is no if_else for lists
            pairs = zip(column.to_pylist(), keep.to_pylist(), strict=True)
            columns.append(pa.array([each if kept else None for each, kept in pairs], field.type))
        else:
            columns.append(pc.if_else(keep, column, pa.scalar(None, field.type)))
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _replace(path: Path, stream: Stream, batches: list[tuple[Place, pa.RecordBatch]]) -> None:
    new, places = path.with_name(path.name + NEW), []
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(frame.header(stream))
        for place, batch in batches:
            message, written = frame.encode_batch(batch, stream, place, compress=True)
            places.append(written._replace(position=file.tell()))
            file.write(message)
        file.write(END)
        file.flush()
        os.fsync(file.fileno())
    if not path.exists():  # retention was faster
        new.unlink()
        return
    index_of(path).unlink(missing_ok=True)
    new.replace(path)
    index.write_new(index_of(path), places)
    sync_path(path.parent)
