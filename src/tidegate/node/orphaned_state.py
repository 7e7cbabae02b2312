"""What the store kept of each scope, until that scope is there to take it.

A scope may come with a later change of the configuration. Until then nothing of it is touched.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.authentication.authentication import Authentication
from tidegate.scope import Refused, Scope
from tidegate.session import Message, Session, StoredSession


class OrphanedState:
    """Sessions, retained messages and states of monitors, by scope."""

    def __init__(
        self,
        sessions: list[StoredSession],
        retained: Mapping[str, list[Message]],
        records: Mapping[str, Mapping[str, bytes]],
        named: Mapping[str, str],
    ) -> None:
        """`named`: the ids of principals whose sessions were stored before there were identities."""
        self._named = named
        self._sessions: dict[str, list[StoredSession]] = {}
        for session in sessions:
            self._sessions.setdefault(session.scope, []).append(session)
        self._retained = dict(retained)
        self._records = dict(records)

    def recall(self, scope: Scope) -> None:
        """Gives a scope the states of its monitors, once, under the rules that have these."""
        states = scope.path.monitoring.states
        states.restore(self._records.pop(states.room, {}))

    def restore(self, scope: Scope, authentication: Authentication) -> None:
        """Gives a scope its sessions and retained messages, once, before anybody enters it.

        A session whose owner is no more ends. One whose owner was renamed meanwhile is theirs under the new name.
        """
        for message in self._retained.pop(scope.name, ()):
            scope.retained.restore(message)
        sessions: list[Session] = []
        for record in self._sessions.pop(scope.name, ()):
            if scope.node_links is not None and scope.node_links.owns(record):
                scope.node_links.restore(record)
            else:
                sessions.append(scope.lifetime.restore(record))
        for session in sessions:
            if identity := self._named.get(session.principal):
                scope.lifetime.adopt(session, identity)
        self._rename(scope, authentication)
        for session in sessions:
            if authentication.ended(session):
                scope.withdrawn_access.withdraw(session, Refused(ended=True))
            elif not authentication.known(session):
                scope.wills.drop(session)

    def _rename(self, scope: Scope, authentication: Authentication) -> None:
        """Some may have another name than when the node ended."""
        known = {session.subject.identity for session in scope.sessions.values()}
        known.update(instance.identity for instance in scope.path.monitoring.states.instances.values())
        names = ((id, authentication.identities.name(id)) for id in known if id)
        scope.lifetime.rename({id: name for id, name in names if name is not None})

    def left(self) -> dict[str, tuple[int, int]]:
        """How many sessions and retained messages wait for scopes that are not there."""
        names = sorted({*self._sessions, *self._retained})
        return {name: (len(self._sessions.get(name, ())), len(self._retained.get(name, ()))) for name in names}
