"""A frame of a table: each row once, whatever the files are like."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.lake.rows import lay
from tidegate.errors import PipelineError
from tidegate.pipeline.columns import INGEST, KEY, RECORD
from tidegate.pipeline.lake import TABLES, compact, read
from tidegate.store.journal.rows import AUDIT
from tidegate.store.journal.schema import schema


def test_columns() -> None:
    names = {name: [column for column, _ in table.columns] for name, table in TABLES.items()}
    assert names["raw"] == ["journal", *(name for name, _ in INGEST), "owner", "category"]
    assert names["audit"] == ["journal", *schema(AUDIT).names, "owner", "category"]
    assert names["quarantine"] == ["journal", *(name for name, _ in RECORD)]
    assert all({"owner", "category"} <= set(columns) for columns in names.values())
    assert TABLES["normalised"].key == ("journal", *KEY)


def test_older_files(spark: SparkSession, tmp_path: Path) -> None:
    """Without a column, with a narrower type, with a column that nobody knows any more."""
    lay(tmp_path, [1], batch="a", value=pa.array([1.5], pa.float32()), gone=pa.array(["x"]))
    lay(tmp_path, [2], batch="b", value=pa.array([2.5], pa.float64()), text=pa.array(["new"]))
    file = lay(tmp_path, [3], batch="c")
    table = pq.ParquetFile(file).read()
    narrow = table.set_column(1, "offset", table["offset"].cast(pa.int32()))
    pq.write_table(narrow, file, use_deprecated_int96_timestamps=True)
    expected = [(1, 1.5, None, 1), (2, 2.5, "new", 2), (3, None, None, 3)]

    def rows() -> list[tuple[object, ...]]:
        frame = read(spark, tmp_path, "normalised")
        assert "gone" not in frame.columns
        return sorted((row.offset, row.value, row.text, row.received_at.second) for row in frame.collect())

    assert rows() == expected
    lay(tmp_path, [9], batch="z", day=date(2026, 3, 2))
    (done,) = (one for one in compact(tmp_path, settled=timedelta()) if one.table == "normalised")
    assert (done.before, done.after) == (3, 1)
    assert rows()[:3] == expected


def test_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    lay(tmp_path, [1, 2, 3], batch="a")
    lay(tmp_path, [3, 4], batch="b")
    assert sorted(row.offset for row in read(spark, tmp_path, "normalised").collect()) == [1, 2, 3, 4]


def test_some_days(spark: SparkSession, tmp_path: Path) -> None:
    for day in (1, 2, 3):
        lay(tmp_path, [day], batch="a", day=date(2026, 3, day))
    frame = read(spark, tmp_path, "normalised", dates={date(2026, 3, 2)})
    assert [(row.offset, row.date, row.batch) for row in frame.collect()] == [(2, date(2026, 3, 2), "a")]


def test_what_is_not_ours_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    file = lay(tmp_path, [1], batch="a")
    (file.parent / "notes.txt").write_text("hello")
    (file.parent.parent / "batch=not ours").mkdir()
    (tmp_path / "normalised" / "other").mkdir()
    (tmp_path / "normalised" / "other" / "part-1.parquet").write_text("hello")
    (tmp_path / "normalised" / "date=2026-02-31").mkdir()
    assert [row.offset for row in read(spark, tmp_path, "normalised").collect()] == [1]


def test_nothing_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no lake in"):
        read(spark, tmp_path, "raw")
    lay(tmp_path, [1], batch="a")
    empty = read(spark, tmp_path, "raw")
    assert empty.count() == 0
    assert empty.columns[-2:] == ["date", "batch"]
    with pytest.raises(PipelineError, match="no table 'rwa'; take one of raw,"):
        read(spark, tmp_path, "rwa")
