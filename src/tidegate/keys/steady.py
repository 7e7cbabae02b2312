"""A clock that never goes back, made from one that may.

It goes forward with the clock it is shown and stands still when that is set back. So what lasts for a time ends when
the clock has gone forward for that time, however often it was set back in between; a clock that jumps forward ends it
early. Unless it has been set back, it shows the same time.

Show it times of one clock, in the order in which they were read: an older one looks like a clock that was set back, and
with each of them it runs further ahead.
"""

from __future__ import annotations


class Steady:
    """Call it with the time to get the steady time."""

    __slots__ = ("_ahead", "_last")

    def __init__(self) -> None:
        self._last = float("-inf")
        self._ahead = 0.0

    def __call__(self, now: float) -> float:
        last = self._last
        if now != last:
            if now < last:
                self._ahead += last - now
            self._last = now
        return now + self._ahead
