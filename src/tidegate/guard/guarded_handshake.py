"""CONNECT in a guarded scope: whoever may come in here gets a connection to the broker, and CONNACK when that has one.

A client identifier belongs to whoever came with it first, as long as the broker may keep a session for it: it is one
name there, whoever uses it. Another principal is refused before the broker hears of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidegate.config.links import Authenticate
from tidegate.guard.guarded_session import GuardedSession
from tidegate.guard.relayed_publishing import RelayedPublishing
from tidegate.guard.upstream import Upstream
from tidegate.scope import Refused
from tidegate.scope.authenticator import Authenticator
from tidegate.scope.handshake import RECEIVE_MAXIMUM, Admitted, Handshake
from tidegate.session import NEVER, Connection, Hold, Phase, Session
from tidegate.wire import V5, Connect, Properties, Reason

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope

TAKEN = Refused(
    reason=Reason.CLIENT_IDENTIFIER_NOT_VALID, text="somebody else has a session with this client identifier"
)


class GuardedHandshake(Handshake):
    """The connecting side of a guarded scope."""

    scope: GuardedScope

    def __init__(self, scope: GuardedScope, authenticator: Authenticator) -> None:
        super().__init__(scope, authenticator)
        self._dialed: dict[Connection, Upstream] = {}  # with those that are about to have a session
        self._claims: dict[str, list[str]] = {}  # by client identifier: the principals that come with it just now

    # -- the broker ----------------------------------------------------------------------------------------------

    def dial(
        self,
        connection: Connection,
        packet: Connect,
        principal: str,
        answered: Callable[[Upstream], None],
        refuse: Callable[[Refused], None],
        *,
        assigned: bool,
    ) -> None:
        """Opens a connection to the broker for a client. `answered` unless the client has gone meanwhile. `assigned`:
        the client identifier is of this node."""
        if self._owned_by_another(principal, packet.client_id):
            refuse(TAKEN)
            return

        client, claims = packet.client_id, self._claims.setdefault(packet.client_id, [])
        claims.append(principal)

        def done(upstream: Upstream) -> None:
            claims.remove(principal)
            if not claims:
                self._claims.pop(client, None)
            if connection.phase is not Phase.WAITING:
                self._dialed.pop(connection, None)
                upstream.close()
                return
            if upstream.refusal is not None:
                self._dialed.pop(connection, None)
            answered(upstream)
            if self._dialed.pop(connection, None) is not None:  # it was refused here
                upstream.close()

        upstream = Upstream(self.scope, self._greeting(connection, packet), done)
        upstream.assigned = assigned
        self._dialed[connection] = upstream
        connection.hold_reading(Hold.HANDSHAKE)
        self.scope.dial(upstream)

    def _owned_by_another(self, principal: str, client: str) -> bool:
        owner = self.scope.owners.get(client)
        if owner is not None:
            return owner.principal != principal
        return any(claim != principal for claim in self._claims.get(client, ()))

    def vouches(self, connection: Connection, packet: Connect) -> bool:
        """Whether it is this node, and not the broker, that knows who a client is."""
        if self.scope.settings.authenticate is Authenticate.HERE:
            return True
        return packet.username is None and connection.certificate is not None

    def awaited(self, client: str) -> bool:
        """Whether somebody comes with this client identifier just now."""
        return client in self._claims

    def _greeting(self, connection: Connection, packet: Connect) -> Connect:
        """What the broker is told of a client."""
        settings = self.scope.settings
        said = packet.properties
        properties = Properties()
        if packet.version == V5:
            expiry = said.session_expiry_interval
            properties = Properties(
                session_expiry_interval=None if not expiry else self.scope.lifetime.allowed_expiry(expiry),
                receive_maximum=said.receive_maximum,
                maximum_packet_size=settings.max_packet,
                request_response_information=said.request_response_information,
                user_properties=said.user_properties,
            )
        username, password = packet.username, packet.password
        if self.vouches(connection, packet):
            username, password = settings.username, settings.password
        return replace(packet, username=username, password=password, will=None, properties=properties, old=False)

    # -- the session ---------------------------------------------------------------------------------------------

    def _attach(self, connection: Connection, packet: Connect, admitted: Admitted) -> None:
        upstream = self._dialed.get(connection)
        if upstream is not None:
            self._attach_to(upstream, connection, packet, admitted)
            return
        assigned = not packet.client_id
        packet.client_id = admitted.subject.client

        def answered(upstream: Upstream) -> None:
            if upstream.refusal is not None:
                self._refuse(connection, packet, Refused(reason=upstream.refusal, text=upstream.error, rule="backend"))
            elif admitted.generation != self.site.generation:
                changed = Refused(reason=Reason.SERVER_BUSY, text="the rules have changed meanwhile; connect again")
                self._refuse(connection, packet, changed)
            else:
                self._attach_to(upstream, connection, packet, admitted)

        def refuse(why: Refused) -> None:
            self._refuse(connection, packet, why)

        self.dial(connection, packet, admitted.principal, answered, refuse, assigned=assigned)

    def _attach_to(self, upstream: Upstream, connection: Connection, packet: Connect, admitted: Admitted) -> None:
        assert upstream.connack is not None
        key = (admitted.principal, admitted.subject.client)
        old = self.scope.sessions.get(key)
        if old is not None and not upstream.connack.session_present:  # the broker keeps nothing of it any more
            if old.connection is not None:
                old.connection.close(Reason.SESSION_TAKEN_OVER)
            if self.scope.sessions.get(key) is old:
                self.scope.lifetime.end(old)
        super()._attach(connection, packet, admitted)
        if upstream.session is not None and upstream.opened:
            upstream.begin()

    def _attached(self, connection: Connection, session: Session) -> None:
        assert isinstance(session, GuardedSession)
        upstream = self._dialed.pop(connection)
        publishing = RelayedPublishing(connection, upstream)
        connection.publishing = connection.reader.publishing = publishing
        session.relaying, session.upstream, session.asked = publishing, upstream, None
        upstream.attach(session)
        publishing.upstream = upstream

    def _present(self, connection: Connection, old: Session | None) -> bool:
        upstream = self._upstream(connection)
        return upstream.connack is not None and upstream.connack.session_present

    def _upstream(self, connection: Connection) -> Upstream:
        session = connection.session
        assert isinstance(session, GuardedSession)
        assert session.upstream is not None
        return session.upstream

    def _expiry(self, session: Session, packet: Connect) -> None:
        super()._expiry(session, packet)

    def _connack(self, packet: Connect, session: Session, client: str, keep_alive: int) -> Properties:
        """What both can do."""
        said = super()._connack(packet, session, client, keep_alive)
        assert isinstance(session, GuardedSession)
        assert session.upstream is not None
        assert session.upstream.connack is not None
        broker = session.upstream.connack.properties
        changes: dict[str, Any] = {"assigned_client_identifier": client} if session.upstream.assigned else {}
        for name in (
            "maximum_qos",
            "retain_available",
            "wildcard_subscription_available",
            "shared_subscription_available",
            "subscription_identifier_available",
        ):
            if (offered := getattr(broker, name)) is not None:
                ours = getattr(said, name)
                changes[name] = offered if ours is None else min(offered, ours)
        if broker.receive_maximum is not None:
            changes["receive_maximum"] = min(broker.receive_maximum, said.receive_maximum or RECEIVE_MAXIMUM)
        if broker.session_expiry_interval is not None:
            changes["session_expiry_interval"] = broker.session_expiry_interval
        if broker.server_keep_alive is not None:
            changes["server_keep_alive"] = min(broker.server_keep_alive, keep_alive or NEVER)
        if broker.response_information is not None:
            changes["response_information"] = broker.response_information
        return replace(said, **changes)
