"""Wills: published when a client is lost, after their delay, and decided like any other publish at that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.policy.capability import BEFORE, NOTHING
from tidegate.session import Session, forwarded

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope


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
        session.will = session.will_timer = None
        if will is None or not self.scope.subjects.fresh(session):
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
        session.will = session.will_timer = None
        if session.row:
            session.save()
