"""The closed loop: keep `window` messages outstanding, for as long as the meter says.

Budget: at 200,000 messages a second the whole turn may cost 5 us per message, of which send() on a loopback
connection takes most. So the loops over sockets run inside map(), sum() and list.extend(), nothing is
encoded and nothing is parsed. No message is sent twice: a short write is completed before anything else.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Protocol

from bench.crowd import Schedule
from bench.inbox import Inbox
from bench.job import LoadError
from bench.meter import Meter

BURST = 256  # sent at a time
BETWEEN = 1000  # sent at most between two looks at what has arrived
SILENCE = 1.0  # seconds without anything received before outstanding messages are written off as lost
SATURATED = 1000
# With thousands outstanding the generator has time. Napping instead of waiting in epoll spares the server the
# wake-up of a sleeping neighbour for each message it writes, which no remote subscriber would cost it either.
NAP = 0.0003
PATIENCE = 5  # times in a row that everything outstanding may be written off


class Aside(Protocol):
    """Something that happens beside the load, such as subscription changes."""

    def turn(self, now: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pumped:
    """What only the loop knows."""

    lost: int
    outstanding: float
    """Messages outstanding on average while measuring; far below the window, the generator was too slow."""


def pump(
    plan: Schedule, inbox: Inbox, listen: Sequence[int], *, window: int, meter: Meter, aside: Aside | None
) -> Pumped:
    """Runs the load until the meter has seen enough and everything has arrived, or is lost."""
    clock = time.perf_counter
    epoll = select.epoll()
    for fd in listen:
        epoll.register(fd, select.EPOLLIN)
    poll, most = epoll.poll, len(listen)
    writes = map(os.write, cycle(plan.fds), cycle(plan.frames))
    burst = min(BURST, plan.publishers)  # so that a socket occurs once in a burst at most
    per_write, write_length, period = plan.per_write, plan.write_length, len(plan.frames)
    block = 0.001 if aside else 0.05
    nap = NAP if window >= SATURATED else 0.0
    sizes: list[int] = []
    unsent: list[tuple[int, bytes]] = []
    turn, take = meter.turn, inbox.take
    position = sent = lost = written_off = unseen = outstanding = 0
    area = measured = 0.0
    going = True
    heard = before = clock()
    while True:
        now = clock()
        if going and meter.begin is not None:
            area += outstanding * (now - before)
            measured += now - before
        before = now
        if going:
            going = turn(now, inbox.delivered)
        if aside is not None:
            aside.turn(now)
        outstanding = sent - lost - inbox.done
        if outstanding < 0:  # what was written off arrived after all
            lost += outstanding
            outstanding = 0
        if not going and not outstanding:
            break
        timeout = block
        if unsent:
            unsent = _retry(unsent)
            timeout = 0.001
        elif going and (room := (window - outstanding) // per_write) > 0:
            count = room if room < burst else burst
            sizes.clear()
            try:
                # hot: one system call per message and no bytecode
                sizes.extend(islice(writes, count))
            except BlockingIOError:
                stuck = (position + len(sizes)) % period
                unsent.append((plan.fds[stuck % plan.publishers], plan.frames[stuck]))
                count = len(sizes) + 1
            except OSError as error:
                raise LoadError(f"the server closed a connection: {error}") from None
            if sum(sizes) != len(sizes) * write_length:
                unsent += _short(plan, position, sizes)
            position = (position + count) % period
            sent += count * per_write
            unseen += count * per_write
            if room > burst:
                if unseen < BETWEEN:
                    continue
                timeout = 0
        if nap and timeout:
            time.sleep(nap)
        unseen = 0
        events = poll(timeout, most)
        if events:
            heard, written_off = now, 0
            try:
                take([fd for fd, _ in events])
            except OSError as error:
                raise LoadError(f"the server closed a connection: {error}") from None
        elif now - heard > SILENCE and outstanding and not unsent:
            lost += outstanding
            heard = now
            written_off += 1
            if written_off == PATIENCE:
                raise LoadError(f"the server delivers nothing; {lost} of {sent} messages are missing")
    epoll.close()
    if not lost and inbox.remainder():
        raise LoadError("what was received is no whole number of messages")
    return Pumped(lost=lost, outstanding=area / max(measured, 1e-9))


def _short(plan: Schedule, position: int, sizes: list[int]) -> list[tuple[int, bytes]]:
    rest = []
    for number, size in enumerate(sizes):
        if size < plan.write_length:
            place = (position + number) % len(plan.frames)
            rest.append((plan.fds[place % plan.publishers], plan.frames[place][size:]))
    return rest


def _retry(unsent: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    rest = []
    for fd, data in unsent:
        try:
            size = os.write(fd, data)
        except BlockingIOError:
            size = 0
        except OSError as error:
            raise LoadError(f"the server closed a connection: {error}") from None
        if size < len(data):
            rest.append((fd, data[size:]))
    return rest
