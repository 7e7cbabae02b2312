"""Maintenance of the lake: removes days that are past their table's retention, and computes the daily quality."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from tidegate.config import Config
from tidegate.errors import PipelineError
from tidegate.pipeline.folders import Folders
from tidegate.pipeline.lake import Expired, expire, summarise

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
