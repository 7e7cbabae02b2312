"""Rows into files of the lake without Spark: those of the journal, as they came, and records that are few.

Spark would take apart what came and put it together again. From Arrow to Parquet that costs a fifth, and no job that a
small batch has to wait for.

Memory is bounded by a group of rows for each day, whatever the size of the batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.pipeline.columns import struct
from tidegate.pipeline.lake.erased import Tombstone, concerned, tombstones
from tidegate.pipeline.lake.files import Owned, conformed
from tidegate.pipeline.lake.place import Place
from tidegate.pipeline.lake.tables import RAW, Table
from tidegate.topics import matches

HARDLY_REPEAT: Final = ("id", "offset", "payload", "message", "value", "received_at", "measured_at", "at")
"""Columns for which a dictionary is not worth its while."""
_GROUP: Final = 16 << 20  # bytes of rows, before compression, that are written together
_DAY: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Categories = Sequence[tuple[str, str]]


def stage_rows(rows: Iterable[pa.Table], table: Table, folder: Path, stones: tuple[Tombstone, ...]) -> None:
    """Write the rows to a folder, by date, but those of people who have been erased. OSError if the disk refuses."""
    from pyspark.sql.pandas.types import to_arrow_schema

    assert table.time is not None
    schema = to_arrow_schema(struct(table.columns), timezone="UTC")
    graves = _graves(stones, table)
    with ExitStack() as open:
        days: dict[int, _Day] = {}
        for each in rows:
            for day, part in _by_day(_without(conformed(each, schema), graves), table.time):
                if day not in days:
                    days[day] = open.enter_context(_Day(folder, day, schema))
                days[day].put(part)


def remaining(lake: Path, messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Those but what people sent who have been erased since: of that nothing is made any more."""
    graves = _graves(tombstones(Place.open(lake)), RAW)
    for batch in messages:
        if not graves:
            yield batch
        else:
            yield from _without(owned(batch), graves).to_batches()


class _Day:
    """The file of one day."""

    def __init__(self, folder: Path, day: int, schema: pa.Schema) -> None:
        # never the name of an earlier attempt: that file goes when this one comes
        name = f"part-{uuid.uuid4().hex}.parquet"
        path = folder / f"date={(_EPOCH + timedelta(days=day)).date().isoformat()}" / name
        path.parent.mkdir(parents=True)
        repeat = [name for name in _leaves(schema) if name not in HARDLY_REPEAT]
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", compression_level=1, use_dictionary=repeat)
        self._waiting: list[pa.Table] = []
        self._size = 0

    def put(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._size += rows.nbytes
        if self._size >= _GROUP:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            whole = pa.concat_tables(self._waiting)
            self._waiting, self._size = [], 0
            self._writer.write_table(whole, row_group_size=max(1, whole.num_rows))

    def __enter__(self) -> _Day:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._write()
        finally:
            self._writer.close()


def owned(batch: pa.RecordBatch, categories: Categories = ()) -> pa.Table:
    """Messages with the columns `owner` and `category`."""
    rows = pa.Table.from_batches([batch])
    owned = rows.append_column("owner", rows["user"])
    if not categories:
        return owned.append_column("category", pa.nulls(rows.num_rows, pa.string()))
    topics = rows["topic"].combine_chunks().dictionary_encode()
    names = [_category(topic, categories) for topic in topics.dictionary.to_pylist()]
    return owned.append_column("category", pa.array(names, pa.string()).take(topics.indices))


def _category(topic: str, categories: Categories) -> str | None:
    return next((name for filter, name in categories if matches(filter, topic)), None)


def _graves(stones: tuple[Tombstone, ...], table: Table) -> list[Owned]:
    return [Owned(owner=stone.user, time=table.time, before=stone.before) for stone in concerned(stones, table)]


def _without(rows: pa.Table, graves: Iterable[Owned]) -> pa.Table:
    for grave in graves:
        rows = rows.filter(pc.invert(grave.matches(rows)))
    return rows


def _by_day(rows: pa.Table, time: str) -> Iterable[tuple[int, pa.Table]]:
    """Days since 1970, in UTC; rows without a time are put where they will not be overlooked."""
    if not rows.num_rows:
        return
    micros = pc.fill_null(rows[time].cast(pa.int64()), 0)
    ends: Any = pc.min_max(micros).as_py()
    first, last = ends["min"] // _DAY, ends["max"] // _DAY
    if first == last:
        yield first, rows
        return
    inside = pc.subtract(micros, first * _DAY)  # not negative, where dividing rounds down
    days = pc.divide(inside, _DAY)
    for day in sorted(pc.unique(days).to_pylist()):
        yield first + day, rows.filter(pc.equal(days, day))


def _leaves(schema: pa.Schema) -> list[str]:
    """The columns as Parquet names them; those that have parts are left to themselves."""
    return [field.name for field in schema if not pa.types.is_nested(field.type)]
