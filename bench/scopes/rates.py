"""The experiment: every chain at every rate, and what arrives beside what was calculated.

Each round starts a fresh node for each chain, and offers it the rates one after the other. The order of the
configurations rotates from round to round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.harness import figures
from bench.harness.figures import Side, Spread, spread
from bench.harness.report import BUSY, QUIET
from bench.harness.rounds import Plan, loading
from bench.harness.servers import BenchError, Peer, running
from bench.load.job import Outcome
from bench.scopes.chain import CONFIGURATIONS, LENGTHS, MULTI, RATES, Chain, Configuration

WARMUP = 0.1
TOLERANCE = 0.02
"""What may be on its way when the clock stops; deliveries are counted in short rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much of it to measure."""

    lengths: Sequence[int] = LENGTHS
    rates: Sequence[int] = RATES


@dataclass(slots=True, kw_only=True)
class Cell:
    """One point of a figure. A measurement that failed is None."""

    chain: Chain
    rate: int
    outcomes: list[Outcome | None] = field(default_factory=list)

    @property
    def configuration(self) -> Configuration:
        return self.chain.configuration

    @property
    def calculated(self) -> float:
        return self.configuration.calculated(self.rate, self.chain.scopes)

    @property
    def side(self) -> Side:
        return figures.side(self.outcomes)

    @property
    def arrived(self) -> Spread | None:
        """Deliveries a second."""
        return spread(one.per_second for one in self.outcomes if one is not None)

    @property
    def cost(self) -> Spread | None:
        """Microseconds of the node's CPU for each message that was published."""
        each = self.configuration.factor**self.chain.scopes
        return spread(one.micros * each for one in self.outcomes if one is not None and one.messages)

    @property
    def optimal(self) -> bool:
        """What arrived is what was calculated, in most rounds."""
        found = [self._optimal(one) for one in self.outcomes if one is not None]
        return 2 * sum(found) > len(found)

    def _optimal(self, outcome: Outcome) -> bool:
        wanted = self.calculated * outcome.seconds
        whole = max(1.0, self.configuration.factor**self.chain.scopes)  # what one message makes, more or less
        return not outcome.lost and wanted - outcome.messages <= TOLERANCE * wanted + whole

    @property
    def expected(self) -> bool:
        """Whether it has to be optimal; five doublings are more than any node could deliver."""
        return self.configuration is not MULTI or self.chain.scopes < LENGTHS[-1]

    @property
    def held_back(self) -> str:
        """Who was the limit, in one word."""
        if self.optimal:
            return "rate"
        side = self.side
        busy, load, foreign = (one.median if one else 0.0 for one in (side.busy, side.load_busy, side.foreign))
        if busy >= BUSY:
            return "node"
        if load >= BUSY:
            return "generator"
        return "neighbours" if foreign > QUIET else "unknown"


@dataclass(slots=True, kw_only=True)
class Rates:
    """What all rounds found."""

    cells: list[Cell] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def of(self, configuration: Configuration, scopes: int) -> list[Cell]:
        return [one for one in self.cells if one.configuration is configuration and one.chain.scopes == scopes]

    def best(self, configuration: Configuration, scopes: int) -> int | None:
        """The highest rate that was optimal, 0 if none was; None if nothing was measured."""
        found = [one for one in self.of(configuration, scopes) if any(one.outcomes)]
        return max((one.rate for one in found if one.optimal), default=0) if found else None

    @property
    def lengths(self) -> list[int]:
        return sorted({one.chain.scopes for one in self.cells})


def measure(plan: Plan, before: Callable[[str], None], extent: Extent) -> Rates:
    """Every chain in every round. `before` is told what comes next."""
    plan = dataclasses.replace(plan, warmup=WARMUP)
    chains = [Chain(configuration=one, scopes=scopes) for scopes in extent.lengths for one in CONFIGURATIONS]
    found = Rates(cells=[Cell(chain=chain, rate=rate) for chain in chains for rate in extent.rates])
    for number in range(plan.rounds):
        first = number % len(CONFIGURATIONS)
        for chain in chains[first:] + chains[:first]:
            before(f"round {number + 1} of {plan.rounds}: {chain.name}")
            cells = found.of(chain.configuration, chain.scopes)
            outcomes: Sequence[Outcome | None] = [None] * len(cells)
            try:
                with (
                    running(Peer.TIDEGATE, chain.setting(), core=plan.server_core) as server,
                    loading(server, chain.job(), plan) as generator,
                ):
                    outcomes = [generator.measure(rate=rate) for rate in extent.rates]
            except BenchError as error:
                found.failures.append(f"{chain.name}, round {number + 1}: {error}")
            for cell, outcome in zip(cells, outcomes, strict=True):
                cell.outcomes.append(outcome)
    return found


def count(plan: Plan, extent: Extent) -> int:
    """How often `before` will be told something."""
    return plan.rounds * len(extent.lengths) * len(CONFIGURATIONS)
