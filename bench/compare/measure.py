"""Interleaved pairs: this tree and the base in turn, on fresh processes, the first of a pair alternating.

Over sockets a pair is two fresh nodes under the same load. In process a pair is two fresh workers on one core that
alternate; of the plays of each the fastest counts, because whatever else happens on a machine only adds.
"""

from __future__ import annotations

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
from bench.figures import cost_of
from bench.job import Outcome
from bench.rounds import Plan
from bench.servers import BenchError, pinned

ENOUGH_PAIRS = 15
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


def over_sockets(
    case: SocketCase, base: Checkout, this: Checkout, plan: Plan, before: Callable[[str], None]
) -> Comparison:
    """`plan.rounds` pairs. A pair of which a side fails is left out, and the failure is kept as words."""
    units = {"FLOW": "µs", "MEMORY": "KiB", "LATENCY": "ms"}
    scales = {"FLOW": 1.0, "MEMORY": 1 / 1024, "LATENCY": 1e3}
    found = Comparison(name=case.name, title=case.title, in_process=False, unit=units[case.figure.name])
    for number in range(plan.rounds):
        outcomes: dict[str, Outcome] = {}
        sides = [("base", base), ("this", this)]
        for side, checkout in sides if number % 2 == 0 else reversed(sides):
            before(f"{case.name}, pair {number + 1} of {plan.rounds}: {side}")
            try:
                outcomes[side] = case.measure(checkout, plan)
            except BenchError as error:
                found.failures.append(f"{case.name}, pair {number + 1}, {side}: {error}")
        if len(outcomes) == 2:
            values = [cost_of(case.figure, outcomes[side]) * scales[case.figure.name] for side in ("base", "this")]
            found.base.append(values[0])
            found.this.append(values[1])
            found.outcomes.append((outcomes["base"], outcomes["this"]))
    return found


def in_process(
    cases: Sequence[ProcessCase], base: Checkout, this: Checkout, plan: Plan, before: Callable[[str], None]
) -> list[Comparison]:
    """Every case in every pair of workers."""
    found = [Comparison(name=one.name, title=one.title, in_process=True, unit="µs") for one in cases]
    for number in range(plan.rounds):
        with ExitStack() as stack:
            workers = [stack.enter_context(_worker(one, plan.server_core)) for one in (base, this)]
            for case, comparison in zip(cases, found, strict=True):
                before(f"in process: {case.name}, pair {number + 1} of {plan.rounds}")
                try:
                    micros = _pair(case, workers, number % 2 == 0)
                except BenchError as error:
                    comparison.failures.append(f"in process: {case.name}, pair {number + 1}: {error}")
                    break  # the worker is gone; the next pair has fresh ones
                comparison.base.append(micros[0])
                comparison.this.append(micros[1])
    return found


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
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout.source), str(checkout.root)])},
        )
    with process:
        try:
            yield Worker(process)
        finally:
            process.kill()
