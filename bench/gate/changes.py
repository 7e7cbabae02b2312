"""Another policy in the middle of traffic: a fixed rate is offered, and the file is changed and read again.

Asked for over the control socket, as `tidegate reload` does; a change is in force when that has answered. The generator
writes down when each message arrived and how long it took. What is looked for is a *stall*: the longest time in which
nothing was delivered although twenty messages a millisecond were offered. When the generator itself did not have its
core, that is not counted. Beside it stands the same run without a change, since this machine may stall by itself.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import statistics
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from bench.gate import rulebook
from bench.harness.generator import Generator
from bench.harness.rounds import Plan, loading
from bench.harness.servers import BenchError, Peer, Server, Setting, pinned, running, tidegate_configuration
from bench.load.job import MEASURING, Job, Outcome, Shape
from bench.load.paced import percentile, read_trace
from tidegate.errors import TidegateError
from tidegate.net.control_socket import ask

LONGEST_STALL = 0.010  # seconds: the goal
SETTLING = 1.0  # seconds after a change in which its consequences are looked for
SKIPPED = 0.3  # seconds at the beginning: the generator reads its meters then
PATIENCE = 90.0  # seconds for one change
BUCKET = 0.05  # seconds, of the line over time


class Phase(Enum):
    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: so many policies and publishers, so many changes."""

    policies: int
    publishers: int
    changes: int
    rate: int = 20_000
    rest: float = 2.0
    """Seconds before the first change and after each, and of a run without any three times that."""

    @property
    def name(self) -> str:
        return f"change-{self.policies}-{self.publishers}"

    @property
    def title(self) -> str:
        return f"{self.policies:,} policies, {self.publishers} publishers"

    @property
    def longest(self) -> float:
        """Seconds after which the load ends by itself, if nobody ends it."""
        return PATIENCE + 3 * self.rest + self.changes * (PATIENCE + self.rest)


TRIALS = tuple(
    Trial(policies=policies, publishers=publishers, changes=3)
    for policies in (rulebook.HERE, 10_000)
    for publishers in (100, 1000)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """When it was asked for and when it was in force, on the generator's clock in nanoseconds."""

    asked: int
    in_force: int
    version: str

    @property
    def seconds(self) -> float:
        return (self.in_force - self.asked) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of the messages that arrived in one phase; seconds."""

    messages: int = 0
    p50: float = 0.0
    p99: float = 0.0
    slowest: float = 0.0
    stall: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run found."""

    outcome: Outcome
    phases: dict[Phase, Figures]
    changes: tuple[Change, ...] = ()
    delay: tuple[float, float] = (0.0, 0.0)
    """The loop's longest delay so far, as the node tells it: when measuring began, and at the end."""
    begin: int = 0
    line: tuple[tuple[float, float, float], ...] = ()
    """Over time: seconds since the beginning, median and longest latency."""

    @property
    def judged(self) -> Figures:
        """What the goal is held against: of a run with changes, what happened during them."""
        return self.phases[Phase.DURING if self.changes else Phase.BEFORE]


@dataclass(slots=True, kw_only=True)
class Runs:
    """All rounds of a trial, each with and without changes. A run that failed is None."""

    trial: Trial
    steady: list[Run | None] = field(default_factory=list)
    changed: list[Run | None] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def reached(self) -> str:
        """By medians of the rounds: no stall is longer, and no message waits longer than it might anyway."""
        steady = [one.judged for one in self.steady if one is not None]
        changed = [one.judged for one in self.changed if one is not None]
        if not steady or not changed:
            return "failed"
        if statistics.median(one.stall for one in changed) > LONGEST_STALL:
            return "no"
        waits = (statistics.median(one.slowest for one in seen) for seen in (steady, changed))
        anyway, longest = waits
        return "yes" if longest <= anyway + LONGEST_STALL else "no stall, but messages wait"


def run(trial: Trial, plan: Plan, before: Callable[[str], None]) -> Runs:
    """Every round: one run without and one with changes, in alternating order."""
    found = Runs(trial=trial)
    for number in range(plan.rounds):
        made: dict[bool, Run | None] = {}
        for changing in (False, True) if number % 2 == 0 else (True, False):
            words = "with changes" if changing else "steady"
            before(f"{trial.name}, round {number + 1} of {plan.rounds}: {words}")
            made[changing] = None
            try:
                made[changing] = measure(trial if changing else dataclasses.replace(trial, changes=0), plan)
            except BenchError as error:
                found.failures.append(f"{trial.name}, round {number + 1}, {words}: {error}")
        found.steady.append(made[False])
        found.changed.append(made[True])
    return found


# -- one run ---------------------------------------------------------------------------------------------------------


def measure(trial: Trial, plan: Plan) -> Run:
    """One run on a fresh node."""
    setting = Setting(rules=rulebook.everything(trial.publishers, trial.policies), durable=True)
    with running(Peer.TIDEGATE, setting, core=plan.server_core) as server:
        trace = server.log.with_name("trace")
        editions = list(_editions(server, trial))
        job = Job(
            shape=Shape.RATE,
            rate=trial.rate,
            publishers=trial.publishers,
            login=True,
            barred=1,
            trace=str(trace),
        )
        plan = dataclasses.replace(plan, version=4, duration=trial.longest)
        # on the core of the load: whatever we do ourselves is no stall of the server
        with loading(server, job, plan) as generator, pinned(plan.load_core):
            changes, delays = _drive(server, generator, trial, editions)
            outcome = Outcome.from_json(generator.line())
        if outcome.overrun:
            raise BenchError(f"at {trial.rate} messages a second the node fell more than five seconds behind")
        moments, latencies, pauses = read_trace(str(trace))
    return evaluated(outcome, moments, latencies, pauses, changes, delays)


def _editions(server: Server, trial: Trial) -> Iterable[Path]:
    """The files that will take the place of the configuration, one after the other."""
    for number in range(1, trial.changes + 1):
        rules = rulebook.everything(trial.publishers, trial.policies, edition=number)
        setting = dataclasses.replace(server.setting, rules=rules)
        file = server.configuration.with_suffix(f".{number}")
        file.write_text(tidegate_configuration(setting, server.port, server.tls_port))
        yield file


def _drive(
    server: Server, generator: Generator, trial: Trial, editions: Sequence[Path]
) -> tuple[tuple[Change, ...], tuple[float, float]]:
    """Starts the load, makes the changes, and ends the load."""
    generator.tell("{}")
    if generator.line() != MEASURING:
        raise BenchError("the load generator ended before it measured anything")
    first = _longest_delay(server)
    time.sleep(trial.rest)
    changes = []
    for file in editions:
        changes.append(_change(server, file))
        time.sleep(trial.rest)
    if not editions:
        time.sleep(2 * trial.rest)
    delays = (first, _longest_delay(server))
    generator.process.send_signal(signal.SIGUSR1)
    return tuple(changes), delays


def _change(server: Server, file: Path) -> Change:
    os.replace(file, server.configuration)
    asked = time.perf_counter_ns()
    answer = _asked(server, "reload", PATIENCE)
    return Change(asked=asked, in_force=time.perf_counter_ns(), version=str(answer["version"]))


def _longest_delay(server: Server) -> float:
    return float(_asked(server, "status", 30.0)["numbers"]["loop/longest delay"])


def _asked(server: Server, command: str, timeout: float) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ask(server.control, command, timeout=timeout)
    except TidegateError as error:
        raise BenchError(server.obituary(wait=1.0) or f"tidegate {command}: {error}") from None
    return answer


# -- what it means ---------------------------------------------------------------------------------------------------


def evaluated(
    outcome: Outcome,
    moments: array[int],
    latencies: array[int],
    pauses: array[int],
    changes: tuple[Change, ...] = (),
    delays: tuple[float, float] = (0.0, 0.0),
) -> Run:
    """Figures of each phase, and the line over time. All times are nanoseconds, in the order of arrival."""
    if not moments:
        raise BenchError("nothing was delivered while measuring")
    begin = moments[0]
    first = bisect_left(moments, begin + int(SKIPPED * 1e9))
    kept: dict[Phase, list[int]] = {phase: [] for phase in Phase}
    stalls = dict.fromkeys(Phase, 0)
    own = _intervals(pauses)
    previous = moments[first] if first < len(moments) else begin
    for moment, latency in zip(moments[first:], latencies[first:], strict=True):
        phase = _phase(moment, changes)
        kept[phase].append(latency)
        gap = moment - previous
        if gap > stalls[phase]:
            stalls[phase] = max(stalls[phase], gap - _overlap(previous, moment, own))
        previous = moment
    return Run(
        outcome=outcome,
        phases={phase: _figures(kept[phase], stalls[phase]) for phase in Phase},
        changes=changes,
        delay=delays,
        begin=begin,
        line=_line(begin, moments[first:], latencies[first:]),
    )


def _phase(moment: int, changes: Sequence[Change]) -> Phase:
    if not changes or moment < changes[0].asked:
        return Phase.BEFORE
    for change in changes:
        if change.asked <= moment < change.in_force + int(SETTLING * 1e9):
            return Phase.DURING
    return Phase.AFTER


def _figures(latencies: list[int], stall: int) -> Figures:
    ordered = sorted(latencies)
    return Figures(
        messages=len(ordered),
        p50=percentile(ordered, 0.5),
        p99=percentile(ordered, 0.99),
        slowest=percentile(ordered, 1.0),
        stall=stall / 1e9,
    )


def _intervals(flat: array[int]) -> list[tuple[int, int]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _overlap(begin: int, end: int, intervals: Sequence[tuple[int, int]]) -> int:
    """How much of the time between lies in one of the intervals, which come in order and do not overlap."""
    place = max(0, bisect_left(intervals, (begin, begin)) - 1)
    found = 0
    for start, stop in intervals[place:]:
        if start >= end:
            break
        found += max(0, min(stop, end) - max(start, begin))
    return found


def _line(begin: int, moments: array[int], latencies: array[int]) -> tuple[tuple[float, float, float], ...]:
    made = []
    width = int(BUCKET * 1e9)
    place = 0
    while place < len(moments):
        bucket = (moments[place] - begin) // width
        end = bisect_left(moments, begin + (bucket + 1) * width, place)
        inside = sorted(latencies[place:end])
        made.append((bucket * BUCKET, percentile(inside, 0.5), percentile(inside, 1.0)))
        place = end
    return tuple(made)
