"""The loop's side of a site: opens and closes its turns, runs its timers, continues long work.

Nothing that runs here can take the loop down: a failing callback is reported and the next one runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from tidegate.session import Site

TICK = 0.05  # seconds between looks at the timers
BUSY = 2048  # bytes read in a turn that make it worth waiting for more
LONGEST = 0.001  # seconds that a busy turn may wait for more before it writes
PAUSE = 0.001  # before work that waits for a slow reader is tried again
SLICE = 0.003  # seconds of long work in one turn; the rest has to wait for the next

log = structlog.get_logger("tidegate.node")


class Turns:
    """Drives one site."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._site: Site | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._continuing = False
        self._read = 0
        self._until = 0.0
        self.longest = 0.0  # the longest delay of a tick seen: how late the loop was

    def drive(self, site: Site) -> None:
        self._site = site
        self._due = self._loop.time() + TICK
        self._tick = self._loop.call_at(self._due, self._ticked)

    def stop(self) -> None:
        if self._tick is not None:
            self._tick.cancel()

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
        if read > BUSY and read != self._read and time.monotonic() < self._until:
            # busy: what the next poll brings goes out in the same write. It does not block, and a poll that brings
            # nothing ends the turn.
            self._read = read
            self._loop.call_soon(self._close)
            return
        site.close()
        if site.unfinished and not self._continuing:
            self._continuing = True
            self._loop.call_later(PAUSE, self._continue)

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
        while (timer := site.timers.due(site.now)) is not None:
            self.guarded(timer.callback, *timer.args)

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
