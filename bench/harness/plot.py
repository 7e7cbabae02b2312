"""A picture with panels, bars with whiskers, and the colours that all pictures share.

matplotlib takes a second to import and is an extra (`tidegate[bench]`), so it is imported when drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness.figures import Spread

REFERENCE, SUBJECT, MARK = "#8a8f98", "#1f6f8b", "#c0392b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Panels in rows and columns, an array of which `fill` draws."""

    size: tuple[float, float]
    fill: Callable[[Any], None]
    name: str = ""
    """What the name of its file has behind the stem."""
    rows: int = 1
    columns: int = 1
    heights: Sequence[float] | None = None

    def draw(self, file: Path) -> Path:
        """ImportError without matplotlib."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=self.size)
        FigureCanvasAgg(canvas)
        heights = {"height_ratios": self.heights} if self.heights else None
        self.fill(canvas.subplots(self.rows, self.columns, squeeze=False, gridspec_kw=heights))
        canvas.tight_layout()
        file.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(file, dpi=110)
        return file


def bars(
    axes: Any,
    labels: Sequence[str],
    *groups: tuple[str, str | Sequence[str], Sequence[Spread | None]],
    across: bool = True,
    scale: float = 1.0,
    label: str = "",
) -> None:
    """Bars with whiskers, lying (`across`) or standing, one for each label and group: name, colour and figures."""
    width = 0.76 / len(groups)
    for number, (name, colour, spreads) in enumerate(groups):
        shown = [(place, one) for place, one in enumerate(spreads) if one is not None]
        shift = (number - (len(groups) - 1) / 2) * width
        where, figures = [place + shift for place, _ in shown], [one for _, one in shown]
        middle, error = [one.median * scale for one in figures], whiskers(figures, scale)
        colours = colour if isinstance(colour, str) else [colour[place] for place, _ in shown]
        draw, side = (axes.barh, "xerr") if across else (axes.bar, "yerr")
        draw(where, middle, width * 0.95, **{side: error}, color=colours, label=name or None, error_kw={"lw": 0.8})
    if across:
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlabel(label, fontsize=9)
    else:
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.set_ylabel(label, fontsize=9)
    axes.grid(axis="x" if across else "y", alpha=0.3)
    if len(groups) > 1:
        axes.legend(fontsize=8)


def whiskers(spreads: Sequence[Spread], scale: float = 1.0) -> list[list[float]]:
    """From the median to the lowest and to the highest round, as matplotlib takes error bars."""
    return [
        [(one.median - one.low) * scale for one in spreads],
        [(one.high - one.median) * scale for one in spreads],
    ]
