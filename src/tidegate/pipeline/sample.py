"""A few of the last messages of every source type: what new rules are tried on.

The batch in hand need not have a message of every type, so some are kept in a small Parquet file beside the ledger. A
message of a source that is not registered has no type; such messages are told apart by the beginning of their topic.

- Of each type the newest EACH messages are kept, at most TYPES types (those silent longest go) and SIZE bytes.
- Messages larger than LARGE are not kept.
- Messages of people who have been erased are not kept: `save` leaves them out, and `forget` removes them at once.
- A sample that is lost or damaged is gathered again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from tidegate.pipeline.lake import remaining
from tidegate.store.journal import schema, stream_named

EACH: Final = 50
TYPES: Final = 200
SIZE: Final = 8 << 20
LARGE: Final = 64 << 10
_BEGIN: Final = r"(?s)^([^/]*(?:/[^/]*)?).*$"  # of a topic: its first two levels, which stand for a type

log = structlog.get_logger("tidegate.pipeline")


def types_of(rows: pa.Table) -> pa.Array:
    """The source type of each message, or what stands for it."""
    begin = pc.replace_substring_regex(pc.fill_null(rows["topic"], ""), _BEGIN, r"\1/#")
    return pc.coalesce(rows["source_kind"], begin).combine_chunks()


class Sample:
    """Of one pipeline. `lake` says who has been erased."""

    def __init__(self, path: Path, lake: Path) -> None:
        self._path = path
        self._lake = lake
        self._new: list[pa.Table] = []

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same messages; some of them are in the sample when it is saved."""
        self._new.clear()
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            small = rows.filter(pc.less_equal(pc.fill_null(pc.binary_length(rows["payload"]), 0), LARGE))
            self._new = [_newest(pa.concat_tables([*self._new, small]))]
            yield batch

    def save(self) -> None:
        """With what has passed since the last time. A disk that refuses is told in the log: rules can do without."""
        if not self._new:
            return
        try:
            rows = pa.concat_tables([self.rows(), *self._new], promote_options="default")
            self._write(self._remaining(_newest(rows)))
        except (OSError, pa.ArrowException) as error:
            log.warning("the sample of messages for new rules cannot be kept", reason=str(error))
        self._new.clear()

    def rows(self) -> pa.Table:
        layout = schema(stream_named("ingest"))
        try:
            rows = pq.read_table(self._path)
            if set(layout.names) <= set(rows.column_names):
                return self._remaining(rows.select(layout.names).cast(layout))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, pa.ArrowException) as error:
            log.warning("the sample of messages for new rules is damaged; it is gathered again", reason=str(error))
        return layout.empty_table()

    def forget(self, users: Collection[str]) -> None:
        """Removes what they sent. OSError if the disk refuses."""
        rows = self.rows()
        theirs = pc.is_in(rows["user"], value_set=pa.array(sorted(users), pa.string()))
        if pc.any(theirs).as_py():
            self._write(rows.filter(pc.invert(theirs)))

    def _remaining(self, rows: pa.Table) -> pa.Table:
        if not self._lake.exists():
            return rows
        kept = list(remaining(self._lake, rows.to_batches()))
        return pa.Table.from_batches([batch.select(rows.column_names) for batch in kept], rows.schema)

    def _write(self, rows: pa.Table) -> None:
        new = self._path.with_name(f"{self._path.name}.new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            pq.write_table(rows, file, compression="zstd")
        new.replace(self._path)


def _newest(rows: pa.Table) -> pa.Table:
    """The last of each type, within the bounds; in their order."""
    types = types_of(rows).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.argsort(types, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(types[order])) + 1) if len(order) else []
    latest = sorted((group[-EACH:] for group in groups), key=lambda group: -int(group[-1]))[:TYPES]
    while True:
        places = np.sort(np.concatenate(latest)) if latest else np.array([], np.int64)
        kept = rows.take(pa.array(places))
        if kept.nbytes <= SIZE:
            return kept
        longest = max(map(len, latest))
        latest = [group[-(longest // 2) :] for group in latest] if longest > 1 else latest[:-1]
