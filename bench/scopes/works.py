"""The parts of `bench scopes` by name, running those that are asked for, and all that they found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bench.harness import figures, machine
from bench.harness.rounds import Plan
from bench.load.job import Outcome
from bench.scopes import in_process, rates, saturated
from bench.scopes.chain import LENGTHS, RATES
from bench.scopes.contest import CONTESTS, Compared, Contest
from bench.scopes.rates import Cell, Extent, Rates
from bench.scopes.saturated import Saturated

ENOUGH_ROUNDS = 3
RATED = "rates"
SATURATED = "saturated"
INDOORS = "indoors"
PARTS = {
    RATED: "six rates, six configurations, chains of one, three and five scopes",
    SATURATED: "five scopes beside one, as many messages as they take",
    INDOORS: "the same without sockets",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of each part is measured."""

    rates: Extent = field(default_factory=Extent)
    contests: Sequence[Contest] = CONTESTS
    in_process: tuple[int, float] = (in_process.ROUNDS, in_process.SECONDS)
    """Rounds, and seconds of each chain in them."""


WHOLE = Scale()
BRIEF = Scale(rates=Extent(rates=RATES[1::2]), contests=CONTESTS[:2], in_process=(5, 0.1))
QUICK = Scale(
    rates=Extent(lengths=LENGTHS[-1:], rates=(RATES[0], RATES[-1])), contests=CONTESTS[1:2], in_process=(3, 0.02)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was not asked for is empty."""

    plan: Plan
    machine: dict[str, object]
    rates: Rates = field(default_factory=Rates)
    saturated: Saturated = field(default_factory=Saturated)
    indoors: Sequence[Compared] = ()

    @property
    def failures(self) -> list[str]:
        return [*self.rates.failures, *self.saturated.failures]

    @property
    def missed(self) -> list[str]:
        """Names of what has a goal and did not reach it."""
        found = [f"{one.chain.name}, {one.rate}/s" for one in missed(self.rates.cells)]
        compared = [*self.saturated.compared(), *self.indoors]
        return found + [f"{one.contest.name}, QoS {one.qos}" for one in compared if one.reached in ("no", "failed")]

    @property
    def disturbance(self) -> float:
        """The most CPU, in cores, that neighbours used in the median round of anything."""
        series: list[Sequence[Outcome | None]] = [one.outcomes for one in self.rates.cells]
        series += self.saturated.outcomes.values()
        return max((side.foreign.median for side in map(figures.side, series) if side.foreign), default=0.0)


def missed(cells: Iterable[Cell]) -> list[Cell]:
    """Points that have to be optimal and are not."""
    return [one for one in cells if one.expected and not one.optimal]


def measure(parts: Sequence[str], plan: Plan, scale: Scale, before: Callable[[str], None]) -> Findings:
    """What fails is kept as words, and the rest goes on."""
    described = machine.describe()
    return Findings(
        plan=plan,
        machine=described,
        rates=rates.measure(plan, before, scale.rates) if RATED in parts else Rates(),
        saturated=saturated.measure(plan, before, scale.contests) if SATURATED in parts else Saturated(),
        indoors=in_process.measure(before, *scale.in_process) if INDOORS in parts else (),
    )


def count(parts: Sequence[str], plan: Plan, scale: Scale) -> int:
    """How often `before` will be told something."""
    found = rates.count(plan, scale.rates) if RATED in parts else 0
    found += saturated.count(plan, scale.contests) if SATURATED in parts else 0
    return found + (2 * len(CONTESTS) if INDOORS in parts else 0)
