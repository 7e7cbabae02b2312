"""From rounds to the table: medians, spreads, ratios of the same round, and whether a goal is reached.

A ratio above 1 is in favour of the subject, whatever is compared. The median of the ratios is taken, not the
ratio of the medians, because both sides of one round met the same weather.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from bench.broker.works import BASE
from bench.harness.rounds import Series
from bench.harness.work import Figure, Work
from bench.load.job import Outcome


class Reached(Enum):
    """How a goal was met."""

    YES = "yes"
    BY_THROUGHPUT = "throughput only"
    NO = "no"
    NO_GOAL = ""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, lowest and highest of the rounds."""

    median: float
    low: float
    high: float

    def show(self, digits: int = 2, scale: float = 1.0) -> str:
        low, high = (f"{value * scale:.{digits}f}" for value in (self.low, self.high))
        text = f"{self.median * scale:.{digits}f}"
        return text if low == high else f"{text} ({low}..{high})"


def spread(values: Iterable[float]) -> Spread | None:
    """None if nothing was measured."""
    found = sorted(values)
    return Spread(median=statistics.median(found), low=found[0], high=found[-1]) if found else None


def median_of(values: Iterable[float]) -> float:
    """0 if nothing was measured."""
    return found.median if (found := spread(values)) else 0.0


def reached(yes: bool) -> str:
    return "yes" if yes else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one server showed in a work. None: not measured, or no such figure."""

    rounds: int
    rate: Spread | None
    micros: Spread | None
    p50: Spread | None
    p99: Spread | None
    p999: Spread | None
    kib: Spread | None
    busy: Spread | None
    load_busy: Spread | None
    load_micros: Spread | None
    foreign: Spread | None
    outstanding: Spread | None
    lost: int
    overrun: bool
    generator: str = ""
    """What made the load: `C` or `Python`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    work: Work
    reference: Side
    subject: Side
    throughput: Spread | None
    """How many times the reference's rate."""
    cost: Spread | None
    """How many times less CPU per message; of latency or memory in the works that compare those."""
    reached: Reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Cost of a large work as a multiple of the cost of `BASE`, for both servers."""

    work: Work
    reference: float
    subject: float

    @property
    def no_faster(self) -> bool:
        return self.subject <= self.reference


SPREADS = ("micros", "p50", "p99", "p999", "busy", "load_busy", "load_micros", "outstanding")


def side(outcomes: Sequence[Outcome | None]) -> Side:
    found = [one for one in outcomes if one is not None]

    def of(name: str) -> Spread | None:
        return spread(value for one in found if (value := getattr(one, name)) > 0)

    return Side(
        rounds=len(found),
        rate=of("per_second"),
        kib=of("kib_each"),
        foreign=spread(one.foreign for one in found if one.seconds),
        lost=sum(one.lost for one in found),
        overrun=any(one.overrun for one in found),
        generator="/".join(sorted({one.generator for one in found})),
        **{name: of(name) for name in SPREADS},
    )


def cost_of(figure: Figure, outcome: Outcome) -> float:
    match figure:
        case Figure.FLOW:
            return outcome.micros
        case Figure.LATENCY:
            return outcome.p99
        case Figure.MEMORY:
            return outcome.bytes_each


def row(series: Series) -> Row:
    pairs = [
        (reference, subject)
        for reference, subject in zip(series.reference, series.subject, strict=True)
        if reference is not None and subject is not None
    ]
    figure = series.work.figure
    throughput = spread(
        subject.per_second / reference.per_second
        for reference, subject in pairs
        if reference.per_second and subject.per_second
    )
    cost = spread(
        cost_of(figure, reference) / cost_of(figure, subject)
        for reference, subject in pairs
        if cost_of(figure, reference) > 0 and cost_of(figure, subject) > 0
    )
    subject = side(series.subject)
    return Row(
        work=series.work,
        reference=side(series.reference),
        subject=subject,
        throughput=throughput if figure is Figure.FLOW else None,
        cost=cost,
        reached=_reached(series.work, subject, throughput, cost),
    )


def _reached(work: Work, subject: Side, throughput: Spread | None, cost: Spread | None) -> Reached:
    goal = work.goal
    if goal is None:
        return Reached.NO_GOAL
    if goal.kib is not None:
        if subject.kib is None:
            return Reached.FAILED
        return Reached.YES if subject.kib.median <= goal.kib else Reached.NO
    if subject.overrun:
        return Reached.NO
    if cost is None or goal.ratio is None:
        return Reached.FAILED
    if cost.median >= goal.ratio:
        return Reached.YES
    if work.figure is Figure.FLOW and throughput is not None and throughput.median >= goal.ratio:
        return Reached.BY_THROUGHPUT
    return Reached.NO


def growth(rows: Sequence[Row]) -> list[Growth]:
    """For works that are `BASE` with something large beside it, if `BASE` was measured in the same run."""
    base = next((one for one in rows if one.work.key == BASE), None)
    if base is None or base.reference.micros is None or base.subject.micros is None:
        return []
    return [
        Growth(
            work=one.work,
            reference=one.reference.micros.median / base.reference.micros.median,
            subject=one.subject.micros.median / base.subject.micros.median,
        )
        for one in rows
        if one.work.grows and one.reference.micros is not None and one.subject.micros is not None
    ]
