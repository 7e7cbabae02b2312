"""The report of `bench pipeline`. Only parts that were just measured are shown on the terminal; files and pictures are
made of the last measurement of each part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.report import Line, Report, Table, json_block, not_quiet, write_csv
from bench.pipeline import sections
from bench.pipeline.plot import pictures
from bench.pipeline.sections import Section
from bench.pipeline.works import PARTS

TITLES = {
    "throughput": "Records a second",
    "latency": "From a message to its record",
    "journal": "The journal",
    "growth": "One to ten million records",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport(Report):
    """Of the parts that were just measured; its files are of the last measurement of each part."""

    kept: Sequence[Section] = ()

    def markdown(self) -> str:
        whole = report(self.kept, self.kept)
        parts = [f"# {self.title}", "", *self.header, ""]
        parts += [*(f"- {note}" for note in (*whole.notes, *whole.failures)), "", *whole.tables[0].markdown()]
        for section in self.kept:
            parts += [f"## {TITLES[section.name]}", "", section.words, ""]
            for table in section.tables:
                parts += table.markdown("###")
        parts += ["## Machine", ""]
        for section in self.kept:
            parts += [f"{TITLES[section.name]}:", "", *json_block(section.machine)]
        return "\n".join(parts)

    def write(self, folder: Path, stem: str) -> list[Path]:
        written = [folder / f"{stem}{ending}" for ending in (".md", ".csv", ".json")]
        written[0].write_text(self.markdown())
        write_csv(written[1], figures(self.kept))
        return written


def report(measured: Sequence[Section], kept: Sequence[Section]) -> PipelineReport:
    goals = [goal for section in measured for goal in section.goals]
    return PipelineReport(
        title="The pipeline: records a second, growth, time to a record, and the journal",
        machine={},
        header=["Medians of the rounds, with the lowest and highest."],
        notes=[
            f"Goals reached: {sum(reached == 'yes' for *_, reached in goals)} of {len(goals)}.",
            *(
                f"{section.name}: {words}"
                for section in measured
                for words in not_quiet(section.foreign, "Rates and times mean little then.")
            ),
        ],
        tables=[
            Table(title="Goals", columns=("what", "goal", "found", "reached"), lines=goals),
            *(table for section in measured for table in section.tables),
        ],
        summary=figures(measured),
        pictures=pictures(kept),
        failures=[words for section in measured for words in section.failures],
        missed=[name for section in measured for name in section.missed],
        kept=kept,
    )


def figures(found: Iterable[Section]) -> list[Line]:
    """Every figure, one a line."""
    return [{"part": section.name, **figure} for section in found for figure in section.figures]


def merged(measured: Iterable[Section], folder: Path, stem: str) -> list[Section]:
    """The last measurement of each part, kept for the next time."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{stem}.json"
    known: Mapping[str, Section] = sections.kept(file) | {section.name: section for section in measured}
    found = {name: known[name] for name in PARTS if name in known}
    sections.keep(file, found)
    return list(found.values())
