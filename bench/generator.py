"""The load generator: a process of its own, one `Job` as JSON on stdin, one `Outcome` as JSON on stdout.

Exit code 3 with `{"error": ...}` when the load could not be applied. Plain epoll, no asyncio: the generator
must cost less per message than any server it measures.
"""

from __future__ import annotations

import gc
import json
import signal
import socket
import sys
import time
from contextlib import ExitStack
from functools import partial

from bench import crowd, procfs
from bench.aside import CHURNERS, Churn, Holders
from bench.inbox import Acknowledged, Assured, Counted, Inbox
from bench.job import MEASURING, Job, LoadError, Outcome, Shape
from bench.meter import Meter
from bench.pace import BACKLOG, histogram, pace, percentile, write_trace
from bench.pump import Aside, pump

FAILED = 3
FIRST_CONNECTIONS = 100
SETTLE = 0.5
BEHIND = 5  # seconds that a server may fall behind while it is traced
SEEN = 5  # messages of each publisher that come before measuring


def measure(job: Job) -> Outcome:
    """Applies the load of `job` to a running server."""
    with ExitStack() as stack:
        if job.shape is Shape.IDLE:
            return _idle(job, stack)
        return _load(job, stack)


def _load(job: Job, stack: ExitStack) -> Outcome:
    clean = not job.persistent

    def sessions(letter: str, count: int) -> list[socket.socket]:
        names = [f"{letter}{number:05d}" for number in range(count)]
        return crowd.open_sessions(job.port, names, version=job.version, clean=clean, stack=stack, login=job.login)

    subscribers = sessions("s", job.subscribers)
    pairs = [("where", job.where)] if job.where else []
    for number, sock in enumerate(subscribers):
        crowd.subscribe(sock, [crowd.filter_of(job, number)], qos=job.qos, version=job.version, pairs=pairs)
    barred = sessions("b", job.barred)
    for sock in barred:
        crowd.subscribe(sock, ["#"], qos=job.qos, version=job.version)
    publishers = sessions("p", job.publishers)
    crowd.prove(job, publishers, subscribers)
    churn: Churn | None = None
    aside: Aside | None = None
    if job.churn:
        names = [f"c{number:02d}" for number in range(CHURNERS)]
        changers = crowd.open_sessions(job.port, names, version=job.version, clean=True, stack=stack)
        for sock in changers:
            sock.setblocking(False)
        aside = churn = Churn(changers, rate=job.churn, topics=job.subscribers, version=job.version)
    elif job.wildcards:
        aside = Holders(job, stack=stack)
    plan = crowd.schedule(job, publishers)
    for sock in (*subscribers, *publishers):
        sock.setblocking(False)
    listen = [sock.fileno() for sock in subscribers]
    gc.collect()
    gc.disable()
    seen = max(job.topics, SEEN * job.publishers)  # what a server learns from first messages it has learnt then
    meter = Meter(server=job.server, warmup=job.warmup, duration=job.duration, at_least=seen)
    if job.shape is Shape.RATE:
        outcome = _paced(job, plan, listen, meter)
        crowd.prove_silence(barred)
        return outcome
    everyone = [*listen, *plan.fds]
    inbox: Inbox
    if job.qos == 0:
        inbox = Counted(plan.frame_length, len(subscribers) if job.fanout else job.copies)
    elif job.qos == 1:
        inbox = Acknowledged(plan.frame_length, plan.id_offset, listen)
    else:
        inbox = Assured(plan.frame_length, plan.id_offset, everyone, listen)
    pumped = pump(plan, inbox, everyone if job.qos else listen, window=job.window, meter=meter, aside=aside)
    if churn is not None:
        churn.finish()
    crowd.prove_silence(barred)
    changes = churn.changes if churn is not None else 0
    return meter.outcome(lost=pumped.lost, outstanding=pumped.outstanding, changes=changes)


def _paced(job: Job, plan: crowd.Schedule, listen: list[int], meter: Meter) -> Outcome:
    if job.trace:
        meter.on_begin = partial(print, MEASURING, flush=True)
        signal.signal(signal.SIGUSR1, lambda *_: meter.stop())
    seen = pace(plan, listen, rate=job.rate, meter=meter, backlog=BEHIND * job.rate if job.trace else BACKLOG)
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


def _idle(job: Job, stack: ExitStack) -> Outcome:
    """Resident memory before and after; the first connections pay for what the server makes only once."""

    def connect(first: int, count: int) -> None:
        names = [f"idle{number:06d}" for number in range(first, first + count)]
        opened = crowd.open_sessions(job.port, names, version=job.version, clean=True, stack=stack, abort=True)
        if job.speaks:
            crowd.speak(job, opened)

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
    job = Job.from_json(sys.stdin.read())
    try:
        outcome = measure(job)
    except (LoadError, OSError) as error:
        print(json.dumps({"error": str(error)}))
        return FAILED
    print(outcome.to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
