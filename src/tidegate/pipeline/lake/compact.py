"""Many small files become few large ones, next to a running job.

Every batch leaves a file for each table and day. Those of one day are put together up to `TARGET`, once they are old
enough not to be written again; the newest batch of a table (names sort as batches were made) stays as it is, however
old, for a job that was stopped in the middle of it makes it again. What has become large is left alone.

A crash at any moment costs nothing but the work (see `swap`). `tables.read` takes each row once at all times. Whoever
reads the files in another way (`spark.read.parquet`) between the moment when the new file comes in and the one when
the old ones have gone, or after a crash there, sees rows twice; never too few.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from time import time
from typing import Final

from tidegate.pipeline.lake.erase import finish_erasures
from tidegate.pipeline.lake.files import legible, rewrite
from tidegate.pipeline.lake.place import COMPACTED, NAMES, Part, Place, trouble
from tidegate.pipeline.lake.swap import MAINTENANCE, Claim, Step, swap, swapping, unwatched

TARGET: Final = 128 << 20
"""Bytes of a file that is large enough."""
SETTLED: Final = timedelta(minutes=10)
"""Age from which a batch is not expected to be written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What compaction did to a table."""

    table: str
    before: int
    """Files that were put together."""
    after: int
    """Files that came of them."""
    size_before: int
    size_after: int
    rows: int
    illegible: tuple[str, ...] = ()
    """Files that are no Parquet and were left alone."""


def compact(
    path: Path,
    *,
    target: int = TARGET,
    settled: timedelta = SETTLED,
    now: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    step: Step = unwatched,
) -> tuple[Compacted, ...]:
    """Put small files together; tells `progress` how many of how many files are done. One result for each table."""
    lake = Place.open(path)
    with Claim(lake, MAINTENANCE) as claim:
        finish_erasures(claim, step=step)
        limit = (time() if now is None else now) - settled.total_seconds()
        with trouble(lake.path):
            work = {table: _groups(lake, table, target, limit) for table in NAMES}
        total = sum(len(group) for groups, _ in work.values() for group in groups)
        done = 0
        results = []
        for table, (groups, illegible) in work.items():
            outcomes = []
            for group in groups:
                with trouble(lake.path):
                    outcomes.append(_put_together(claim, group, step))
                done += len(group)
                progress(done, total)
            results.append(_summed(table, [outcome for outcome in outcomes if outcome is not None], illegible))
        return tuple(results)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    files: int
    size_before: int
    size_after: int
    rows: int


def _groups(lake: Place, table: str, target: int, limit: float) -> tuple[list[list[Part]], tuple[str, ...]]:
    """The files to put together, in the order of their batches; and those that cannot be read."""
    sizes: dict[Path, int] = {}
    ages: dict[Path, float] = {}
    parts = []
    for part in lake.parts(table):
        try:
            status = os.stat(part.path)
        except FileNotFoundError:
            continue  # the job has just replaced it
        parts.append(part)
        sizes[part.path], ages[part.path] = status.st_size, status.st_mtime
    newest = max((part.batch for part in parts if part.batch != COMPACTED), default=None)
    days: dict[date, list[Part]] = defaultdict(list)
    illegible = []
    for part in parts:
        if part.batch == newest or ages[part.path] > limit or sizes[part.path] >= target // 2:
            continue
        if legible(part):
            days[part.date].append(part)
        else:
            illegible.append(str(part.path))
    groups = [group for day in days.values() for group in _filled(day, sizes, target)]
    return [group for group in groups if len(group) > 1], tuple(illegible)


def _filled(parts: Iterable[Part], sizes: dict[Path, int], target: int) -> list[list[Part]]:
    """Parts in groups of about the target's size."""
    groups: list[list[Part]] = [[]]
    size = 0
    for part in parts:
        if groups[-1] and size + sizes[part.path] > target:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += sizes[part.path]
    return groups


def _put_together(claim: Claim, group: Sequence[Part], step: Step) -> _Outcome | None:
    """None if the job has replaced one of the files meanwhile: then it is left for the next time."""
    lake, first = claim.lake, group[0]
    sources = [part.path for part in group]
    with claim.stage() as folder:
        new = folder / f"part-{folder.name}.parquet"
        try:
            rows = rewrite(sources, new)
            before = sum(path.stat().st_size for path in sources)
        except FileNotFoundError:
            return None
        step("rewritten")
        with swapping(lake):
            if not all(path.exists() for path in sources):
                return None
            add = [(new, lake.home(first.table, first.date, COMPACTED) / new.name)] if rows else []
            after = new.stat().st_size if rows else 0
            swap(lake, add=add, remove=sources, step=step)
    return _Outcome(files=len(group), size_before=before, size_after=after, rows=rows)


def _summed(table: str, outcomes: Sequence[_Outcome], illegible: tuple[str, ...]) -> Compacted:
    return Compacted(
        table=table,
        before=sum(outcome.files for outcome in outcomes),
        after=sum(outcome.rows > 0 for outcome in outcomes),
        size_before=sum(outcome.size_before for outcome in outcomes),
        size_after=sum(outcome.size_after for outcome in outcomes),
        rows=sum(outcome.rows for outcome in outcomes),
        illegible=illegible,
    )
