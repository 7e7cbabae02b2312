"""Whoever is erased is gone from every table, and stays gone."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.lake.rows import JOURNAL, NOON, dying, files, found, lay, left_over, messages, records
from tidegate.errors import PipelineError
from tidegate.pipeline.lake import TABLES, Lake, compact, erase

TABLES_OF_DATA = [name for name in TABLES if name != "audit"]


def owners(path: Path, table: str = "normalised") -> list[str]:
    return found(path, table, "owner")


def test_every_table(tmp_path: Path) -> None:
    for table in TABLES:
        lay(tmp_path, [1, 2, 3, 4], table=table, batch="0-1", owner=["mary", "bob", "mary", None])
    untouched = lay(tmp_path, [5], batch="0-5", owner=["bob"])
    alone = lay(tmp_path, [6], batch="0-6")
    stamp = untouched.stat().st_mtime_ns
    told: list[tuple[int, int]] = []
    done = erase(tmp_path, "mary", progress=lambda *numbers: told.append(numbers))
    assert done.rows == {"raw": 2, "normalised": 3, "quarantine": 2, "quality_daily": 2}
    assert done.files == 5
    for table in TABLES_OF_DATA:
        assert "mary" not in owners(tmp_path, table)
    assert owners(tmp_path) == [None, "bob", "bob"]
    assert owners(tmp_path, "audit").count("mary") == 2
    assert untouched.stat().st_mtime_ns == stamp
    assert not alone.parent.exists()
    assert told[-1] == (6, 6)
    assert [name for name in left_over(tmp_path) if name != "erased.json"] == []


def test_the_audit_if_asked_for(tmp_path: Path) -> None:
    """Its time has another name."""
    import pyarrow as pa

    early, late = NOON, datetime(2999, 1, 1, tzinfo=UTC)
    times = pa.array([early, early, late], pa.timestamp("us", tz="UTC"))
    lay(tmp_path, [1, 2, 3], table="audit", batch="0-1", owner=["mary", "bob", "mary"], at=times)
    assert erase(tmp_path, "mary", audit=True).rows["audit"] == 1
    assert found(tmp_path, "audit") == [2, 3]


def test_the_sources_are_told_before_the_rows_go(tmp_path: Path) -> None:
    import pyarrow as pa

    sources = pa.array(["t1", "t2", "t3", None], pa.string())
    lay(tmp_path, [1, 2, 3, 4], batch="0-1", owner=["mary", "bob", "mary", "mary"], source=sources)
    lay(tmp_path, [1], table="raw", batch="0-1", owner=["mary"], source=pa.array(["t4"], pa.string()))
    lay(tmp_path, [90_000], batch="0-2", owner=["mary"], source=pa.array(["late"], pa.string()))
    told: list[tuple[set[str], int]] = []
    moment = datetime(2026, 3, 2, tzinfo=UTC)
    erase(tmp_path, "mary", now=moment, forget=lambda sources: told.append((set(sources), len(owners(tmp_path)))))
    assert told == [({"t1", "t3", "t4"}, 5)]
    assert sorted(owners(tmp_path)) == ["bob", "mary"]


def test_what_comes_later_is_kept(tmp_path: Path) -> None:
    lay(tmp_path, [10, 20, 30], batch="0-1")
    lay(tmp_path, [40], table="quality_daily", batch="daily", day=date(2026, 3, 2))
    moment = datetime(2026, 3, 1, 0, 0, 20, tzinfo=UTC)
    assert erase(tmp_path, "mary", now=moment).rows["normalised"] == 1
    assert found(tmp_path) == [20, 30]
    assert found(tmp_path, "quality_daily") == [40]


def test_a_batch_that_is_replayed_brings_nothing_back(spark: SparkSession, tmp_path: Path) -> None:
    batch = "0-0000000000000000007"
    lake = Lake(tmp_path, journal=JOURNAL)
    rows = [{"offset": 7, "user": "mary", "owner": "mary"}, {"offset": 8, "user": "bob", "owner": "bob"}, {"offset": 9}]
    faulty = [{**row, "offset": row["offset"] + 10, "fault": "broken"} for row in rows]

    def written() -> None:
        lake.write_raw(messages(rows), batch)
        lake.write_records(records(spark, [*rows, *faulty]), batch)

    written()
    done = erase(tmp_path, "mary")
    assert done.rows == {"raw": 1, "normalised": 1, "quarantine": 1, "quality_daily": 0}
    written()
    assert (found(tmp_path, "raw"), found(tmp_path), found(tmp_path, "quarantine")) == ([8, 9], [8, 9], [18, 19])
    later = {"offset": 30, "owner": "mary", "received_at": datetime.now(UTC) + timedelta(minutes=1)}
    lake.write_records(records(spark, [later]), "0-0000000000000000030")
    assert found(tmp_path) == [8, 9, 30]
    lake.close()


@pytest.mark.parametrize("death", range(1, 13))
def test_killed_at_each_step(tmp_path: Path, death: int) -> None:
    """Once the tombstone is there, whoever comes next finishes it: here compaction."""
    steps = ["buried", *["rewritten", "staged", "intended", "added", "removed", "done"], "rewritten", "staged"]
    steps += ["intended", "removed", "done"]
    lay(tmp_path, [1, 2], batch="0-1", owner=["mary", "bob"])
    lay(tmp_path, [3], batch="0-3")
    ended = dying(death, f"erase(Path({str(tmp_path)!r}), 'mary', step=step)")
    assert ended == (9 if death <= len(steps) else 0)
    assert "bob" in owners(tmp_path)
    compact(tmp_path)
    assert owners(tmp_path) == ["bob"]
    assert files(tmp_path) == ["date=2026-03-01/batch=0-1"]
    assert left_over(tmp_path) == ["erased.json"]
    assert erase(tmp_path, "mary").rows["normalised"] == 0


def test_twice_is_once(tmp_path: Path) -> None:
    lay(tmp_path, [1], batch="0-1")
    moment = datetime(2026, 4, 1, tzinfo=UTC)
    erase(tmp_path, "mary", now=moment, audit=True)
    erase(tmp_path, "mary", now=moment - timedelta(days=1))
    erase(tmp_path, "bob", now=moment)
    content = json.loads((tmp_path / "_tidegate" / "erased.json").read_text())
    assert [(one["user"], one["before"], one["audit"], one["finished"]) for one in content["erased"]] == [
        ("bob", "2026-04-01T00:00:00+00:00", False, True),
        ("mary", "2026-04-01T00:00:00+00:00", True, True),
    ]


def test_what_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    file = lay(tmp_path, [1], batch="0-1")
    damaged = lay(tmp_path, [2], batch="0-2")
    damaged.write_bytes(b"PAR1 oops")
    with pytest.raises(PipelineError, match=r"mary are gone from all files but these, .*/part-0-2\.parquet"):
        erase(tmp_path, "mary")
    assert not file.exists()
    damaged.unlink()
    assert erase(tmp_path, "mary").rows["normalised"] == 0


def test_nobody(tmp_path: Path) -> None:
    lay(tmp_path, [1], batch="0-1")
    with pytest.raises(PipelineError, match="nobody is named"):
        erase(tmp_path, "")
    assert erase(tmp_path, "nobody").files == 0


def test_a_damaged_list_stops_everything(spark: SparkSession, tmp_path: Path) -> None:
    lay(tmp_path, [1], batch="0-1")
    erase(tmp_path, "mary")
    (tmp_path / "_tidegate" / "erased.json").write_text("{}")
    lake = Lake(tmp_path, journal=JOURNAL)
    with pytest.raises(PipelineError, match="who has been erased, is damaged; restore it"):
        lake.write_records(records(spark, [{"offset": 1}]), "0-1")
    lake.close()
