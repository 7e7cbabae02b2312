"""Connections that came with a capability, a certificate or the token of an issuer: they end when it does.

What is decided is decided by the capability's time anyway, and who comes by the certificate's. Here the connection is
closed, by a timer that the wall clock cannot hold up; and since the wall clock may also be put forward, it is looked at
once a second while anybody is connected with either, and everybody is looked at when it has jumped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.session import Session, Timer

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

LOOK = 1.0  # seconds between looks at the wall clock
JUMP = 0.5  # seconds by which it has to differ from the steady one, more than before, to have been put
LONG = 7 * 86400.0  # seconds that a timer waits at most before it looks again


class CredentialExpiry:
    """Those who are connected with something that ends."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.site = scope.site
        self._watched: dict[Session, tuple[str, Timer]] = {}  # the id of its capability, if any, and when to look at it
        self._holders: dict[str, set[Session]] = {}  # by the id of their capability
        self._looking: Timer | None = None
        self._ahead = 0.0  # of the wall clock over the steady one

    def came(self, session: Session) -> None:
        """It connected, or authenticated again: what it came with before does not count any more."""
        self.left(session)
        capability = session.subject.capability
        if capability is None and session.certificate is None and session.subject.person is None:
            return
        if capability is not None:
            self._holders.setdefault(capability.id, set()).add(session)
        self._arm(session)
        if self._looking is None:
            self._ahead = self.site.wall - self.site.steady
            self._looking = self.site.timers.at(self.site.now + LOOK, self._look)

    def left(self, session: Session) -> None:
        """Its connection has ended."""
        watched = self._watched.pop(session, None)
        if watched is None:
            return
        id, timer = watched
        self.site.timers.cancel(timer)
        holders = self._holders.get(id, set())
        holders.discard(session)
        if id and not holders:
            del self._holders[id]

    def holders(self, id: str) -> list[Session]:
        """Those who are connected with this capability."""
        return list(self._holders.get(id, ()))

    def shown(self) -> list[Session]:
        """Those who are connected with a certificate, a capability or a token."""
        return list(self._watched)

    def _left(self, session: Session) -> tuple[float, str]:
        """In how many seconds the first of what it came with ends, and what that is."""
        subject = session.subject
        came_with = (
            ("capability", subject.capability),
            ("certificate", session.certificate),
            ("token", subject.person),
        )
        wall, steady = self.site.wall, self.site.steady
        return min((each.left(wall, steady), what) for what, each in came_with if each is not None)

    def _arm(self, session: Session) -> None:
        capability, (left, _) = session.subject.capability, self._left(session)
        timer = self.site.timers.at(self.site.now + max(0.0, min(left, LONG)), self._due, session)
        self._watched[session] = ("" if capability is None else capability.id, timer)

    def _due(self, session: Session) -> None:
        left, what = self._left(session)
        if left > 0:
            self._arm(session)
        else:
            self.scope.withdrawn_access.disconnect(session, f"your {what} has expired")

    def _look(self) -> None:
        self._looking = None
        if not self._watched:
            return
        ahead = self.site.wall - self.site.steady
        if abs(ahead - self._ahead) > JUMP:
            self._ahead = ahead
            for session, (_, timer) in list(self._watched.items()):
                self.site.timers.cancel(timer)
                self._due(session)
        self._looking = self.site.timers.at(self.site.now + LOOK, self._look)
