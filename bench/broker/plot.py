"""The picture: CPU per message of both servers, ratios against their goals, and the distribution of latency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.harness.figures import Row
from bench.harness.plot import MARK, REFERENCE, SUBJECT, Picture, bars
from bench.harness.rounds import Series
from bench.harness.work import Figure
from bench.load.job import Outcome


def picture(rows: Sequence[Row], series: Sequence[Series], names: tuple[str, str]) -> Picture:
    flows = [
        row
        for row in rows
        if row.work.figure is Figure.FLOW and row.reference.micros is not None and row.subject.micros is not None
    ]
    rated = [row for row in rows if row.cost is not None]
    waited = [one for one in series if one.work.figure is Figure.LATENCY]
    heights = [max(1.0, 0.42 * len(flows) + 0.6), max(1.0, 0.36 * len(rated) + 0.6)] + [3.2] * bool(waited)

    def fill(panels: Any) -> None:
        bars(
            panels[0][0],
            [_label(row) for row in flows],
            (names[0], REFERENCE, [row.reference.micros for row in flows]),
            (names[1], SUBJECT, [row.subject.micros for row in flows]),
            label="CPU of the server per message, µs (less is better; whiskers: lowest and highest round)",
        )
        _ratios(panels[1][0], rated, names)
        if waited:
            _latencies(panels[2][0], waited, names)

    return Picture(size=(11, sum(heights) + 1.4), fill=fill, rows=len(heights), heights=heights)


def _label(row: Row) -> str:
    return f"{row.work.name}  ({row.work.window})" if row.work.window != "-" else row.work.name


def _ratios(axes: Any, rows: Sequence[Row], names: tuple[str, str]) -> None:
    words = f"{names[1]} against {names[0]}: CPU, p99 or memory, times as good (red: goal)"
    bars(axes, [_label(row) for row in rows], ("", SUBJECT, [row.cost for row in rows]), label=words)
    for number, row in enumerate(rows):
        if row.work.goal is not None and row.work.goal.ratio is not None:
            axes.plot([row.work.goal.ratio] * 2, [number - 0.35, number + 0.35], color=MARK, lw=2)
    axes.axvline(1.0, color="black", lw=0.8)


def _latencies(axes: Any, waited: Sequence[Series], names: tuple[str, str]) -> None:
    for series in waited:
        style = "-" if not series.work.setting.nodelay else "--"
        sides = ((names[0], REFERENCE, series.reference), (names[1], SUBJECT, series.subject))
        for name, colour, outcomes in sides:
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
    slower = total = sum(counts.values())
    bounds, shares = [], []
    for bound in sorted(counts):
        slower -= counts[bound]
        if slower:
            bounds.append(bound * 1e3)
            shares.append(slower / total)
    return bounds, shares
