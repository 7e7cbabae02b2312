"""The table of `bench compare`, as markdown, on the terminal and pair by pair as CSV."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from bench.compare.checkout import Checkout
from bench.compare.measure import ALLOWED, Comparison
from bench.report import BUSY, QUIET, markdown_table, write_csv
from bench.rounds import Plan

COLUMNS = ("work", "pairs", "unit", "base", "this tree", "change of speed (95 % interval)", "not slower")
LOAD_COLUMNS = (
    "work",
    "messages/s, base",
    "this tree",
    "node busy",
    "generator busy",
    "generator",
    "neighbours, cores",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was compared so far."""

    base: Checkout
    this: Checkout
    plan: Plan
    machine: dict[str, object]
    comparisons: Sequence[Comparison]

    @property
    def failures(self) -> list[str]:
        return [words for one in self.comparisons for words in one.failures]

    @property
    def missed(self) -> list[str]:
        return [one.name for one in self.comparisons if one.verdict != "yes"]


def _line(one: Comparison) -> tuple[str, ...]:
    speed = one.speed
    if speed is None:
        return (one.name, str(len(one.base)), one.unit, "-", "-", "-", one.verdict)
    change = f"{speed.mean - 1:+.1%} ({speed.low - 1:+.1%} to {speed.high - 1:+.1%})"
    base, this = statistics.median(one.base), statistics.median(one.this)
    return (one.name, str(len(one.base)), one.unit, f"{base:.2f}", f"{this:.2f}", change, one.verdict)


def _load_line(one: Comparison) -> tuple[str, ...]:
    both = [outcome for pair in one.outcomes for outcome in pair]
    rates = [statistics.median(pair[side].per_second for pair in one.outcomes) / 1e3 for side in (0, 1)]
    busy, load, foreign = (
        statistics.median(values)
        for values in ([o.busy for o in both], [o.load_busy for o in both], [o.foreign for o in both])
    )
    limited = " (the limit)" if load >= BUSY and busy < BUSY else ""
    generator = both[0].generator
    shares = (f"{busy:.0%}", f"{load:.0%}{limited}", generator, f"{foreign:.2f}")
    return (one.name, f"{rates[0]:.1f} k", f"{rates[1]:.1f} k", *shares)


def parts(report: Report) -> Iterator[tuple[str, Sequence[str], list[tuple[str, ...]]]]:
    """Tables with their titles."""
    sockets = [one for one in report.comparisons if not one.in_process]
    processes = [one for one in report.comparisons if one.in_process]
    if sockets:
        yield "Over sockets: CPU of the node per message", COLUMNS, [_line(one) for one in sockets]
    if processes:
        yield "In process: CPU of the scopes per message", COLUMNS, [_line(one) for one in processes]
    loads = [_load_line(one) for one in sockets if one.outcomes and one.outcomes[0][0].messages]
    if loads:
        yield "The load over sockets (medians of both sides)", LOAD_COLUMNS, loads


def tables(report: Report) -> Iterator[Table]:
    for title, columns, lines in parts(report):
        table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE)
        for line in lines:
            table.add_row(*line)
        yield table


def notes(report: Report) -> list[str]:
    """What the reader has to know beside the tables."""
    judged = len(report.comparisons)
    words = [f"Not slower: {judged - len(report.missed)} of {judged} works."]
    foreign = [o.foreign for one in report.comparisons for pair in one.outcomes for o in pair]
    if foreign and statistics.median(foreign) > QUIET:
        words.append(f"The machine was not quiet: neighbours used {statistics.median(foreign):.2f} cores (median).")
    return words


def markdown(report: Report) -> str:
    out = [
        f"# Compared: {report.this.name} with {report.base.name}",
        "",
        f"Base: {report.base.name}. This tree: {report.this.name}. Pairs of fresh processes, base and this tree in "
        f"turn, pinned to one core, load on another; over sockets {report.plan.duration:g} s each. Costs are medians "
        "of the pairs. The change of speed is the geometric mean of base cost / this tree's cost within pairs, less 1, "
        "with Student's 95 % interval of its logarithm; above zero, this tree costs less. Not slower: over sockets the "
        f"lower end of the interval is above -{ALLOWED:.0%}; in process the mean is.",
        "",
        *(f"- {words}" for words in notes(report)),
        "",
    ]
    for title, columns, lines in parts(report):
        out += [f"## {title}", "", *markdown_table(columns, lines), ""]
    if report.failures:
        out += ["## What failed", "", *(f"- {words}" for words in report.failures), ""]
    out += ["## Machine", "", "```json", json.dumps(report.machine, indent=2), "```", ""]
    return "\n".join(out)


def summary(report: Report) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    for one in report.comparisons:
        speed = one.speed
        lines.append(
            {
                "work": one.name,
                "where": "in process" if one.in_process else "sockets",
                "pairs": len(one.base),
                "unit": one.unit,
                "base": round(statistics.median(one.base), 4) if one.base else None,
                "this": round(statistics.median(one.this), 4) if one.this else None,
                "speed": round(speed.mean, 4) if speed else None,
                "speed_low": round(speed.low, 4) if speed else None,
                "speed_high": round(speed.high, 4) if speed else None,
                "not_slower": one.verdict,
            }
        )
    return lines


def write(report: Report, folder: Path, stem: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    table, pairs = folder / f"{stem}.md", folder / f"{stem}-pairs.csv"
    table.write_text(markdown(report))
    write_csv(
        pairs,
        [
            {"work": one.name, "where": "in process" if one.in_process else "sockets", "pair": number}
            | {"unit": one.unit, "base": round(base, 4), "this": round(this, 4)}
            for one in report.comparisons
            for number, (base, this) in enumerate(zip(one.base, one.this, strict=True), 1)
        ],
    )
    return [table, pairs]
