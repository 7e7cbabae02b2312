"""A share of the loop for work that no message waits for: commands over the control sockets.

While many messages flow, all such work together takes a tenth of the loop, and after each of its steps, which is what
runs from one `await` to the next, the loop is left to messages. While none flow it takes what it needs, one step in a
round of the loop. Whoever waits is served in the order of asking: one who asks for much does not keep others out.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, TypeVar

REST: Final = 9
"""Times what a step took that the loop is left to messages before the next one, while there are `MANY`."""
MANY: Final = 1000.0  # messages a second; while there are fewer, the rest is shorter
SAMPLE: Final = 0.05  # seconds over which they are counted
LONGEST: Final = 0.1  # seconds of such a rest, whatever came before it
SHORTEST: Final = 0.001  # seconds: timers of the loop have no shorter ones; what is less is added to the next rest

T = TypeVar("T")


class Flow:
    """How many messages flow, as a part of `MANY`; 1 if there are more."""

    def __init__(self, messages: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        """`messages`: how many there have been."""
        self._messages = messages
        self._clock = clock
        self._at = clock()
        self._counted = messages()
        self._part = 0.0

    def __call__(self) -> float:
        now = self._clock()
        if now - self._at >= SAMPLE:
            counted = self._messages()
            self._part = min(1.0, (counted - self._counted) / (now - self._at) / MANY)
            self._at, self._counted = now, counted
        return self._part


class LoopShare:
    """Gives turns, one after the other."""

    def __init__(self, flow: Callable[[], float] = lambda: 0.0) -> None:
        self._flow = flow
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._paid = 0.0
        """When the loop has been left to messages for as long as they may ask for what was done."""

    def turn(self) -> asyncio.Future[None] | None:
        """None: it may begin at once. `spent` ends it."""
        if not self._taken:
            self._taken = True
            return None
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        return turn

    def spent(self, seconds: float) -> None:
        """A turn is over, which took so long."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        self._paid = min(max(self._paid, now) + seconds * REST * self._flow(), now + LONGEST)
        if self._paid - now < SHORTEST:
            loop.call_soon(self._next)
        else:
            loop.call_later(self._paid - now, self._next)

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else whoever waited has gone
                turn.set_result(None)
                return
        self._taken = False


class Sharing(Generic[T]):
    """A coroutine each of whose steps takes a turn. One that is cancelled, or late, is told so at once."""

    def __init__(self, share: LoopShare, work: Coroutine[Any, Any, T]) -> None:
        self._share = share
        self._work = work

    def __await__(self) -> Generator[Any, None, T]:
        error: BaseException | None = None
        while True:
            mine = False
            if error is None:
                turn = self._share.turn()
                try:
                    if turn is not None:
                        yield from turn
                except BaseException as thrown:  # noqa: BLE001 - it is thrown into the work
                    error = thrown
                mine = turn is None or (turn.done() and not turn.cancelled())
            begun = time.perf_counter()
            try:
                awaited = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                if mine:
                    self._share.spent(time.perf_counter() - begun)
            error = None
            try:
                yield awaited
            except BaseException as thrown:  # noqa: BLE001
                error = thrown
