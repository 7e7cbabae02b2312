"""What a monitor for each client costs in memory: the same crowd on two nodes, with and without monitors.

Each client has connected and published one message, so that its monitor is not in its first state any more and that
state has been written down. What is told is the difference of resident memory for each connection, of two fresh nodes
in the same round; on both, the first connections pay for what a node makes only once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.gate import rulebook
from bench.harness import rounds
from bench.harness.figures import Spread, spread
from bench.harness.rounds import SPARE_FILES, Plan
from bench.harness.servers import BenchError, Peer, Setting
from bench.harness.work import Figure, Goal, Work
from bench.load.job import Job, Outcome, Shape

CLIENTS = 10_000
WITHOUT = "without"
WITH = "monitored"
SMALL = Goal(kib=2.0)
_OPEN = rulebook.OPEN
SETTINGS = {
    WITHOUT: Setting(rules=_OPEN, durable=True),
    WITH: Setting(rules="\n".join([_OPEN, *rulebook.monitor("im_pub", rulebook.RATE)]), durable=True),
}


@dataclass(slots=True, kw_only=True)
class Memory:
    """Bytes for each connection, by server and round; a measurement that failed is None."""

    clients: int = CLIENTS
    bytes_each: dict[str, list[float | None]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def of(self, server: str) -> Spread | None:
        return spread(one for one in self.bytes_each.get(server, ()) if one is not None)

    @property
    def added(self) -> Spread | None:
        """What the monitor adds, within rounds."""
        pairs = zip(self.bytes_each.get(WITHOUT, ()), self.bytes_each.get(WITH, ()), strict=True)
        return spread(more - less for less, more in pairs if less is not None and more is not None)

    @property
    def reached(self) -> str:
        """Whether the goal is; nothing if it was not measured."""
        if not self.bytes_each:
            return ""
        added = self.added
        if added is None or SMALL.kib is None:
            return "failed"
        return "yes" if added.median <= SMALL.kib * 1024 else "no"


def measure(plan: Plan, before: Callable[[str], None], clients: int = CLIENTS) -> Memory:
    """Both nodes in every round, in turns. Fewer clients if the system does not allow so many open files."""
    found = Memory(
        clients=min(clients, rounds.raise_file_limit() - SPARE_FILES), bytes_each={name: [] for name in SETTINGS}
    )
    for number in range(plan.rounds):
        order = list(SETTINGS) if number % 2 == 0 else list(reversed(SETTINGS))
        for name in order:
            before(f"memory, round {number + 1} of {plan.rounds}: {name}")
            outcome: Outcome | None = None
            try:
                outcome = _measured(name, found.clients, plan)
            except BenchError as error:
                found.failures.append(f"memory/{name}, round {number + 1}: {error}")
            found.bytes_each[name].append(None if outcome is None else outcome.bytes_each)
    return found


def _measured(name: str, clients: int, plan: Plan) -> Outcome:
    work = Work(
        name=f"memory/{name}",
        title="",
        job=Job(shape=Shape.IDLE, connections=clients, speaks=True),
        figure=Figure.MEMORY,
        setting=SETTINGS[name],
    )
    return rounds.measure(Peer.TIDEGATE, work.job, work, dataclasses.replace(plan, version=4))
