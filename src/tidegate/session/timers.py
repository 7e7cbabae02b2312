"""Things that are due later, on a monotonic clock that somebody else reads.

A heap of (deadline, sequence, timer). Cancelled timers stay in the heap until they come up; the heap is rebuilt
when more than half of it is cancelled, so that churn does not grow it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any


class Timer:
    """One thing that is due later."""

    __slots__ = ("args", "callback", "live")

    def __init__(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args
        self.live = True


class Timers:
    """All timers of a node."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = count()
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def at(self, deadline: float, callback: Callable[..., None], *args: Any) -> Timer:
        """Runs `callback` at the first `run` at or after `deadline`."""
        timer = Timer(callback, args)
        heapq.heappush(self._heap, (deadline, next(self._sequence), timer))
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Makes sure that it never runs; None and what has already run are fine."""
        if timer is None or not timer.live:
            return
        timer.live = False
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].live]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def due(self, now: float) -> Timer | None:
        """Takes the next timer that is due; the caller runs it, so that one failure does not stop the others."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            timer = heapq.heappop(heap)[2]
            if timer.live:
                timer.live = False
                return timer
            self._cancelled -= 1
        return None
