"""Rows of a batch into the lake: the same however often the batch is written.

A batch has a name that the job derives from where it starts in the journal. Its files are written aside and come in by
a swap that also removes what an earlier attempt of the same batch has left, on whatever days. So what one
call writes is in the lake whole or not at all, and exactly once after any number of attempts: the messages in one call,
then good and faulty records together in another.

Messages, and rows of the audit, go from the journal to the lake as they are (`arriving`), so do records that are few;
many go through Spark. Their frame is read once for each table, so it should be persisted; one write of both tables
together would give each the columns of both. A plain write to a staging folder with the options below took a quarter
less CPU for each row, of `raw` and of `normalised`, than Spark's own dynamic overwrite (medians of interleaved rounds
on a busy machine; what each option contributes was less than the spread).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.lake.arriving import HARDLY_REPEAT, Categories, owned, stage_rows
from tidegate.pipeline.lake.erased import Tombstone, tombstones, without
from tidegate.pipeline.lake.files import count, last_start
from tidegate.pipeline.lake.place import Place, checked, refused_by_spark, trouble
from tidegate.pipeline.lake.swap import WRITER, Claim, Step, swap, swapping, unwatched
from tidegate.pipeline.lake.tables import AUDIT, NORMALISED, QUARANTINE, RAW, Table
from tidegate.pipeline.spark_functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Rows: TypeAlias = "Callable[[], Iterable[pa.RecordBatch]]"
"""Rows of the journal, which may be asked for again."""

Staged: TypeAlias = Callable[[Path, tuple[Tombstone, ...]], None]
"""Writes rows to a folder, but those of people who have been erased."""
_DAY: Final = 86_400_000_000
_KEPT_IF_SEALED: Final = {"value": False, "text": False, "extra": False, "message": True}
"""Columns of which a sealed record keeps only `message`, and any other record keeps all but `message`."""
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default, INT96, is deprecated and slower
    "spark.sql.maxConcurrentOutputFileWriters": "16",  # rows need not be sorted by day first
}
_OPTIONS: Final = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "1",
    "partitionOverwriteMode": "static",
    # What is staged is not looked at before it is complete, so that one renaming of each file is enough.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    **{f"parquet.enable.dictionary#{name}": "false" for name in HARDLY_REPEAT},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What of a batch has come into the lake."""

    records: int
    quarantined: int


class Lake:
    """Open for the one job that writes to it; from its first use on, and until it is closed, no other may."""

    def __init__(self, spark: SparkSession, path: Path, *, step: Step = unwatched) -> None:
        self._spark = spark
        self._path = path
        self._step = step
        self._claimed: Claim | None = None

    def recover(self) -> None:
        """Finish what a crash has left. PipelineError if this is no lake for us, or another job writes to it."""
        if self._claimed is None:
            self._claimed = Claim(Place.open(self._path, create=True), WRITER)

    def close(self) -> None:
        if self._claimed is not None:
            self._claimed.close()
            self._claimed = None

    def progress(self) -> dict[int, int]:
        """By shard, where the last batch of `raw` begins: what is before it is all in the lake, itself perhaps not."""
        return last_start(self._claim.lake)

    def write_raw(self, messages: Rows, batch: str, *, categories: Categories = ()) -> int:
        """The messages of a batch as they came; how many."""
        return self._arrived(RAW, messages, batch, categories)

    def write_audit(self, rows: Rows, batch: str) -> int:
        """Rows of the stream `audit`; how many."""
        return self._arrived(AUDIT, rows, batch)

    def write_few(self, records: pa.Table, batch: str) -> Counts:
        """What all stages made of a small batch, as `write_records` does it; one file for each table and day."""
        good = pc.is_null(records["fault"])
        rows = {NORMALISED: _sealed_table(records.filter(good)), QUARANTINE: records.filter(pc.invert(good))}

        def staged(folder: Path, stones: tuple[Tombstone, ...]) -> None:
            for table, table_rows in rows.items():
                stage_rows([table_rows], table, folder / table.name, stones)

        return self._written(batch, staged)

    def write_records(self, records: DataFrame, batch: str, *, faulty: bool = True) -> Counts:
        """What all stages made of a batch: good records, and those with a fault, in one step.

        Without `faulty` it is known that there are none of those.
        """
        frames = {NORMALISED: records.where("fault is null").withColumns(_sealed_columns())}
        if faulty:
            frames[QUARANTINE] = records.where("fault is not null")

        def staged(folder: Path, stones: tuple[Tombstone, ...]) -> None:
            for table, frame in frames.items():
                kept = without(frame, table, stones)
                # Each task writes a file, for which it pays about as much as for thousands of rows.
                files = self._spark.sparkContext.defaultParallelism
                stage(self._claim.lake, kept.coalesce(files), table, folder / table.name)

        return self._written(batch, staged)

    def _written(self, batch: str, staged: Staged) -> Counts:
        written = self._write((NORMALISED, QUARANTINE), batch, staged)
        return Counts(records=written[NORMALISED.name], quarantined=written[QUARANTINE.name])

    @property
    def _claim(self) -> Claim:
        self.recover()
        assert self._claimed is not None
        return self._claimed

    def _arrived(self, table: Table, rows: Rows, batch: str, categories: Categories = ()) -> int:
        def staged(folder: Path, stones: tuple[Tombstone, ...]) -> None:
            stage_rows((owned(each, categories) for each in rows()), table, folder / table.name, stones)

        return self._write((table,), batch, staged)[table.name]

    def _write(self, tables: Iterable[Table], batch: str, staged: Staged) -> dict[str, int]:
        """The rows of each table that came in; those of an earlier attempt of the batch are gone."""
        lake = self._claim.lake
        checked(batch)
        while True:
            stones = tombstones(lake)
            with self._claim.stage() as folder, trouble(lake.path):
                staged(folder, stones)
                with swapping(lake):
                    if tombstones(lake) != stones:
                        continue  # somebody was erased meanwhile
                    files = {table.name: staged_files(folder / table.name) for table in tables}
                    add = [
                        (path, lake.path / name / path.parent.name / f"batch={batch}" / path.name)
                        for name, paths in files.items()
                        for path in paths
                    ]
                    written = {name: sum(map(count, paths)) for name, paths in files.items()}
                    old = [part.path for table in tables for part in lake.parts(table.name, batch=batch)]
                    swap(lake, add=add, remove=old, step=self._step)
                    return written


def stage(lake: Place, frame: DataFrame, table: Table, folder: Path) -> None:
    """Write the rows to a folder, by date. PipelineError if the disk, or Spark, refuses."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    for name, value in _SETTINGS.items():
        frame.sparkSession.conf.set(name, value)
    try:
        frame.select(*_columns(table)).write.partitionBy("date").options(**_OPTIONS).parquet(str(folder))
    except (Py4JJavaError, PySparkException) as error:
        raise refused_by_spark(lake.path, str(error)) from error


@cache
def _columns(table: Table) -> tuple[Column, ...]:
    day = F.col("date") if table.time is None else _date(table.time)
    return *(F.col(name).cast(type).alias(name) for name, type in table.columns), day.alias("date")


def staged_files(folder: Path) -> list[Path]:
    """What Spark has written there, without its checksums: ours could not be kept in step when rows are erased."""
    return sorted(folder.glob("date=*/part-*.parquet"))


def _date(time: str) -> Column:
    """The day in UTC, whatever zone the session has; a row without a time is put where it will not be overlooked."""
    day = F.date_from_unix_date(F.floor(F.unix_micros(time) / F.lit(_DAY)).cast("int"))
    return F.coalesce(day, F.date_from_unix_date(F.lit(0)))


def _sealed_table(records: pa.Table) -> pa.Table:
    """Content that a topic key protects is stored under that key only."""
    sealed = pc.is_valid(records["key_id"])
    for name, if_sealed in _KEPT_IF_SEALED.items():
        place, column = records.schema.get_field_index(name), records[name]
        kept = pc.if_else(sealed if if_sealed else pc.invert(sealed), column, pa.scalar(None, column.type))
        records = records.set_column(place, name, kept)
    return records


@cache
def _sealed_columns() -> dict[str, Column]:
    """The same for a frame."""
    sealed = F.col("key_id").isNotNull()
    return {name: F.when(sealed if if_sealed else ~sealed, F.col(name)) for name, if_sealed in _KEPT_IF_SEALED.items()}
