"""How good the data were: scores of a day by source and dimension, and how they change.

`quality_daily` is computed from `normalised` and replaced day by day, so that computing it again changes nothing but
what has changed. It stays when the records have gone; a day without records any more keeps what it says.

The picture (`plot`) has a panel for each dimension and a line for each source. matplotlib takes a second to import and
is an extra (`tidegate[pipeline]`), so it is imported when drawing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from tidegate.errors import PipelineError
from tidegate.pipeline.columns import DIMENSIONS, F
from tidegate.pipeline.lake.files import conformed, together
from tidegate.pipeline.lake.swap import MAINTENANCE, Claim, Step, swap, swapping, unwatched
from tidegate.pipeline.lake.tables import DAILY, NORMALISED, QUALITY_DAILY, QUARANTINE, Place, read, trouble
from tidegate.pipeline.lake.write import stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GROUP: Final = ("date", "source", "type", "name", "owner", "category")
_SHARES: Final = (0.05, 0.5)
_COLOURS: Final = ("#c0392b", "#1f6f8b", "#d68910", "#5b7f3b", "#7d5ba6", "#3b4a6b")
"""For the sources with the lowest scores, the lowest first. The others are grey."""
REASONS: Final = 500  # sources and reasons that are told
_BANDS: Final = 2  # sources with a band: more would hide each other
_OTHERS: Final = "#c4c8ce"

Line = dict[date, tuple[float, float]]  # by day, the mean score and the lowest twentieth


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    date: date
    source: str | None
    type: str | None
    name: str | None
    owner: str | None
    category: str | None
    dimension: str
    count: int  # records
    assessed: int  # records that have this score; the others are not in what follows
    mean: float | None
    min: float | None
    p05: float | None
    p50: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What is in quarantine of one source for one reason."""

    source: str | None
    fault: str | None
    count: int
    last: str | None


def faults(path: Path, *, since: date | None = None, source: str | None = None) -> tuple[Faults, ...]:
    """What is in quarantine from a day on, by source and reason, the most first. Needs no Spark."""
    lake = Place.open(path)
    found: dict[tuple[str | None, str | None], tuple[int, str]] = {}
    with trouble(lake.path):
        for part in lake.parts(QUARANTINE.name):
            if since is not None and part.date < since:
                continue
            rows = pq.ParquetFile(part.path).read(columns=["source", "fault"]).group_by(["source", "fault"])
            for row in rows.aggregate([([], "count_all")]).to_pylist():
                if source in (None, row["source"]):
                    count, last = found.get((row["source"], row["fault"]), (0, ""))
                    key = row["source"], row["fault"]
                    found[key] = count + row["count_all"], max(last, part.date.isoformat())
    rows = sorted(found.items(), key=lambda each: -each[1][0])[:REASONS]
    return tuple(Faults(source=key[0], fault=key[1], count=count, last=last) for key, (count, last) in rows)


def _rows(path: Path) -> list[dict[str, Any]]:
    schema = together([path])
    names = [name for name, _ in QUALITY_DAILY.columns]
    table = conformed(pq.ParquetFile(path).read(), schema)
    return [{name: row.get(name) for name in names} for row in table.to_pylist()]


def _order(trend: Trend) -> tuple[Any, ...]:
    texts = (trend.type, trend.name, trend.owner, trend.category)
    return trend.source or "", DIMENSIONS.index(trend.dimension), trend.date, *(text or "" for text in texts)


def plot(rows: Sequence[Trend], path: Path) -> Path:
    """Draw the trends; PipelineError if there are none, or matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise PipelineError("matplotlib is not installed; run `pip install 'tidegate[pipeline]'`") from None
    lines = by_dimension(rows)
    if not lines:
        raise PipelineError("nothing was scored in that time; look at the rules' `scores`, or choose other days")
    colours = _coloured(lines)
    columns = min(2, len(lines))
    height = -(-len(lines) // columns)
    canvas = Figure(figsize=(5.6 * columns + 1.6, 2.5 * height + 0.5), layout="constrained")
    FigureCanvasAgg(canvas)
    panels: Any = canvas.subplots(height, columns, squeeze=False, sharex=True, sharey=True)
    for axes, dimension in zip(panels.flat, lines, strict=False):
        _panel(axes, dimension, lines[dimension], colours)
    for axes in list(panels.flat)[len(lines) :]:
        axes.set_visible(False)
    for axes in list(panels.flat)[max(0, len(lines) - columns) : len(lines)]:
        axes.tick_params(axis="x", labelbottom=True, labelrotation=30, labelsize=8)
    _legend(canvas, panels, colours, len({source for by_source in lines.values() for source in by_source}))
    canvas.supxlabel(
        "line: mean score of the day; band, of the lowest sources: down to the lowest twentieth", fontsize=8
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=110)
    return path


def by_dimension(rows: Sequence[Trend]) -> dict[str, dict[str, Line]]:
    """By dimension and source; what was measured of a source is taken together, by how often it was assessed."""
    sums: dict[tuple[str, str, date], tuple[int, float, float]] = defaultdict(lambda: (0, 0.0, 1.0))
    for row in rows:
        if row.mean is None or not row.assessed:
            continue
        key = row.dimension, row.source or "(unknown)", row.date
        assessed, total, low = sums[key]
        lowest = row.mean if row.p05 is None else row.p05
        sums[key] = assessed + row.assessed, total + row.mean * row.assessed, min(low, lowest)
    lines: dict[str, dict[str, Line]] = {}
    for dimension in DIMENSIONS:
        for (of, source, day), (assessed, total, low) in sorted(sums.items()):
            if of == dimension:
                lines.setdefault(dimension, {}).setdefault(source, {})[day] = (total / assessed, low)
    return lines


def _coloured(lines: dict[str, dict[str, Line]]) -> dict[str, str]:
    means: dict[str, list[float]] = defaultdict(list)
    for sources in lines.values():
        for source, line in sources.items():
            means[source] += [mean for mean, _ in line.values()]
    worst = sorted(means, key=lambda source: (sum(means[source]) / len(means[source]), source))
    return dict(zip(worst, _COLOURS, strict=False))


def _panel(axes: Any, dimension: str, sources: dict[str, Line], colours: dict[str, str]) -> None:
    for source, line in sorted(sources.items(), key=lambda item: item[0] in colours):
        days = sorted(line)
        means, lows = [line[day][0] for day in days], [line[day][1] for day in days]
        colour = colours.get(source, _OTHERS)
        axes.plot(days, means, "o-", color=colour, lw=1.4, ms=3, zorder=3 if source in colours else 2)
        if colour in _COLOURS[:_BANDS]:
            axes.fill_between(days, lows, means, color=colour, alpha=0.10, lw=0)
    axes.set_title(dimension, fontsize=10, loc="left")
    axes.set_ylim(-0.04, 1.04)
    axes.grid(alpha=0.3)


def _legend(canvas: Any, panels: Any, colours: dict[str, str], total: int) -> None:
    from matplotlib import dates
    from matplotlib.lines import Line2D

    ticks: Any = dates  # it has no types
    for axes in panels.flat:
        locator = ticks.AutoDateLocator(minticks=2, maxticks=7)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ticks.ConciseDateFormatter(locator))
    marks = [Line2D([], [], color=colour, marker="o", ms=3, label=source) for source, colour in colours.items()]
    if total > len(colours):
        marks.append(Line2D([], [], color=_OTHERS, marker="o", ms=3, label=f"{total - len(colours)} others"))
    canvas.legend(handles=marks, loc="outside right upper", fontsize=8)
