"""Rows of a batch into the lake: the same however often the batch is written.

A batch has a name that the job derives from its journal and where it starts there. Its files are written aside
(`stage`) and come in by a swap that also removes what an earlier attempt of the same batch has left, on whatever days.
So what one call writes is in the lake whole or not at all, and exactly once after any number of attempts: the messages
in one call, then good and faulty records together in another.

Files are not written by Spark's own writer. Messages go from the journal to the lake as they came; Spark would take
them apart and put them together again, which costs five times as much. Records come as an Arrow table if they are few;
many are a frame, and each of its tasks writes files of its own. A task that fails, or runs twice, leaves files that
nobody lists: only files of tasks that Spark has counted as done come into the lake.

Memory is bounded by a group of rows for each table and day, whatever the size of the batch.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.columns import struct
from tidegate.pipeline.lake.erase import Tombstone, tombstones
from tidegate.pipeline.lake.files import GroupWriter, Owned, conformed, last_start
from tidegate.pipeline.lake.swap import Claim, Step, swap, swapping, unwatched, writer
from tidegate.pipeline.lake.tables import (
    AUDIT,
    NORMALISED,
    QUARANTINE,
    RAW,
    TABLES,
    VERSION,
    Mark,
    Place,
    Table,
    checked,
    refused_by_spark,
    trouble,
)
from tidegate.topics import matches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HARDLY_REPEAT: Final = ("id", "offset", "payload", "message", "value", "received_at", "measured_at", "at")
"""Columns for which a dictionary is not worth its while."""
_KEPT_IF_SEALED: Final = {"value": False, "text": False, "extra": False, "message": True}
"""Columns of which a sealed record keeps only `message`, and any other record keeps all but `message`."""
_GROUP: Final = 16 << 20  # bytes of rows, before compression, that are written together
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Categories = Sequence[tuple[str, str]]


class StagedFile(NamedTuple):
    """A file that is complete and not in the lake yet."""

    table: str
    path: str
    rows: int


def _schemas() -> dict[str, pa.Schema]:
    """The Arrow schema of each table. Only the driver can make them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return {name: to_arrow_schema(struct(table.columns), timezone="UTC") for name, table in TABLES.items()}


def stage(
    rows: Iterable[tuple[Table, pa.Table]],
    folder: Path,
    journal: str | None,
    stones: tuple[Tombstone, ...] = (),
    schemas: Mapping[str, pa.Schema] | None = None,
) -> list[StagedFile]:
    """Write rows of a journal, or of none, to a folder, but those of people who have been erased.

    OSError if the disk refuses.
    """
    schemas = schemas or _schemas()
    with ExitStack() as open_files:
        files: dict[tuple[str, int], GroupWriter] = {}
        for table, table_rows in rows:
            schema, graves = schemas[table.name], _graves(stones, table)
            for day, part in _by_day(_without(table_rows, graves), table):
                if (table.name, day) not in files:
                    files[table.name, day] = open_files.enter_context(_day_file(folder / table.name, day, schema))
                named = part.append_column("journal", pa.repeat(pa.scalar(journal, pa.string()), part.num_rows))
                files[table.name, day].put(conformed(named, schema))
    return [StagedFile(table, str(file.path), file.rows) for (table, _), file in files.items()]


def stage_records(
    lake: Place, records: DataFrame | pa.Table, folder: Path, journal: str, stones: tuple[Tombstone, ...]
) -> list[StagedFile]:
    """Write what all stages made of a batch: good records, and those with a fault.

    PipelineError if Spark refuses. A frame is read once.
    """
    if isinstance(records, pa.Table):
        return stage(_by_table([records]), folder, journal, stones)
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    # Each task writes a file for each table and day, for which it pays about as much as for thousands of rows.
    tasks = records.coalesce(records.sparkSession.sparkContext.defaultParallelism)
    staging = partial(_stage_task, folder=folder, journal=journal, stones=stones, schemas=_schemas())
    try:
        rows = tasks.mapInArrow(staging, "table string, path string, rows bigint").collect()
    except (Py4JJavaError, PySparkException) as error:
        raise refused_by_spark(lake.path, str(error)) from error
    return [StagedFile(*row) for row in rows]


def _stage_task(
    batches: Iterator[pa.RecordBatch],
    *,
    folder: Path,
    journal: str,
    stones: tuple[Tombstone, ...],
    schemas: Mapping[str, pa.Schema],
) -> Iterator[pa.RecordBatch]:
    files = stage(_by_table(pa.Table.from_batches([batch]) for batch in batches), folder, journal, stones, schemas)
    if files:
        yield pa.RecordBatch.from_pylist([file._asdict() for file in files])


def _by_table(records: Iterable[pa.Table]) -> Iterator[tuple[Table, pa.Table]]:
    for rows in records:
        good = pc.is_null(rows["fault"])
        yield NORMALISED, _sealed(rows.filter(good))
        yield QUARANTINE, rows.filter(pc.invert(good))


def _sealed(records: pa.Table) -> pa.Table:
    """Content that a topic key protects is stored under that key only."""
    sealed = pc.is_valid(records["key_id"])
    for name, if_sealed in _KEPT_IF_SEALED.items():
        place, column = records.schema.get_field_index(name), records[name]
        kept = pc.if_else(sealed if if_sealed else pc.invert(sealed), column, pa.scalar(None, column.type))
        records = records.set_column(place, name, kept)
    return records


def remaining(lake: Path, messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Those but what people sent who have been erased since: of that nothing is made any more."""
    graves = _graves(tombstones(Place.open(lake)), RAW)
    for batch in messages:
        if not graves:
            yield batch
        else:
            yield from _without(owned(batch), graves).to_batches()


def _day_file(folder: Path, day: int, schema: pa.Schema) -> GroupWriter:
    # never the name of an earlier attempt: that file goes when this one comes
    name = f"part-{uuid.uuid4().hex}.parquet"
    path = folder / f"date={(_EPOCH + timedelta(days=day)).date().isoformat()}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    repeat = [field.name for field in schema if not pa.types.is_nested(field.type) and field.name not in _HARDLY_REPEAT]
    return GroupWriter(path, schema, _GROUP, compression_level=1, use_dictionary=repeat)


def owned(batch: pa.RecordBatch, categories: Categories = ()) -> pa.Table:
    rows = pa.Table.from_batches([batch])
    owned = rows.append_column("owner", rows["user"])
    if not categories:
        return owned.append_column("category", pa.nulls(rows.num_rows, pa.string()))
    topics = rows["topic"].combine_chunks().dictionary_encode()
    names = [
        next((name for filter, name in categories if matches(filter, topic)), None)
        for topic in topics.dictionary.to_pylist()
    ]
    return owned.append_column("category", pa.array(names, pa.string()).take(topics.indices))


def _graves(stones: tuple[Tombstone, ...], table: Table) -> list[Owned]:
    return [stone.rows(table) for stone in stones if stone.audit or table is not AUDIT]


def _without(rows: pa.Table, graves: Iterable[Owned]) -> pa.Table:
    for grave in graves:
        rows = rows.filter(pc.invert(grave.matches(rows)))
    return rows


def _by_day(rows: pa.Table, table: Table) -> Iterator[tuple[int, pa.Table]]:
    """Days since 1970, in UTC; rows without a time are put where they will not be overlooked."""
    days = pc.fill_null(rows[table.time or "date"].cast(pa.date32()).cast(pa.int32()), 0)
    for day in sorted(pc.unique(days).to_pylist()):
        yield day, rows.filter(pc.equal(days, day))


Rows: TypeAlias = "Callable[[], Iterable[pa.RecordBatch]]"
"""Rows of the journal, which may be asked for again."""

Stage: TypeAlias = Callable[[Path, tuple[Tombstone, ...]], list[StagedFile]]
"""Writes rows to a folder, but those of people who have been erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    records: int
    quarantined: int


class Lake:
    """Open for the job of one journal; from its first use on, and until it is closed, no other may write its rows."""

    def __init__(self, path: Path, *, journal: str, step: Step = unwatched) -> None:
        self.journal = journal
        self._path = path
        self._step = step
        self._claimed: Claim | None = None
        self._adopted = False  # whether rows without a journal are its own

    def recover(self, *, adopt: bool = False) -> None:
        """Finish what a crash has left. PipelineError if this is no lake for us, or another job writes to it.

        `adopt`: rows of a lake of version 1, which do not tell their journal, are of this one.
        """
        if self._claimed is None:
            claim = Claim(Place.open(self._path, create=True), writer(self.journal))
            try:
                self._enrol(claim.lake, adopt=adopt)
            except BaseException:
                claim.close()
                raise
            self._claimed = claim

    def _enrol(self, lake: Place, *, adopt: bool) -> None:
        with swapping(lake):
            mark = lake.mark()
            journals = (*mark.journals, self.journal) if self.journal not in mark.journals else mark.journals
            adopted = self.journal if adopt and mark.version < VERSION else mark.adopted
            if mark != (enrolled := Mark(journals=journals, adopted=adopted)):
                lake.remark(enrolled)
            self._adopted = adopted == self.journal

    def close(self) -> None:
        if self._claimed is not None:
            self._claimed.close()
            self._claimed = None

    def progress(self) -> dict[int, int]:
        """By shard, where the last batch of `raw` begins: what is before it is all in the lake, itself perhaps not."""
        return last_start(self._claim.lake, self.journal)

    def write_raw(self, messages: Rows, batch: str, *, categories: Categories = ()) -> int:
        """The messages of a batch as they came; how many."""
        return self._arrived(RAW, messages, batch, categories)

    def write_audit(self, rows: Rows, batch: str) -> int:
        """Rows of the stream `audit`; how many."""
        return self._arrived(AUDIT, rows, batch)

    def write_records(self, records: DataFrame | pa.Table, batch: str) -> Counts:
        """What all stages made of a batch: good records, and those with a fault, in one step.

        A table becomes one file for each table of the lake and day; a frame one for each core.
        """
        rows = self._write(
            (NORMALISED, QUARANTINE),
            batch,
            lambda folder, stones: stage_records(self._claim.lake, records, folder, self.journal, stones),
        )
        return Counts(records=rows[NORMALISED.name], quarantined=rows[QUARANTINE.name])

    @property
    def _claim(self) -> Claim:
        self.recover()
        assert self._claimed is not None
        return self._claimed

    def _names(self, batch: str) -> tuple[str, ...]:
        """That an attempt at it may have left files under; in version 1 it was named without the journal."""
        without = batch.removeprefix(f"{self.journal}-")
        return (batch, without) if self._adopted and without != batch else (batch,)

    def _arrived(self, table: Table, rows: Rows, batch: str, categories: Categories = ()) -> int:
        def stage_arrived(folder: Path, stones: tuple[Tombstone, ...]) -> list[StagedFile]:
            return stage(((table, owned(each, categories)) for each in rows()), folder, self.journal, stones)

        return self._write((table,), batch, stage_arrived)[table.name]

    def _write(self, tables: Iterable[Table], batch: str, stage: Stage) -> Counter[str]:
        """The rows of each table that came in; those of an earlier attempt of the batch are gone."""
        lake = self._claim.lake
        checked(batch)
        while True:
            stones = tombstones(lake)
            with self._claim.stage() as folder, trouble(lake.path):
                files = stage(folder, stones)
                with swapping(lake):
                    if tombstones(lake) != stones:
                        continue  # somebody was erased meanwhile
                    add = []
                    rows: Counter[str] = Counter()
                    for table, name, count in files:
                        path = Path(name)
                        add.append((path, lake.path / table / path.parent.name / f"batch={batch}" / path.name))
                        rows[table] += count
                    old = [
                        part.path
                        for table in tables
                        for name in self._names(batch)
                        for part in lake.parts(table.name, batch=name)
                    ]
                    swap(lake, add=add, remove=old, step=self._step)
                    return rows
