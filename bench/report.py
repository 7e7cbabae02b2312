"""The table on the terminal, and the files: markdown, CSV of the table, CSV of every round, machine as JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from bench.figures import Growth, Reached, Row, Side, Spread
from bench.job import PAYLOAD, Job, Outcome, Shape
from bench.rounds import Plan, Series
from bench.works import BASE, Figure, Goal

JUDGEMENT = (
    "A goal counts as reached by the ratio of CPU per message (reference / subject), the firmest figure on a "
    "shared machine; the ratio of throughput stands beside it. Ratios are medians of the ratios of single "
    "rounds, with the lowest and highest. Above 1 is in favour of the subject."
)
FULL = 0.8  # share of the window that must be outstanding on average for the load to be what it claims to be
BUSY = 0.93  # share of a core from which on it is the bottleneck
QUIET = 0.1  # cores that neighbours may use before the figures are called disturbed


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that one run found."""

    plan: Plan
    machine: dict[str, object]
    series: Sequence[Series]
    rows: Sequence[Row]
    growth: Sequence[Growth]
    notes: Sequence[str]

    @property
    def names(self) -> tuple[str, str]:
        reference, subject = self.plan.reference.value, self.plan.subject.value
        return reference, subject if subject != reference else f"{subject} (again)"

    @property
    def failures(self) -> list[str]:
        return [words for series in self.series for words in series.failures]

    @property
    def missed(self) -> list[Row]:
        return [one for one in self.rows if one.reached in (Reached.NO, Reached.FAILED)]

    @property
    def disturbance(self) -> float:
        """The most CPU, in cores, that neighbours used in the median round of a work."""
        sides = [side for row in self.rows for side in (row.reference, row.subject)]
        return max((side.foreign.median for side in sides if side.foreign), default=0.0)


def header(report: Report) -> list[str]:
    plan = report.plan
    protocol = "5.0" if plan.version == 5 else "3.1.1"
    return [
        f"{PAYLOAD}-byte payloads, MQTT {protocol}, {plan.rounds} round(s) of {plan.duration:g} s, "
        "server on one core, load on another; window = messages outstanding.",
        JUDGEMENT,
    ]


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


def ratio_text(spread: Spread | None) -> str:
    """A ratio, or that there is none."""
    return spread.show() if spread is not None else "-"


def _lines(report: Report, *, titles: bool) -> Iterator[tuple[str, ...]]:
    for row in report.rows:
        yield (
            f"{row.work.title} (`{row.work.name}`)" if titles else row.work.name,
            row.work.window,
            cell(row.work.figure, row.reference),
            cell(row.work.figure, row.subject),
            ratio_text(row.throughput),
            ratio_text(row.cost),
            str(row.work.goal) if isinstance(row.work.goal, Goal) else "-",
            row.reached.value or "-",
        )


def _columns(report: Report) -> tuple[str, ...]:
    reference, subject = report.names
    return ("work", "window", reference, subject, "throughput ratio", "CPU ratio", "goal", "reached")


def table(report: Report) -> Table:
    """For the terminal."""
    made = Table(*_columns(report), caption=" ".join(header(report)), caption_justify="left", box=box.SIMPLE)
    colours = {"yes": "green", "no": "red", "failed": "red", Reached.BY_THROUGHPUT.value: "yellow"}
    for *cells, reached in _lines(report, titles=False):
        colour = colours.get(reached)
        made.add_row(*cells, f"[{colour}]{reached}[/]" if colour else reached)
    return made


def markdown(report: Report) -> str:
    reference, subject = report.names
    parts = [f"# Broker: {subject} against {reference}", "", *header(report), ""]
    parts += markdown_table(_columns(report), _lines(report, titles=True))
    parts += ["", "For latency and memory the column `CPU ratio` holds the ratio of those.", ""]
    parts += ["## Who was busy", "", *_busy(report), ""]
    if latency := list(_latency(report)):
        parts += ["## Latency in open loops (milliseconds)", ""]
        parts += markdown_table(("work", "server", "p50", "p99", "p99.9"), latency)
        parts.append("")
    if report.growth:
        parts += [f"## Cost per message as a multiple of that of `{BASE}`", ""]
        parts += markdown_table(
            ("work", reference, subject, "grows no faster"),
            (
                (one.work.title, f"{one.reference:.2f}", f"{one.subject:.2f}", "yes" if one.no_faster else "no")
                for one in report.growth
            ),
        )
        parts.append("")
    if report.notes:
        parts += ["## Notes", "", *(f"- {note}" for note in report.notes), ""]
    if report.failures:
        parts += ["## What failed", "", *(f"- {words}" for words in report.failures), ""]
    parts += ["## Machine", "", "```json", json.dumps(report.machine, indent=2), "```", ""]
    return "\n".join(parts)


def _busy(report: Report) -> list[str]:
    sides = (
        (row.work.key, name, row.work.job, side)
        for row in report.rows
        for name, side in zip(report.names, (row.reference, row.subject), strict=True)
    )
    return who_was_busy(sides, report.disturbance)


def who_was_busy(sides: Iterable[tuple[str, str, Job, Side]], disturbance: float) -> list[str]:
    """For each work and server, whether the figures are the server's own."""
    words = [
        "Share of one core that the server and the load generator used, the generator's CPU per message "
        "(a million divided by it is its ceiling), cores used by neighbours, and messages lost.",
        "Held back by: the generator, if it is busy all the time and yet leaves the window half empty (sending one "
        "message costs it about 5 µs in the kernel; the server then works in smaller batches than it could, so its "
        "CPU per message is an upper bound); else the server, if it is busy all the time; else neighbours; else the "
        "window, that is, both wait for each other. In open loops the rate is given and the generator spins; its "
        "share is that of turns with work.",
    ]
    if disturbance > QUIET:
        words.append(
            f"**The machine was not quiet**: neighbours used up to {disturbance:.2f} cores. Throughput and "
            "latency mean little then, and a server that waits for its core finds more messages when it gets it, "
            "which flatters servers that work in batches."
        )
    lines = [
        (
            key,
            name,
            *(f"{one.median:.0%}" if one else "-" for one in (side.busy, side.load_busy)),
            f"{side.load_micros.median:.2f} µs" if side.load_micros else "-",
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


def _latency(report: Report) -> Iterator[tuple[str, ...]]:
    for row in report.rows:
        for name, side in zip(report.names, (row.reference, row.subject), strict=True):
            if side.p99 is not None:
                shown = (one.show(2, 1e3) if one else "-" for one in (side.p50, side.p99, side.p999))
                yield row.work.key, name, *shown


def markdown_table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    out = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    out += ["| " + " | ".join(line) + " |" for line in lines]
    return out


def summary(report: Report) -> list[dict[str, object]]:
    """The table with all its numbers, one mapping per work."""
    out: list[dict[str, object]] = []
    for row in report.rows:
        line: dict[str, object] = {"work": row.work.name, "window": row.work.window, "title": row.work.title}
        for name, side in (("reference", row.reference), ("subject", row.subject)):
            for figure in ("rate", "micros", "p50", "p99", "p999", "kib", "busy", "load_busy", "load_micros"):
                value: Spread | None = getattr(side, figure)
                line[f"{name}_{figure}"] = None if value is None else round(value.median, 7)
            line[f"{name}_lost"] = side.lost
        for name, ratio in (("throughput", row.throughput), ("cost", row.cost)):
            for place in ("median", "low", "high"):
                line[f"{name}_{place}"] = None if ratio is None else round(getattr(ratio, place), 4)
        line["goal"] = str(row.work.goal or "")
        line["reached"] = row.reached.value
        out.append(line)
    return out


def write(report: Report, folder: Path, stem: str) -> list[Path]:
    """Writes all but the plot."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "table": folder / f"{stem}.md",
        "summary": folder / f"{stem}.csv",
        "rounds": folder / f"{stem}-rounds.csv",
        "machine": folder / f"{stem}-machine.json",
    }
    files["table"].write_text(markdown(report))
    write_csv(files["summary"], summary(report))
    write_csv(files["rounds"], list(_every_round(report)))
    files["machine"].write_text(json.dumps(report.machine, indent=2) + "\n")
    return list(files.values())


def _every_round(report: Report) -> Iterator[dict[str, object]]:
    for series in report.series:
        for number, pair in enumerate(zip(series.reference, series.subject, strict=True), 1):
            for name, outcome in zip(report.names, pair, strict=True):
                if outcome is not None:
                    yield {"work": series.work.key, "round": number, "server": name, **numbers(outcome)}


def numbers(outcome: Outcome) -> dict[str, object]:
    """One measurement, for the table of all of them."""
    return {
        "messages": outcome.messages,
        "seconds": round(outcome.seconds, 4),
        "per_second": round(outcome.per_second, 1),
        "server_cpu": round(outcome.server_cpu, 3),
        "micros": round(outcome.micros, 3),
        "server_busy": round(outcome.busy, 3),
        "load_busy": round(outcome.load_busy, 3),
        "load_micros": round(outcome.load_micros, 3),
        "foreign": round(outcome.foreign, 3),
        "steal": round(outcome.steal, 3),
        "lost": outcome.lost,
        "overrun": outcome.overrun,
        "p50_ms": round(outcome.p50 * 1e3, 4),
        "p99_ms": round(outcome.p99 * 1e3, 4),
        "p999_ms": round(outcome.p999 * 1e3, 4),
        "slowest_ms": round(outcome.slowest * 1e3, 4),
        "late_ms": round(outcome.late * 1e3, 4),
        "changes": outcome.changes,
        "connections": outcome.connections,
        "bytes_each": round(outcome.bytes_each, 1),
    }


def write_csv(file: Path, lines: Sequence[dict[str, object]]) -> None:
    """The columns are those of the first line; without lines the file is empty."""
    with file.open("w", newline="") as sink:
        if lines:
            writer = csv.DictWriter(sink, fieldnames=list(lines[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
