"""Files change places in one step, whoever dies; and only one at a time has them in hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.lake.rows import JOURNAL, OTHER, files, found, lay, left_over
from tidegate.errors import PipelineError
from tidegate.pipeline.lake.swap import MAINTENANCE, Claim, swap, swapping, writer
from tidegate.pipeline.lake.tables import Place

STEPS = ["staged", "intended", "added", "added", "removed", "removed", "done"]


class Killed(BaseException):
    """The process ends here."""


def _swap(path: Path, death: int) -> list[str]:
    """Files of a and b are replaced by two of c; dies at a step, and leaves everything as it is then."""
    lake = Place.open(path)
    old = [part.path for part in lake.parts("normalised")]
    seen: list[str] = []

    def step(name: str) -> None:
        seen.append(name)
        if len(seen) == death:
            raise Killed

    claim = Claim(lake, MAINTENANCE)
    stage = claim.stage()
    folder = stage.__enter__()  # and never left, as when a process ends
    new = [lay(folder, [offset], batch=f"n{offset}") for offset in (1, 2)]
    homes = [lake.home("normalised", part.date, "c") for part in lake.parts("normalised")][:2]
    add = [(file, home / file.name) for file, home in zip(new, homes, strict=True)]
    try:
        with swapping(lake):
            swap(lake, add=add, remove=old, step=step)
    except Killed:
        pass
    claim.close()
    return seen


@pytest.mark.parametrize("death", range(1, len(STEPS) + 2))
def test_each_step(tmp_path: Path, death: int) -> None:
    lay(tmp_path, [1], batch="a")
    lay(tmp_path, [2], batch="b")
    seen = _swap(tmp_path, death)
    assert seen == STEPS[:death]
    assert set(found(tmp_path)) == {1, 2}  # nothing is ever missing
    Claim(Place.open(tmp_path), MAINTENANCE).close()
    assert found(tmp_path) == [1, 2]
    batches = ["a", "b"] if death == 1 else ["c", "c"]
    assert files(tmp_path) == [f"date=2026-03-01/batch={name}" for name in batches]
    assert not left_over(tmp_path)


def test_a_death_during_recovery(tmp_path: Path) -> None:
    lay(tmp_path, [1], batch="a")
    lay(tmp_path, [2], batch="b")
    _swap(tmp_path, 2)
    (intent,) = (tmp_path / "_tidegate" / "swaps").iterdir()
    first = min((tmp_path / "_tidegate" / "staging").rglob("part-*.parquet"))
    home = tmp_path / "normalised" / "date=2026-03-01" / "batch=c"
    home.mkdir()
    first.rename(home / first.name)
    Claim(Place.open(tmp_path), writer(JOURNAL)).close()  # the other role finishes it as well
    assert found(tmp_path) == [1, 2]
    assert not intent.exists()


def test_a_staged_file_that_is_lost_costs_no_old_one(tmp_path: Path) -> None:
    lay(tmp_path, [1], batch="a")
    lay(tmp_path, [2], batch="b")
    _swap(tmp_path, 2)
    for file in (tmp_path / "_tidegate" / "staging").rglob("part-*.parquet"):
        file.unlink()
    with pytest.raises(PipelineError, match=r"which is gone; remove .*json, and the old files stay"):
        Claim(Place.open(tmp_path), MAINTENANCE)
    assert found(tmp_path) == [1, 2]


def test_a_damaged_intent(tmp_path: Path) -> None:
    lay(tmp_path, [1], batch="a")
    swaps = tmp_path / "_tidegate" / "swaps"
    swaps.mkdir(parents=True)
    (swaps / "x.json").write_text("{")
    with pytest.raises(PipelineError, match="is damaged; compare the files it names"):
        Claim(Place.open(tmp_path), MAINTENANCE)


def test_one_at_a_time_next_to_a_job(tmp_path: Path) -> None:
    lay(tmp_path, [1], batch="a")
    lake = Place.open(tmp_path)
    with (
        Claim(lake, writer(JOURNAL)),
        Claim(lake, writer(OTHER)),
        Claim(lake, MAINTENANCE),
        pytest.raises(PipelineError, match=r"compaction, erasure, retention or quality is at work in .*\(process \d"),
    ):
        Claim(lake, MAINTENANCE)
    Claim(lake, MAINTENANCE).close()


def test_what_fails_before_the_swap_leaves_nothing(tmp_path: Path) -> None:
    lay(tmp_path, [1], batch="a")
    with Claim(Place.open(tmp_path), MAINTENANCE) as claim:
        stage = claim.stage()
        folder = stage.__enter__()
        (folder / "part-1.parquet").write_bytes(b"x")
        assert not stage.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
        assert not left_over(tmp_path)
