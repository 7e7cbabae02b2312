"""The report of `bench flow`: a line for each shape and size, every measurement as CSV, and the picture of growth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bench.flow.graphs import CUBIC, GOALS, WITNESSES, Found, Row, Shape, growth, rows
from bench.harness.plot import MARK, REFERENCE, SUBJECT, Picture, whiskers
from bench.harness.report import Line, Report, Table

HEADER = (
    "Random graphs of four shapes, each looked at in a process of its own. The graph is made of its links, all pairs "
    f"of links are found of which one reaches the other, and then {WITNESSES} routes between random entities are asked "
    "for. Time is that of one CPU. Figures are medians of the rounds, with the lowest and the highest."
)
JUDGEMENT = (
    "A goal is judged by everything together: the graph, all pairs of links, and the slowest of the routes. Growth is "
    "the power of the number of links by which that time grows over the larger sizes; Floyd-Warshall is cubic."
)
COLUMNS = (
    "shape",
    "links",
    "entities",
    "pairs of links",
    "graph, ms",
    "all pairs of links, ms",
    "all pairs of entities, ms",
    "one route, ms",
    "slowest route, ms",
    "memory, MiB",
    "all, s",
    "goal",
    "reached",
)
COLOURS = (SUBJECT, MARK, "#2e7d32", "#8e24aa")


def report(found: Sequence[Found], machine: Mapping[str, object], stem: str = "flow") -> Report:
    several = rows(found)
    powers = growth(several)
    goals = " and ".join(f"{links:,} links in less than {seconds:g} s" for links, seconds in GOALS.items())
    missed = [
        f"{one.shape.value}, {one.wanted:,} links: slower than {one.goal:g} s" for one in several if not one.reached
    ]
    missed += [f"{shape.value}: grows by n^{power:.2f}" for shape, power in powers.items() if power >= CUBIC]
    grown = [
        (shape.value, shape.title, f"n^{power:.2f}", "yes" if power < CUBIC else "no")
        for shape, power in powers.items()
    ]
    return Report(
        title="Flow analysis: what reaches what",
        machine=machine,
        header=[HEADER, JUDGEMENT, f"The goals are {goals}."],
        notes=[f"Missed: {words}" for words in missed],
        tables=[
            Table(title="Graphs", columns=COLUMNS, lines=list(map(_line, several))),
            Table(
                title="Growth",
                words=f"![time and memory by links]({stem}.png)",
                columns=("shape", "what it is", "growth", "below cubic"),
                lines=grown,
            ),
        ],
        files={"": list(map(_figures, found))},
        pictures=[Picture(size=(12, 4.6), fill=lambda panels: _panels(several, panels), columns=3)],
        missed=missed,
    )


def _line(row: Row) -> tuple[str, ...]:
    one = row.found[0]
    return (
        row.shape.value,
        f"{one.links:,}",
        f"{one.entities:,}",
        f"{row.of('joined').median:,.0f}",
        *(row.of(name, 1e3).show(2) for name in ("made", "closed", "entity_pairs", "witness", "slowest")),
        row.of("mib").show(1),
        row.of("seconds").show(3),
        f"< {row.goal:g} s" if row.goal else "-",
        "-" if row.goal is None else "yes" if row.reached else "no",
    )


def _figures(one: Found) -> Line:
    """One measurement."""
    return {
        name: value.value if isinstance(value, Shape) else round(value, 6) if isinstance(value, float) else value
        for name, value in (dataclasses.asdict(one) | {"seconds": one.seconds}).items()
    }


def _panels(several: Sequence[Row], panels: Any) -> None:
    """Time and memory by number of links."""
    titles = {"seconds": "everything, seconds", "witness": "one route, seconds", "mib": "memory, MiB"}
    for axes, (name, title) in zip(panels[0], titles.items(), strict=True):
        for shape, colour in zip(Shape, COLOURS, strict=True):
            mine = [row for row in several if row.shape is shape]
            spreads = [row.of(name) for row in mine]
            axes.errorbar(
                [row.found[0].links for row in mine],
                [one.median for one in spreads],
                yerr=whiskers(spreads),
                color=colour, label=shape.value, marker="o", markersize=3, linewidth=1.2,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log", nonpositive="clip")
        axes.set_xlabel("links")
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3, linewidth=0.5)
    _compare(panels[0][0], several)
    panels[0][0].legend(fontsize=8)


def _compare(axes: Any, several: Sequence[Row]) -> None:
    """What cubic growth would be, from the slowest of the smallest; and the goals."""
    sizes = sorted({row.found[0].links for row in several if row.shape is Shape.CROWD})
    least = min(row.wanted for row in several)
    start = max(row.of("seconds").median for row in several if row.wanted == least)
    cubic = [start * (size / sizes[0]) ** CUBIC for size in sizes]
    axes.plot(sizes, cubic, color=REFERENCE, linestyle=":", linewidth=1, label="cubic")
    for links, seconds in GOALS.items():
        if links <= sizes[-1]:
            axes.plot(links, seconds, color="#1f2933", marker="_", markersize=16, markeredgewidth=2, linestyle="none")
            axes.annotate("goal", (links, seconds), textcoords="offset points", xytext=(0, 4), fontsize=8, ha="center")
