"""Wills: published when a client is lost, after their delay, and decided like any other publish at that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.policy.capability import BEFORE, NOTHING
from tidegate.session import Session, forwarded
from tidegate.wire import Will

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

SMALL: Final = 1024  # bytes of a will that are part of what a session counts for


def keep(session: Session, will: Will | None) -> None:
    """Sets the will of a session. Its bytes count as queued ones: they are kept for as long as the session is."""
    more = size(will) - size(session.will)
    if more:
        session.site.accounts.add(session.usage, "queued_bytes", more)
    session.will = will


def size(will: Will | None) -> int:
    """Bytes that a will counts for; large ones only."""
    if will is None:
        return 0
    properties = sum(len(name) + len(value) for name, value in will.properties.user_properties)
    kept = len(will.payload) + len(will.topic) + properties + len(will.properties.correlation_data or b"")
    return kept if kept > SMALL else 0


class Wills:
    """The wills of one scope's sessions."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.site = scope.site

    def fire_later(self, session: Session, seconds: float) -> None:
        """Fires the will of a session after its delay, unless the client is back or the session ends before."""
        session.will_timer = self.site.timers.at(self.site.now + seconds, self.fire, session)

    def fire(self, session: Session) -> None:
        """The will, decided now like any other publish."""
        will = session.will
        keep(session, None)
        session.will_timer = None
        if will is None:
            return
        if session.certificate is not None:
            session.generation = -1  # it may have expired since it was looked at
        if not self.scope.subjects.fresh(session):
            if session.row:
                session.save()
            return
        properties = will.properties
        capability = session.subject.capability
        if capability is not None and session.will_proven:
            capability.ledger.shown = BEFORE  # with CONNECT
        try:
            self.scope.entrance.path.send(
                session.inward,
                will.topic,
                will.payload,
                qos=will.qos,
                retain=will.retain,
                properties=forwarded(properties),
                expiry=properties.message_expiry_interval,
                source=session,
            )
        finally:
            if capability is not None:
                capability.ledger.shown = NOTHING
        if session.row:
            session.save()

    def drop(self, session: Session) -> None:
        """semantics.md, Time: a revoked subject's will is dropped."""
        self.site.timers.cancel(session.will_timer)
        keep(session, None)
        session.will_timer = None
        if session.row:
            session.save()
