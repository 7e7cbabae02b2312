"""One connection, whatever is said on it: its phase, reading paused and resumed, the last word and the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, IntFlag
from typing import Any, Protocol

from tidegate.errors import PacketError, ProtocolError
from tidegate.session.context import MessageOptions
from tidegate.session.host import Host, Lane, Path
from tidegate.session.link import Link
from tidegate.session.runtime import Site
from tidegate.session.session import Session
from tidegate.session.timers import Timer
from tidegate.session.token_bucket import Bucket
from tidegate.wire import NONE, V5, V311, Connack, Disconnect, Properties, Reason, encode


class Phase(Enum):
    NEW = "before CONNECT"
    WAITING = "CONNECT received, not answered"
    OPEN = "connected"
    CLOSED = "closed"


class Hold(IntFlag):
    """Why nothing is read from a connection for now."""

    HANDSHAKE = 1
    RATE = 2
    WRITING = 4
    STORE = 8
    WORK = 16  # what it has sent makes too much work for one turn
    JOURNAL = 32  # what it publishes is written down, and the disk is behind


class Shell(Protocol):
    """The socket side of a connection."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Listening(Protocol):
    """What a connection inherits from where it was accepted."""

    name: str
    max_packet: int
    publish_rate: float | None
    publish_burst: float


class Line:
    """The state of one connection that does not depend on what it carries."""

    __slots__ = (
        "address",
        "authentication",
        "bucket",
        "certificate",
        "contexts",
        "held",
        "host",
        "hot",
        "keep_alive",
        "lane",
        "limit",
        "listener",
        "maximum",
        "path",
        "phase",
        "problem_information",
        "rest",
        "seen",
        "session",
        "shell",
        "site",
        "timer",
        "v5",
        "version",
        "write",
    )

    def __init__(self, *, site: Site, host: Host, listener: Listening) -> None:
        self.site = site
        self.host = host
        self.listener = listener
        self.limit = listener.max_packet
        self.version = V311
        self.v5 = False
        self.phase = Phase.NEW
        self.hot = False  # open, and publishes need not be counted against a rate
        self.rest: bytes | bytearray = b""
        self.held = Hold(0)
        self.problem_information = True
        self.maximum = 0  # largest packet the client takes; 0: any
        self.keep_alive = 0.0  # the longest silence allowed, in seconds; 0: any
        self.seen = site.now
        self.address = ""
        self.certificate: dict[str, Any] | None = None
        self.bucket: Bucket | None = None
        self.timer: Timer | None = None
        self.contexts: tuple[Link, dict[MessageOptions, bytes]] | None = None  # of what asks for something of its own
        self.authentication: Any = None  # an enhanced authentication under way, and its method afterwards
        self.session: Session
        self.lane: Lane
        self.path: Path  # of what it publishes
        self.shell: Shell
        self.write: Callable[[bytes], None]

    def made(self, shell: Shell, address: str, certificate: dict[str, Any] | None) -> None:
        """There is a socket now."""
        self.shell = shell
        self.write = shell.write
        self.address = address
        self.certificate = certificate

    # -- reading paused and resumed ----------------------------------------------------------------------------

    def hold_reading(self, why: Hold = Hold.WRITING) -> None:
        if not self.held and self.phase is not Phase.CLOSED:
            self.shell.pause_reading()
        self.held |= why

    def release_reading(self, why: Hold) -> None:
        if self.held:
            self.held &= ~why
            if not self.held and self.phase is not Phase.CLOSED:
                self.shell.resume_reading()

    def _throttle(self, publishes: int) -> None:
        """A publisher that outruns its rate is paused, not dropped."""
        assert self.bucket is not None
        wait = self.bucket.spend(publishes, self.site.now)
        if wait > 0:
            self.hold_reading(Hold.RATE)
            self.site.timers.at(self.site.now + wait, self.release_reading, Hold.RATE)

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
        told = (Reason.UNSUPPORTED_PROTOCOL_VERSION, Reason.CLIENT_IDENTIFIER_NOT_VALID)
        if error.reason in told or self.version == V5:
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
            if not session.shut and session.out:
                waiting = b"".join(session.out)
                session.out.clear()
                self.write(waiting)
            if self.version == V5:
                if text and self.problem_information and properties is NONE:
                    properties = Properties(reason_string=text)
                self._last_word(Disconnect(reason=reason, properties=properties))
        self._drop(Reason(reason))

    def _last_word(self, packet: Connack | Disconnect) -> None:
        """[MQTT-3.2.2-19] [MQTT-3.14.2-3] without what makes it too long for the client; else not at all."""
        said = encode(packet, self.version)
        if self.maximum and len(said) > self.maximum:
            said = encode(replace(packet, properties=NONE), self.version)
            if len(said) > self.maximum:
                return
        self.write(said)

    def gone(self, packet: Disconnect) -> None:
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
        self.shell = _GONE  # it holds on to us

    def _drop(self, reason: Reason = Reason.SUCCESS, packet: Disconnect | None = None) -> None:
        was = self.phase
        self.phase = Phase.CLOSED
        self.hot = False
        self.rest = b""
        self.site.timers.cancel(self.timer)
        self.timer = None
        if was is not Phase.CLOSED:
            self.shell.close()
            if was is Phase.OPEN:
                self.host.disconnected(self, packet, reason)

    def refuse(self, reason: int, text: str = "", properties: Properties = NONE) -> None:
        """CONNECT was not granted."""
        if self.phase in (Phase.NEW, Phase.WAITING):
            if text and self.problem_information and properties is NONE and self.version == V5:
                properties = Properties(reason_string=text)
            self._last_word(Connack(session_present=False, reason=reason, properties=properties))
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


_GONE = _Gone()
