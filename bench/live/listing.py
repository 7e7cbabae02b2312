"""A fixed rate of messages, with and without callers that list all clients, one page after the other without a pause.

Both runs of a round are on a fresh node, in alternating order. The callers are on the core of the load, behind the
generator (`nice`): what they cost there is no latency of the node. They do not take answers apart.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.gate import rulebook
from bench.harness.rounds import Plan, loading
from bench.harness.servers import BenchError, Peer, Server, Setting, pinned, running
from bench.load.job import Job, Outcome, Shape

RATE = 20_000
CALLERS = 10
CLIENTS = 1000
GOAL = 1.2
"""The 99th percentile with callers, as a multiple of that without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    outcome: Outcome
    pages: int = 0
    """That the callers were given."""


@dataclass(slots=True, kw_only=True)
class Findings:
    """All rounds: without callers and with them. A round in which one failed is left out."""

    plan: Plan
    rate: int = RATE
    rounds: list[tuple[Run, Run]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The median of the rounds."""
        return statistics.median(there.outcome.p99 / alone.outcome.p99 for alone, there in self.rounds)

    @property
    def reached(self) -> bool:
        return bool(self.rounds) and self.ratio <= GOAL


def measure(plan: Plan, before: Callable[[str], None], rate: int = RATE) -> Findings:
    found = Findings(plan=plan, rate=rate)
    for number in range(plan.rounds):
        made: dict[int, Run] = {}
        for callers in (0, CALLERS) if number % 2 == 0 else (CALLERS, 0):
            words = f"round {number + 1} of {plan.rounds}: {callers} callers"
            before(words)
            try:
                made[callers] = _run(plan, callers, found.rate)
            except BenchError as error:
                found.failures.append(f"{words}: {error}")
        if len(made) == 2:
            found.rounds.append((made[0], made[CALLERS]))
    return found


def _run(plan: Plan, callers: int, rate: int) -> Run:
    setting = Setting(rules=rulebook.everything(CLIENTS), durable=True)
    job = Job(shape=Shape.RATE, rate=rate, publishers=CLIENTS, login=True, barred=1, naps=True)
    with (
        running(Peer.TIDEGATE, setting, core=plan.server_core) as server,
        pinned(plan.load_core),
        loading(server, job, plan) as generator,
        _calling(server, callers) as pages,
    ):
        generator.tell("{}")
        outcome = Outcome.from_json(generator.line())
        listed = pages()
    if outcome.overrun:
        raise BenchError(f"at {rate} messages a second the node fell more than five seconds behind")
    return Run(outcome=outcome, pages=listed)


@contextmanager
def _calling(server: Server, callers: int) -> Iterator[Callable[[], int]]:
    """Callers in a process of their own; ended by the function that tells how many pages they were given."""
    if not callers:
        yield lambda: 0
        return
    command = (sys.executable, "-m", "bench.live.callers", str(server.control), str(callers))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or process.stdout.readline().strip() != "calling":
            raise BenchError("the callers were not answered")

        def ended() -> int:
            answer, _ = process.communicate("\n", timeout=30.0)
            return int(answer)

        yield ended
    finally:
        process.kill()
        process.communicate()
