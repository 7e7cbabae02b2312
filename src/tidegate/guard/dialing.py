"""A CONNECT that is passed on to the broker, and again if the broker is to be waited for or speaks an older version.

MQTT 3.1.1 has one flag where MQTT 5 has two: whether a session begins anew, and how long it is kept. A session that
begins anew and is kept takes two connections there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.config.scopes import Authenticate, Gone
from tidegate.guard.relayed_authentication import RelayedAuthentication
from tidegate.guard.upstream import Upstream
from tidegate.session import NEVER, Connection, Phase
from tidegate.wire import V5, V311, Connect, Properties, Reason

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope

RETRY: Final = 0.25  # seconds after which the broker is dialed again, if it is waited for
OURS: Final = frozenset(("require", "s", "capability", "proof"))
"""User properties of CONNECT that are for the guard."""


class Dialing:
    """One CONNECT on its way to the broker."""

    __slots__ = ("_again", "_anew", "_answered", "_ended", "connection", "packet", "principal", "scope", "upstream")

    def __init__(
        self,
        scope: GuardedScope,
        connection: Connection,
        packet: Connect,
        principal: str,
        answered: Callable[[Upstream], None],
        ended: Callable[[], None],
    ) -> None:
        """`answered`: called when the broker has answered and the client is still there; `ended`: in any case."""
        self.scope = scope
        self.connection = connection
        self.packet = packet
        self.principal = principal
        self.upstream: Upstream
        self._answered = answered
        self._ended = ended
        self._again = False
        self._anew = False  # the first of two connections
        self._open(V5 if scope.settings.as_property and scope.enforcing else min(packet.version, scope.service.version))

    def _open(self, version: int) -> None:
        greeting = greeting_of(self.scope, self.connection, self.packet, version, self.principal)
        if version != self.packet.version and version == V311 and not self._anew:
            self._anew = self.packet.clean_start and not greeting.clean_start
            greeting = replace(greeting, clean_start=greeting.clean_start or self._anew)
        else:
            self._anew = False
        self.upstream = Upstream(self.scope, greeting, self._done)
        if isinstance(self.connection.authentication, RelayedAuthentication):
            self.upstream.authentication = self.connection.authentication
            self.connection.authentication.upstream = self.upstream
        self.scope.dial(self.upstream)

    def _retry(self, version: int) -> None:
        if self.connection.phase is Phase.WAITING:
            self._open(version)
        else:
            self._ended()

    def _done(self, upstream: Upstream) -> None:
        scope, version = self.scope, upstream.version
        if self.connection.phase is not Phase.WAITING:
            upstream.close()
            self._ended()
        elif version == V5 and upstream.outdated and not self._again and upstream.authentication is None:
            self._again = True
            scope.service.version = V311
            self._retry(V311)
        elif upstream.connack is None and scope.settings.gone is Gone.WAIT and not upstream.reached:
            scope.site.timers.at(scope.site.now + RETRY, self._retry, version)
        elif self._anew and upstream.refusal is None:
            upstream.close()
            greeting = greeting_of(scope, self.connection, self.packet, version, self.principal)
            self._anew = False
            self.upstream = Upstream(scope, greeting, self._done)
            scope.dial(self.upstream)
        else:
            self._answered(upstream)
            self._ended()


def vouches(scope: GuardedScope, connection: Connection, packet: Connect) -> bool:
    """Whether it is this node, and not the broker, that knows who a client is. Only the node sees certificates."""
    if scope.settings.authenticate is Authenticate.HERE:
        return True
    if isinstance(connection.authentication, RelayedAuthentication):
        return False
    return packet.username is None and connection.certificate is not None


def greeting_of(scope: GuardedScope, connection: Connection, packet: Connect, version: int, principal: str) -> Connect:
    """What the broker is told of a client. Its will is the guard's."""
    settings, said = scope.settings, packet.properties
    username, password = packet.username, packet.password
    if vouches(scope, connection, packet):
        username, password = settings.username, settings.password
    if password is not None and username is None and version != V5:
        password = None  # [MQTT-3.1.2-22] of 3.1.1
    properties, clean = Properties(), packet.clean_start
    relayed = isinstance(connection.authentication, RelayedAuthentication)
    if version == V5:
        expiry = said.session_expiry_interval
        if packet.version != V5:
            expiry = 0 if clean else NEVER
        properties = Properties(
            session_expiry_interval=None if not expiry else scope.lifetime.allowed_expiry(expiry),
            receive_maximum=said.receive_maximum,
            maximum_packet_size=settings.max_packet,
            request_response_information=said.request_response_information,
            authentication_method=said.authentication_method if relayed else None,
            authentication_data=said.authentication_data if relayed else None,
            user_properties=tuple(pair for pair in said.user_properties if pair[0] not in OURS),
        )
    elif packet.version == V5:
        clean = not said.session_expiry_interval and clean
    return Connect(
        version=version,
        client_id=settings.client_id(principal, packet.client_id),
        clean_start=clean,
        keep_alive=packet.keep_alive,
        username=username,
        password=password,
        properties=properties,
        bridge=packet.bridge and version != V5,
    )


def is_final(upstream: Upstream) -> bool:
    """Whether the broker has said no, and would say it again."""
    return upstream.connack is not None and upstream.refusal not in (
        Reason.SERVER_UNAVAILABLE,
        Reason.SERVER_BUSY,
        Reason.QUOTA_EXCEEDED,
    )
