"""The connection of one client to the guarded broker.

Both connections of a client use the same packet identifiers: what the client sends under one goes on under it, and what
the broker sends under one reaches the client under it. So whoever has to send something again does, and the guard keeps
nothing of an exchange that a crash could lose (docs/decisions/0048).

- Bytes from the broker raise only packet errors, which end this connection, and with it that of its client.
- Nothing is read from the broker while the client does not take what came, and nothing from the client while the broker
  does not.
- It decides nothing: `incoming_envelopes` does, for each message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.errors import PacketError, ProtocolError
from tidegate.gate import Deny, Step
from tidegate.guard.broker_login import BrokerLogin
from tidegate.guard.incoming_envelopes import IncomingEnvelopes
from tidegate.guard.outgoing_envelopes import LARGE, framed
from tidegate.session import Hold, Message
from tidegate.session.outlet import Shut
from tidegate.session.packet_costs import QUICK
from tidegate.wire import (
    V5,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Unsuback,
    decode,
    encode,
    frame,
)

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope
    from tidegate.guard.guarded_session import GuardedSession

SILENCE: Final = 1.5  # times the keep-alive without a byte
PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"
GUARD: Final = b"\0"
CLIENT: Final = b"\1"
FLUSH_BYTES: Final = 64 * 1024  # read in one turn before what they caused is written
TOO_LARGE: Final = Deny(step=Step.WRITE, rule="backend", reason=Reason.QUOTA_EXCEEDED, detail=LARGE)
UNRELATED: Final = Deny(step=Step.WRITE, rule="backend", reason=Reason.QUOTA_EXCEEDED, detail="it cannot be sent now")
_TAKEN: Final = Connack(session_present=False, reason=0)


class Upstream(BrokerLogin):
    """One connection to the broker. It is dirty like a session: what is in `out` is written once in a turn."""

    __slots__ = (
        "_keep_alive",
        "_last_read",
        "_paused",
        "_told",
        "exchange",
        "incoming",
        "maximum",
        "opened",
        "pings",
        "quota",
        "refused",
        "session",
        "v5",
    )

    def __init__(self, scope: GuardedScope, packet: Connect, answer: Callable[[Upstream], None]) -> None:
        """`answer` is called once: when the broker has answered `packet`, or never will."""
        super().__init__(scope, packet, answer)
        self.session: GuardedSession | None = None
        self.v5 = packet.version == V5
        self.opened = False
        self.maximum = 0  # largest packet that the broker takes; 0: any
        self.quota = 65535  # QoS 1 and 2 messages that it takes at a time
        self.exchange = 0  # the packet identifier of the PUBLISH of the client that is being taken, and DUP above it
        self.refused: Deny | None = None  # why that has not gone to the broker
        self.out = Shut()
        self.pings = b""
        """PINGREQs that have no answer yet, in order: 1 of the client, 0 of the guard."""
        self.shut = True
        self.incoming: IncomingEnvelopes
        self._paused = False
        self._keep_alive = float(packet.keep_alive)
        self._last_read = 0.0
        self._told = False  # by the broker, that this is the end

    # -- the beginning and the end of a client -----------------------------------------------------------------

    @property
    def vanished(self) -> bool:
        """Whether it has ended without a word."""
        return not self._told

    def attach(self, session: GuardedSession) -> None:
        """A client has it from now on: packets are taken."""
        assert self.connack is not None
        terms = self.connack.properties
        self.session = session
        self.incoming = IncomingEnvelopes(self.scope, session, self)
        self.opened = True
        self.open_out()
        self.maximum = terms.maximum_packet_size or 0
        if not self.v5 and (service := self.scope.service.upstream) is not None:
            self.maximum = service.maximum  # 3.1.1 cannot say so: the broker would end the connection without a word
        self.quota = terms.receive_maximum or 65535
        if terms.server_keep_alive is not None:
            self._keep_alive = float(terms.server_keep_alive)
        self._last_read = self.site.now
        self._watch()

    def begin(self) -> None:
        """Takes what came right behind CONNACK, once the client has been told."""
        self.connack = _TAKEN  # the other is not needed any more, and there may be very many
        if self._unread:
            self._take(b"")

    # -- bytes in ----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        site = self.site
        if not site.opened:
            site.open()
        self._last_read = site.now
        if self._paused or not self.opened:
            super().data_received(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        if self._unread:
            data, self._unread = bytes(self._unread) + data, b""
        try:
            used = self._read(data)
        except PacketError as error:
            self._told = True
            self.end(f"the broker broke the protocol: {error}")
            return
        except Exception as error:  # noqa: BLE001 - a bug closes one connection and is reported, the loop goes on
            self.scope.on_bug(self, error)
            self._told = True
            self.end("internal error")
            return
        if used < len(data) and self.opened:
            self._unread = data[used:]

    def _read(self, data: bytes) -> int:
        """Takes all whole frames, as long as the client takes what they cause; how many bytes that was."""
        site, incoming, limit = self.site, self.incoming, self.scope.settings.max_packet
        pos, end = 0, len(data)
        while pos < end and not self._paused and self.opened:
            whole = frame(data, pos, limit)
            if whole is None:
                break
            first, start, stop = whole
            if first == 0x30:
                incoming.unacknowledged(data, start, stop)
                site.effort += QUICK
            else:
                self._dispatch(first, data[start:stop])
            pos = stop
        site.read += pos
        if site.read > FLUSH_BYTES:
            site.flush()
        return pos

    def _dispatch(self, first: int, body: bytes) -> None:
        session = self.session
        assert session is not None
        packet = decode(first, body, self.version)
        match packet:
            case Publish():
                self.incoming.published(packet)
            case Puback() | Pubrec() | Pubcomp():
                session.relaying.answered(packet)
            case Pubrel():
                self.incoming.released(packet)
            case Suback() | Unsuback():
                self.scope.subscribing.answered(session, packet)
            case Auth() if self.authentication is not None:
                self.authentication.to_client(packet)
            case Pingresp():
                asked, self.pings = self.pings[:1], self.pings[1:]
                if asked == CLIENT:
                    session.send(PINGRESP)
            case Disconnect():
                said = packet.properties.reason_string
                self._told = packet.reason != Reason.SERVER_SHUTTING_DOWN
                self.end(said or f"the broker has said DISCONNECT {packet.reason:#04x}", Reason(packet.reason))
            case _:
                raise ProtocolError(f"{type(packet).__name__.upper()} is never sent by a broker here")

    def authenticate(self, packet: Auth) -> None:
        if self.opened:
            self.send(encode(packet, self.version))
        else:
            super().authenticate(packet)

    # -- bytes out ---------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """A packet for the broker."""
        out = self.out
        if not out:
            self.site.dirty.append(self)
        out.append(data)

    def publish(self, message: Message) -> bytes | None:
        """Sends a message that may be written, in its envelope: the packet, or None and why not in `refused`.

        QoS 1 and 2 go under the identifier in `exchange`.
        """
        if message.qos and not self.exchange:
            self.refused = UNRELATED
            return None
        if (objection := self.scope.settings.abilities.objection(message.topic)) is not None:
            self.refused = objection
            return None
        pid, dup = self.exchange & 0xFFFF if message.qos else 0, self.exchange >> 16
        try:
            clearing, head, tail = framed(self.scope, message, self.version, self.maximum, message.qos, message.retain)
        except ValueError as error:
            self.refused = replace(TOO_LARGE, detail=str(error))
            return None
        if clearing:
            self.send(clearing)
        if pid:
            if dup:
                head = bytes((head[0] | 0x08,)) + head[1:]
            head += pid.to_bytes(2, "big")
            if self.session is not None:
                self.session.relaying.keep(pid, head + tail)
        self.exchange = 0
        data = head + tail
        self.send(data)
        return data

    def pause_writing(self) -> None:
        """The broker does not read fast enough: nothing is read from the client."""
        if self.session is not None and self.session.connection is not None:
            self.session.connection.hold_reading(Hold.BACKEND)

    def resume_writing(self) -> None:
        self.site.open()
        if self.session is not None and self.session.connection is not None:
            self.session.connection.release_reading(Hold.BACKEND)

    def pause(self) -> None:
        """The client does not read fast enough."""
        if not self._paused and self._transport is not None:
            self._paused = True
            if not self._transport.is_closing():
                self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
            if self._unread and self.opened:
                self._take(b"")

    # -- keep-alive --------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._keep_alive:
            self._timer = self.site.timers.at(self.site.now + self._keep_alive / 2, self._due)

    def _due(self) -> None:
        if not self.opened:
            return
        if not self._paused and self.site.now - self._last_read > self._keep_alive * SILENCE:
            self.end(f"nothing came from the broker for {self._keep_alive * SILENCE:g} s")
            return
        self.pings += GUARD
        self.send(PINGREQ)
        self._watch()

    # -- the end -----------------------------------------------------------------------------------------------

    def close(self, packet: Disconnect | None = None) -> None:
        """The client has gone, and says so."""
        if self.opened:
            self._shut()
            self.write(encode(packet or Disconnect(), self.version))
        self._answer = None
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._shut()
        super().abort()

    def end(self, why: str, reason: Reason = Reason.SERVER_SHUTTING_DOWN) -> None:
        """The broker has gone, or is of no use: so is the connection of its client."""
        self.error = self.error or why
        self.abort()
        session, self.session = self.session, None
        if session is not None:
            self.site.open()
            session.left_by(self, reason, why)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.opened or self.session is not None:
            self.end("the broker has ended the connection" if exc is None else f"the broker is gone: {exc}")
        self.error = self.error or "it ended the connection without an answer"
        self._tell()

    def _shut(self) -> None:
        if self.opened and isinstance(self.out, list) and self.out:
            self.write(b"".join(self.out))
        self.opened = False
        self.shut_out()
        self.site.timers.cancel(self._timer)
        self._timer = None

    @property
    def address(self) -> str:
        """Of the broker, for the log."""
        return str(self.scope.settings.address)
