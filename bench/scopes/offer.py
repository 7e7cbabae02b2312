"""The open loop of `bench scopes`: so many messages a second, evenly spaced, and what arrives is counted by length.

Nothing is stamped and nothing is compared, for monitors on the way may change payloads, suppress and multiply. What has
to arrive follows from how many were sent. The loop spins on its own core; its share of work is that of turns with any.

A node that falls `BEHIND` messages or deliveries behind is sent no more until it has caught up: so its queues stay
short and it can show what it is able to do. A node that can keep the rate never notices, since what is due is still
sent, if later.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count as numbers
from itertools import repeat

from bench.crowd import Schedule
from bench.inbox import BUFFER, CLOSED
from bench.job import LoadError
from bench.meter import Meter
from bench.scopes.chain import Chain

BEHIND = 2000
SILENCE = 1.0  # seconds without anything received before what is missing counts as lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What only the loop knows."""

    working: float
    """Seconds of turns with work while measuring."""
    lost: int
    """Deliveries that never came."""


class Tap:
    """The subscribers' sockets: deliveries since the beginning, counted by length, and messages sent since then."""

    __slots__ = ("_buffers", "_epoll", "_length", "_most", "_total", "sent")

    def __init__(self, listen: Sequence[int], length: int) -> None:
        self._epoll = select.epoll()
        for fd in listen:
            self._epoll.register(fd, select.EPOLLIN)
        self._most = len(listen)
        self._buffers = [bytearray(BUFFER)]
        self._length = length
        self._total = 0
        self.sent = 0

    @property
    def arrived(self) -> int:
        return self._total // self._length

    @property
    def whole(self) -> bool:
        return self._total % self._length == 0

    def take(self, timeout: float = 0) -> bool:
        """Whether anything came."""
        fds = [fd for fd, _ in self._epoll.poll(timeout, self._most)]
        if not fds:
            return False
        got = sum(map(os.readv, fds, repeat(self._buffers)))
        if not got:
            raise LoadError(CLOSED)
        self._total += got
        return True

    def close(self) -> None:
        self._epoll.close()


def offer(plan: Schedule, tap: Tap, chain: Chain, *, rate: int, meter: Meter) -> Offered:
    """One rate, until the meter has seen enough and everything has arrived, or is lost."""
    clock = time.perf_counter
    write, fds, frames, length = os.write, plan.fds, plan.frames, plan.write_length
    before = tap.arrived
    each = chain.configuration.factor**chain.scopes
    behind = int(BEHIND / max(1.0, each))
    sent = earlier = 0
    working = 0.0
    measuring = False
    start = previous = clock()
    for _ in numbers():
        now = clock()
        arrived = tap.arrived - before
        if not meter.turn(now, arrived):
            break
        if not measuring and meter.begin is not None:
            measuring = True
            start = previous = now
            earlier = sent  # what was late before is not made up for now
        room = behind - (sent - int(arrived / each))
        due = min(int((now - start) * rate) + 1 - (sent - earlier), room)
        worked = due > 0
        for place in range(sent, sent + due):
            at = place % plan.publishers
            try:
                size = write(fds[at], frames[at])
            except BlockingIOError:
                size = 0
            except OSError as error:
                raise LoadError(f"{CLOSED}: {error}") from None
            if size != length:
                raise LoadError("the node does not read, though few messages are on their way")
            sent += 1
        if tap.take() or worked:
            worked = True
        if measuring and worked:
            working += now - previous
        previous = now
    # of all that was ever sent: monitors do not begin again with a rate
    tap.sent += sent
    return Offered(working=working, lost=_drained(tap, chain.configuration.arriving(tap.sent, chain.scopes)))


def _drained(tap: Tap, expected: int) -> int:
    heard = time.perf_counter()
    while tap.arrived < expected:
        if tap.take(0.05):
            heard = time.perf_counter()
        elif time.perf_counter() - heard > SILENCE:
            break
    if tap.arrived > expected or (tap.arrived == expected and not tap.whole):
        raise LoadError(f"{tap.arrived} messages arrived where {expected} were expected")
    return expected - tap.arrived
