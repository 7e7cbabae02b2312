"""How good the data were: scores of a day by source and dimension, and how they change.

`quality_daily` is computed from `normalised` and replaced day by day, so that computing it again changes nothing but
what has changed. It stays when the records have gone; a day without records any more keeps what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from tidegate.errors import PipelineError
from tidegate.pipeline.columns import DIMENSIONS, F
from tidegate.pipeline.lake.files import conformed, together
from tidegate.pipeline.lake.swap import MAINTENANCE, Claim, Step, swap, swapping, unwatched
from tidegate.pipeline.lake.tables import DAILY, NORMALISED, QUALITY_DAILY, Place, read, trouble
from tidegate.pipeline.lake.write import stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GROUP: Final = ("date", "source", "type", "name", "owner", "category")
_SHARES: Final = (0.05, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The scores of one dimension on one day."""

    date: date
    source: str | None
    type: str | None
    name: str | None
    owner: str | None
    category: str | None
    dimension: str
    count: int
    """Records."""
    assessed: int
    """Records that have this score; the others are not in what follows."""
    mean: float | None
    min: float | None
    p05: float | None
    p50: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What was computed."""

    dates: tuple[date, ...]
    rows: int


def summarised(records: DataFrame) -> DataFrame:
    """The rows of `quality_daily` for rows of `normalised`."""
    figures = []
    for dimension in DIMENSIONS:
        score = F.col(f"scores.{dimension}")
        shares = F.percentile(score, F.array(*(F.lit(share) for share in _SHARES)))
        figure = F.struct(
            F.lit(dimension).alias("dimension"),
            F.count(score).alias("assessed"),
            F.avg(score).alias("mean"),
            F.min(score).alias("min"),
            shares[0].alias("p05"),
            shares[1].alias("p50"),
        )
        figures.append(figure)
    grouped = records.groupBy(*_GROUP).agg(F.count("*").alias("count"), F.array(*figures).alias("figures"))
    return grouped.select(*_GROUP, "count", F.inline("figures"))


def summarise(
    spark: SparkSession,
    path: Path,
    dates: Collection[date] | None = None,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    step: Step = unwatched,
) -> Computed:
    """Compute `quality_daily` for these days, or all that have records; tells `progress` how many days are done."""
    lake = Place.open(path)
    rows = 0
    with Claim(lake, MAINTENANCE) as claim:
        days = [day for day in lake.dates(NORMALISED.name) if dates is None or day in dates]
        for done, day in enumerate(days, 1):
            rows += _summarise(spark, claim, day, step)
            progress(done, len(days))
    return Computed(dates=tuple(days), rows=rows)


def _summarise(spark: SparkSession, claim: Claim, day: date, step: Step) -> int:
    lake = claim.lake
    if not any(lake.parts(NORMALISED.name, dates={day})):
        return 0
    with claim.stage() as folder, trouble(lake.path):
        summary = summarised(read(spark, lake.path, NORMALISED.name, dates={day}))
        files = stage([(QUALITY_DAILY, summary.toArrow())], folder, None)
        with swapping(lake):
            old = [part.path for part in lake.parts(QUALITY_DAILY.name, dates={day})]
            home = lake.home(QUALITY_DAILY.name, day, DAILY)
            add = [(Path(file.path), home / Path(file.path).name) for file in files]
            swap(lake, add=add, remove=old, step=step)
    return sum(file.rows for file in files)


def trends(
    path: Path, *, since: date | None = None, source: str | None = None, dimension: str | None = None
) -> tuple[Trend, ...]:
    """The rows of `quality_daily` from a day on, of one source or dimension or of all, in order. Needs no Spark."""
    if dimension is not None and dimension not in DIMENSIONS:
        raise PipelineError(f"there is no dimension {dimension!r}; take one of {', '.join(DIMENSIONS)}")
    lake = Place.open(path)
    by_key: dict[tuple[Any, ...], Trend] = {}
    with trouble(lake.path):
        for part in lake.parts(QUALITY_DAILY.name):
            if since is not None and part.date < since:
                continue
            for row in _rows(part.path):
                if source in (None, row["source"]) and dimension in (None, row["dimension"]):
                    trend = Trend(date=part.date, **row)
                    by_key[tuple(getattr(trend, name) for name in QUALITY_DAILY.key)] = trend
    return tuple(sorted(by_key.values(), key=_order))


def _rows(path: Path) -> list[dict[str, Any]]:
    schema = together([path])
    names = [name for name, _ in QUALITY_DAILY.columns]
    table = conformed(pq.ParquetFile(path).read(), schema)
    return [{name: row.get(name) for name in names} for row in table.to_pylist()]


def _order(trend: Trend) -> tuple[Any, ...]:
    texts = (trend.type, trend.name, trend.owner, trend.category)
    return trend.source or "", DIMENSIONS.index(trend.dimension), trend.date, *(text or "" for text in texts)
