"""Many files become few: nothing lost, nothing twice, nobody disturbed."""

from __future__ import annotations

import os
from datetime import date, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.lake.rows import JOURNAL, LONG_AGO, dying, files, found, lay, left_over
from tidegate.pipeline.lake import Compacted, Lake, compact, read

NOTHING = (0, 0)


def of(done: tuple[Compacted, ...], table: str = "normalised") -> Compacted:
    (one,) = (one for one in done if one.table == table)
    return one


def test_small_files_of_a_day_become_one(tmp_path: Path) -> None:
    for offset in range(5):
        lay(tmp_path, [2 * offset, 2 * offset + 1], batch=f"0-{offset}")
    lay(tmp_path, [10], batch="0-5", day=date(2026, 3, 2))
    lay(tmp_path, [1, 2], table="audit", batch="0-0")
    told: list[tuple[int, int]] = []
    done = of(compact(tmp_path, progress=lambda *numbers: told.append(numbers)))
    assert (done.before, done.after, done.rows) == (5, 1, 10)
    assert done.size_before > done.size_after > 0
    assert files(tmp_path) == ["date=2026-03-01/batch=compacted", "date=2026-03-02/batch=0-5"]
    assert found(tmp_path) == list(range(11))
    assert told == [(5, 5)]
    assert not left_over(tmp_path)
    again = of(compact(tmp_path))
    assert (again.before, again.after) == NOTHING


def test_later_batches_join_what_is_still_small(tmp_path: Path) -> None:
    for offset in range(3):
        lay(tmp_path, [offset], batch=f"0-{offset}")
    compact(tmp_path)
    assert files(tmp_path) == ["date=2026-03-01/batch=0-2", "date=2026-03-01/batch=compacted"]
    for offset in (3, 4):
        lay(tmp_path, [offset], batch=f"0-{offset}")
    assert of(compact(tmp_path, settled=timedelta())).before == 3
    assert found(tmp_path) == list(range(5))


def test_the_newest_and_the_young_are_left_alone(tmp_path: Path) -> None:
    """The newest could be made again after a crash, and what is young could be in somebody's hands."""
    for offset in range(5):
        file = lay(tmp_path, [offset], batch=f"0-{offset}")
        os.utime(file, (LONG_AGO + offset * 60, LONG_AGO + offset * 60))
    done = compact(tmp_path, settled=timedelta(seconds=90), now=LONG_AGO + 4 * 60)
    assert of(done).before == 3
    assert files(tmp_path) == [f"date=2026-03-01/batch={name}" for name in ("0-3", "0-4", "compacted")]


def test_a_file_is_not_made_larger_than_the_target(tmp_path: Path) -> None:
    sizes = [lay(tmp_path, [offset], batch=f"0-{offset}").stat().st_size for offset in range(9)]
    done = of(compact(tmp_path, target=int(sizes[0] * 4.5)))
    assert (done.before, done.after) == (8, 2)
    assert found(tmp_path) == list(range(9))


def test_large_files_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate.pipeline.lake import files as parquet

    monkeypatch.setattr(parquet, "_GROUP", 1000)
    monkeypatch.setattr(parquet, "_CHUNK", 10)
    lay(tmp_path, list(range(100)), batch="0-0")
    lay(tmp_path, list(range(100, 150)), batch="0-1")
    lay(tmp_path, [150], batch="0-2")
    compact(tmp_path)
    (file,) = tmp_path.glob("normalised/date=*/batch=compacted/*")
    assert pq.ParquetFile(file).num_row_groups > 3
    assert found(tmp_path) == list(range(151))


def test_what_is_not_ours(tmp_path: Path) -> None:
    """Is left alone, and so is its folder; what only looks like ours is told."""
    for offset in range(3):
        note = lay(tmp_path, [offset], batch=f"0-{offset}").parent / "notes.txt"
        note.write_text("hello")
    broken = note.parent.parent / "batch=0-1" / "part-x.parquet"
    broken.write_text("hello")
    os.utime(broken, (LONG_AGO, LONG_AGO))
    done = of(compact(tmp_path))
    assert (done.before, done.illegible) == (2, (str(broken),))
    assert broken.exists()
    assert len(list(tmp_path.rglob("notes.txt"))) == 3


def test_a_file_that_the_job_replaces_meanwhile(tmp_path: Path) -> None:
    laid = [lay(tmp_path, [offset], batch=f"0-{offset}") for offset in range(3)]

    def step(name: str) -> None:
        if name == "rewritten":
            laid[0].rename(laid[0].with_name("part-again.parquet"))

    assert of(compact(tmp_path, step=step)).before == 0
    assert found(tmp_path) == [0, 1, 2]
    assert of(compact(tmp_path)).before == 2


@pytest.mark.parametrize("death", range(1, 9))
def test_killed_at_each_step(tmp_path: Path, death: int) -> None:
    for offset in range(3):
        lay(tmp_path, [offset], batch=f"0-{offset}")
    steps = ["rewritten", "staged", "intended", "added", "removed", "removed", "done"]
    ended = dying(death, f"compact(Path({str(tmp_path)!r}), step=step)")
    assert ended == (9 if death <= len(steps) else 0)
    assert set(found(tmp_path)) == {0, 1, 2}
    compact(tmp_path)
    assert found(tmp_path) == [0, 1, 2]
    assert files(tmp_path) == ["date=2026-03-01/batch=0-2", "date=2026-03-01/batch=compacted"]
    assert not left_over(tmp_path)


def test_readers_see_each_row_once_at_each_step(spark: SparkSession, tmp_path: Path) -> None:
    """And whoever reads the files as they are sees rows twice in between, as the module says."""
    for offset in range(3):
        lay(tmp_path, [offset], batch=f"0-{offset}")
    seen: list[list[int]] = []
    plain: list[int] = []

    def step(name: str) -> None:
        if name in ("added", "removed"):
            seen.append(sorted(row.offset for row in read(spark, tmp_path, "normalised").select("offset").collect()))
            plain.append(len(found(tmp_path)))

    compact(tmp_path, step=step)
    assert seen == [[0, 1, 2]] * 3
    assert plain == [5, 4, 3]


def test_next_to_a_job(spark: SparkSession, tmp_path: Path) -> None:
    lay(tmp_path, [0], batch="0-0")
    lay(tmp_path, [1], batch="0-1")
    lake = Lake(tmp_path, journal=JOURNAL)
    lake.recover()
    compact(tmp_path)
    lake.close()
    assert found(tmp_path) == [0, 1]
