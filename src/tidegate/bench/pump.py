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
from itertools import cycle, islice
from typing import Protocol

from tidegate.bench.crowd import Schedule
from tidegate.bench.inbox import Inbox
from tidegate.bench.job import LoadError
from tidegate.bench.meter import Meter

BURST = 256  # sent between two looks at what has arrived
SILENCE = 1.0  # seconds without anything received before outstanding messages are written off as lost
SATURATED = 1000
# With thousands outstanding the generator has time. Napping instead of waiting in epoll spares the server the
# wake-up of a sleeping neighbour for each message it writes, which no remote subscriber would cost it either.
NAP = 0.0003
PATIENCE = 5  # times in a row that everything outstanding may be written off


class Aside(Protocol):
    """Something that happens beside the load, such as subscription changes."""

    def turn(self, now: float) -> None: ...


def pump(plan: Schedule, inbox: Inbox, listen: Sequence[int], *, window: int, meter: Meter, aside: Aside | None) -> int:
    """Runs the load and answers how many messages were lost."""
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
    position = sent = lost = written_off = 0
    going = True
    heard = clock()
    while True:
        now = clock()
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
            timeout = 0 if room > burst else block
        if nap and timeout:
            time.sleep(nap)
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
    return lost


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
