"""One connection of a client: its phase, the parts that read and publish, reading paused and resumed, and the end.

`reader` turns bytes into packets, `publishing` takes what the client publishes; both keep their own state. Pure: the
shell gives it `write` and friends, the site gives it the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from tidegate.errors import PacketError, ProtocolError
from tidegate.session.context import MessageOptions
from tidegate.session.host import Host, Lane
from tidegate.session.link import Link
from tidegate.session.phase import GOES_ON, Hold, Phase
from tidegate.session.publishing import Publishing
from tidegate.session.reader import MAX_CONNECT, Reader
from tidegate.session.runtime import Site
from tidegate.session.session import Session
from tidegate.session.timers import Timer
from tidegate.session.token_bucket import Bucket
from tidegate.wire import NONE, V5, V311, Connack, Disconnect, Packet, Properties, Reason, encode


class Shell(Protocol):
    """The socket side of a connection."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def hold_more(self) -> None:
        """More than of a client may wait for the other side to read it: it speaks for many."""
        ...


class Listening(Protocol):
    """What a connection inherits from where it was accepted."""

    name: str
    max_packet: int
    publish_rate: float | None
    publish_burst: float


class Connection:
    """What the parts of one connection share."""

    __slots__ = (
        "address",
        "authentication",
        "bridge",
        "bucket",
        "certificate",
        "client_max_packet",
        "contexts",
        "dialed",
        "holds",
        "host",
        "keep_alive",
        "listener",
        "old",
        "phase",
        "problem_information",
        "publishing",
        "rate_timer",
        "reader",
        "session",
        "shell",
        "since",
        "site",
        "timer",
        "version",
        "write",
    )
    __deletable__ = ("publishing", "reader")

    def __init__(
        self,
        *,
        site: Site,
        host: Host,
        listener: Listening,
        on_bug: Callable[[Connection, BaseException], None],
        max_connect: int = MAX_CONNECT,
    ) -> None:
        self.site = site
        self.host = host
        self.listener = listener
        self.version = V311
        self.old = False  # it speaks MQTT 3.1
        self.bridge = False  # it is a broker that bridges
        self.phase = Phase.NEW
        self.holds = 0  # of `Hold`
        self.problem_information = True
        self.client_max_packet = 0  # largest packet the client takes; 0: any
        self.keep_alive = 0.0  # the longest silence allowed, in seconds; 0: any
        self.address = ""
        self.since = 0.0  # wall clock
        self.certificate: dict[str, Any] | None = None
        self.bucket: Bucket | None = None
        self.timer: Timer | None = None
        self.rate_timer: Timer | None = None  # when it may be read again, if it has published too fast
        self.contexts: tuple[Link, dict[MessageOptions, bytes]] | None = None  # of messages with options of their own
        self.dialed: Callable[[Packet], None] | None = None  # this node has made it: where answers go
        self.authentication: Any = None  # an enhanced authentication under way, and its method afterwards
        self.session: Session
        self.shell: Shell
        self.write: Callable[[bytes], None]
        self.publishing = Publishing(self)
        self.reader = Reader(self, listener.max_packet, on_bug, max_connect)

    def opened(self, shell: Shell, address: str, certificate: dict[str, Any] | None) -> None:
        """There is a socket now."""
        self.shell = shell
        self.write = shell.write
        self.address = address
        self.since = self.site.wall
        self.certificate = certificate

    def publishes_with(self, publishing: Publishing, ahead: Callable[[bytes, int], tuple[int, int]]) -> None:
        """What it publishes is taken in another way: it is that of a link, and not of a client.

        `ahead` takes what needs no decision (`Reader.ahead`).
        """
        self.publishing = self.reader.publishing = publishing
        self.reader.ahead = ahead

    def accept(self, session: Session, lane: Lane) -> None:
        """CONNECT was granted: packets are read from now on. The caller sends CONNACK."""
        self.session = session
        self.phase = Phase.OPEN
        self.publishing.begin(session, self.host.path)
        rate = self.listener.publish_rate
        if rate is not None:
            self.bucket = Bucket(rate, self.listener.publish_burst, self.site.now)
        self.reader.begin(session, lane)

    def finish_handshake(self) -> None:
        """Reads what came while the handshake was under way."""
        self.release_reading(Hold.HANDSHAKE)
        if self.phase is not Phase.CLOSED:
            self.reader.resume()

    # -- reading paused and resumed ----------------------------------------------------------------------------

    def hold_reading(self, why: Hold = Hold.WRITING) -> None:
        if not self.holds and self.phase is not Phase.CLOSED:
            self.shell.pause_reading()
        self.holds |= why

    def release_reading(self, why: Hold) -> None:
        if self.holds:
            self.holds &= ~why
            if not self.holds & ~GOES_ON and self.phase is not Phase.CLOSED:
                self.reader.unpark()
            if not self.holds and self.phase is not Phase.CLOSED:
                self.shell.resume_reading()

    def throttle(self, publishes: int) -> None:
        """A publisher that outruns its rate is paused, not dropped."""
        if self.bucket is None:
            return
        wait = self.bucket.spend(publishes, self.site.now)
        if wait > 0:
            self.hold_reading(Hold.RATE)
            self.site.timers.cancel(self.rate_timer)
            self.rate_timer = self.site.timers.at(self.site.now + wait, self.release_reading, Hold.RATE)

    def pause_writing(self) -> None:
        if self.phase is Phase.OPEN:
            self.session.pause()

    def resume_writing(self) -> None:
        if self.phase is Phase.OPEN:
            self.site.open()
            self.session.unpause()
            self.release_reading(Hold.WRITING)

    # -- the end -----------------------------------------------------------------------------------------------

    def fail(self, error: PacketError) -> None:
        """The client broke the protocol: tell it as its version can be told, and close."""
        if self.phase is Phase.OPEN:
            self.close(error.reason, str(error))
            return
        # before CONNACK: 3.1.1 is told only of a version or client id it cannot have, 5.0 may be told [MQTT-4.13.1-1]
        reported = (Reason.UNSUPPORTED_PROTOCOL_VERSION, Reason.CLIENT_IDENTIFIER_NOT_VALID)
        if error.reason in reported or self.version == V5:
            # a CONNECT that could not be read did not say what size of packet its sender takes
            self.refuse(error.reason, str(error) if self.phase is Phase.WAITING else "")
        else:
            self.site.counters.refused += 1
            self._drop(Reason(error.reason))

    def close(self, reason: int, text: str = "", properties: Properties = NONE) -> None:
        """The server ends it: DISCONNECT with the reason where the version has it, then the socket."""
        if self.phase is Phase.CLOSED:
            return
        if self.phase is Phase.OPEN:
            session = self.session
            session.gathered()
            out = session.out
            if isinstance(out, list) and out:
                waiting = b"".join(out)
                out.clear()
                self.write(waiting)
            if self.version == V5:
                if text and self.problem_information and properties is NONE:
                    properties = Properties(reason_string=text)
                self._send_last(Disconnect(reason=reason, properties=properties))
        self._drop(Reason(reason))

    def _send_last(self, packet: Connack | Disconnect) -> None:
        """[MQTT-3.2.2-19] [MQTT-3.14.2-3] without what makes it too long for the client; else not at all."""
        frame = encode(packet, self.version)
        if self.client_max_packet and len(frame) > self.client_max_packet:
            frame = encode(replace(packet, properties=NONE), self.version)
            if len(frame) > self.client_max_packet:
                return
        self.write(frame)

    def disconnected(self, packet: Disconnect) -> None:
        """The client said DISCONNECT."""
        if self.phase is Phase.CLOSED:
            return
        was_open = self.phase is Phase.OPEN
        if was_open and packet.properties.session_expiry_interval and not self.session.expiry:
            # [MQTT-3.14.2-2] it had none at CONNECT
            raise ProtocolError("DISCONNECT sets a session expiry that CONNECT did not have")
        self._drop(Reason.SUCCESS, packet)

    def lost(self) -> None:
        """The socket is gone."""
        if self.phase is not Phase.CLOSED:
            self.site.open()
            self._drop(Reason.UNSPECIFIED_ERROR)
        # Without what refers back to it the connection is freed at once, and not when the collector comes by.
        self.shell = _GONE
        self.write = _GONE.write
        self.reader.quick = {}
        del self.reader, self.publishing

    def _drop(self, reason: Reason = Reason.SUCCESS, packet: Disconnect | None = None) -> None:
        was = self.phase
        if was is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        self.reader.stop()
        self.publishing.deadline.end()
        self.site.timers.cancel(self.timer)
        self.timer = None
        self.shell.close()
        if was is Phase.OPEN:
            self.host.lifetime.disconnected(self, packet, reason)

    def refuse(self, reason: int, text: str = "", properties: Properties = NONE) -> None:
        """CONNECT was not granted."""
        if self.phase in (Phase.NEW, Phase.WAITING):
            if text and self.problem_information and properties is NONE and self.version == V5:
                properties = Properties(reason_string=text)
            self._send_last(Connack(session_present=False, reason=reason, properties=properties))
            self.site.counters.refused += 1
        self._drop()


class _Gone:
    """The shell of a connection that is no more."""

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def hold_more(self) -> None:
        pass


_GONE = _Gone()
