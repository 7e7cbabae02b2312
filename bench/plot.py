"""The picture: CPU per message of both servers, ratios against their goals, and the distribution of latency.

matplotlib takes a second to import and is an extra (`tidegate[bench]`), so it is imported when drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.figures import Row, Spread
from bench.job import Outcome
from bench.report import Report
from bench.works import Figure

REFERENCE, SUBJECT, MARK = "#8a8f98", "#1f6f8b", "#c0392b"


def draw(report: Report, file: Path) -> Path:
    """Draws what was measured; raises ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    flows = [
        row
        for row in report.rows
        if row.work.figure is Figure.FLOW and row.reference.micros is not None and row.subject.micros is not None
    ]
    rated = [row for row in report.rows if row.cost is not None]
    waited = [series for series in report.series if series.work.figure is Figure.LATENCY]
    canvas = Canvas(figsize=(11, 2.6 + 0.42 * len(flows) + 0.36 * len(rated) + (3.2 if waited else 0)))
    FigureCanvasAgg(canvas)
    heights = [max(1.0, 0.42 * len(flows) + 0.6), max(1.0, 0.36 * len(rated) + 0.6)] + [3.2] * bool(waited)
    panels: Any = canvas.subplots(len(heights), 1, gridspec_kw={"height_ratios": heights}, squeeze=False)
    _costs(panels[0][0], flows, report.names)
    _ratios(panels[1][0], rated, report.names)
    if waited:
        _latencies(panels[2][0], report)
    canvas.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(file, dpi=110)
    return file


def _label(row: Row) -> str:
    return f"{row.work.name}  ({row.work.window})" if row.work.window != "-" else row.work.name


def _bars(spreads: Sequence[Spread]) -> tuple[list[float], list[list[float]]]:
    middle = [one.median for one in spreads]
    return middle, [[one.median - one.low for one in spreads], [one.high - one.median for one in spreads]]


def _costs(axes: Any, rows: Sequence[Row], names: tuple[str, str]) -> None:
    for shift, name, colour, spreads in (
        (-0.2, names[0], REFERENCE, [row.reference.micros for row in rows]),
        (0.2, names[1], SUBJECT, [row.subject.micros for row in rows]),
    ):
        middle, error = _bars([one for one in spreads if one is not None])
        places = [number + shift for number in range(len(middle))]
        axes.barh(places, middle, height=0.38, xerr=error, color=colour, label=name, error_kw={"lw": 0.8})
    _name(axes, rows)
    axes.set_xlabel("CPU of the server per message, µs (less is better; whiskers: lowest and highest round)")
    axes.legend(loc="lower right", fontsize=8)


def _ratios(axes: Any, rows: Sequence[Row], names: tuple[str, str]) -> None:
    middle, error = _bars([row.cost for row in rows if row.cost is not None])
    axes.barh(range(len(rows)), middle, height=0.5, xerr=error, color=SUBJECT, error_kw={"lw": 0.8})
    for number, row in enumerate(rows):
        if row.work.goal is not None and row.work.goal.ratio is not None:
            axes.plot([row.work.goal.ratio] * 2, [number - 0.35, number + 0.35], color=MARK, lw=2)
    axes.axvline(1.0, color="black", lw=0.8)
    _name(axes, rows)
    axes.set_xlabel(f"{names[1]} against {names[0]}: CPU, p99 or memory, times as good (red: goal)")


def _name(axes: Any, rows: Sequence[Row]) -> None:
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)


def _latencies(axes: Any, report: Report) -> None:
    for series in report.series:
        if series.work.figure is not Figure.LATENCY:
            continue
        style = "-" if not series.work.setting.nodelay else "--"
        for name, colour, outcomes in (
            (report.names[0], REFERENCE, series.reference),
            (report.names[1], SUBJECT, series.subject),
        ):
            bounds, shares = beyond([one for one in outcomes if one is not None])
            if bounds:
                axes.step(bounds, shares, style, where="post", color=colour, label=f"{series.work.name}: {name}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.axhline(0.01, color="black", lw=0.6)
    axes.set_xlabel("latency, ms")
    axes.set_ylabel("share of messages that took longer")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)


def beyond(outcomes: Sequence[Outcome]) -> tuple[list[float], list[float]]:
    """Of all rounds together: bounds in milliseconds, and the share of messages slower than each."""
    counts: dict[float, int] = {}
    for outcome in outcomes:
        for bound, count in outcome.histogram:
            counts[bound] = counts.get(bound, 0) + count
    left = total = sum(counts.values())
    bounds, shares = [], []
    for bound in sorted(counts):
        left -= counts[bound]
        if left:
            bounds.append(bound * 1e3)
            shares.append(left / total)
    return bounds, shares
