"""The pictures of `bench scopes`: those of the seed (throughput over rate), and what five scopes cost beside one.

matplotlib takes a second to import and is an extra (`tidegate[bench]`), so it is imported when drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.plot import MARK, REFERENCE, SUBJECT
from bench.scopes.chain import COMPARABLE, HSUP, MULTI, Configuration, counted
from bench.scopes.contest import GOAL, Compared, cost
from bench.scopes.works import Findings

FIGURES: tuple[Sequence[Configuration], ...] = (COMPARABLE, (HSUP,), (MULTI,))
"""The rows of the picture; the columns are the lengths of the chain."""
LOOKS = {"ORI": ("o", REFERENCE), "NEW": ("s", SUBJECT), "SEM": ("^", "#2e8b57"), "CEM": ("v", MARK)}


def draw(found: Findings, folder: Path, stem: str) -> list[Path]:
    """Draws what was measured; raises ImportError without matplotlib."""
    made = []
    if found.rates.cells:
        columns = len(found.rates.lengths)
        size = (4.2 * columns, 3.4 * len(FIGURES))
        made.append(_drawn(folder / f"{stem}.png", size, (len(FIGURES), columns), lambda axes: _rates(axes, found)))
    sides = [("without sockets", found.indoors), ("saturated, over sockets", found.saturated.compared())]
    if shown := [(title, compared) for title, compared in sides if compared]:
        size = (11, 1.2 + 0.5 * max(len(compared) for _, compared in shown) + 1.0)
        file = folder / f"{stem}-costs.png"
        made.append(_drawn(file, size, (1, len(shown)), lambda axes: _costs(axes[0], shown)))
    return made


def _drawn(file: Path, size: tuple[float, float], shape: tuple[int, int], fill: Callable[[Any], None]) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=size)
    FigureCanvasAgg(canvas)
    fill(canvas.subplots(*shape, squeeze=False))
    canvas.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(file, dpi=110)
    return file


def _rates(panels: Any, found: Findings) -> None:
    for row, configurations in zip(panels, FIGURES, strict=True):
        for axes, scopes in zip(row, found.rates.lengths, strict=True):
            for one in configurations:
                _line(axes, found, one, scopes)
            cells = found.rates.of(configurations[0], scopes)
            rates = [cell.rate / 1e3 for cell in cells]
            axes.plot(rates, [cell.calculated / 1e3 for cell in cells], "--", color="black", lw=0.9, label="CMT")
            axes.set_title(counted(scopes), fontsize=10)
            axes.set_xlabel("published, k messages/s", fontsize=8)
            axes.set_ylabel("arrived, k messages/s", fontsize=8)
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)


def _line(axes: Any, found: Findings, configuration: Configuration, scopes: int) -> None:
    points = [(cell.rate / 1e3, cell.arrived) for cell in found.rates.of(configuration, scopes)]
    known = [(rate, arrived) for rate, arrived in points if arrived is not None]
    marker, colour = LOOKS.get(configuration.name, ("o", SUBJECT))
    middle = [arrived.median / 1e3 for _, arrived in known]
    error = [
        [(arrived.median - arrived.low) / 1e3 for _, arrived in known],
        [(arrived.high - arrived.median) / 1e3 for _, arrived in known],
    ]
    rates = [rate for rate, _ in known]
    axes.errorbar(rates, middle, yerr=error, marker=marker, ms=4, lw=1, color=colour, label=configuration.name)


def _costs(panels: Any, shown: Sequence[tuple[str, Sequence[Compared]]]) -> None:
    for axes, (title, compared) in zip(panels, shown, strict=True):
        for shift, name, colour, values in (
            (-0.2, "one scope", REFERENCE, [cost(one.one) for one in compared]),
            (0.2, "five scopes", SUBJECT, [cost(one.several) for one in compared]),
        ):
            known = [(place + shift, value.median) for place, value in enumerate(values) if value is not None]
            axes.barh([place for place, _ in known], [value for _, value in known], 0.38, color=colour, label=name)
        labels = [
            f"{one.contest.name}, QoS {one.qos}: {one.ratio.median:.2f} times" if one.ratio else one.contest.name
            for one in compared
        ]
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.invert_yaxis()
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(f"CPU per message, µs (goal: {GOAL:g} times at most)", fontsize=8)
        axes.grid(axis="x", alpha=0.3)
        axes.legend(fontsize=7)
