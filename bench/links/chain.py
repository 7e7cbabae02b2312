"""The experiment of the scopes seed over separate servers: chains of one, three and five, at rates from 5 k to 30 k.

Publishers are at the first server and subscribers at the last; everything passes (ORI). Beside each chain of nodes
there is one of Mosquittos with bridges, over mutual TLS as well. What counts is the CPU of all servers together for
each message. The servers may use every core and the generator naps between messages, because a chain needs more than
the core that one server would have. A rate at which either chain needs nearly all cores is shown and not judged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import figures
from bench.harness.figures import Spread, spread
from bench.harness.generator import TIMEOUT
from bench.harness.rounds import Plan, loading
from bench.harness.servers import BenchError, Peer
from bench.links.nodes import SUBSCRIBERS, Formation, running_all
from bench.load.job import Job, Outcome, Shape
from bench.scopes.chain import LENGTHS, ORI, RATES

LONGER = 15  # times as long as the other measurements: 30 s, unless told otherwise
WARMUP = 0.3
GOAL = 1.0
CORES = 1.5
TOLERANCE = 0.02
JOB = Job(shape=Shape.RATE, subscribers=SUBSCRIBERS, patient=True, naps=True)
PEERS = (Peer.MOSQUITTO, Peer.TIDEGATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much of it to measure."""

    lengths: Sequence[int] = LENGTHS
    rates: Sequence[int] = RATES
    rounds: int = 0
    """0: as many as of other parts."""
    longer: int = LONGER


@dataclass(slots=True, kw_only=True)
class Cell:
    """One rate at one length. A measurement that failed is None."""

    length: int
    rate: int
    mosquitto: list[Outcome | None] = field(default_factory=list)
    tidegate: list[Outcome | None] = field(default_factory=list)

    @property
    def ratio(self) -> Spread | None:
        """How many times as much CPU the nodes use, within rounds."""
        pairs = zip(self.tidegate, self.mosquitto, strict=False)  # one of them may be left out
        return spread(
            node.micros / peer.micros for node, peer in pairs if node and peer and node.micros and peer.micros
        )

    @property
    def judged(self) -> bool:
        return all(need is None or need.median <= CORES for need in (cores(self.mosquitto), cores(self.tidegate)))

    @property
    def reached(self) -> str:
        if not self.judged:
            return ""
        ratio = self.ratio
        return figures.reached(ratio.median <= GOAL) if ratio else "failed"

    def optimal(self, outcomes: Sequence[Outcome | None]) -> bool:
        """What arrived is what was sent, in most rounds."""
        found = [self._optimal(one) for one in outcomes if one is not None]
        return 2 * sum(found) > len(found)

    def _optimal(self, outcome: Outcome) -> bool:
        wanted = self.rate * outcome.seconds
        return not outcome.lost and wanted - outcome.messages <= TOLERANCE * wanted + 1

    @property
    def seed(self) -> bool:
        """Whether it was optimal there."""
        return self.rate <= ORI.best[self.length]


def cores(outcomes: Sequence[Outcome | None]) -> Spread | None:
    """CPU that all servers used together."""
    return spread(one.busy for one in outcomes if one is not None and one.busy)


@dataclass(slots=True, kw_only=True)
class Chains:
    """What all rounds found."""

    cells: list[Cell] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def of(self, length: int) -> list[Cell]:
        return [one for one in self.cells if one.length == length]

    @property
    def lengths(self) -> list[int]:
        return sorted({one.length for one in self.cells})

    @property
    def missed(self) -> list[str]:
        return [f"chain of {one.length}, {one.rate}/s" for one in self.cells if one.reached in ("no", "failed")]


def formation(length: int, peer: Peer) -> Formation:
    return Formation(linked=SUBSCRIBERS if length > 1 else 0, peer=peer, servers=length)


def measure(plan: Plan, folder: Path, before: Callable[[str], None], extent: Extent) -> Chains:
    """Both chains of each length in turn; which is first changes from round to round. `folder` has certificates."""
    rounds = extent.rounds or plan.rounds
    plan = dataclasses.replace(plan, warmup=WARMUP, duration=extent.longer * plan.duration, rounds=rounds)
    found = Chains(cells=[Cell(length=length, rate=rate) for length in extent.lengths for rate in extent.rates])
    for number in range(plan.rounds):
        for length in extent.lengths:
            for peer in PEERS if number % 2 == 0 else reversed(PEERS):
                name = f"{length} x {peer.value}"
                before(f"round {number + 1} of {plan.rounds}: chain, {name}")
                outcomes: Sequence[Outcome | None] = [None] * len(extent.rates)
                try:
                    outcomes = _offered(formation(length, peer), folder, plan, extent.rates)
                except BenchError as error:
                    found.failures.append(f"chain, {name}, round {number + 1}: {error}")
                for cell, outcome in zip(found.of(length), outcomes, strict=True):
                    (cell.tidegate if peer is Peer.TIDEGATE else cell.mosquitto).append(outcome)
    return found


def _offered(wanted: Formation, folder: Path, plan: Plan, rates: Sequence[int]) -> list[Outcome]:
    """Each rate in turn."""
    with running_all(wanted, folder, core=None) as servers:
        first, *others = servers
        linked = {}
        if others:
            *between, last = others
            linked = {
                "linked": wanted.linked,
                "linked_port": last.port,
                "linked_server": last.process.pid,
                "between": tuple(one.process.pid for one in between),
            }
        with loading(first, JOB, plan, **linked) as generator:
            return [generator.measure(TIMEOUT + plan.duration, rate=rate) for rate in rates]


def count(plan: Plan, extent: Extent) -> int:
    """How often `before` will be told something."""
    return (extent.rounds or plan.rounds) * len(extent.lengths) * len(PEERS)
