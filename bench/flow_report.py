"""What is said and kept of `bench flow`: tables, markdown, every measurement as CSV, and the picture of growth."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from bench.flow import CUBIC, GOALS, WITNESSES, Found, Row, Shape, growth, rows
from bench.report import markdown_table, write_csv

HEADER = (
    "Random graphs of four shapes, each looked at in a process of its own. The graph is made of its links, all pairs "
    f"of links are found of which one reaches the other, and then {WITNESSES} routes between random entities are asked "
    "for. Time is that of one CPU. Figures are medians of the rounds, in the files with the lowest and the highest."
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
COLOURS = ("#1f6f8b", "#c0392b", "#2e7d32", "#8e24aa")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that one run found."""

    machine: dict[str, object]
    found: Sequence[Found]

    @property
    def rows(self) -> list[Row]:
        return rows(self.found)

    @property
    def powers(self) -> dict[Shape, float]:
        return growth(self.rows)

    @property
    def missed(self) -> list[str]:
        """Goals that were not reached, in words."""
        late = [
            f"{row.shape.value}, {row.wanted:,} links: slower than {row.goal:g} s"
            for row in self.rows
            if not row.reached
        ]
        return late + [
            f"{shape.value}: grows by n^{power:.2f}" for shape, power in self.powers.items() if power >= CUBIC
        ]


def _lines(report: Report, *, spreads: bool) -> Iterator[tuple[str, ...]]:
    for row in report.rows:
        one = row.found[0]

        def show(name: str, digits: int, factor: float = 1.0, row: Row = row) -> str:
            value = row.of(name, factor)
            return value.show(digits) if spreads else f"{value.median:.{digits}f}"

        yield (
            row.shape.value,
            f"{one.links:,}",
            f"{one.entities:,}",
            f"{row.of('joined').median:,.0f}",
            *(show(name, 2, 1e3) for name in ("made", "closed", "entity_pairs", "witness", "slowest")),
            show("mib", 1),
            show("seconds", 3),
            f"< {row.goal:g} s" if row.goal else "-",
            "-" if row.goal is None else "yes" if row.reached else "no",
        )


def _grown(report: Report) -> list[tuple[str, ...]]:
    return [
        (shape.value, shape.title, f"n^{power:.2f}", "yes" if power < CUBIC else "no")
        for shape, power in report.powers.items()
    ]


def tables(report: Report) -> list[Table]:
    """For the terminal."""
    made = Table(*COLUMNS, box=box.SIMPLE, caption=f"{HEADER} {JUDGEMENT}", caption_justify="left")
    for line in _lines(report, spreads=False):
        made.add_row(*line)
    grown = Table("shape", "what it is", "growth", "below cubic", box=box.SIMPLE)
    for line in _grown(report):
        grown.add_row(*line)
    return [made, grown]


def markdown(report: Report, picture: str) -> str:
    goals = " and ".join(f"{links:,} links in less than {seconds:g} s" for links, seconds in GOALS.items())
    parts = ["# Flow analysis: what reaches what", "", HEADER, JUDGEMENT, f"The goals are {goals}.", ""]
    parts += [
        *markdown_table(COLUMNS, _lines(report, spreads=True)),
        "",
        "## Growth",
        "",
        f"![time and memory by links]({picture})",
        "",
    ]
    parts += [*markdown_table(("shape", "what it is", "growth", "below cubic"), _grown(report)), ""]
    if report.missed:
        parts += ["## What was missed", "", *(f"- {words}" for words in report.missed), ""]
    parts += ["## Machine", "", "```json", json.dumps(report.machine, indent=2), "```", ""]
    return "\n".join(parts)


def summary(report: Report) -> list[dict[str, object]]:
    """Every measurement."""
    return [
        {
            name: value.value if isinstance(value, Shape) else round(value, 6) if isinstance(value, float) else value
            for name, value in (dataclasses.asdict(one) | {"seconds": one.seconds}).items()
        }
        for one in report.found
    ]


def write(report: Report, folder: Path, stem: str) -> list[Path]:
    """Writes all but the picture."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{stem}.md", folder / f"{stem}.csv", folder / f"{stem}-machine.json"]
    files[0].write_text(markdown(report, f"{stem}.png"))
    write_csv(files[1], summary(report))
    files[2].write_text(json.dumps(report.machine, indent=2) + "\n")
    return files


def draw(report: Report, file: Path) -> Path:
    """Time and memory by number of links; raises ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(12, 4.6))
    FigureCanvasAgg(canvas)
    panels: Any = canvas.subplots(1, 3)
    for axes, name, title in zip(
        panels,
        ("seconds", "witness", "mib"),
        ("everything, seconds", "one route, seconds", "memory, MiB"),
        strict=True,
    ):
        for shape, colour in zip(Shape, COLOURS, strict=True):
            mine = [row for row in report.rows if row.shape is shape]
            spreads = [row.of(name) for row in mine]
            axes.errorbar(
                [row.found[0].links for row in mine],
                [one.median for one in spreads],
                yerr=[[one.median - one.low for one in spreads], [one.high - one.median for one in spreads]],
                color=colour, label=shape.value, marker="o", markersize=3, linewidth=1.2,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log", nonpositive="clip")
        axes.set_xlabel("links")
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3, linewidth=0.5)
    _compare(panels[0], report)
    panels[0].legend(fontsize=8)
    canvas.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(file, dpi=110)
    return file


def _compare(axes: Any, report: Report) -> None:
    """What cubic growth would be, from the slowest of the smallest; and the goals."""
    sizes = sorted({row.found[0].links for row in report.rows if row.shape is Shape.CROWD})
    least = min(row.wanted for row in report.rows)
    start = max(row.of("seconds").median for row in report.rows if row.wanted == least)
    cubic = [start * (size / sizes[0]) ** CUBIC for size in sizes]
    axes.plot(sizes, cubic, color="#8a8f98", linestyle=":", linewidth=1, label="cubic")
    for links, seconds in GOALS.items():
        if links <= sizes[-1]:
            axes.plot(links, seconds, color="#1f2933", marker="_", markersize=16, markeredgewidth=2, linestyle="none")
            axes.annotate("goal", (links, seconds), textcoords="offset points", xytext=(0, 4), fontsize=8, ha="center")
