"""Small pictures of numbers over time, as SVG that is part of a page: classes for the style sheet, no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from markupsafe import Markup, escape

from tidegate.console.page import clock, number

WIDTH: Final = 760.0
HEIGHT: Final = 150.0
_LEFT: Final = 44.0
_BOTTOM: Final = 18.0
_TOP: Final = 8.0


def lines(times: Sequence[float], series: Sequence[tuple[str, Sequence[float]]], title: str) -> Markup:
    """One line a series, each with its name as the class `line-NAME`."""
    if len(times) < 2:
        return Markup('<p class="empty">The first numbers come in ten seconds.</p>')
    top = nice(max((max(values) for _, values in series), default=0.0))
    span = max(times[-1] - times[0], 1.0)

    def x(at: float) -> float:
        return _LEFT + (at - times[0]) / span * (WIDTH - _LEFT - 4)

    def y(value: float) -> float:
        return _TOP + (1 - value / top) * (HEIGHT - _TOP - _BOTTOM)

    parts: list[Any] = []
    for step in range(3):
        value = top * step / 2
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
            _LEFT, WIDTH, y(value), y(value)))  # fmt: skip
        parts.append(Markup('<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
            _LEFT - 6, y(value) + 4, number(value)))  # fmt: skip
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        at = times[0] + span * share
        parts.append(Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
            x(at), HEIGHT - 4, anchor, clock(at)[:5]))  # fmt: skip
    for name, values in series:
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in zip(times, values, strict=True))
        parts.append(Markup('<polyline class="line line-{}" points="{}"/>').format(name, points))
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        int(WIDTH), int(HEIGHT), escape(title), Markup("").join(parts)
    )


def sparkline(values: Sequence[float], title: str) -> Markup:
    """A line between 0 and 1, as small as a word; of one value a dot."""
    step = 100 / max(len(values) - 1, 1)
    points = " ".join(
        f"{index * step:.1f},{20 - 18 * min(max(value, 0.0), 1.0):.1f}" for index, value in enumerate(values)
    )
    if len(values) == 1:
        points += f" 100,{points.partition(',')[2]}"
    return Markup(
        '<svg class="spark" viewBox="0 0 100 22" role="img" aria-label="{}"><polyline points="{}"/></svg>'
    ).format(title, points)


def nice(value: float) -> float:
    """The next round number above."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.1
    while unit > value:
        unit /= 10
    return next(unit * factor for factor in (1, 2, 5, 10, 20) if unit * factor >= value)
