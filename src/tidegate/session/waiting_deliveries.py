"""Deliveries that wait for a better connection of their session (semantics, *Levels and demands*).

A QoS 1 or 2 message that the present connection is too weak for waits here, and so does every later one of the same
publisher and topic (a *stream*), so that none overtakes another. What waits has a bound of its own: a quarter of that
of the queue.

Here are only deliveries of a session that is connected; when its connection ends, or becomes another one by a change
of the rules, they go back to where they were, and are decided again when they are sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING

from tidegate.session.link import Link
from tidegate.session.message import Delivery
from tidegate.session.runtime import Limits

if TYPE_CHECKING:
    from tidegate.session.session import Session


class WaitingDeliveries:
    """What waits, in its order."""

    __slots__ = ("_streams", "_waiting", "bytes", "link", "pids")

    def __init__(self, link: Link) -> None:
        self.link = link  # what is too weak
        self.bytes = 0
        self.pids: set[int] = set()  # of those that were on their way: nothing else may be sent under these
        self._waiting: deque[tuple[Hashable, Delivery]] = deque()
        self._streams: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Delivery]:
        return (delivery for _, delivery in self._waiting)

    def holds(self, stream: Hashable) -> bool:
        """Whether something of this publisher and topic waits."""
        return stream in self._streams

    def add(self, stream: Hashable, delivery: Delivery) -> None:
        self._waiting.append((stream, delivery))
        self._streams[stream] = self._streams.get(stream, 0) + 1
        self.bytes += delivery.message.size
        if delivery.pid:
            self.pids.add(delivery.pid)

    def remove(self, delivery: Delivery) -> bool:
        """It has been delivered another way; whether it waited here."""
        for at, (stream, each) in enumerate(self._waiting):
            if each is delivery:
                del self._waiting[at]
                self._left(stream, delivery)
                return True
        return False

    def _left(self, stream: Hashable, delivery: Delivery) -> None:
        self.bytes -= delivery.message.size
        self.pids.discard(delivery.pid)
        self._streams[stream] -= 1
        if not self._streams[stream]:
            del self._streams[stream]

    def excess(self, limits: Limits, owed_too_much: Callable[[], bool]) -> Iterator[Delivery]:
        """Takes out the oldest as long as there are more than may wait, here or for its user and the node."""
        while self._waiting and (
            len(self._waiting) > -(-limits.queue_messages // 4)
            or self.bytes > -(-limits.queue_bytes // 4)
            or owed_too_much()
        ):
            stream, delivery = self._waiting.popleft()
            self._left(stream, delivery)
            yield delivery


def waits_behind(session: Session, deferred: WaitingDeliveries, delivery: Delivery) -> bool:
    """Whether one before it waits for a better connection; then it does, too."""
    stream = session.decider.stream(delivery.message)
    if not deferred.holds(stream):
        return False
    session.defer_in(stream, delivery, session.outward)
    return True
