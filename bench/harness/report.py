"""The report of a command: tables for the terminal and for markdown, CSV files, pictures, the machine.

Every command makes a `Report` of what it found; everything that is shown or written comes from it. Also here: what the
tables of several commands have in common, such as who was busy.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.table import Table as Terminal

from bench.harness.figures import Side, Spread
from bench.harness.plot import Picture
from bench.harness.work import Figure
from bench.load.job import Job, Outcome, Shape

FULL = 0.8  # share of the window that must be outstanding on average for the load to be what it claims to be
BUSY = 0.93  # share of a core from which on it is the bottleneck
QUIET = 0.1  # cores that neighbours may use before the figures are called disturbed
Line = dict[str, object]
COLOURS = {"yes": "green", "no": "red", "failed": "red", "throughput only": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Words above and below the table are for the file; on a terminal the title has to do."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    words: str = ""
    after: str = ""
    names: Sequence[str] = ()
    """Shorter names for the first column on a terminal."""

    def markdown(self, heading: str = "##") -> list[str]:
        parts = [f"{heading} {self.title}", ""] if self.title else []
        parts += [self.words, ""] if self.words else []
        parts += [*markdown_table(self.columns, self.lines), ""]
        return [*parts, self.after, ""] if self.after else parts

    def terminal(self) -> Terminal:
        """Whether a goal is reached, in the last column, has a colour."""
        table = Terminal(*self.columns, title=self.title or None, title_justify="left", box=box.SIMPLE)
        lines = [(name, *line[1:]) for name, line in zip(self.names, self.lines, strict=False)] or self.lines
        for *cells, last in lines:
            colour = COLOURS.get(last)
            table.add_row(*cells, f"[{colour}]{last}[/]" if colour else last)
        return table


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that one run found, in words and figures."""

    title: str
    machine: Mapping[str, object]
    tables: Sequence[Table]
    """Those without lines are left out."""
    header: Sequence[str] = ()
    """Paragraphs below the title: how it was measured."""
    notes: Sequence[str] = ()
    """What the reader has to know: goals, noise."""
    closing: Sequence[str] = ()
    """Lines of markdown below the tables."""
    files: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    """Lines of the CSV files, by what their names have behind the stem; those without lines are left out."""
    summary: object = None
    """What `--json` prints; without it, the lines of the first file."""
    pictures: Sequence[Picture] = ()
    failures: Sequence[str] = ()
    missed: Sequence[str] = ()
    """Names of what has a goal and did not reach it."""

    @property
    def shown(self) -> list[Table]:
        return [table for table in self.tables if table.lines]

    def terminal(self) -> list[Terminal]:
        return [table.terminal() for table in self.shown]

    def words(self) -> list[str]:
        """Below the tables on a terminal."""
        return [*self.header, *self.notes, *self.failures]

    def to_json(self) -> str:
        return json.dumps(next(iter(self.files.values()), []) if self.summary is None else self.summary, indent=2)

    def markdown(self) -> str:
        parts = [f"# {self.title}", "", *self.header, ""]
        parts += [*(f"- {note}" for note in self.notes), ""] if self.notes else []
        for table in self.shown:
            parts += table.markdown()
        parts += [*self.closing, ""] if self.closing else []
        parts += ["## What failed", "", *(f"- {words}" for words in self.failures), ""] if self.failures else []
        return "\n".join([*parts, "## Machine", "", *json_block(self.machine)])

    def write(self, folder: Path, stem: str) -> list[Path]:
        """All but the pictures."""
        folder.mkdir(parents=True, exist_ok=True)
        table, machine = folder / f"{stem}.md", folder / f"{stem}-machine.json"
        table.write_text(self.markdown())
        machine.write_text(json.dumps(self.machine, indent=2) + "\n")
        written = [table, machine]
        for name, lines in self.files.items():
            if lines:
                written.append(folder / f"{stem}{name}.csv")
                write_csv(written[-1], lines)
        return written

    def draw(self, folder: Path, stem: str) -> list[Path]:
        """The pictures; ImportError without matplotlib."""
        return [picture.draw(folder / f"{stem}{picture.name}.png") for picture in self.pictures]


def json_block(values: Mapping[str, object]) -> list[str]:
    return ["```json", json.dumps(values, indent=2), "```", ""]


def markdown_table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    out = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return [*out, *("| " + " | ".join(line) + " |" for line in lines)]


def write_csv(file: Path, lines: Sequence[Line]) -> None:
    """The columns are those of the first line."""
    with file.open("w", newline="") as sink:
        writer = csv.DictWriter(sink, fieldnames=list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def places(value: Spread | float | None, digits: int) -> Line:
    """Median, lowest and highest, for a line of a CSV file."""
    if isinstance(value, float):
        value = Spread(median=value, low=value, high=value)
    names = ("median", "low", "high")
    return {name: None if value is None else round(getattr(value, name), digits) for name in names}


def show(value: Spread | None, digits: int = 2, scale: float = 1.0) -> str:
    """A figure with its spread, or that there is none."""
    return "-" if value is None else value.show(digits, scale)


def share(value: Spread | None) -> str:
    return f"{value.median:.0%}" if value else "-"


def not_quiet(cores: float, words: str = "") -> list[str]:
    """What to say of neighbours, if they used more than they may."""
    if cores <= QUIET:
        return []
    return [f"**The machine was not quiet**: neighbours used up to {cores:.2f} cores. {words}".strip()]


def cell(figure: Figure, side: Side) -> str:
    """What one server showed."""
    if not side.rounds:
        return "failed"
    if side.overrun:
        return "cannot keep the rate"
    match figure:
        case Figure.FLOW:
            if side.rate is None or side.micros is None:
                return "nothing delivered"
            return f"{side.rate.median / 1e3:.1f} k/s, {side.micros.median:.2f} µs"
        case Figure.LATENCY:
            return f"p99 {side.p99.median * 1e3:.2f} ms" if side.p99 else "nothing delivered"
        case Figure.MEMORY:
            return f"{side.kib.median:.2f} KiB" if side.kib else "no growth seen"


def who_was_busy(sides: Iterable[tuple[str, str, Job, Side]], disturbance: float) -> list[str]:
    """For each work and server, whether the figures are the server's own."""
    words = [
        "Share of one core that the server and the load generator used, the generator's CPU per message "
        "(a million divided by it is its ceiling) and the language of its loop, cores used by neighbours, and "
        "messages lost.",
        "Held back by: the generator, if it is busy all the time and yet leaves the window half empty (sending one "
        "message costs it about 5 µs in the kernel; the server then works in smaller batches than it could, so its "
        "CPU per message is an upper bound); else the server, if it is busy all the time; else neighbours; else the "
        "window, that is, both wait for each other. In open loops the rate is given and the generator spins; its "
        "share is that of turns with work.",
    ]
    words += not_quiet(
        disturbance,
        "Throughput and latency mean little then, and a server that waits for its core finds more messages when it "
        "gets it, which flatters servers that work in batches.",
    )
    lines = [
        (
            key,
            name,
            *(f"{one.median:.0%}" if one else "-" for one in (side.busy, side.load_busy)),
            f"{side.load_micros.median:.2f} µs, {side.generator}" if side.load_micros else "-",
            f"{side.foreign.median:.2f}" if side.foreign else "0.00",
            f"{side.outstanding.median:.0f}" if side.outstanding else "-",
            held_back(job, side),
            str(side.lost),
        )
        for key, name, job, side in sides
        if side.rounds and side.rate is not None
    ]
    columns = (
        "work",
        "server",
        "server busy",
        "generator busy",
        "generator",
        "neighbours",
        "outstanding",
        "held back by",
        "lost",
    )
    return [*words, "", *markdown_table(columns, lines)]


def held_back(job: Job, side: Side) -> str:
    """Who was the bottleneck, in one word."""
    if job.shape is not Shape.WINDOW:
        return "rate"
    busy, load, foreign, outstanding = (
        one.median if one else 0.0 for one in (side.busy, side.load_busy, side.foreign, side.outstanding)
    )
    if load >= BUSY and outstanding < FULL * job.window:
        return "generator"
    if busy >= BUSY:
        return "server"
    return "neighbours" if foreign > QUIET else "window"


ROUNDED = {
    "seconds": ("seconds", 4),
    "per_second": ("per_second", 1),
    "server_cpu": ("server_cpu", 3),
    "micros": ("micros", 3),
    "server_busy": ("busy", 3),
    "load_busy": ("load_busy", 3),
    "load_micros": ("load_micros", 3),
    "foreign": ("foreign", 3),
    "steal": ("steal", 3),
}


def numbers(outcome: Outcome) -> dict[str, object]:
    """One measurement, for the table of all of them."""
    rounded = {name: round(getattr(outcome, of), digits) for name, (of, digits) in ROUNDED.items()}
    millis = ("p50", "p99", "p999", "slowest", "late")
    return {
        "messages": outcome.messages,
        **rounded,
        "lost": outcome.lost,
        "overrun": outcome.overrun,
        **{f"{name}_ms": round(getattr(outcome, name) * 1e3, 4) for name in millis},
        "changes": outcome.changes,
        "connections": outcome.connections,
        "bytes_each": round(outcome.bytes_each, 1),
        "generator": outcome.generator,
    }
