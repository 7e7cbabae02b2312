"""A fixed rate of messages, with and without others who look at the node.

They are callers that list all clients over the control socket, one page after the other without a pause, or consoles.
Both runs of a round are on a fresh node, in alternating order. Whoever looks is on the core of the load, behind the
generator (`nice`), and so is the HTTP process: what they cost there is no latency of the node. They do not take answers
apart.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from bench.gate import rulebook
from bench.harness.rounds import Plan, loading
from bench.harness.servers import BenchError, Peer, Server, Setting, free_port, pinned, running
from bench.load.job import Job, Outcome, Shape
from tidegate.errors import TidegateError
from tidegate.net.control_socket import ask

RATE = 20_000
CALLERS = 10
CLIENTS = 1000
GOAL = 1.2
"""The 99th percentile with callers, as a multiple of that without."""
PATIENCE = 30.0  # seconds until the HTTP process answers
WARMUP = 2.5  # seconds until each publisher has its plan: that is not what is measured


class Visitors(Enum):
    """Who looks, and how the report says so."""

    CALLERS = "callers that list all clients, page after page of 100, without a pause"
    CONSOLES = "consoles open, each on its stream of events and fetching a page again whenever that says so"


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
    visitors: Visitors = Visitors.CALLERS
    rounds: list[tuple[Run, Run]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The median of the rounds."""
        return statistics.median(there.outcome.p99 / alone.outcome.p99 for alone, there in self.rounds)

    @property
    def reached(self) -> bool:
        return bool(self.rounds) and self.ratio <= GOAL


def measure(
    plan: Plan, before: Callable[[str], None], rate: int = RATE, visitors: Visitors = Visitors.CALLERS
) -> Findings:
    found = Findings(plan=plan, rate=rate, visitors=visitors)
    for number in range(plan.rounds):
        made: dict[int, Run] = {}
        for callers in (0, CALLERS) if number % 2 == 0 else (CALLERS, 0):
            words = f"round {number + 1} of {plan.rounds}: {callers} {visitors.name.lower()}"
            before(words)
            try:
                made[callers] = _run(found, callers)
            except BenchError as error:
                found.failures.append(f"{words}: {error}")
        if len(made) == 2:
            found.rounds.append((made[0], made[CALLERS]))
    return found


def _run(found: Findings, callers: int) -> Run:
    plan, rules, port = found.plan, rulebook.everything(CLIENTS), 0
    if found.visitors is Visitors.CONSOLES:
        port = free_port()
        rules += f'\nhttp: {{url: "http://127.0.0.1:{port}", rate: 10000, address_rate: 10000}}'
    job = Job(shape=Shape.RATE, rate=found.rate, publishers=CLIENTS, login=True, barred=1, naps=True)
    with (
        running(Peer.TIDEGATE, Setting(rules=rules, durable=True), core=plan.server_core) as server,
        pinned(plan.load_core),
        _token(server, port, plan.load_core) as token,
        loading(server, job, plan) as generator,
        _calling(server, callers, port, token) as pages,
    ):
        generator.tell("{}")
        outcome = Outcome.from_json(generator.line())
        listed = pages()
    if outcome.overrun:
        raise BenchError(f"at {found.rate} messages a second the node fell more than five seconds behind")
    return Run(outcome=outcome, pages=listed)


@contextmanager
def _token(server: Server, port: int, core: int | None) -> Iterator[str]:
    """With an HTTP process: moves it to the core of the load, and makes a token of an administrator."""
    if not port:
        yield ""
        return
    deadline = time.monotonic() + PATIENCE
    while not (told := _asked(server, "status")["http"]) or not told.get("pid"):
        if time.monotonic() > deadline:
            raise BenchError(f"the HTTP process does not run{server.last_words()}")
        time.sleep(0.05)
    if core is not None:
        for thread in os.listdir(f"/proc/{told['pid']}/task"):
            os.sched_setaffinity(int(thread), {core})
    yield str(_asked(server, "token_make", role="admin", user=None, name="bench", seconds=None, by="bench")["token"])


def _asked(server: Server, command: str, **arguments: Any) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ask(server.control, command, timeout=PATIENCE, **arguments)
    except TidegateError as error:
        raise BenchError(server.obituary(wait=1.0) or f"tidegate {command}: {error}") from None
    return answer


@contextmanager
def _calling(server: Server, callers: int, port: int, token: str) -> Iterator[Callable[[], int]]:
    """Callers in a process of their own; ended by the function that tells how many pages they were given."""
    if not callers:
        yield lambda: 0
        return
    who = ("consoles", str(port), str(callers), token) if port else ("callers", str(server.control), str(callers))
    command = (sys.executable, "-m", f"bench.live.{who[0]}", *who[1:])
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
