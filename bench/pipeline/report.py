"""The report of `bench pipeline`: tables for the terminal, and markdown and CSV as files.

Only parts that were just measured are shown on the terminal; files are made of the last measurement of each part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.table import Table as Shown

from bench.pipeline import sections
from bench.pipeline.sections import Goal, Section
from bench.pipeline.works import PARTS
from bench.report import QUIET, markdown_table, write_csv

TITLES = {
    "throughput": "Records a second",
    "latency": "From a message to its record",
    "journal": "The journal",
    "growth": "One to ten million records",
}
GOALS = ("what", "goal", "found", "reached")


def goals(found: Iterable[Section]) -> list[Goal]:
    return [goal for section in found for goal in section.goals]


def tables(found: Sequence[Section]) -> Iterator[Shown]:
    """For the terminal."""
    colours = {"yes": "green", "no": "red"}
    made = Shown(*GOALS, title="Goals", title_justify="left", box=box.SIMPLE)
    for what, goal, value, reached in goals(found):
        made.add_row(what, goal, value, f"[{colours[reached]}]{reached}[/]")
    yield made
    for section in found:
        for table in section.tables:
            made = Shown(*table.columns, title=table.title, title_justify="left", box=box.SIMPLE)
            for line in table.lines:
                made.add_row(*line)
            yield made


def notes(found: Iterable[Section]) -> Iterator[str]:
    """What went wrong, and what to think of the figures."""
    for section in found:
        yield from section.failures
        if section.foreign > QUIET:
            yield (
                f"The machine was not quiet during {section.name}: neighbours used {section.foreign:.2f} cores. Rates "
                "and times mean little then."
            )


def summary(found: Iterable[Section]) -> list[dict[str, object]]:
    """Every figure, one a line."""
    return [{"part": section.name, **figure} for section in found for figure in section.figures]


def markdown(found: Sequence[Section]) -> str:
    met = [one for *_, one in goals(found)]
    out = ["# The pipeline: records a second, growth, time to a record, and the journal", ""]
    out += [f"Goals reached: {met.count('yes')} of {len(met)}. Medians of the rounds, with the lowest and highest.", ""]
    out += [*markdown_table(GOALS, goals(found)), ""]
    out += [*(f"- {one}" for one in notes(found)), ""]
    for section in found:
        out += [f"## {TITLES[section.name]}", "", section.words, ""]
        for table in section.tables:
            out += [f"### {table.title}", ""]
            if table.words:
                out += [table.words, ""]
            out += [*markdown_table(table.columns, table.lines), ""]
    out += ["## Machine", ""]
    for section in found:
        out += [f"{TITLES[section.name]}:", "", "```json", json.dumps(section.machine, indent=2), "```", ""]
    return "\n".join(out)


def merged(measured: Iterable[Section], folder: Path, stem: str) -> list[Section]:
    """The last measurement of each part, kept for the next time."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{stem}.json"
    known: Mapping[str, Section] = sections.kept(file) | {section.name: section for section in measured}
    found = {name: known[name] for name in PARTS if name in known}
    sections.keep(file, found)
    return list(found.values())


def write(found: Sequence[Section], folder: Path, stem: str) -> list[Path]:
    """Writes all but the pictures."""
    written = [folder / f"{stem}.md", folder / f"{stem}.csv"]
    written[0].write_text(markdown(found))
    write_csv(written[1], summary(found))
    return [*written, folder / f"{stem}.json"]
