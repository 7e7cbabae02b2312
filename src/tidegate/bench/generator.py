"""The load generator: a process of its own, one `Job` as JSON on stdin, one `Outcome` as JSON on stdout.

Exit code 3 with `{"error": ...}` when the load could not be applied. Plain epoll, no asyncio: the generator
must cost less per message than any server it measures.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from contextlib import ExitStack

from tidegate.bench import crowd, procfs
from tidegate.bench.aside import CHURNERS, Churn, Holders
from tidegate.bench.inbox import Acknowledged, Assured, Counted, Inbox
from tidegate.bench.job import Job, LoadError, Outcome, Shape
from tidegate.bench.meter import Meter
from tidegate.bench.pace import histogram, pace, percentile
from tidegate.bench.pump import Aside, pump

FAILED = 3
FIRST_CONNECTIONS = 100
SETTLE = 0.5


def measure(job: Job) -> Outcome:
    """Applies the load of `job` to a running server."""
    with ExitStack() as stack:
        if job.shape is Shape.IDLE:
            return _idle(job, stack)
        return _load(job, stack)


def _load(job: Job, stack: ExitStack) -> Outcome:
    clean = not job.persistent
    names = [f"s{number:05d}" for number in range(job.subscribers)]
    subscribers = crowd.open_sessions(job.port, names, version=job.version, clean=clean, stack=stack)
    for number, sock in enumerate(subscribers):
        crowd.subscribe(sock, [crowd.filter_of(job, number)], qos=job.qos, version=job.version)
    names = [f"p{number:05d}" for number in range(job.publishers)]
    publishers = crowd.open_sessions(job.port, names, version=job.version, clean=clean, stack=stack)
    crowd.prove(job, publishers[0], subscribers)
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
    meter = Meter(server=job.server, warmup=job.warmup, duration=job.duration, at_least=job.topics)
    if job.shape is Shape.RATE:
        return _paced(job, plan, listen, meter)
    everyone = [*listen, *plan.fds]
    inbox: Inbox
    if job.qos == 0:
        inbox = Counted(plan.frame_length, len(subscribers) if job.fanout else 1)
    elif job.qos == 1:
        inbox = Acknowledged(plan.frame_length, plan.id_offset, listen)
    else:
        inbox = Assured(plan.frame_length, plan.id_offset, everyone, listen)
    seen = pump(plan, inbox, everyone if job.qos else listen, window=job.window, meter=meter, aside=aside)
    if churn is not None:
        churn.finish()
    changes = churn.changes if churn is not None else 0
    return meter.outcome(lost=seen.lost, outstanding=seen.outstanding, changes=changes)


def _paced(job: Job, plan: crowd.Schedule, listen: list[int], meter: Meter) -> Outcome:
    seen = pace(plan, listen, rate=job.rate, meter=meter)
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
        crowd.open_sessions(job.port, names, version=job.version, clean=True, stack=stack, abort=True)

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
