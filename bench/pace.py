"""The open loop: messages at a fixed rate, evenly spaced, whatever the server does; latency of each.

The loop spins on its own core instead of sleeping, so that sending is punctual and receiving is seen at once;
its share of work is therefore the share of turns that had any. The time of sending travels in the payload
and is taken just before send(); how much later than planned that was is reported beside (`late`).
A server that falls `backlog` messages behind cannot keep the rate, and the run ends there.
"""

from __future__ import annotations

import math
import os
import select
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count as numbers
from struct import Struct

from bench.crowd import Schedule
from bench.inbox import BUFFER, CLOSED
from bench.job import PAYLOAD, LoadError
from bench.meter import Meter

BACKLOG = 20_000  # of 200 bytes each over 100 sockets: far below what socket buffers take
DRAIN = 1.0
PAUSE = 0.001  # seconds that a turn takes when the generator did not have its core
BUCKETS_PER_DECADE = 20
_STAMP = Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """What the open loop saw while measuring; times in nanoseconds."""

    latencies: array[int]
    moments: array[int]
    """When each of them arrived."""
    delays: array[int]
    pauses: array[int]
    """Begin and end of each turn of the loop that took long: what happened then is not the server's doing."""
    lost: int
    overrun: bool
    working: float


def pace(plan: Schedule, listen: Sequence[int], *, rate: int, meter: Meter, backlog: int = BACKLOG) -> Paced:
    clock = time.perf_counter
    stamp = time.perf_counter_ns
    epoll = select.epoll()
    for fd in listen:
        epoll.register(fd, select.EPOLLIN)
    poll, most = epoll.poll, len(listen)
    length, write_length = plan.frame_length, plan.write_length
    offset = length - PAYLOAD
    templates = [bytearray(frame) for frame in plan.frames]
    fds = plan.fds
    carry = dict.fromkeys(listen, b"")
    latencies, moments, delays, pauses = array("q"), array("q"), array("q"), array("q")
    pack, unpack = _STAMP.pack_into, _STAMP.unpack_from
    sent = received = 0
    working = 0.0
    overrun = False
    going = True
    gap = 1e9 / rate
    start = stamp()
    before = clock()
    drain_until = 0.0
    for _ in numbers():
        now = clock()
        worked = False
        measuring = meter.begin is not None and going
        if going:
            going = meter.turn(now, received)
            drain_until = now + DRAIN
            due = int((stamp() - start) / gap) + 1
            while sent < due:
                worked = True
                place = sent % plan.publishers
                frame = templates[place]
                moment = stamp()
                pack(frame, offset, moment)
                try:
                    size = os.write(fds[place], frame)
                except BlockingIOError:
                    size = 0
                except OSError as error:
                    raise LoadError(f"the server closed a connection: {error}") from None
                if size != write_length:
                    overrun = True
                    break
                if measuring:
                    delays.append(int(moment - start - sent * gap))
                sent += 1
            if overrun or sent - received > backlog:
                overrun = True
                break
        elif received >= sent or now > drain_until:
            break
        for fd, _event in poll(0, most):
            worked = True
            data = os.read(fd, BUFFER)
            moment = stamp()
            if not data:
                raise LoadError(CLOSED)
            if carry[fd]:
                data = carry[fd] + data
            count = len(data) // length
            for place in range(offset, count * length, length):
                if measuring:
                    latencies.append(moment - unpack(data, place)[0])
                    moments.append(moment)
            received += count
            carry[fd] = data[count * length :]
        if measuring:
            if worked:
                working += now - before
            if now - before > PAUSE:
                pauses.extend((int(before * 1e9), int(now * 1e9)))
        before = now
    epoll.close()
    return Paced(
        latencies=latencies,
        moments=moments,
        delays=delays,
        pauses=pauses,
        lost=max(0, sent - received),
        overrun=overrun,
        working=working,
    )


def write_trace(seen: Paced, file: str) -> None:
    """Moments, latencies and pauses, for `read_trace` in another process; all by the clock of the machine."""
    with open(file, "wb") as sink:
        array("q", (len(seen.moments), len(seen.pauses))).tofile(sink)
        for values in (seen.moments, seen.latencies, seen.pauses):
            values.tofile(sink)


def read_trace(file: str) -> tuple[array[int], array[int], array[int]]:
    """Moments of arrival, latencies, and begin and end of each pause in turn; nanoseconds."""
    head, moments, latencies, pauses = array("q"), array("q"), array("q"), array("q")
    with open(file, "rb") as source:
        head.fromfile(source, 2)
        moments.fromfile(source, head[0])
        latencies.fromfile(source, head[0])
        pauses.fromfile(source, head[1])
    return moments, latencies, pauses


def percentile(ordered: Sequence[int], share: float) -> float:
    """The nearest-rank percentile of sorted nanoseconds, in seconds."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] / 1e9


def histogram(latencies: Sequence[int]) -> list[tuple[float, int]]:
    """Counts per bucket on a logarithmic scale: (upper bound in seconds, count)."""
    counts: dict[int, int] = {}
    for value in latencies:
        bucket = math.ceil(math.log10(max(value, 1)) * BUCKETS_PER_DECADE)
        counts[bucket] = counts.get(bucket, 0) + 1
    return [(10 ** (bucket / BUCKETS_PER_DECADE) / 1e9, counts[bucket]) for bucket in sorted(counts)]
