"""How long what the guard knows of a client is kept: as long as the broker keeps its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.guard.guarded_session import GuardedSession
from tidegate.guard.service_session import PRINCIPAL
from tidegate.scope.session_lifetime import SessionLifetime
from tidegate.session import Connection, Session, StoredSession
from tidegate.wire import NONE, V5, Disconnect, Properties, Reason

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope


class GuardedLifetime(SessionLifetime):
    """The coming back, expiry and end of a guarded scope's sessions."""

    scope: GuardedScope

    def restore(self, record: StoredSession) -> Session:
        if not record.principal.startswith(PRINCIPAL):
            return super().restore(record)
        service = self.scope.service.session
        service.restore_from(record)
        return service

    def end(self, session: Session) -> None:
        if self.scope.owners.get(session.client) is session:
            del self.scope.owners[session.client]
        super().end(session)

    def disconnected(self, connection: Connection, packet: Disconnect | None, reason: Reason) -> None:
        session = connection.session
        if session.connection is connection and isinstance(session, GuardedSession):
            # Its will is the guard's: to the broker it always says goodbye.
            properties = NONE
            if packet is not None and (asked := packet.properties.session_expiry_interval) is not None:
                if session.upstream is not None and session.upstream.version == V5:
                    properties = Properties(session_expiry_interval=self.allowed_expiry(asked))
            session.leave(Disconnect(properties=properties))
        super().disconnected(connection, packet, reason)
