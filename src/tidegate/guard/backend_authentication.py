"""Who a client of a guarded scope is, where the broker says so: its name and password are passed on, and CONNACK proves
the name. A client without a name that shows a certificate is known by that, which only this node has seen. A broker
that takes any name proves none: then everybody is nobody in particular, as whoever has authenticated with AUTH is
(`relayed_authentication`).

What else is known of the user, of the connection and of capabilities is as in every other scope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.guard.dialing import vouches
from tidegate.scope import Exchange, Identity, Refused
from tidegate.scope.authenticator import ANONYMOUS, Answer, Authenticator
from tidegate.scope.link_greeting import Peer
from tidegate.session import Connection, Session
from tidegate.wire import Connect, Reason

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope
    from tidegate.guard.upstream import Upstream


class BackendAuthentication:
    """Asks the broker, or the node (scope.Authenticator)."""

    def __init__(self, scope: GuardedScope, here: Authenticator) -> None:
        self.scope = scope
        self._here = here

    def authenticate(self, connection: Connection, packet: Connect, answer: Answer) -> None:
        if vouches(self.scope, connection, packet):
            self._here.authenticate(connection, packet, answer)
            return
        name = packet.username
        if name is None or packet.properties.authentication_method is not None:
            self._ask(connection, packet, answer, None)
            return

        def known(proves: bool) -> None:
            self._ask(connection, packet, answer, name if proves else None)

        self.scope.name_proof.ask(connection, known, answer)

    def _ask(self, connection: Connection, packet: Connect, answer: Answer, name: str | None) -> None:
        """Asks the broker. `name`: what it proves, if it does."""
        if name is None and not bool(getattr(connection.listener, "anonymous", False)):
            text = "this listener wants to know who you are"
            if packet.properties.authentication_method is not None:
                text += ", and with enhanced authentication the broker does not tell"
            elif packet.username is not None:
                text += ", and the broker proves no names: it takes any, with any password"
            answer(Refused(reason=Reason.NOT_AUTHORIZED, text=text))
            return
        assigned = not packet.client_id
        client = packet.client_id = packet.client_id or self.scope.site.random_id()
        said = Identity(principal=ANONYMOUS if name is None else f"user:{name}", user=name)

        def answered(upstream: Upstream) -> None:
            if upstream.refusal is not None:
                answer(Refused(reason=upstream.refusal, text=upstream.error, rule="backend"))
            else:
                answer(self._here.completed(connection, client, said))

        self.scope.handshake.dial(connection, packet, said.principal, answered, answer, assigned=assigned)

    def exchange(self, connection: Connection, packet: Connect, method: str) -> Exchange | None:
        return self._here.exchange(connection, packet, method)

    def completed(self, connection: Connection, client: str, identity: Identity) -> Identity | Refused:
        return self._here.completed(connection, client, identity)

    def peer(self, connection: Connection, expected: str | None, plain: bool = False) -> Peer | Refused:
        return self._here.peer(connection, expected, plain)

    def reauthorize(self, session: Session) -> Identity | Refused:
        return self._here.reauthorize(session)
