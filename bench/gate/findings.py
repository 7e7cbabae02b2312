"""Everything that one run of `bench gate` found, and which goals it missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bench.gate.changes import Runs
from bench.gate.contests import OPEN, Contender, Rounds
from bench.gate.levels import Forwarding
from bench.gate.memory import Memory
from bench.gate.steps import Cost
from bench.harness import figures
from bench.harness.figures import Reached, Side, Spread, spread
from bench.harness.rounds import Plan
from bench.load.job import Job

YES = ("yes", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was not asked for is empty."""

    plan: Plan
    machine: dict[str, object]
    contests: Sequence[Rounds] = ()
    costs: Sequence[Cost] = ()
    changes: Sequence[Runs] = ()
    levels: Forwarding = field(default_factory=Forwarding)
    memory: Memory = field(default_factory=Memory)
    unproven: Sequence[str] = ()
    """What failed of the proofs over sockets, in words."""

    @property
    def failures(self) -> list[str]:
        found = [words for part in self.contests for words in part.failures]
        found += [words for part in self.changes for words in part.failures]
        return [*found, *self.levels.failures, *self.memory.failures, *self.unproven]

    @property
    def missed(self) -> list[str]:
        """Names of what has a goal and did not reach it."""
        missed = [
            row.work.name
            for found in self.contests
            for row in found.rows()
            if row.reached in (Reached.NO, Reached.FAILED)
        ]
        missed += [one.trial.name for one in self.changes if one.reached not in YES]
        missed += [f"levels/{one.name}" for one in self.levels.forwarded if one.seconds and one.reached not in YES]
        return missed if self.memory.reached in YES else [*missed, "memory"]

    @property
    def disturbance(self) -> float:
        """The most CPU, in cores, that neighbours used in the median round of anything."""
        return max((side.foreign.median for _, _, _, side in self.sides() if side.foreign), default=0.0)

    def sides(self) -> Iterator[tuple[str, str, Job, Side]]:
        """Contest, contender, load, and what it showed."""
        for found in self.contests:
            for one in found.contest.contenders:
                yield found.contest.name, one.name, one.job, figures.side(found.outcomes[one.name])

    def costs_of(self, group: str) -> list[Cost]:
        return [one for one in self.costs if one.group == group]


def beyond_open(found: Rounds, contender: Contender) -> Spread | None:
    """Microseconds of CPU per message more than with `policies: open`, of the same round; None without that."""
    if contender.name == OPEN or OPEN not in found.outcomes:
        return None
    return spread(
        one.micros - plain.micros
        for one, plain in zip(found.outcomes[contender.name], found.outcomes[OPEN], strict=True)
        if one is not None and plain is not None
    )
