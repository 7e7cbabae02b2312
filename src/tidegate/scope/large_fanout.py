"""Receivers of one message that are decided later, because all of them at once would hold the loop.

A message with many receivers whose rules read it is one piece of work for each of them. Whoever is left when `PIECE` is
used up is owed the message undecided: it waits in the queue of the session, where it is decided when it is sent, as
everything that waits. The queues are worked off in pieces, with turns of others in between.

A session whose link has monitors is never postponed: these see each message in the order in which it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tidegate.session import Delivery, Grant, Message, Session

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

PIECE: Final = 0.001  # seconds


class LargeFanout:
    """The receivers of one scope that are decided later."""

    def __init__(self, scope: Scope, stopwatch: Callable[[], float]) -> None:
        self._site = scope.site
        self._stopwatch = stopwatch
        self._waiting: deque[Session] = deque()

    def postpone(self, grants: Iterable[Grant], message: Message, source: Session | None) -> int:
        """Owes them the message, undecided; to how many."""
        reached = 0
        idle = not self._waiting
        for grant in grants:
            session, wanted = grant.session, grant
            reached += 1
            if session is source:
                if grant.no_local:
                    continue
                wanted = grant.own or grant
            qos = min(message.qos, wanted.qos)
            retain = message.retain and wanted.retain_as_published
            session.postpone(Delivery(message, qos, retain, wanted.ids))
            self._waiting.append(session)
        if idle and self._waiting:
            self._site.unfinished.append(self._go_on)
        return reached

    def _go_on(self) -> bool:
        """A piece of the work; True if there is more."""
        until = self._stopwatch() + PIECE
        while self._waiting:
            session = self._waiting.popleft()
            try:
                if session.connection is not None:  # else it may have ended, and is nobody any more
                    session.pump()
            except Exception:  # a bug, which is reported: it does not keep the others waiting
                if self._waiting:
                    self._site.unfinished.append(self._go_on)
                raise
            if self._stopwatch() > until:
                break
        return bool(self._waiting)
