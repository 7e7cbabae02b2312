"""Maintenance of the lake, next to a running job: small files become few large ones, days past their table's retention
go, and the daily quality is computed.

Compaction: every batch leaves a file for each table and day. Those of one day are put together up to `TARGET`, once
they are old enough not to be written again; of each journal the newest batch of a table (names sort as batches were
made) stays as it is, however old, for a job that was stopped in the middle of it makes it again. What has become large
is left alone. A crash at any moment costs nothing but the work (see `swap`). `tables.read` takes each row once at all
times. Whoever reads the files in another way (`spark.read.parquet`) between the moment when the new file comes in and
the one when the old ones have gone, or after a crash there, sees rows twice; never too few.

Retention: a day goes when its last moment, in UTC, is older than that. What an interrupted run has left goes with the
next one.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from time import time as clock
from typing import TYPE_CHECKING, Final

import structlog

from tidegate.config import Config
from tidegate.errors import PipelineError
from tidegate.pipeline.folders import Folders
from tidegate.pipeline.lake.erase import finish_erasures
from tidegate.pipeline.lake.files import legible, replace_files
from tidegate.pipeline.lake.quality import summarise
from tidegate.pipeline.lake.swap import MAINTENANCE, Claim, Step, remove_day, swapping, unwatched
from tidegate.pipeline.lake.tables import COMPACTED, TABLES, Part, Place, table_named, trouble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET: Final = 128 << 20  # bytes of a file that is large enough
SETTLED: Final = timedelta(minutes=10)  # age from which a batch is not expected to be written again

log = structlog.get_logger("tidegate.pipeline")


def expire_tables(config: Config) -> tuple[Expired, ...]:
    """Removes the days that are past the retention in the configuration."""
    folders = Folders.of(config)
    assert config.pipeline is not None
    seconds = {name: getattr(config.pipeline.tables, name).keep for name in TABLES}
    return expire(
        folders.lake, {name: None if each is None else timedelta(seconds=each) for name, each in seconds.items()}
    )


def maintain(spark: SparkSession, config: Config) -> None:
    """Does all of it next to a running job. A failure is logged, and tried again the next time."""
    today = datetime.now(UTC).date()
    try:
        for day in expire_tables(config):
            log.info("a day of the lake is gone", table=day.table, date=day.date.isoformat(), files=day.files)
        summarise(spark, Folders.of(config).lake, {today - timedelta(days=1), today})
    except PipelineError as error:
        log.warning("maintenance of the lake failed", reason=str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    table: str
    date: date
    files: int
    size: int


def expire(
    path: Path, keep: Mapping[str, timedelta | None], *, now: datetime | None = None, step: Step = unwatched
) -> tuple[Expired, ...]:
    """Remove what is older than each table's time; None, or a table that is not named: it is kept forever."""
    for name, time in keep.items():
        table_named(name)
        if time is not None and time < timedelta():
            raise PipelineError(f"{name} cannot be kept for less than no time; write a duration such as 90d")
    lake = Place.open(path)
    moment = now or datetime.now(UTC)
    gone = []
    with Claim(lake, MAINTENANCE):
        for name, time in keep.items():
            for day in lake.dates(name) if time is not None else ():
                ended = datetime.combine(day, datetime.min.time(), UTC) + timedelta(days=1)
                if time is None or ended + time > moment:
                    continue
                with swapping(lake):
                    files = [part.path for part in lake.parts(name, dates={day})]
                    size = sum(file.stat().st_size for file in files)
                    remove_day(files, step)
                if files:
                    gone.append(Expired(table=name, date=day, files=len(files), size=size))
    return tuple(gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    table: str
    before: int  # files that were put together
    after: int  # files that came of them
    size_before: int
    size_after: int
    rows: int
    illegible: tuple[str, ...] = ()  # files that are no Parquet and were left alone


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
        limit = (clock() if now is None else now) - settled.total_seconds()
        with trouble(lake.path):
            work = {table: _groups(lake, table, target, limit) for table in TABLES}
        total = sum(len(group) for groups, _ in work.values() for group in groups)
        done = 0
        results = []
        for table, (groups, illegible) in work.items():
            sums: Counter[str] = Counter()
            for group in groups:
                with trouble(lake.path):
                    sums.update(_put_together(claim, group, step))
                done += len(group)
                progress(done, total)
            figures = {name: sums[name] for name in ("before", "after", "size_before", "size_after", "rows")}
            results.append(Compacted(table=table, illegible=illegible, **figures))
        return tuple(results)


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
    newest: dict[str, str] = {}  # by journal and shard, which the name of a batch begins with
    for part in parts:
        if part.batch != COMPACTED:
            whose = part.batch.rpartition("-")[0]
            newest[whose] = max(newest.get(whose, ""), part.batch)
    unfinished = set(newest.values())
    days: dict[date, list[Part]] = defaultdict(list)
    illegible = []
    for part in parts:
        if part.batch in unfinished or ages[part.path] > limit or sizes[part.path] >= target // 2:
            continue
        if legible(part):
            days[part.date].append(part)
        else:
            illegible.append(str(part.path))
    groups = [group for day in days.values() for group in _filled(day, sizes, target)]
    return [group for group in groups if len(group) > 1], tuple(illegible)


def _filled(parts: Iterable[Part], sizes: dict[Path, int], target: int) -> list[list[Part]]:
    groups: list[list[Part]] = [[]]
    size = 0
    for part in parts:
        if groups[-1] and size + sizes[part.path] > target:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += sizes[part.path]
    return groups


def _put_together(claim: Claim, group: Sequence[Part], step: Step) -> dict[str, int]:
    """Figures of `Compacted`; none if the job has replaced one of the files: then it is left for the next time."""
    folder = claim.lake.home(group[0].table, group[0].date, COMPACTED)
    replaced = replace_files(claim, [part.path for part in group], folder, step)
    return {} if replaced is None else {"before": len(group), "after": int(replaced.rows > 0), **replaced._asdict()}
