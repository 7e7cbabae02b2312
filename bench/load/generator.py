"""The load generator: a process of its own. The first line on stdin is a `Job` as JSON; every further line is a
measurement with the fields of the job that it changes (`{"rate": 5000}`), and its `Outcome` is a line on stdout.

Exit code 3 with `{"error": ...}` when the load could not be applied. Plain epoll, no asyncio: the generator
must cost less per message than any server it measures.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench.harness import procfs
from bench.load import sessions
from bench.load.background import CHURNERS, Churn, Holders
from bench.load.job import MEASURING, PAYLOAD, Job, LoadError, Outcome, Shape
from bench.load.meter import FEWEST, Meter
from bench.load.paced import BACKLOG, histogram, pace, percentile, write_trace
from bench.load.receiving import Counted, Stamped
from bench.load.window import Background, saturate

FAILED = 3
FIRST_CONNECTIONS = 100
SETTLE = 0.5
BEHIND = 5  # seconds that a server may fall behind while it is traced
PATIENT_BEHIND = 2000  # messages or deliveries that a server may be behind before it is sent no more
SEEN = 5  # messages of each publisher that come before measuring


class Load:
    """Sessions that are open, subscribed and proved, and measurements with them."""

    def __init__(self, job: Job, stack: ExitStack) -> None:
        self._job = job
        self._stack = stack
        if job.shape is Shape.IDLE:
            return
        subscribers = self._opened("s", job.subscribers - job.linked, job.subscriber_port)
        subscribers += self._opened("l", job.linked, job.linked_port)
        pairs = [("where", job.where)] if job.where else []
        for number, sock in enumerate(subscribers):
            sessions.subscribe(sock, [sessions.filter_of(job, number)], qos=job.qos, version=job.version, pairs=pairs)
        self._barred = self._opened("b", job.barred)
        for sock in self._barred:
            sessions.subscribe(sock, ["#"], qos=job.qos, version=job.version)
        publishers = self._opened("p", job.publishers)
        sessions.prove(job, publishers, subscribers)
        self._churn: Churn | None = None
        self._background: Background | None = None
        if job.churn:
            names = [f"c{number:02d}" for number in range(CHURNERS)]
            changers = sessions.open_sessions(job.port, names, version=job.version, clean=True, stack=stack)
            for sock in changers:
                sock.setblocking(False)
            self._churn = Churn(changers, rate=job.churn, topics=job.subscribers, version=job.version)
            self._background = self._churn
        elif job.wildcards:
            self._background = Holders(job, stack=stack)
        self._plan = sessions.schedule(job, publishers)
        for sock in (*subscribers, *publishers):
            sock.setblocking(False)
        self._listen = [sock.fileno() for sock in subscribers]
        self._copies = len(subscribers) if job.fanout else job.copies
        length = self._plan.frame_length
        self._inbox = Counted(length) if job.patient else Stamped(length, length - PAYLOAD, self._listen)
        self._sent = 0
        # what a server learns from first messages it has learnt then
        self._unseen = job.arriving(max(job.topics, SEEN * job.publishers))

    def _opened(self, letter: str, count: int, port: int = 0) -> list[socket.socket]:
        job = self._job
        names = [f"{letter}{number:05d}" for number in range(count)]
        return sessions.open_sessions(
            port or job.port,
            names,
            version=job.version,
            clean=not job.persistent,
            stack=self._stack,
            login=job.login,
        )

    def measure(self, changes: dict[str, Any]) -> Outcome:
        """One measurement; only the first waits until the server has seen every publisher and topic."""
        job = dataclasses.replace(self._job, **changes)
        if job.shape is Shape.IDLE:
            return self._idle(job)
        gc.collect()
        gc.disable()
        meter = Meter(
            server=job.server,
            linked=job.linked_server,
            between=job.between,
            warmup=job.warmup,
            duration=job.duration,
            at_least=self._unseen,
            fewest=int(0.75 * job.rate * job.duration * job.more / job.fewer) if job.shape is Shape.RATE else FEWEST,
        )
        self._unseen = 0
        outcome = self._paced(job, meter) if job.shape is Shape.RATE else self._saturated(job, meter)
        sessions.prove_silence(self._barred)
        return outcome

    def _saturated(self, job: Job, meter: Meter) -> Outcome:
        if job.more != job.fewer:
            raise LoadError("a window needs one delivery for each message")
        before = self._churn.changes if self._churn is not None else 0
        pumped = saturate(
            self._plan,
            subscribers=self._listen,
            qos=job.qos,
            copies=self._copies,
            window=job.window,
            meter=meter,
            background=self._background,
        )
        changes = 0
        if self._churn is not None:
            self._churn.finish()
            changes = self._churn.changes - before
        return meter.outcome(
            lost=pumped.lost, outstanding=pumped.outstanding, generator=pumped.generator, changes=changes
        )

    def _paced(self, job: Job, meter: Meter) -> Outcome:
        backlog = BACKLOG
        if job.trace:
            meter.on_begin = partial(print, MEASURING, flush=True)
            signal.signal(signal.SIGUSR1, lambda *_: meter.stop())
            backlog = BEHIND * job.rate
        each = job.more / job.fewer
        if job.patient:
            backlog = int(PATIENT_BEHIND / max(1.0, each))
        seen = pace(
            self._plan,
            self._inbox,
            self._listen,
            rate=job.rate,
            meter=meter,
            arriving=self._arriving(job),
            each=each,
            backlog=backlog,
            hold_back=job.patient,
            naps=job.naps,
        )
        self._sent += seen.sent
        if job.trace:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it has ended anyway
            write_trace(seen, job.trace)
        if seen.overrun:
            return Outcome(overrun=True, lost=seen.lost)
        ordered = sorted(seen.latencies)
        return meter.outcome(
            working=seen.working,
            lost=seen.lost,
            p50=percentile(ordered, 0.5),
            p99=percentile(ordered, 0.99),
            p999=percentile(ordered, 0.999),
            slowest=percentile(ordered, 1.0),
            late=percentile(sorted(seen.delays), 0.99),
            histogram=histogram(ordered),
        )

    def _arriving(self, job: Job) -> Callable[[int], int]:
        """Of all that was ever sent: monitors do not begin again with a measurement."""
        earlier = self._sent
        return lambda sent: job.arriving(earlier + sent)

    def _idle(self, job: Job) -> Outcome:
        """Resident memory before and after; the first connections pay for what the server makes only once."""

        def connect(first: int, count: int) -> None:
            names = [f"idle{number:06d}" for number in range(first, first + count)]
            opened = sessions.open_sessions(
                job.port, names, version=job.version, clean=True, stack=self._stack, abort=True
            )
            if job.speaks:
                sessions.speak(job, opened)

        connect(0, FIRST_CONNECTIONS)
        before = _settled(job.server)
        connect(FIRST_CONNECTIONS, job.connections)
        after = _settled(job.server)
        return Outcome(connections=job.connections, bytes_each=(after - before) / job.connections)


def _settled(server: int) -> int:
    """Resident memory once two looks in a row agree."""
    seen = procfs.resident_bytes(server)
    for _ in range(10):
        time.sleep(SETTLE)
        again = procfs.resident_bytes(server)
        if again == seen:
            break
        seen = again
    return seen


def main() -> int:
    try:
        with ExitStack() as stack:
            load = Load(Job.from_json(sys.stdin.readline()), stack)
            for line in sys.stdin:
                print(load.measure(json.loads(line)).to_json(), flush=True)
    except (LoadError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
