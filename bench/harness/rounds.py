"""Rounds: reference and subject in turn, each on a fresh server, until there are enough to trust the median.

The order within a round alternates, so that a machine that slowly warms up or throttles favours nobody.
A measurement that fails is kept as the words that explain it, and the rest goes on.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.broker.works import BASE, work
from bench.harness.generator import TIMEOUT, Generator
from bench.harness.servers import BenchError, Peer, Server, running
from bench.harness.work import Work
from bench.load.job import Job, Outcome, Shape

SPARE_FILES = 300  # descriptors that server and generator need beside their connections


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to measure."""

    reference: Peer = Peer.MOSQUITTO
    subject: Peer = Peer.TIDEGATE
    rounds: int = 5
    duration: float = 3.0
    warmup: float = 0.7
    version: int = 4
    server_core: int = 0
    load_core: int = 1


@dataclass(slots=True, kw_only=True)
class Series:
    """All rounds of one work. Both lists have the same length; a failed measurement is None."""

    work: Work
    reference: list[Outcome | None] = field(default_factory=list)
    subject: list[Outcome | None] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def two_cores() -> tuple[int, int]:
    """One core for the server, another one for the load."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("two cores are needed: one for the server and one for the load")
    return cores[0], cores[1]


def raise_file_limit() -> int:
    """As many descriptors as the system lets us have; children inherit it."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def measure(peer: Peer, job: Job, work: Work, plan: Plan) -> Outcome:
    """One measurement on a fresh server."""
    with running(peer, work.setting, core=plan.server_core) as server:
        return apply(server, job, plan)


def apply(server: Server, job: Job, plan: Plan) -> Outcome:
    """The load of `job`, from a generator on its own core, on a server that runs already."""
    with loading(server, job, plan) as generator:
        return generator.measure(TIMEOUT + plan.duration)


def loading(server: Server, job: Job, plan: Plan, **changes: Any) -> Generator:
    """A generator with the sessions of `job`, for one measurement or many."""
    fields = {
        "port": server.port,
        "subscriber_port": server.ports[1] if server.setting.far else 0,
        "server": server.process.pid,
        "version": plan.version,
        "warmup": plan.warmup,
        "duration": plan.duration,
    }
    generator = Generator(server, plan.load_core)
    generator.tell(dataclasses.replace(job, **fields | changes).to_json())
    return generator


class Bench:
    """Runs works and remembers what later ones need to know about earlier ones."""

    def __init__(self, plan: Plan, *, before: Callable[[Work, int, Peer], None], files: int) -> None:
        self._plan = plan
        self._before = before
        self._files = files
        self._maximum: float | None = None
        self.notes: list[str] = []

    def run(self, works: Sequence[Work]) -> list[Series]:
        return [self._series(one) for one in works]

    def _series(self, work: Work) -> Series:
        plan, series = self._plan, Series(work=work)
        try:
            job = self._job(work)
        except BenchError as error:
            series.failures.append(f"{work.key}: {error}")
            return series
        for number in range(plan.rounds):
            found: dict[bool, Outcome | None] = {}
            for reference in (True, False) if number % 2 == 0 else (False, True):
                peer = plan.reference if reference else plan.subject
                self._before(work, number, peer)
                try:
                    found[reference] = measure(peer, job, work, plan)
                except BenchError as error:
                    found[reference] = None
                    series.failures.append(f"{work.key}, round {number + 1}: {error}")
            series.reference.append(found[True])
            series.subject.append(found[False])
        if work.key == BASE:
            rates = [one.per_second for one in series.reference if one is not None]
            self._maximum = statistics.median(rates) if rates else None
        return series

    def _job(self, work: Work) -> Job:
        if work.half:
            rate = int(self._reference_maximum() / 2)
            self.notes.append(f"{work.name}: {rate} messages/s, half of the reference's maximum")
            return dataclasses.replace(work.job, rate=rate)
        if work.job.shape is Shape.IDLE and work.job.connections + SPARE_FILES > self._files:
            count = self._files - SPARE_FILES
            self.notes.append(f"{work.name}: only {count} connections, for the system allows {self._files} files")
            return dataclasses.replace(work.job, connections=count)
        return work.job

    def _reference_maximum(self) -> float:
        if self._maximum is None:
            base = work(BASE)
            self._before(base, 0, self._plan.reference)
            self._maximum = measure(self._plan.reference, base.job, base, self._plan).per_second
        return self._maximum
