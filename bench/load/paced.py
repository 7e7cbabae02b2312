"""The open loop: messages at a fixed rate, evenly spaced, whatever the server does.

The loop spins on its own core instead of sleeping, so that sending is punctual and receiving is seen at once; its share
of work is therefore the share of turns that had any. With a `Stamped` inbox the time of sending travels in the payload
and is taken just before send(); how much later than planned that was is reported beside (`late`).

With `naps` the loop sleeps instead of spinning, and sends what has become due meanwhile at once.

A server that falls `backlog` messages behind cannot keep the rate, and the run ends there; or, with `hold_back`, it is
sent no more until it has caught up, so that its queues stay short and it shows what it is able to do.
"""

from __future__ import annotations

import math
import os
import select
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.load.job import PAYLOAD, LoadError
from bench.load.meter import Meter
from bench.load.receiving import CLOSED, STAMP, Counted, Stamped
from bench.load.sessions import Schedule

BACKLOG = 20_000  # of 200 bytes each over 100 sockets: far below what socket buffers take
SILENCE = 5.0  # seconds without anything received before what is missing counts as lost: machines may be busy
NAP = 0.0005  # seconds
PAUSE = 0.001  # seconds that a turn takes when the generator did not have its core
BUCKETS_PER_DECADE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """What the open loop saw while measuring; times in nanoseconds."""

    sent: int = 0
    """Also before measuring."""
    latencies: array[int]
    moments: array[int]
    """When each of them arrived."""
    delays: array[int]
    pauses: array[int]
    """Begin and end of each turn of the loop that took long: what happened then is not the server's doing."""
    lost: int
    overrun: bool
    working: float


def pace(
    plan: Schedule,
    inbox: Counted | Stamped,
    listen: Sequence[int],
    *,
    rate: int,
    meter: Meter,
    arriving: Callable[[int], int],
    each: float = 1.0,
    backlog: int = BACKLOG,
    hold_back: bool = False,
    naps: bool = False,
) -> Paced:
    """Until the meter has seen enough, and everything has arrived or is lost.

    `arriving` says what `inbox.delivered` is once so many have been sent and all has arrived; `each` is about how many
    deliveries a message makes.
    """
    clock, stamp = time.perf_counter, time.perf_counter_ns
    stamped = inbox if isinstance(inbox, Stamped) else None
    templates = [bytearray(frame) for frame in plan.frames]
    offset = plan.write_length - PAYLOAD
    delays, pauses = array("q"), array("q")
    gap, before, sent, first = 1e9 / rate, inbox.delivered, 0, 0
    working = 0.0
    measuring = overrun = False
    going = True
    start = stamp()
    heard = previous = clock()
    if stamped is not None:
        stamped.forget()
    with select.epoll() as epoll:
        for fd in listen:
            epoll.register(fd, select.EPOLLIN)
        while going or inbox.delivered < arriving(sent):
            now = clock()
            due = 0
            if going:
                arrived = inbox.delivered - before
                going = meter.turn(now, arrived)
                if not measuring and meter.begin is not None:
                    measuring, start, first = True, stamp(), sent  # what was late before is not made up for now
                    if stamped is not None:
                        stamped.measuring = True
                room = backlog - (sent - int(arrived / each))
                if room < 0 and not hold_back:
                    overrun = True
                    break
                due = int((stamp() - start) / gap) + 1 - (sent - first)
                if hold_back:
                    due = max(0, min(due, room))
            if naps and not due:
                time.sleep(NAP)
            for _ in range(due):
                place = sent % plan.publishers
                frame = templates[place]
                moment = stamp()
                if stamped is not None:
                    STAMP.pack_into(frame, offset, moment)
                try:
                    size = os.write(plan.fds[place], frame)
                except BlockingIOError:
                    size = 0
                except OSError as error:
                    raise LoadError(f"{CLOSED}: {error}") from None
                if size != plan.write_length:
                    overrun = True
                    break
                if measuring:
                    delays.append(int(moment - start - (sent - first) * gap))
                sent += 1
            if overrun:
                if hold_back:
                    raise LoadError("the server does not read, though few messages are on their way")
                break
            events = epoll.poll(0, len(listen))
            if events:
                inbox.take([fd for fd, _ in events])
                heard = now
            elif not going and now - heard > SILENCE:
                break  # it was looked at after that time: whoever had no core for so long has not listened either
            if measuring and going:
                if due > 0 or events:
                    working += now - previous
                if now - previous > PAUSE:
                    pauses.extend((int(previous * 1e9), int(now * 1e9)))
            if stamped is not None and not going:
                stamped.measuring = False
            previous = now
    missing = arriving(sent) - inbox.delivered
    if not overrun and (missing < 0 or (missing == 0 and inbox.remainder())):
        raise LoadError(f"{inbox.delivered} messages arrived where {arriving(sent)} were expected")
    return Paced(
        sent=sent,
        latencies=stamped.latencies if stamped is not None else array("q"),
        moments=stamped.moments if stamped is not None else array("q"),
        delays=delays,
        pauses=pauses,
        lost=max(0, missing),
        overrun=overrun,
        working=0.0 if naps else working,
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
