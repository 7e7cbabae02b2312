"""CONNECT in a guarded scope: whoever may come in here gets a connection to the broker, and CONNACK when that has one.

A client identifier belongs to whoever came with it first, as long as the broker may keep a session for it: it is one
name there, whoever uses it. Another principal is refused before the broker hears of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tidegate.config.scopes import Authenticate, Gone
from tidegate.guard.client_window import ClientWindow
from tidegate.guard.dialing import Dialing, greeting_of, is_final
from tidegate.guard.guarded_session import GuardedSession
from tidegate.guard.relayed_authentication import RelayedAuthentication
from tidegate.guard.relayed_publishing import RelayedPublishing
from tidegate.guard.upstream import Upstream
from tidegate.scope import Refused
from tidegate.scope.authenticator import Authenticator
from tidegate.scope.handshake import RECEIVE_MAXIMUM, Admitted, Handshake
from tidegate.session import NEVER, Connection, Hold, Session
from tidegate.wire import V5, Auth, Connect, Properties, Reason

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope

FIRST: Final = 0.1  # seconds before the second attempt to reach a broker that is gone
LONGEST: Final = 5.0  # and between attempts at most

TAKEN = Refused(
    reason=Reason.CLIENT_IDENTIFIER_NOT_VALID, text="somebody else has a session with this client identifier"
)
NO_METHODS = Refused(
    reason=Reason.BAD_AUTHENTICATION_METHOD,
    text="the broker behind this node speaks MQTT 3.1.1, which has no enhanced authentication",
    rule="backend",
)


class GuardedHandshake(Handshake):
    """The connecting side of a guarded scope."""

    scope: GuardedScope

    def __init__(self, scope: GuardedScope, authenticator: Authenticator) -> None:
        super().__init__(scope, authenticator)
        self._dialed: dict[Connection, Upstream] = {}  # with those that are about to have a session
        self._greetings: dict[Connection, Connect] = {}  # with which the broker is told of them again
        self._receive_maximum: int | None = None  # of whoever gets a session just now
        self._claims: dict[str, list[str]] = {}  # by client identifier: the principals that come with it just now

    def _unacceptable(self, packet: Connect) -> Refused | None:
        will, abilities = packet.will, self.scope.settings.abilities
        if will is not None and will.qos > abilities.qos:
            return Refused(reason=Reason.QOS_NOT_SUPPORTED, text="the broker does not take the QoS of the will")
        if will is not None and will.retain and not abilities.retain:
            return Refused(reason=Reason.RETAIN_NOT_SUPPORTED, text="the broker takes no retained wills")
        if will is not None and not abilities.names(will.topic):
            return Refused(reason=Reason.TOPIC_NAME_INVALID, text="the broker does not take the topic of the will")
        return super()._unacceptable(packet)

    # -- enhanced authentication ---------------------------------------------------------------------------------

    def _unknown_method(self, connection: Connection, packet: Connect, method: str) -> None:
        """The broker may know it."""
        if self.scope.settings.authenticate is Authenticate.HERE:
            super()._unknown_method(connection, packet, method)
        elif self.scope.service.version != V5:
            self._refuse(connection, packet, NO_METHODS)
        else:
            connection.authentication = RelayedAuthentication(connection, method)
            self._authenticate(connection, packet)
            connection.release_reading(Hold.HANDSHAKE)  # for AUTH

    def auth(self, connection: Connection, packet: Auth) -> None:
        relayed = connection.authentication
        if isinstance(relayed, RelayedAuthentication):
            relayed.to_broker(packet)
        else:
            super().auth(connection, packet)

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
        if self.scope.service.unfit:
            refuse(Refused(reason=Reason.SERVER_UNAVAILABLE, text=self.scope.service.unfit, rule="backend"))
            return

        client, claims = packet.client_id, self._claims.setdefault(packet.client_id, [])
        claims.append(principal)

        def arrived(upstream: Upstream) -> None:
            upstream.assigned = assigned
            if upstream.refusal is None:
                self._dialed[connection] = upstream
            answered(upstream)
            if self._dialed.pop(connection, None) is not None:  # it was refused here
                upstream.close()

        def ended() -> None:
            claims.remove(principal)
            if not claims:
                self._claims.pop(client, None)

        connection.hold_reading(Hold.HANDSHAKE)
        Dialing(self.scope, connection, packet, principal, arrived, ended)

    def _owned_by_another(self, principal: str, client: str) -> bool:
        if client == self.scope.service.name:  # whoever came with it would end the connection of the guard itself
            return True
        owner = self.scope.owners.get(client)
        if owner is not None:
            return owner.principal != principal
        return any(claim != principal for claim in self._claims.get(client, ()))

    def awaited(self, client: str) -> bool:
        """Whether somebody comes with this client identifier just now."""
        return client in self._claims

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
        if self.scope.settings.gone is Gone.WAIT and upstream.authentication is None:  # that cannot be said again
            greeting = greeting_of(self.scope, connection, packet, upstream.version, admitted.principal)
            self._greetings[connection] = replace(greeting, clean_start=False)
        self._receive_maximum = packet.properties.receive_maximum
        super()._attach(connection, packet, admitted)
        self._greetings.pop(connection, None)
        if upstream.session is not None and upstream.opened:
            upstream.begin()

    def _attached(self, connection: Connection, session: Session) -> None:
        assert isinstance(session, GuardedSession)
        upstream = self._dialed.pop(connection)
        if session.will is not None and not session.row:
            session.save()  # its will is this node's, which may be killed
        publishing = RelayedPublishing(connection, upstream)
        connection.publishing = connection.reader.publishing = publishing
        session.relaying, session.upstream, session.asked = publishing, upstream, None
        upstream.attach(session)
        session.taking = None if self._receive_maximum is None else ClientWindow(self._receive_maximum)
        if (greeting := self._greetings.pop(connection, None)) is not None:
            session.greeting, session.reopen = greeting, self._wait_for_broker
            publishing.waits_for_broker()

    def _wait_for_broker(self, session: GuardedSession) -> None:
        """The broker is gone: the client stays, and the broker is dialed until it is back."""
        connection, wait = session.connection, FIRST

        def dial() -> None:
            if session.client in self._claims:  # it comes over another connection just now
                self.site.timers.at(self.site.now + FIRST, dial)
            elif session.connection is connection and session.greeting is not None and session.upstream is None:
                self.scope.dial(Upstream(self.scope, session.greeting, answered))

        def answered(upstream: Upstream) -> None:
            nonlocal wait
            if session.connection is not connection or connection is None or session.upstream is not None:
                upstream.close()
            elif upstream.refusal is None:
                self._back(session, upstream)
            elif is_final(upstream):
                connection.close(Reason.SERVER_SHUTTING_DOWN, upstream.error)
            else:
                self.site.timers.at(self.site.now + wait, dial)
                wait = min(2 * wait, LONGEST)

        dial()

    def _back(self, session: GuardedSession, upstream: Upstream) -> None:
        assert upstream.connack is not None
        session.upstream = upstream
        upstream.attach(session)
        if session.shut:
            upstream.pause()
        self.scope.subscribing.ask_again(session, upstream.connack.session_present)
        session.relaying.send_again(upstream)
        upstream.begin()

    def _present(self, connection: Connection, old: Session | None) -> bool:
        upstream = self._upstream(connection)
        return upstream.connack is not None and upstream.connack.session_present

    def _upstream(self, connection: Connection) -> Upstream:
        session = connection.session
        assert isinstance(session, GuardedSession)
        assert session.upstream is not None
        return session.upstream

    def _connack(self, packet: Connect, session: Session, client: str, keep_alive: int) -> Properties:
        """What both can do."""
        said = super()._connack(packet, session, client, keep_alive)
        assert isinstance(session, GuardedSession)
        assert session.upstream is not None
        assert session.upstream.connack is not None
        broker = session.upstream.connack.properties
        changes: dict[str, Any] = {"assigned_client_identifier": client} if session.upstream.assigned else {}
        kind = self.scope.settings.abilities
        of_its_kind = Properties(
            maximum_qos=kind.qos if kind.qos < 2 else None,
            retain_available=None if kind.retain else 0,
            shared_subscription_available=None if kind.shared else 0,
        )
        for name in (
            "maximum_qos",
            "retain_available",
            "wildcard_subscription_available",
            "shared_subscription_available",
            "subscription_identifier_available",
        ):
            offered = [value for one in (broker, of_its_kind, said) if (value := getattr(one, name)) is not None]
            if offered:
                changes[name] = min(offered)
        if broker.maximum_packet_size is not None:
            changes["maximum_packet_size"] = min(
                broker.maximum_packet_size, said.maximum_packet_size or broker.maximum_packet_size
            )
        if broker.receive_maximum is not None:
            changes["receive_maximum"] = min(broker.receive_maximum, said.receive_maximum or RECEIVE_MAXIMUM)
        if broker.session_expiry_interval is not None:
            changes["session_expiry_interval"] = broker.session_expiry_interval
        if broker.server_keep_alive is not None:
            changes["server_keep_alive"] = min(broker.server_keep_alive, keep_alive or NEVER)
        if broker.response_information is not None:
            changes["response_information"] = broker.response_information
        if session.upstream.authentication is not None:
            changes["authentication_method"] = broker.authentication_method
            changes["authentication_data"] = broker.authentication_data
        return replace(said, **changes)
