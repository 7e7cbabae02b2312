"""Where the clients of a scope are in the connection graph, for the watch over forbidden flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.flow.presence import Presence
from tidegate.flow.watch import Watch
from tidegate.gate import RuleSet
from tidegate.session import Session, Subject
from tidegate.wire import Reason

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope


class Presences:
    """The connected clients of one scope that could open a forbidden flow."""

    def __init__(self, scope: Scope, rules: RuleSet) -> None:
        self.scope = scope
        self.watch = Watch(rules.space, rules.brokering, ())
        self._present: dict[Session, Presence] = {}

    def of(self, subject: Subject, rules: RuleSet | None = None) -> Presence:
        """Where a client is in the connection graph, under these rules or those in force."""
        types = (rules or self.scope.gate.rules).brokering.types(subject)
        return Presence(
            client=subject.name,
            enters=self.scope.entrance.name,
            leaves=self.scope.name,
            inward=types.inward,
            outward=types.outward,
        )

    def observe(self, watch: Watch) -> None:
        """Another watch over flows, which has to know who is here."""
        self.watch = watch
        self._present.clear()
        for session in list(self.scope.sessions.values()):
            if session.connection is None or not watch.concerns(session.subject.name):
                continue
            if not self.scope.subjects.fresh(session):
                continue  # the review of the change sends it away
            if why := watch.objection(self.of(session.subject)):
                session.connection.close(Reason.NOT_AUTHORIZED, why)  # it came while the rules were changing
            else:
                self.came(session)

    def came(self, session: Session) -> None:
        """A client has come, or is somebody else now."""
        self.left(session)
        if self.watch.concerns(session.subject.name):
            presence = self._present[session] = self.of(session.subject)
            self.watch.came(presence)

    def left(self, session: Session) -> None:
        if (presence := self._present.pop(session, None)) is not None:
            self.watch.left(presence)
