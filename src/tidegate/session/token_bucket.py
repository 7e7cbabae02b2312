"""A token bucket on somebody else's clock."""

from __future__ import annotations


class Bucket:
    """`rate` a second on average, `burst` at once."""

    __slots__ = ("burst", "last", "rate", "tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = max(burst, 1.0)
        self.tokens = self.burst
        self.last = now

    def spend(self, amount: float, now: float) -> float:
        """Takes `amount`; how many seconds until it is paid for (0: at once)."""
        self.tokens = min(self.burst, self.tokens + (now - self.last) * self.rate) - amount
        self.last = now
        return -self.tokens / self.rate if self.tokens < 0 else 0.0

    def wait(self, now: float) -> float:
        """How many seconds until there is one (0: there is)."""
        self.spend(0, now)
        return max(0.0, 1 - self.tokens) / self.rate

    def afford(self, now: float) -> bool:
        """Takes one if there is one."""
        self.tokens = min(self.burst, self.tokens + (now - self.last) * self.rate)
        self.last = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True
