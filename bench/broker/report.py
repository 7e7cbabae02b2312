"""What `bench broker` found, and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.broker.plot import picture
from bench.broker.works import BASE
from bench.harness import figures, machine
from bench.harness.figures import Growth, Reached, Row
from bench.harness.report import Line, Report, Table, cell, numbers, places, show, who_was_busy
from bench.harness.rounds import Bench, Plan, Series, raise_file_limit
from bench.harness.servers import Peer
from bench.harness.work import Work
from bench.load.job import PAYLOAD

JUDGEMENT = (
    "A goal counts as reached by the ratio of CPU per message (reference / subject), the firmest figure on a "
    "shared machine; the ratio of throughput stands beside it. Ratios are medians of the ratios of single "
    "rounds, with the lowest and highest. Above 1 is in favour of the subject."
)
FIGURES = ("rate", "micros", "p50", "p99", "p999", "kib", "busy", "load_busy", "load_micros")


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
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
    def missed(self) -> list[Row]:
        return [one for one in self.rows if one.reached in (Reached.NO, Reached.FAILED)]

    @property
    def disturbance(self) -> float:
        """The most CPU, in cores, that neighbours used in the median round of a work."""
        sides = [side for row in self.rows for side in (row.reference, row.subject)]
        return max((side.foreign.median for side in sides if side.foreign), default=0.0)


def measure(works: Sequence[Work], plan: Plan, before: Callable[[str], None]) -> Findings:
    described = machine.describe()

    def told(work: Work, number: int, peer: Peer) -> None:
        before(f"{work.key}, round {number + 1} of {plan.rounds}: {peer.value}")

    bench = Bench(plan, before=told, files=raise_file_limit())
    series = bench.run(works)
    rows = [figures.row(one) for one in series]
    return Findings(
        plan=plan, machine=described, series=series, rows=rows, growth=figures.growth(rows), notes=bench.notes
    )


def report(found: Findings) -> Report:
    plan = found.plan
    reference, subject = found.names
    lines = summary(found)
    return Report(
        title=f"Broker: {subject} against {reference}",
        machine=found.machine,
        header=[
            f"{PAYLOAD}-byte payloads, MQTT {'5.0' if plan.version == 5 else '3.1.1'}, {plan.rounds} round(s) of "
            f"{plan.duration:g} s, server on one core, load on another; window = messages outstanding.",
            JUDGEMENT,
        ],
        notes=found.notes,
        tables=[_works(found), _latency(found), _growth(found)],
        files={"": lines, "-rounds": list(_rounds(found))},
        summary=lines,
        pictures=[picture(found.rows, found.series, found.names)],
        failures=[words for series in found.series for words in series.failures],
        missed=[row.work.key for row in found.missed],
    )


def _works(found: Findings) -> Table:
    busy = (
        (row.work.key, name, row.work.job, side)
        for row in found.rows
        for name, side in zip(found.names, (row.reference, row.subject), strict=True)
    )
    return Table(
        title="",
        words="For latency and memory the column `CPU ratio` holds the ratio of those.",
        columns=("work", "window", *found.names, "throughput ratio", "CPU ratio", "goal", "reached"),
        lines=[
            (
                f"{row.work.title} (`{row.work.name}`)",
                row.work.window,
                cell(row.work.figure, row.reference),
                cell(row.work.figure, row.subject),
                show(row.throughput),
                show(row.cost),
                str(row.work.goal or "-"),
                row.reached.value or "-",
            )
            for row in found.rows
        ],
        names=[row.work.name for row in found.rows],
        after="\n".join(["## Who was busy", "", *who_was_busy(busy, found.disturbance)]),
    )


def _latency(found: Findings) -> Table:
    return Table(
        title="Latency in open loops (milliseconds)",
        columns=("work", "server", "p50", "p99", "p99.9"),
        lines=[
            (row.work.key, name, *(show(one, 2, 1e3) for one in (side.p50, side.p99, side.p999)))
            for row in found.rows
            for name, side in zip(found.names, (row.reference, row.subject), strict=True)
            if side.p99 is not None
        ],
    )


def _growth(found: Findings) -> Table:
    return Table(
        title=f"Cost per message as a multiple of that of `{BASE}`",
        columns=("work", *found.names, "grows no faster"),
        lines=[
            (one.work.title, f"{one.reference:.2f}", f"{one.subject:.2f}", "yes" if one.no_faster else "no")
            for one in found.growth
        ],
    )


def summary(found: Findings) -> list[Line]:
    """The table with all its numbers, one mapping per work."""
    lines = []
    for row in found.rows:
        line: Line = {"work": row.work.name, "window": row.work.window, "title": row.work.title}
        for name, side in (("reference", row.reference), ("subject", row.subject)):
            for figure in FIGURES:
                line[f"{name}_{figure}"] = places(getattr(side, figure), 7)["median"]
            line[f"{name}_lost"] = side.lost
        for name, ratio in (("throughput", row.throughput), ("cost", row.cost)):
            line |= {f"{name}_{place}": value for place, value in places(ratio, 4).items()}
        lines.append(line | {"goal": str(row.work.goal or ""), "reached": row.reached.value})
    return lines


def _rounds(found: Findings) -> Iterator[Line]:
    for series in found.series:
        for number, pair in enumerate(zip(series.reference, series.subject, strict=True), 1):
            for name, outcome in zip(found.names, pair, strict=True):
                if outcome is not None:
                    yield {"work": series.work.key, "round": number, "server": name, **numbers(outcome)}
