"""Over sockets, saturated: CPU of the node per message at five scopes and at one, of the same round.

Every chain of every contest gets a fresh node in each round, and then as many messages as it takes, first with QoS 0
and then with QoS 1. Their order rotates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.harness.rounds import Plan, apply
from bench.harness.servers import BenchError, Peer, running
from bench.load.job import Outcome
from bench.scopes.chain import Chain
from bench.scopes.contest import CONTESTS, Compared, Contest

WINDOW = 5000
WARMUP = 0.3
LONGER = 2  # times as long as a rate, for CPU time comes in ticks of 10 ms
BOTH = (0, 1)


@dataclass(slots=True, kw_only=True)
class Saturated:
    """Outcomes by chain and QoS, one for each round; a measurement that failed is None."""

    contests: Sequence[Contest] = ()
    outcomes: dict[tuple[Chain, int], list[Outcome | None]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def compared(self) -> list[Compared]:
        return [
            Compared(
                contest=contest,
                qos=qos,
                one=[one.micros if one else None for one in self.outcomes[contest.one, qos]],
                several=[one.micros if one else None for one in self.outcomes[contest.several, qos]],
            )
            for contest in self.contests
            for qos in BOTH
        ]


def chains(contests: Sequence[Contest]) -> list[Chain]:
    """All that take part, each once."""
    return list(dict.fromkeys(chain for contest in contests for chain in (contest.one, contest.several)))


def measure(plan: Plan, before: Callable[[str], None], contests: Sequence[Contest] = CONTESTS) -> Saturated:
    plan = dataclasses.replace(plan, warmup=WARMUP, duration=LONGER * plan.duration)
    taking = chains(contests)
    found = Saturated(contests=contests, outcomes={(chain, qos): [] for chain in taking for qos in BOTH})
    for number in range(plan.rounds):
        first = number % len(taking)
        for chain in taking[first:] + taking[:first]:
            before(f"saturated, round {number + 1} of {plan.rounds}: {chain.name}")
            outcomes: list[Outcome | None] = []
            try:
                with running(Peer.TIDEGATE, chain.setting(), core=plan.server_core) as server:
                    for qos in BOTH:
                        outcomes.append(apply(server, chain.job(qos=qos, window=WINDOW), plan))
            except BenchError as error:
                found.failures.append(f"saturated, {chain.name}, round {number + 1}: {error}")
                outcomes += [None] * (len(BOTH) - len(outcomes))
            for qos, outcome in zip(BOTH, outcomes, strict=True):
                found.outcomes[chain, qos].append(outcome)
    return found


def count(plan: Plan, contests: Sequence[Contest] = CONTESTS) -> int:
    """How often `before` will be told something."""
    return plan.rounds * len(chains(contests))
