"""How much one caller may ask: so many requests a second by token, by address, and wrong tokens by address.

Buckets are made when first used; when there are too many of them, the one that was not used for longest is forgotten.
Changes take the node a while and follow one another there: how many are under way is bounded as well, so that whoever
asks for many of them does not keep everybody else waiting.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from tidegate.addresses import network
from tidegate.api.problems import Kind, Problem
from tidegate.bounded import Newest
from tidegate.session.token_bucket import Bucket

KEPT: Final = 10_000  # buckets of each sort
BURST: Final = 2.0  # seconds whose requests may come at once
GUESSES: Final = 1.0  # wrong tokens a second from one address
GUESSED: Final = 200.0  # at once; right ones that are checked at the same time count until they are
REGISTRATIONS: Final = 0.2  # of sources a second from one address, without a token
REGISTERED: Final = 10.0  # at once
CHANGING: Final = 2  # changes that are with the node at a time: one is made while the next one arrives
CHANGES: Final = 64  # of one administrator that are under way
OWN_CHANGES: Final = 2  # of one user or source


@dataclass(slots=True)
class _Limit:
    """So many a second for each key. Calling it takes one; Problem if there is none."""

    who: str
    rate: float
    burst: float
    clock: Callable[[], float]
    key: Callable[[str], str] = str
    buckets: Newest[str, Bucket] = field(default_factory=lambda: Newest(KEPT))

    def __call__(self, whose: str) -> None:
        now, key = self.clock(), self.key(whose)
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = Bucket(self.rate, self.burst, now)
        self.buckets.move_to_end(key)
        wait = bucket.spend(1.0, now)
        if wait > 0:
            bucket.tokens += 1.0  # who is refused does not pay
            seconds = math.ceil(wait)
            remedy = f"wait {seconds} s, then ask more slowly"
            headers = {"Retry-After": str(seconds)}
            raise Problem(Kind.TOO_MANY, f"too many requests of {self.who}", remedy, headers=headers)

    def give_back(self, whose: str) -> None:
        if (key := self.key(whose)) in self.buckets:
            self.buckets[key].tokens += 1.0


class Rates:
    def __init__(self, token: float, address: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.token = _Limit("this token", token, token * BURST, clock)
        self.address = _Limit("your address", address, address * BURST, clock, network)
        self.guess = _Limit("your address with wrong tokens", GUESSES, GUESSED, clock, network)
        """Of an address, for a token that was never seen before; given back if it is a good one."""
        self.registration = _Limit("your address to register sources", REGISTRATIONS, REGISTERED, clock, network)
        """Of an address, for somebody who has no token."""


class Turns:
    def __init__(self) -> None:
        self._places = asyncio.Semaphore(CHANGING)
        self._kept = asyncio.Semaphore(1)
        self._under_way: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, who: str, most: int, *, urgent: bool = False) -> AsyncIterator[None]:
        """Waits for it; Problem if so many of theirs are under way already. `urgent`: an administrator's, for which a
        place is kept."""
        if self._under_way[who] >= most:
            raise Problem(
                Kind.TOO_MANY,
                f"{most} changes of yours are under way already",
                "wait for their answers, then send the next one",
                headers={"Retry-After": "1"},
            )
        self._under_way[who] += 1
        try:
            async with self._kept if urgent and self._places.locked() else self._places:
                yield
        finally:
            self._under_way[who] -= 1
            if not self._under_way[who]:
                del self._under_way[who]
