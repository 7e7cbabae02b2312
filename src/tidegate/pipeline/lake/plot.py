"""The picture of quality: a panel for each dimension, a line for each source.

matplotlib takes a second to import and is an extra (`tidegate[pipeline]`), so it is imported when drawing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

from tidegate.errors import PipelineError
from tidegate.pipeline.columns import DIMENSIONS
from tidegate.pipeline.lake.quality import Trend

_COLOURS: Final = ("#c0392b", "#1f6f8b", "#d68910", "#5b7f3b", "#7d5ba6", "#3b4a6b")
"""For the sources with the lowest scores, the lowest first. The others are grey."""
_BANDS: Final = 2
"""Sources with a band: more would hide each other."""
_OTHERS: Final = "#c4c8ce"

Line = dict[date, tuple[float, float]]
"""By day, the mean score and the lowest twentieth."""


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
