"""A share of the loop for work that no message waits for: commands over the control sockets.

While messages flow, all such work together takes one part in `REST + 1` of the loop, and no more than one step of it,
from one `await` to the next, runs in a round of the loop. While none flow it takes what it needs, still one step a
round. Whoever waits is served in the order of asking, so that one who asks for much does not keep others out.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, TypeVar

REST: Final = 19
"""Times what a step took that the loop is left to messages before the next one, while there are any."""
LONGEST: Final = 0.1  # seconds of such a rest, whatever came before it
SHORTEST: Final = 0.001  # seconds: timers of the loop have no shorter ones; what is less is added to the next rest

T = TypeVar("T")


class LoopShare:
    """Gives turns, one after the other."""

    def __init__(self, busy: Callable[[], bool] = lambda: False) -> None:
        """`busy`: whether messages flow."""
        self._busy = busy
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
        self._paid = min(max(self._paid, now) + seconds * REST, now + LONGEST) if self._busy() else now
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
                except BaseException as thrown:
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
            except BaseException as thrown:
                error = thrown
