"""Enhanced authentication (MQTT 5, 4.12) between a client and the broker: the guard passes AUTH on, both ways.

What is said stays between those two. So the broker lets the client in, and the guard does not learn who that is: a user
name in the same CONNECT need not be the one that was proved. The client is nobody in particular.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.errors import ProtocolError
from tidegate.session import Connection, Phase
from tidegate.wire import V5, Auth, Reason, encode

if TYPE_CHECKING:
    from tidegate.guard.upstream import Upstream

CLIENTS: Final = {
    Phase.WAITING: (Reason.CONTINUE_AUTHENTICATION,),
    Phase.OPEN: (Reason.CONTINUE_AUTHENTICATION, Reason.RE_AUTHENTICATE),
}
"""What a client may send with AUTH."""


class RelayedAuthentication:
    """Of one connection of a client, under way or done."""

    __slots__ = ("_asked", "connection", "method", "upstream")

    def __init__(self, connection: Connection, method: str) -> None:
        self.connection = connection
        self.method = method
        self.upstream: Upstream | None = None
        self._asked = False  # the broker waits for the client

    def to_client(self, packet: Auth) -> None:
        """The broker goes on with it, or is done."""
        if packet.properties.authentication_method != self.method:
            raise ProtocolError("AUTH with another method than CONNECT")
        self._asked = packet.reason == Reason.CONTINUE_AUTHENTICATION
        if self.connection.phase is Phase.OPEN:
            self.connection.session.send(encode(packet, V5))
        elif self.connection.phase is Phase.WAITING and self._asked:
            self.connection.write(encode(packet, V5))
        elif self.connection.phase is Phase.WAITING:
            raise ProtocolError("AUTH with another reason than to continue, before CONNACK")

    def to_broker(self, packet: Auth) -> None:
        """The client answers, or begins again."""
        if packet.properties.authentication_method != self.method:
            raise ProtocolError("AUTH with another method than CONNECT", Reason.BAD_AUTHENTICATION_METHOD)
        if packet.reason not in CLIENTS.get(self.connection.phase, ()):
            raise ProtocolError("AUTH with a reason that is not the client's to send")
        if packet.reason == Reason.CONTINUE_AUTHENTICATION and not self._asked:
            raise ProtocolError("no authentication is under way")
        self._asked = False
        if self.upstream is not None:
            self.upstream.authenticate(packet)
