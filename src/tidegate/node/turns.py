"""The loop's side of a site: opens and closes its turns, runs its timers, continues long work.

Nothing that runs here can take the loop down: a failing callback is reported and the next one runs.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import structlog

from tidegate.session import Site

TICK = 0.05  # seconds between looks at the timers
BUSY = 2048  # bytes read in a turn that make it worth waiting for more
LONGEST = 0.001  # seconds that a busy turn may wait for more before it writes
PAUSE = 0.001  # before work that waits for a slow reader is tried again
STRETCH = 700  # microseconds of work for clients that wait, before others are read
REST = 0.001  # seconds at least between two of those; timers of the loop have no shorter ones
GIVE_WAY = 4  # turns of others before what waits is served all the same
SLICE = 0.001  # seconds of long work in one turn; the rest has to wait for the next

SAMPLED = 16  # of so many turns with messages, one is timed
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)

log = structlog.get_logger("tidegate.node")


class Latency:
    """How long messages are in the node: from the turn that reads them until its sockets are written."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)  # by the longest time that they took; the last: longer than all
        self.sum = 0.0

    def observe(self, seconds: float, messages: int) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += messages
        self.sum += seconds * messages

    def state(self) -> dict[str, Any]:
        """For the control command `metrics`."""
        return {"seconds": SECONDS, "counts": self.counts, "sum": self.sum}


class Turns:
    """Drives one site."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._site: Site | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._continuing = False
        self._serving = False  # what waits is about to be served
        self._timing = False  # more timers are due than one slice has room for
        self._timer_slice: asyncio.TimerHandle | None = None
        self._gave_way = 0  # so often it was put off for those who had come in
        self._resting = False  # heavy clients rest
        self._rest = 0.0  # seconds of rest that the stretches since the last one make
        self._served = 0.0  # when the last of them ended
        self._read = 0
        self._until = 0.0
        self._turns = 0  # with messages
        self.latency = Latency()
        self.longest = 0.0  # the longest delay of a tick seen: how late the loop was

    def drive(self, site: Site) -> None:
        self._site = site
        self._due = self._loop.time() + TICK
        self._tick = self._loop.call_at(self._due, self._ticked)

    def stop(self) -> None:
        for handle in (self._tick, self._timer_slice):
            if handle is not None:
                handle.cancel()

    def opened(self) -> None:
        """A turn begins: read both clocks once, and see to its end."""
        site = self._site
        assert site is not None
        site.now = self._loop.time()
        site.wall = time.time()
        self._read = 0
        self._until = time.monotonic() + LONGEST
        self._loop.call_soon(self._close)

    def _close(self) -> None:
        site = self._site
        assert site is not None
        read = site.read
        if read > BUSY and read != self._read and time.monotonic() < self._until and not self._somebody_waits():
            # busy: what the next poll brings goes out in the same write. It does not block, and a poll that brings
            # nothing ends the turn.
            self._read = read
            self._loop.call_soon(self._close)
            return
        messages = site.publishes
        site.close()
        if messages:
            self._turns += 1
            if not self._turns % SAMPLED:
                self.latency.observe(time.monotonic() - self._until + LONGEST, messages)
        if not self._serving and (len(site.waiting) or (len(site.resting) and not self._resting)):
            self._serve_soon()
        if site.unfinished and not self._continuing:
            self._continuing = True
            self._loop.call_later(PAUSE, self._continue)

    def _somebody_waits(self) -> bool:
        assert self._site is not None
        return bool(len(self._site.waiting) or len(self._site.resting))

    def _serve_soon(self) -> None:
        """Not at once: uvloop writes when all callbacks of a round have run, and polls before the next round."""
        self._serving = True
        self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """A turn of what waits, when the messages of others have left."""
        site = self._site
        assert site is not None
        if site.opened and site.dirty and self._gave_way < GIVE_WAY:
            self._gave_way += 1
            self._loop.call_soon(self._serve)
            return
        self._serving = False
        self._gave_way = 0
        if len(site.waiting):
            site.serve(site.waiting, STRETCH, self.guarded)
        elif len(site.resting) and not self._resting:
            self._serve_heavy()

    def _serve_resting(self, site: Site) -> None:
        """Until as much is done as a stretch has room for. Prices are rough: one that takes too long ends as well."""
        until = time.monotonic() + SLICE

        def piece(work: Callable[[], None]) -> None:
            self.guarded(work)
            if time.monotonic() > until:
                site.effort = max(site.effort, site.room + 1)

        site.serve(site.resting, STRETCH, piece)

    def _rested(self) -> None:
        """Heavy clients have rested; whoever came in at the same time goes first, so there is another poll."""
        self._resting = False
        if not self._serving:
            self._serving = True
            self._loop.call_soon(self._serve_soon)

    def _serve_heavy(self) -> None:
        """Clients that take much are served in short stretches, and while there are others, with rests in between.

        Stretches that are not used up are added to each other: clients that wait for each answer rest as well.
        """
        site = self._site
        assert site is not None
        begin, site.owed = time.monotonic(), 0
        self._serve_resting(site)
        site.flush()  # what it sends to whomever is part of the stretch
        end = time.monotonic()
        self._rest = max(0.0, self._rest - (begin - self._served)) + 1.5 * (end - begin + site.owed / 1e6)
        self._served = end
        if site.contended and (len(site.resting) or self._rest > REST):
            self._resting = True
            self._loop.call_later(max(REST, self._rest), self._rested)
            self._rest = 0.0

    def _continue(self) -> None:
        site = self._site
        assert site is not None
        self._continuing = False
        site.open()
        until = time.monotonic() + SLICE
        for _ in range(len(site.unfinished)):
            piece = site.unfinished.popleft()
            if self.guarded(piece):
                site.unfinished.append(piece)
            if time.monotonic() > until:
                break

    def _ticked(self) -> None:
        site = self._site
        assert site is not None
        now = self._loop.time()
        self.longest = max(self.longest, now - self._due)
        self._due = now + TICK
        self._tick = self._loop.call_at(self._due, self._ticked)
        site.open()
        if not self._timing:
            self._run_timers(len(site.timers))  # those that they set for now come with the next tick

    def _run_timers(self, most: int) -> None:
        """Those that are due, in slices: thousands of sessions may end, and their wills fire, at one moment."""
        site = self._site
        assert site is not None
        site.open()
        until = time.monotonic() + SLICE
        for number in range(most):
            if (timer := site.timers.due(site.now)) is None:
                break
            self.guarded(timer.callback, *timer.args)
            if time.monotonic() > until:
                self._timing = True
                self._timer_slice = self._loop.call_later(PAUSE, self._run_timers, most - number - 1)
                return
        self._timing = False

    def guarded(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Runs it within a turn; a failure is a bug, which is reported and goes no further."""
        assert self._site is not None
        self._site.open()
        try:
            return callback(*args)
        except Exception:
            log.exception("bug", callback=getattr(callback, "__qualname__", repr(callback)))
            return None

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """On the loop: runs it in so many seconds, within a turn."""
        self._loop.call_later(seconds, self.guarded, callback)

    def call(self, callback: Callable[[], None]) -> None:
        """From any thread: runs it on the loop, within a turn."""
        self._loop.call_soon_threadsafe(self.guarded, callback)
