"""When the default connection of a link is overloaded, and when it may carry again.

It is overloaded when its queue is longer than the bound at `LOOKS` looks in a row and does not become shorter. It may
carry again when `restore` has passed and the queue is shorter than half of the bound. If it is overloaded again before
it has carried for as long as it was spared, it is spared twice as long: so it does not flap.
"""

from __future__ import annotations

from typing import Final

from tidegate.policy.failover import Failover

LOOKS: Final = 3
MOST: Final = 16  # times as long as it was spared first


class Overload:
    """What is known of the load of one link's default connection."""

    def __init__(self, strategy: Failover, now: float) -> None:
        self._bound = strategy.overload
        self._spared = strategy.restore or 0.0  # seconds
        self._factor = 1
        self._overloaded = False  # it was, before
        self._carries_since = now
        self._until = now  # so long it is spared
        self._longest = 0  # the queue at the last look
        self._looks = 0

    def look(self, now: float, queue: int, carries: bool) -> bool:
        """Whether the default, if it carries, is overloaded."""
        if self._bound is None or not carries or queue <= self._bound:
            self._looks = 0
        elif queue >= self._longest or not self._looks:
            self._looks += 1
        else:
            self._looks = 1  # it catches up
        self._longest = queue
        return self._looks >= LOOKS

    def over(self, now: float, queue: int) -> bool:
        """Whether the default may carry again."""
        return now >= self._until and (self._bound is None or queue * 2 <= self._bound)

    def carries(self, now: float, default: bool, overloaded: bool) -> None:
        """Another connection carries; because of `overloaded`."""
        self._looks = 0
        if default:
            self._carries_since = now
        elif overloaded:
            again = self._overloaded and now - self._carries_since < self._spared * self._factor
            self._factor = min(MOST, self._factor * 2) if again else 1
            self._overloaded = True
            self._until = now + self._spared * self._factor
