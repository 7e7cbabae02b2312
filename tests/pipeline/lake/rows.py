"""Small lakes for tests: rows laid down with pyarrow, or written by the job's own writer, and read in plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipeline.columns import ASSIGNED, PROTECTED, RECORD, SCORED, struct
from tidegate.pipeline.lake.tables import Place
from tidegate.pipeline.lake.write import Rows
from tidegate.store.journal import schema, stream_named

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
LONG_AGO = 1_000_000_000.0
JOURNAL = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2


def messages(rows: Iterable[dict[str, Any]]) -> Rows:
    """Rows of the journal `ingest`: what is not said is null, or the obvious; each a batch of its own."""
    layout = schema(stream_named("ingest"))
    made = [{"shard": 0, "received_at": NOON, "properties": None, **row} for row in rows]
    return lambda: [pa.RecordBatch.from_pylist([row], layout) for row in made]


def records(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Rows as they leave the last stage."""
    columns = RECORD + SCORED + ASSIGNED + PROTECTED
    return _frame(spark, columns, ({"shard": 0, "part": 0, "received_at": NOON, **row} for row in rows))


def _frame(spark: SparkSession, columns: tuple[tuple[str, str], ...], rows: Iterable[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(row.get(name) for name, _ in columns) for row in rows], struct(columns))


def lay(
    path: Path,
    offsets: Sequence[int],
    *,
    table: str = "normalised",
    day: date = date(2026, 3, 1),
    batch: str,
    journal: str | None = JOURNAL,
    **columns: Any,
) -> Path:
    """A file of a table, as an earlier batch has left it: long ago, owned by `owner`; None: of version 1."""
    place = Place.open(path, create=True)
    at = datetime.combine(day, datetime.min.time(), UTC)
    rows = pa.table(
        {
            "shard": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "part": pa.array([0] * len(offsets), pa.int32()),
            "received_at": pa.array([at + timedelta(seconds=one) for one in offsets], pa.timestamp("us", tz="UTC")),
            "owner": pa.array(columns.pop("owner", ["mary"] * len(offsets)), pa.string()),
            **({} if journal is None else {"journal": pa.array([journal] * len(offsets), pa.string())}),
            **columns,
        }
    )
    home = place.home(table, day, batch)
    home.mkdir(parents=True, exist_ok=True)
    file = home / f"part-{batch}.parquet"
    pq.write_table(rows, file, compression="zstd")
    os.utime(file, (LONG_AGO, LONG_AGO))
    return file


def found(path: Path, table: str = "normalised", column: str = "offset") -> list[Any]:
    """What the files of a table hold, with repetitions, in order; read by nothing but pyarrow."""
    values: list[Any] = []
    for file in (path / table).glob("date=*/batch=*/part-*.parquet"):
        values += pq.ParquetFile(file).read(columns=[column])[column].to_pylist()
    return sorted(values, key=str) if column != "offset" else sorted(values)


def files(path: Path, table: str = "normalised") -> list[str]:
    """The folders of a table that hold a file, one for each."""
    return sorted(str(file.parent.relative_to(path / table)) for file in (path / table).glob("date=*/batch=*/part-*"))


def left_over(path: Path) -> list[str]:
    """Staged files and swaps that nobody has cleared away."""
    own = path / "_tidegate"
    return [
        str(one.relative_to(own)) for one in own.rglob("*") if one.is_file() and one.suffix in (".parquet", ".json")
    ]


def dying(at: int, call: str) -> int:
    """Run a call in a process of its own that ends, as by kill -9, at its n-th step; how it ended."""
    program = f"""
    import os
    from datetime import *
    from pathlib import Path
    from tidegate.pipeline.lake import *

    seen = []

    def step(name):
        seen.append(name)
        if len(seen) == {at}:
            os._exit(9)

    {call}
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, timeout=60, check=False).returncode
