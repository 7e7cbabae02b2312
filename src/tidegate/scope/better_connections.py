"""What the connection that carries a link is too weak for takes a better one that stands by (SEC-REDS, figure 1.6).

Such a message waits (`session.waiting_deliveries`), and so does what comes behind it of the same publisher and topic.
If a standby connection is good enough, a copy of each goes over that, in their order; the message itself goes on
waiting until the copy has been acknowledged. So nothing is lost with the standby connection, and what has gone over it
and goes over another one later is known there by its id.

Nothing of a publisher and topic goes this way before what is on its way of it over the connection that carries.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final

from tidegate.session import Delivery, Message

if TYPE_CHECKING:
    from tidegate.scope.node_links import LinkEnd
    from tidegate.scope.standby_connections import StandbyEnd

AGAIN: Final = 0.05  # seconds before what could not go is looked at again
PIECE: Final = 200  # messages that are looked at in one go


class BetterConnections:
    """The standby connections of one link, for what waits for a better one."""

    def __init__(self, end: LinkEnd) -> None:
        self._end = end
        self._copies: dict[Delivery, tuple[Delivery, StandbyEnd, Hashable]] = {}
        """What is on its way over standby connections: the message that waits, over which, and of what stream."""
        self._taken: set[Delivery] = set()  # of those that wait
        self._streams: dict[Hashable, tuple[StandbyEnd, int]] = {}  # over which those go, and how many are on their way
        self._looking = False

    def look(self) -> None:
        """Something waits, or there is another connection."""
        end = self._end
        if end.standbys and end.session.deferred and not self._looking:
            self._looking = True
            end.site.unfinished.append(self._look().__next__)

    def _look(self) -> Iterator[bool]:
        session = self._end.session
        busy: set[Hashable] = set()  # they have to wait for what is before them
        before = (*(session._inflight or {}).values(), *(session._queue or ()))
        for number, delivery in enumerate(before, 1):
            busy.add(session.decider.stream(delivery.message))
            if number % PIECE == 0:
                yield True
        left = False
        for number, delivery in enumerate(tuple(session.deferred or ()), 1):
            if delivery not in self._taken and not self._sent(delivery, busy):
                left = True
            if number % PIECE == 0:
                yield True
        self._looking = False
        if left and self._end.standbys:
            self._end.site.timers.at(self._end.site.now + AGAIN, self.look)
        yield False

    def _sent(self, delivery: Delivery, busy: set[Hashable]) -> bool:
        session = self._end.session
        stream = session.decider.stream(delivery.message)
        if stream in busy or (session.leaving and not delivery.seen) or session.connection is None:
            busy.add(stream)
            return False
        used, count = self._streams.get(stream, (None, 0))
        for standby in (used,) if used is not None else tuple(self._end.standbys.values()):
            shown = session.decider.permits(standby.session, delivery) if standby.session.takes_more else None
            if isinstance(shown, Message):
                copy = Delivery(delivery.message, delivery.qos, delivery.retain, delivery.ids, delivery.group)
                copy.seen = True
                self._copies[copy] = delivery, standby, stream
                self._taken.add(delivery)
                self._streams[stream] = standby, count + 1
                standby.session.take(copy, shown)
                return True
        busy.add(stream)
        return False

    def settled(self, copy: Delivery) -> None:
        """The other end has acknowledged it."""
        found = self._forget(copy)
        session = self._end.session
        if found is not None and session.deferred is not None and session.settle(found):
            self.look()

    def lost(self, standby: StandbyEnd) -> None:
        """A standby connection has ended, or carries from now on: what went over it goes on waiting."""
        for copy in [copy for copy, (_, over, _) in self._copies.items() if over is standby]:
            self._forget(copy)
        self.look()

    def _forget(self, copy: Delivery) -> Delivery | None:
        found = self._copies.pop(copy, None)
        if found is None:
            return None
        delivery, standby, stream = found
        self._taken.discard(delivery)
        _, count = self._streams.pop(stream)
        if count > 1:
            self._streams[stream] = standby, count - 1
        return delivery
