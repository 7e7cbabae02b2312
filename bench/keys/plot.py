"""The pictures of `bench keys`: requests a second and their CPU, the seed's box plots, the broker beside its API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.harness.figures import Spread
from bench.harness.plot import MARK, REFERENCE, SUBJECT, Picture, bars
from bench.keys.busy_api import TIMES, Where
from bench.keys.direct import Cell
from bench.keys.requests import ENOUGH, SOON
from bench.keys.weather import Rules
from bench.keys.works import Findings

COLOURS = {Rules.OPEN: REFERENCE, Rules.GATE: "#2e8b57", Rules.PROTECTED: SUBJECT}


def pictures(found: Findings) -> Iterator[Picture]:
    """Of what was measured."""
    if any(way.per_second for way in found.asked.ways.values()):
        yield Picture(size=(12, 3.6), fill=lambda axes: _requests(axes[0], found), columns=3)
    if any(cell.seconds for cell in found.direct.cells):
        yield Picture(name="-direct", size=(11, 4.4), fill=lambda axes: _direct(axes[0], found), columns=2)
    if any(found.beside.of("p99", where) for where in found.beside.seen):
        yield Picture(name="-beside", size=(9, 3.4), fill=lambda axes: _beside(axes[0], found), columns=2)


def _requests(panels: Any, found: Findings) -> None:
    rates, costs, waits = panels
    ways = list(found.asked.ways.values())
    names = [way.name for way in ways]
    bars(rates, names, ("", SUBJECT, [way.per_second for way in ways]), across=False)
    rates.axhline(ENOUGH, color=MARK, lw=1)
    rates.set_ylabel("key requests a second, one core (red: goal)")
    node, api = ([_middle(way.micros(place)) for way in ways] for place in (0, 1))
    costs.bar(range(len(names)), node, width=0.6, color=SUBJECT, label="node")
    costs.bar(range(len(names)), api, width=0.6, bottom=node, color=REFERENCE, label="HTTP process")
    costs.set_xticks(range(len(names)), names, fontsize=8)
    costs.set_ylabel("CPU of a request, µs")
    costs.grid(axis="y", alpha=0.3)
    costs.legend(fontsize=8, loc="lower right")
    bars(waits, names, ("", SUBJECT, [way.p99 for way in ways]), across=False, scale=1e3)
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
    bars(waits, names, ("", SUBJECT, [found.beside.of("p99", where) for where in places]), across=False, scale=1e3)
    if alone := found.beside.of("p99", Where.ALONE):
        waits.plot([0.6, 1.4], [TIMES * alone.median * 1e3] * 2, color=MARK, lw=2)
    waits.set_ylabel("p99 of a message, ms (red: goal)")
    bars(answers, names, ("", SUBJECT, [found.beside.answers(where) for where in places]), across=False)
    answers.set_ylabel("answers of the API a second")
