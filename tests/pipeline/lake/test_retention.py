"""Days go when their time is over, and only whole."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.lake.rows import files, found, lay
from tidegate.errors import PipelineError
from tidegate.pipeline.lake import expire


def test_whole_days_of_each_table(tmp_path: Path) -> None:
    for table in ("raw", "normalised"):
        for day in range(1, 6):
            lay(tmp_path, [day], table=table, batch=f"0-{day}", day=date(2026, 3, day))
            lay(tmp_path, [day + 10], table=table, batch=f"1-{day}", day=date(2026, 3, day))
    now = datetime(2026, 3, 5, 12, tzinfo=UTC)
    gone = expire(tmp_path, {"raw": timedelta(days=2, hours=12), "normalised": None}, now=now)
    assert [(one.table, one.date.day, one.files) for one in gone] == [("raw", 1, 2), ("raw", 2, 2)]
    assert all(one.size > 0 for one in gone)
    assert found(tmp_path, "raw") == [3, 4, 5, 13, 14, 15]
    assert not (tmp_path / "raw" / "date=2026-03-02").exists()
    assert len(found(tmp_path)) == 10
    assert expire(tmp_path, {"raw": timedelta(days=2, hours=12)}, now=now) == ()


def test_the_last_moment_of_a_day_counts(tmp_path: Path) -> None:
    lay(tmp_path, [1], batch="0-1")
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    keep = {"normalised": timedelta(days=1)}
    assert expire(tmp_path, keep, now=midnight + timedelta(days=1, microseconds=-1)) == ()
    assert len(expire(tmp_path, keep, now=midnight + timedelta(days=1))) == 1


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    note = lay(tmp_path, [1], batch="0-1").parent / "notes.txt"
    note.write_text("hello")
    lay(tmp_path, [2], batch="0-2")
    (one,) = expire(tmp_path, {"normalised": timedelta()})
    assert one.files == 2
    assert note.exists()
    assert files(tmp_path) == []


def test_killed_in_the_middle(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def step(name: str) -> None:
        raise Killed

    for batch in ("0-1", "0-2"):
        lay(tmp_path, [1], batch=batch)
    with pytest.raises(Killed):
        expire(tmp_path, {"normalised": timedelta()}, step=step)
    assert len(files(tmp_path)) == 1
    assert [one.files for one in expire(tmp_path, {"normalised": timedelta()})] == [1]


def test_what_cannot_be(tmp_path: Path) -> None:
    lay(tmp_path, [1], batch="0-1")
    with pytest.raises(PipelineError, match="no table 'rwa'"):
        expire(tmp_path, {"rwa": timedelta()})
    with pytest.raises(PipelineError, match="less than no time"):
        expire(tmp_path, {"raw": timedelta(days=-1)})
