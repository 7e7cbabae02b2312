"""Maintenance of the lake: removes days that are past their table's retention, and computes the daily quality.

A day goes when its last moment, in UTC, is older than that. What an interrupted run has left goes with the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from tidegate.config import Config
from tidegate.errors import PipelineError
from tidegate.pipeline.folders import Folders
from tidegate.pipeline.lake.quality import summarise
from tidegate.pipeline.lake.swap import MAINTENANCE, Claim, Step, remove_day, swapping, unwatched
from tidegate.pipeline.lake.tables import Place, table_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger("tidegate.pipeline")


def expire_tables(config: Config) -> tuple[Expired, ...]:
    """Removes the days that are past the retention in the configuration."""
    folders = Folders.of(config)
    assert config.pipeline is not None
    settings = config.pipeline.tables
    tables = {"raw": settings.raw, "normalised": settings.normalised, "quarantine": settings.quarantine}
    tables |= {"audit": settings.audit, "quality_daily": settings.quality_daily}
    keep = {name: None if table.keep is None else timedelta(seconds=table.keep) for name, table in tables.items()}
    return expire(folders.lake, keep)


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
    """A day of a table that is gone."""

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
