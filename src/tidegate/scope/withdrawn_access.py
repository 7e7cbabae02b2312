"""Disconnects whoever has lost their access: revoked users and certificates, and those who left the directory.

After each change of rules all sessions are looked at, in pieces (semantics, *Time*). Before that comes to a session,
whatever is decided for it asks `Subjects.fresh`, so nothing is sent or taken meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.scope.authenticator import Refused
from tidegate.scope.held_review import PIECE
from tidegate.session import Session
from tidegate.wire import Reason

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

REVIEW = 20  # sessions looked at per turn after a change of the rules: about a millisecond


class WithdrawnAccess:
    """The sessions of one scope that have to end."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.site = scope.site

    def review(self) -> None:
        """Looks at all sessions after a change, in pieces."""
        self.site.unfinished.append(self._review(self.site.generation).__next__)

    def _review(self, generation: int) -> Iterator[bool]:
        """Those without access go; held subscriptions of the others may come alive."""
        scope = self.scope
        for number, session in enumerate(list(scope.sessions.values()), 1):
            if generation != self.site.generation:
                break  # another change has begun another review
            if (refusal := scope.subjects.reauthorize(session)) is not None:
                self.withdraw(session, refusal)
            else:
                if session.deferred is not None:
                    session.pump()  # its connection may be good enough now
                yield from self._wake(session, generation)
            if number % REVIEW == 0:
                yield True
        else:
            scope.path.monitoring.states.settle()
        yield False

    def _wake(self, session: Session, generation: int) -> Iterator[bool]:
        """A session may have many subscriptions."""
        effort = 0
        for looked in self.scope.subscribing.waking(session) if session.subscriptions else ():
            effort += looked
            if effort > PIECE:
                effort = 0
                yield True
                if generation != self.site.generation:
                    break

    def withdraw(self, session: Session, refusal: Refused) -> None:
        """Who has no access any more is disconnected.

        A session whose owner is no more ends: nobody who is called the same later comes back to it.
        """
        self.disconnect(session, "your access has been withdrawn")
        if refusal.ended and self.scope.sessions.get((session.principal, session.client)) is session:
            self.scope.lifetime.end(session)

    def disconnect(self, session: Session, why: str) -> None:
        """Its will is dropped, too."""
        self.scope.wills.drop(session)
        if session.connection is not None:
            session.connection.close(Reason.NOT_AUTHORIZED, why)
