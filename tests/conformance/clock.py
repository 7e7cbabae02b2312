"""The node's time, moved on by hand, so that no test waits for what takes seconds.

A site reads its clocks once per turn, through `on_open`. The clock stands behind that: it lets the node read its
clocks as always and adds what the test has let pass.
"""

from __future__ import annotations

import asyncio

from harness import PATIENCE, Live


class Clock:
    """Adds to the time a node sees."""

    def __init__(self, running: Live) -> None:
        self._site = running.node.site
        self._read = self._site.on_open
        self._site.on_open = self._opened
        self._ahead = 0.0

    def _opened(self) -> None:
        self._read()
        self._site.now += self._ahead
        self._site.wall += self._ahead

    async def advance(self, seconds: float) -> None:
        """Lets that much time pass; everything that was due by then has run when it returns."""
        self._ahead += seconds
        done = asyncio.Event()
        # timers run in the order of their deadlines, so this one is the last of those that are due
        self._site.timers.at(asyncio.get_running_loop().time() + self._ahead, done.set)
        async with asyncio.timeout(PATIENCE):
            await done.wait()
