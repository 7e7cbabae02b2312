"""A connection to the broker up to CONNACK: whether somebody is there, who lets in whom, and if not, why.

Between CONNECT and CONNACK only AUTH may pass, if the client authenticates with the broker (`relayed_authentication`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import PacketError, ProtocolError
from tidegate.session.outlet import Outlet
from tidegate.session.runtime import Site
from tidegate.wire import V5, Auth, Connack, Connect, Packet, Reason, Type, decode, encode, frame

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope
    from tidegate.guard.relayed_authentication import RelayedAuthentication

HIGH_WATER: Final = 256 * 1024  # bytes that may wait for a broker that reads slowly, before its client is not read
ANSWER: Final = 10.0  # seconds for CONNACK
_RETURN_CODES: Final = {
    1: Reason.UNSUPPORTED_PROTOCOL_VERSION,
    2: Reason.CLIENT_IDENTIFIER_NOT_VALID,
    3: Reason.SERVER_UNAVAILABLE,
    4: Reason.BAD_USER_NAME_OR_PASSWORD,
    5: Reason.NOT_AUTHORIZED,
}
"""What MQTT 3.1.1 has in CONNACK."""


class BrokerLogin(Outlet, asyncio.Protocol):
    """One connection to the broker, as long as it has not let anybody in."""

    __slots__ = (
        "_answer",
        "_packet",
        "_timer",
        "_transport",
        "_unread",
        "assigned",
        "authentication",
        "connack",
        "error",
        "scope",
        "site",
        "version",
    )

    def __init__(self, scope: GuardedScope, packet: Connect, answer: Callable[[Any], None]) -> None:
        """`answer` is called once: when the broker has answered `packet`, or never will."""
        self.scope = scope
        self.site: Site = scope.site
        self.version = packet.version
        self.connack: Connack | None = None
        """The answer; None: it has not come."""
        self.error = ""
        """Why there is none, or no connection any more."""
        self.assigned = False
        """Whether the client identifier is one that this node has made."""
        self.authentication: RelayedAuthentication | None = None
        """What the client and the broker say to each other before CONNACK, and later."""
        self._answer: Callable[[Any], None] | None = answer
        self._packet: Connect | None = packet
        self._transport: Any = None
        self._unread: bytes | bytearray = b""
        self._timer: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._answer is None:  # it was given up
            self._transport.abort()
            return
        self.site.open()
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        self.write = self._transport.write
        packet, self._packet = self._packet, None
        assert packet is not None
        self.write(encode(packet, packet.version))
        self._wait_for_answer()

    def _wait_for_answer(self) -> None:
        self.site.timers.cancel(self._timer)
        self._timer = self.site.timers.at(self.site.now + ANSWER, self._late)

    def authenticate(self, packet: Auth) -> None:
        """AUTH of the client."""
        if self.connack is None and self.reached:
            self.write(encode(packet, self.version))
            self._wait_for_answer()

    def _late(self) -> None:
        self.error = f"the broker has not answered CONNECT in {ANSWER:g} s"
        self.abort()
        self._tell()

    def failed(self, why: str) -> None:
        """There is no connection."""
        self.error = self.error or why
        self._tell()

    def _tell(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            self.site.open()
            answer(self)

    @property
    def reached(self) -> bool:
        """Whether somebody was there."""
        return self._transport is not None

    @property
    def outdated(self) -> bool:
        """Whether somebody is there who does not speak this version."""
        return self.reached and (self.connack is None or self.refusal is Reason.UNSUPPORTED_PROTOCOL_VERSION)

    @property
    def refusal(self) -> Reason | None:
        """Why the broker has not let it in; None: it has."""
        if self.connack is None:
            return Reason.SERVER_UNAVAILABLE
        code = self.connack.reason
        if not code:
            return None
        if self.version != V5:
            return _RETURN_CODES.get(code, Reason.SERVER_UNAVAILABLE)
        return Reason(code)

    def data_received(self, data: bytes) -> None:
        """Of the answer, and of what comes right behind it."""
        if isinstance(self._unread, bytes):
            self._unread = bytearray(self._unread)
        self._unread += data
        if self.connack is None:
            self._read_connack()

    def _read_connack(self) -> None:
        """Takes what the broker answers, unless it asks the client something first."""
        packet: Packet | None = None
        try:
            while not isinstance(packet, Connack) and self._unread:
                data = bytes(self._unread)
                if data[0] != Type.CONNACK << 4 and (data[0] != Type.AUTH << 4 or self.authentication is None):
                    raise ProtocolError("the first packet is not CONNACK")
                whole = frame(data, 0, self.scope.settings.max_packet)
                if whole is None:
                    return
                first, start, stop = whole
                packet = decode(first, data[start:stop], self.version)
                self._unread = data[stop:]
                if isinstance(packet, Auth) and self.authentication is not None:
                    self.authentication.to_client(packet)
                    self._wait_for_answer()
        except PacketError as error:
            self.error = f"it does not answer as a broker does: {error}"
            self.abort()
            return
        if not isinstance(packet, Connack):
            return
        self.connack = packet
        self.site.timers.cancel(self._timer)
        self._timer = None
        if self.refusal is not None:
            self.error = packet.properties.reason_string or ""
            self.abort()
        self._tell()

    def abort(self) -> None:
        self.site.timers.cancel(self._timer)
        self._timer = None
        if self._transport is not None:
            self._transport.abort()
