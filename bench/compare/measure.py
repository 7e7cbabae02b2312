"""Interleaved pairs: this tree and the base in turn on one core, the first of a pair alternating.

Over sockets two nodes run at the same time, each with the sessions of its load, and are measured in turn; they are
started afresh after some pairs, so that no single process decides. In process a pair is two fresh workers that
alternate; of the plays of each the fastest counts, because whatever else happens on a machine only adds.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.compare import worker
from bench.compare.cases import ProcessCase, SocketCase
from bench.compare.checkout import Checkout
from bench.compare.interval import Interval, ratio
from bench.harness.figures import cost_of
from bench.harness.generator import Generator
from bench.harness.rounds import Plan, loading
from bench.harness.servers import BenchError, Peer, pinned, running
from bench.harness.work import Figure
from bench.load.job import Outcome

ENOUGH_PAIRS = 15
BRIEF_PAIRS = 5  # in process: each has several plays, of which the fastest counts
PAIRS_PER_START = 5
WARMUP = 0.05  # seconds before each measurement of a node that is warm
PLAYS = 4  # of each side in a pair, in process
PLAY_SECONDS = 0.08
FIRST_PLAY = 2048  # messages, to see how many a play should have
ALLOWED = 0.03
"""This tree may be slower by this much."""


@dataclass(slots=True, kw_only=True)
class Comparison:
    """One case: what a message (or a connection) costs on both sides, pair by pair."""

    name: str
    title: str
    in_process: bool
    unit: str
    base: list[float] = field(default_factory=list)
    this: list[float] = field(default_factory=list)
    outcomes: list[tuple[Outcome, Outcome]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def speed(self) -> Interval | None:
        """How many times as cheap as the base this tree is: above 1, it costs less."""
        return ratio(list(zip(self.base, self.this, strict=True)))

    @property
    def verdict(self) -> str:
        speed = self.speed
        if speed is None:
            return "failed"
        if self.in_process:
            return "yes" if speed.mean > 1 - ALLOWED else "no"
        return "yes" if speed.low > 1 - ALLOWED else "no"


def all_of(
    sockets: Sequence[SocketCase],
    processes: Sequence[ProcessCase],
    base: Checkout,
    this: Checkout,
    plan: Plan,
    before: Callable[[str], None],
) -> Iterator[list[Comparison]]:
    """What is compared, as it is finished."""
    for case in sockets:
        yield [over_sockets(case, base, this, plan, before)]
    if processes:
        yield in_process(processes, base, this, plan, before)


UNITS = {Figure.FLOW: ("µs", 1.0), Figure.MEMORY: ("KiB", 1 / 1024), Figure.LATENCY: ("ms", 1e3)}


def over_sockets(
    case: SocketCase, base: Checkout, this: Checkout, plan: Plan, before: Callable[[str], None]
) -> Comparison:
    """`plan.rounds` pairs. Pairs that were not measured are left out, and the failure is kept as words."""
    unit, scale = UNITS[case.figure]
    comparison = Comparison(name=case.name, title=case.title, in_process=False, unit=unit)
    plan = dataclasses.replace(plan, version=case.version)
    memory = case.figure is Figure.MEMORY
    each = 1 if memory else PAIRS_PER_START
    for first in range(0, plan.rounds, each):
        pairs = range(first, min(first + each, plan.rounds))
        try:
            with ExitStack() as stack:
                sides = [_loaded(case, checkout, plan, stack) for checkout in (base, this)]
                if not memory:
                    for generator in sides:
                        generator.measure(duration=WARMUP)
                for number in pairs:
                    before(f"{case.name}, pair {number + 1} of {plan.rounds}")
                    order = (0, 1) if number % 2 == 0 else (1, 0)
                    outcomes = {side: sides[side].measure(warmup=WARMUP) for side in order}
                    comparison.base.append(cost_of(case.figure, outcomes[0]) * scale)
                    comparison.this.append(cost_of(case.figure, outcomes[1]) * scale)
                    comparison.outcomes.append((outcomes[0], outcomes[1]))
        except BenchError as error:
            comparison.failures.append(f"{case.name}, pairs {first + 1} to {pairs.stop}: {error}")
    return comparison


def _loaded(case: SocketCase, checkout: Checkout, plan: Plan, stack: ExitStack) -> Generator:
    """A fresh node of `checkout`, and the sessions of its load."""
    server = stack.enter_context(
        running(Peer.TIDEGATE, case.setting, core=plan.server_core, environment=checkout.environment())
    )
    return stack.enter_context(loading(server, case.job, plan))


def in_process(
    cases: Sequence[ProcessCase], base: Checkout, this: Checkout, plan: Plan, before: Callable[[str], None]
) -> list[Comparison]:
    """Every case in every pair of workers."""
    comparisons = [Comparison(name=one.name, title=one.title, in_process=True, unit="µs") for one in cases]
    for number in range(plan.rounds):
        with ExitStack() as stack:
            workers = [stack.enter_context(_worker(one, plan.server_core)) for one in (base, this)]
            for case, comparison in zip(cases, comparisons, strict=True):
                before(f"in process: {case.name}, pair {number + 1} of {plan.rounds}")
                try:
                    micros = _pair(case, workers, number % 2 == 0)
                except BenchError as error:
                    comparison.failures.append(f"in process: {case.name}, pair {number + 1}: {error}")
                    break  # the worker is gone; the next pair has fresh ones
                comparison.base.append(micros[0])
                comparison.this.append(micros[1])
    return comparisons


def _pair(case: ProcessCase, workers: Sequence[Worker], in_order: bool) -> list[float]:
    """Microseconds of CPU per message of both workers."""
    for one in workers:
        one.ask(case.command)
    counts, best = [], [float("inf"), float("inf")]
    for one in workers:
        messages, nanos = one.ask({"play": FIRST_PLAY})
        counts.append(max(FIRST_PLAY, int(PLAY_SECONDS * 1e9 * messages / nanos)))
    for number in range(PLAYS):
        for side in (0, 1) if (number % 2 == 0) is in_order else (1, 0):
            messages, nanos = workers[side].ask({"play": counts[side]})
            best[side] = min(best[side], nanos / messages / 1e3)
    return best


class Worker:
    """A process of `worker` that answers one command at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, command: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            assert self._process.stderr is not None
            words = self._process.stderr.read().strip().splitlines()
            raise BenchError(f"the worker ended: {words[-1] if words else 'without a word'}")
        return json.loads(line)


@contextmanager
def _worker(checkout: Checkout, core: int) -> Iterator[Worker]:
    """Pinned to `core`, with nothing but the checkout in PYTHONPATH."""
    with pinned(core):
        process = subprocess.Popen(
            [sys.executable, "-P", str(Path(worker.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **checkout.environment(checkout.root)},
        )
    with process:
        try:
            yield Worker(process)
        finally:
            process.kill()
