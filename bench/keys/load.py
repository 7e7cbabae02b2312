"""The load generator of `bench keys`: a process of its own, a `Task` as a line of JSON on stdin, a `Found` on stdout.

Closed loop: each connection asks again as soon as it was answered. Open loop: so many requests a second, evenly spaced,
each on a connection that is free; if none is, the time that it waits for one is part of its latency. The open loop
spins on its own core, as `pace` does, the closed one sleeps when there is nothing to do.

With `until_closed` it says `measuring` when it has warmed up, and goes on until stdin is closed. Exit code 3 with
`{"error": ...}` when the load could not be applied.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import select
import ssl
import sys
import time
from array import array
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.harness import procfs
from bench.keys import connections
from bench.keys.connections import Line
from bench.keys.node import Sample
from bench.load.generator import FAILED
from bench.load.job import MEASURING, LoadError
from bench.load.paced import percentile
from tidegate.keys import PrivateKey

MQTT, HTTP, MIXED = "mqtt", "http", "mixed"
PROVED = 3  # readers whose keys are looked at
EACH = 100  # numbers of requests that each connection has before the load
KINDS = 4  # requests after which each kind of a mix has been asked
DRAIN = 2.0  # seconds for the last answers
BACKLOG = 2.0  # seconds that an open loop may fall behind before it is called an overrun


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to do."""

    way: str = MQTT
    port: int = 0
    authority: str | None = None
    """The certificate that is trusted, over TLS."""
    pids: tuple[int, ...] = ()
    """Processes whose CPU time is read when measuring starts and ends."""
    readers: dict[str, str] = field(default_factory=dict)
    """Names and private keys; each has a connection."""
    tokens: dict[str, str] = field(default_factory=dict)
    """Of these readers, over HTTP."""
    admin: str = ""
    source: str = ""
    samples: tuple[Sample, ...] = ()
    rate: float = 0.0
    """0: closed loop."""
    warmup: float = 0.3
    duration: float = 1.5
    until_closed: bool = False

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        fields = json.loads(text)
        samples = tuple(Sample(**one) for one in fields["samples"])
        return cls(**fields | {"samples": samples, "pids": tuple(fields["pids"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one measurement found. Times in seconds."""

    answers: int = 0
    seconds: float = 0.0
    cpu: tuple[float, ...] = ()
    """Of each process that was asked for."""
    load_cpu: float = 0.0
    foreign: float = 0.0
    """CPU, in cores, that neither these processes nor the generator used."""
    rate: float = 0.0
    """That was offered; 0 in a closed loop."""
    overrun: bool = False
    p50: float = 0.0
    p99: float = 0.0
    slowest: float = 0.0
    late: float = 0.0
    """99th percentile of how much later than planned requests were sent, in an open loop."""
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        return self.answers / self.seconds if self.seconds else 0.0

    @property
    def load_busy(self) -> float:
        return self.load_cpu / self.seconds if self.seconds else 0.0

    def micros(self, place: int) -> float:
        """CPU of one process for each answer, in microseconds."""
        return self.cpu[place] / self.answers * 1e6 if self.answers else 0.0

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Found:
        fields = json.loads(text)
        return cls(**fields | {"cpu": tuple(fields["cpu"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """One reading of all clocks."""

    at: float
    cpu: tuple[float, ...]
    own: float
    machine: float

    @classmethod
    def now(cls, pids: tuple[int, ...]) -> _Mark:
        try:
            cpu = tuple(map(procfs.own_cpu_seconds, pids))
        except (FileNotFoundError, ProcessLookupError):
            raise LoadError("a process of the server is gone") from None
        machine, _ = procfs.machine_seconds()
        return cls(at=time.perf_counter(), cpu=cpu, own=time.process_time(), machine=machine)


def measure(task: Task) -> Found:
    with ExitStack() as stack:
        lines = _opened(task, stack)
        gc.collect()
        gc.disable()
        return _Loop(task, lines).run()


def _opened(task: Task, stack: ExitStack) -> list[Line]:
    tls = ssl.create_default_context(cafile=task.authority) if task.authority else None
    lines = []
    for place, (name, text) in enumerate(task.readers.items()):
        if task.way == MQTT:
            line = connections.mqtt_line(task.port, name, task.samples, tls, stack)
        else:
            requests = connections.key_requests(task.samples, task.tokens[name])
            if task.way == MIXED:
                user = task.tokens[name]
                requests = connections.mixed(task.samples, user=user, admin=task.admin, source=task.source)
            line = connections.http_line(task.port, requests, tls, stack)
        if place < PROVED and task.way != MIXED:
            connections.prove(line, name, PrivateKey.parse(text), task.samples, place * EACH)
        else:
            for number in range(1 if task.way == MQTT else KINDS):
                line.ask(place * EACH + number)
                line.await_answer()  # one after the other: many unknown tokens at once look like guesses
        line.sock.setblocking(False)
        lines.append(line)
    return lines


class _Loop:
    """The connections at work."""

    def __init__(self, task: Task, lines: list[Line]) -> None:
        self._task = task
        self._free = deque(lines)
        self._lines = {line.fd: line for line in lines}
        self._number = EACH * len(lines)
        self._latencies, self._delays = array("q"), array("q")
        self._kinds: dict[str, int] = {}
        self._measuring = False
        self._epoll = select.epoll()
        for fd in self._lines:
            self._epoll.register(fd, select.EPOLLIN)
        if task.until_closed:
            self._epoll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)

    def run(self) -> Found:
        task = self._task
        with self._epoll:
            self._offer(task.warmup)
            begin = _Mark.now(task.pids)
            if task.until_closed:
                print(MEASURING, flush=True)
            self._measuring = True
            overrun = self._offer(0.0 if task.until_closed else task.duration)
            self._measuring = False
            end = _Mark.now(task.pids)
            self._drain()
        ordered = sorted(self._latencies)
        seconds = end.at - begin.at
        cpu = tuple(after - before for before, after in zip(begin.cpu, end.cpu, strict=True))
        own = end.own - begin.own
        return Found(
            answers=len(ordered),
            seconds=seconds,
            cpu=cpu,
            load_cpu=own,
            foreign=max(0.0, end.machine - begin.machine - sum(cpu) - own) / seconds,
            rate=task.rate,
            overrun=overrun,
            p50=percentile(ordered, 0.5),
            p99=percentile(ordered, 0.99),
            slowest=percentile(ordered, 1.0),
            late=percentile(sorted(self._delays), 0.99),
            kinds=self._kinds,
        )

    def _offer(self, seconds: float) -> bool:
        """For so long, or until stdin is closed; whether the server fell too far behind."""
        until = time.perf_counter() + seconds if seconds else float("inf")
        return self._open(until) if self._task.rate else self._closed(until)

    def _closed(self, until: float) -> bool:
        for line in self._free:
            self._ask(line)
        self._free.clear()
        while time.perf_counter() < until:
            for fd, _ in self._epoll.poll(0.1):
                if fd not in self._lines:
                    return False  # stdin
                line = self._lines[fd]
                if self._took(line):
                    self._ask(line)
        return False

    def _open(self, until: float) -> bool:
        stamp, free = time.perf_counter_ns, self._free
        gap = 1e9 / self._task.rate
        start, sent = stamp(), 0
        end = start + int((until - time.perf_counter()) * 1e9)
        waiting: deque[int] = deque()
        while (now := stamp()) < end:
            while (due := int(start + sent * gap)) <= now:
                sent += 1
                if waiting or not free:
                    waiting.append(due)
                    continue
                line = free.popleft()
                self._ask(line)
                if self._measuring:
                    self._delays.append(line.begun - due)
            while waiting and free:
                line = free.popleft()
                self._ask(line)
                line.begun = waiting.popleft()
            if len(waiting) > self._task.rate * BACKLOG:
                return True
            for fd, _ in self._epoll.poll(0):
                line = self._lines[fd]
                if self._took(line):
                    free.append(line)
        return False

    def _ask(self, line: Line) -> None:
        self._number += 1
        line.begun = time.perf_counter_ns()
        line.ask(self._number)

    def _took(self, line: Line) -> bool:
        """Whether the answer has come."""
        if line.answer() is None:
            return False
        if self._measuring:
            self._latencies.append(time.perf_counter_ns() - line.begun)
            self._kinds[line.kind] = self._kinds.get(line.kind, 0) + 1
        return True

    def _drain(self) -> None:
        """Nothing is left unanswered: what was asked last may be what was lost."""
        busy = set(self._lines) - {line.fd for line in self._free}
        until = time.perf_counter() + DRAIN
        while busy and time.perf_counter() < until:
            for fd, _ in self._epoll.poll(0.1):
                if fd in busy and self._took(self._lines[fd]):
                    busy.discard(fd)
        if busy:
            raise LoadError(f"{len(busy)} requests were not answered within {DRAIN:.0f} s")


def main() -> int:
    task = Task.from_json(sys.stdin.readline())
    try:
        found = measure(task)
    except (LoadError, OSError) as error:
        print(json.dumps({"error": str(error)}))
        return FAILED
    print(found.to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
