"""The picture of a replay: how many decisions would be other ones over time, by rule and by subject.

matplotlib takes a second to import and is an extra, so it is imported when drawing.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tidegate.errors import PipelineError
from tidegate.pipeline.replay.job import REST
from tidegate.pipeline.replay.partitions import BUCKETS
from tidegate.pipeline.replay.report import Report, Series

COLOURS: Final = ("#1f6f8b", "#c0392b", "#e0a030", "#4c956c", "#7b5ea7", "#8c6d46", "#d97b93", "#4a6fa5")
KINDS: Final = (".png", ".svg", ".pdf")
OTHERS: Final = "#8a8f98"
LONGEST: Final = 40  # characters of a name


def drawable(file: Path) -> None:
    if file.suffix.lower() not in KINDS:
        raise PipelineError(f"{file} is no name for a picture; end it with one of {' '.join(KINDS)}")
    if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise PipelineError(f"{file} cannot be written; name another file, or make its folder first")


def draw(report: Report, file: Path) -> Path:
    """Draws it; PipelineError without matplotlib, or if the file cannot be written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise PipelineError("matplotlib is not installed; run `pip install 'tidegate[pipeline]'`") from None
    canvas = Figure(figsize=(11, 7))
    FigureCanvasAgg(canvas)
    above, below = canvas.subplots(2, 1, sharex=True)
    _stack(above, report, report.by_rule, "by the rule that denies, before or after")
    _stack(below, report, report.by_subject, "by who is concerned")
    below.set_xlabel("time (UTC)")
    canvas.suptitle(f"{report.changed:,} of the decisions would be other ones", fontsize=11)
    canvas.tight_layout()
    try:
        canvas.savefig(file, dpi=110)
    except (OSError, ValueError) as error:
        raise PipelineError(f"the picture cannot be written to {file}: {error}") from error
    return file


def _stack(axes: Any, report: Report, stacked: Series, title: str) -> None:
    from matplotlib import dates

    untyped: Any = dates  # its functions have no types

    places = [datetime.fromtimestamp(report.since + at * report.width, UTC) for at in range(BUCKETS + 1)]
    bottom = [0] * len(places)
    for number, (name, counts) in enumerate(stacked.items()):
        heights = [counts.get(at, 0) for at in range(len(places))]
        colour = OTHERS if name == REST else COLOURS[number % len(COLOURS)]
        label = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        axes.bar(places, heights, width=report.width / 86400, bottom=bottom, color=colour, label=label, align="edge")
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_ylabel("decisions")
    axes.set_title(title, fontsize=9, loc="left")
    axes.grid(axis="y", alpha=0.3)
    axes.yaxis.get_major_locator().set_params(integer=True)
    locator = untyped.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator))
    if stacked:
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))  # beside it: bars may be anywhere
