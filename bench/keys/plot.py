"""The pictures of `bench keys`: requests a second and their CPU, the seed's box plots, and the broker beside its API.

matplotlib takes a second to import and is an extra (`tidegate[bench]`), so it is imported when drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.figures import Spread
from bench.keys.beside import TIMES, Where
from bench.keys.direct import Cell
from bench.keys.requests import ENOUGH, SOON
from bench.keys.station import Rules
from bench.keys.works import Findings
from bench.plot import MARK, REFERENCE, SUBJECT

COLOURS = {Rules.OPEN: REFERENCE, Rules.GATE: "#2e8b57", Rules.PROTECTED: SUBJECT}


def draw(found: Findings, folder: Path, stem: str) -> list[Path]:
    """Draws what was measured; raises ImportError without matplotlib."""
    made = []
    if any(way.per_second for way in found.asked.ways.values()):
        made.append(_drawn(folder / f"{stem}.png", (12, 3.6), 3, lambda axes: _requests(axes, found)))
    if any(cell.seconds for cell in found.direct.cells):
        made.append(_drawn(folder / f"{stem}-direct.png", (11, 4.4), 2, lambda axes: _direct(axes, found)))
    if any(found.beside.p99(where) for where in found.beside.seen):
        made.append(_drawn(folder / f"{stem}-beside.png", (9, 3.4), 2, lambda axes: _beside(axes, found)))
    return made


def _drawn(file: Path, size: tuple[float, float], panels: int, fill: Callable[[Any], None]) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=size)
    FigureCanvasAgg(canvas)
    fill(canvas.subplots(1, panels, squeeze=False)[0])
    canvas.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(file, dpi=110)
    return file


def _bars(axes: Any, names: Sequence[str], spreads: Sequence[Spread | None], scale: float = 1.0) -> None:
    shown = [one or Spread(median=0.0, low=0.0, high=0.0) for one in spreads]
    middle = [one.median * scale for one in shown]
    error = [
        [(one.median - one.low) * scale for one in shown],
        [(one.high - one.median) * scale for one in shown],
    ]
    axes.bar(range(len(names)), middle, width=0.6, yerr=error, color=SUBJECT, error_kw={"lw": 0.8})
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.grid(axis="y", alpha=0.3)


def _requests(panels: Any, found: Findings) -> None:
    rates, costs, waits = panels
    ways = list(found.asked.ways.values())
    names = [way.name for way in ways]
    _bars(rates, names, [way.per_second for way in ways])
    rates.axhline(ENOUGH, color=MARK, lw=1)
    rates.set_ylabel("key requests a second, one core (red: goal)")
    node, api = ([_middle(way.micros(place)) for way in ways] for place in (0, 1))
    costs.bar(range(len(names)), node, width=0.6, color=SUBJECT, label="node")
    costs.bar(range(len(names)), api, width=0.6, bottom=node, color=REFERENCE, label="HTTP process")
    costs.set_xticks(range(len(names)), names, fontsize=8)
    costs.set_ylabel("CPU of a request, µs")
    costs.grid(axis="y", alpha=0.3)
    costs.legend(fontsize=8, loc="lower right")
    _bars(waits, names, [way.p99 for way in ways], 1e3)
    waits.axhline(SOON * 1e3, color=MARK, lw=1)
    waits.set_ylabel("p99 at half of the maximum, ms (red: goal)")


def _middle(value: Spread | None) -> float:
    return value.median if value else 0.0


def _direct(panels: Any, found: Findings) -> None:
    times, loads = panels
    cells = [cell for cell in found.direct.cells if cell.seconds]
    boxes = times.boxplot(
        [[second * 1e3 for second in cell.seconds] for cell in cells],
        showfliers=False,
        whis=(1, 99),
        widths=0.6,
        patch_artist=True,
        medianprops={"color": MARK},
    )
    for box, cell in zip(boxes["boxes"], cells, strict=True):
        box.set_facecolor(COLOURS[cell.rules])
    _name(times, cells, first=1)
    times.set_ylim(bottom=0)
    times.set_ylabel("send() to recv(), ms")
    times.set_title("whiskers: 1st and 99th percentile; seed: 3.5 to 4 ms, with AUPS 5.5 to 6 ms", fontsize=8)
    loads.bar(
        range(len(cells)),
        [_middle(cell.busy) * 100 for cell in cells],
        width=0.6,
        color=[COLOURS[cell.rules] for cell in cells],
    )
    _name(loads, cells, first=0)
    loads.set_ylabel("CPU load of the node, % of a core")


def _name(axes: Any, cells: Sequence[Cell], *, first: int) -> None:
    labels = [f"{cell.rules.value}\n{cell.rate}/s, {cell.size} B" for cell in cells]
    axes.set_xticks(range(first, first + len(cells)), labels, fontsize=6, rotation=60)
    axes.grid(axis="y", alpha=0.3)


def _beside(panels: Any, found: Findings) -> None:
    waits, answers = panels
    places = list(Where)
    names = [where.value.replace(" on ", "\non ") for where in places]
    _bars(waits, names, [found.beside.p99(where) for where in places], 1e3)
    if alone := found.beside.p99(Where.ALONE):
        waits.plot([0.6, 1.4], [TIMES * alone.median * 1e3] * 2, color=MARK, lw=2)
    waits.set_ylabel("p99 of a message, ms (red: goal)")
    _bars(answers, names, [found.beside.answers(where) for where in places])
    answers.set_ylabel("answers of the API a second")
