"""One connection that this node makes for a link: TCP, TLS, the certificate of the other node, CONNECT, CONNACK.

From then on the link's session has it, as it would have one that was accepted. What is left to do here is what MQTT
leaves to the side that connects: PINGREQ, and to notice that nothing comes any more.

- Nothing is sent before the certificate of the other node was looked at, and found on the list.
- Every step has a bound in time, and whoever gives up aborts the socket.
- A connection that says nothing for 1.5 times its keep-alive is aborted: it may be half open.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from time import perf_counter
from typing import Final, cast

from tidegate.config.address import Address
from tidegate.errors import PacketError, ProtocolError
from tidegate.net import ConnectionShell
from tidegate.scope import Refused
from tidegate.scope.link_greeting import Peer
from tidegate.scope.node_links import LinkEnd
from tidegate.session import Connection, Host, Phase, Site
from tidegate.wire import V5, Connack, Packet, Pingresp, Reason, Type, decode, encode, frame

CONNECTING: Final = 10.0  # seconds for everything up to CONNACK
LINGER: Final = 2.0  # seconds for the other side to see that a connection ends
SILENCE: Final = 1.5  # times the keep-alive without a byte [MQTT-3.1.2-22]
PINGREQ: Final = b"\xc0\x00"
MAX_CONNACK: Final = 64 * 1024

FindPeer = Callable[[Connection, str | None], Peer | Refused]
OnBug = Callable[[Connection, BaseException], None]


@dataclass(slots=True, kw_only=True)
class Line:
    """What a connection that this node has made inherits, as others do from their listener (session.Listening)."""

    name: str  # the address that was dialed
    max_packet: int
    publish_rate: float | None = None
    publish_burst: float = 1.0


class Attempt:
    """One connection of one link (net.Owner). `open`, then `hold` until it is over."""

    def __init__(
        self,
        end: LinkEnd,
        address: Address,
        *,
        site: Site,
        loop: asyncio.AbstractEventLoop,
        peer: FindPeer,
        on_bug: OnBug,
        max_packet: int,
        keep_alive: float,
        silence: float | None = None,
        patience: float | None = None,
    ) -> None:
        """`silence`: for how many keep-alives nothing may come. `patience`: how long opening it may take."""
        self.loop = loop
        self.end = end
        self.address = address
        self.peer: Peer | None = None
        self.keep_alive = keep_alive
        self._silence = SILENCE if silence is None else silence
        self._patience = CONNECTING if patience is None else min(patience, CONNECTING)
        self.round_trip: float | None = None
        self.error = ""
        """Why it did not open, or has ended."""
        self.connection = Connection(
            site=site, host=cast(Host, end), listener=Line(name=str(address), max_packet=max_packet), on_bug=on_bug
        )
        self.connection.dialed = self._answered
        self._site = site
        self._find_peer = peer
        self._on_bug = on_bug
        self._max_packet = max_packet
        self._shell = ConnectionShell(self, self.connection, "")
        self._shell.data_received = self._receive  # until CONNACK has come
        self._unread = b""
        self._pinged = 0.0
        self._connected: asyncio.Future[bool] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()

    # -- the beginning -----------------------------------------------------------------------------------------

    async def open(self, context: ssl.SSLContext | None) -> bool:
        """Whether the link's session has the connection now; if not, `error` says why."""
        address = self.address
        opened = False
        try:
            async with asyncio.timeout(self._patience):
                await self.loop.create_connection(
                    lambda: self._shell,
                    address.host,
                    address.port,
                    ssl=context,
                    server_hostname=address.host if context is not None and context.check_hostname else None,
                    ssl_handshake_timeout=None if context is None else CONNECTING,
                    ssl_shutdown_timeout=None if context is None else LINGER,
                )
                opened = await self._connected
        except TimeoutError:
            self._fail(f"no answer in {self._patience:g} s")
        except ssl.SSLCertVerificationError as error:
            self._fail(f"its certificate is not accepted: {error.verify_message}")
        except OSError as error:
            self._fail(_reason(error))
        finally:
            if not opened:
                self.abort()
        return opened

    def admits(self, shell: ConnectionShell) -> bool:
        """There is a socket: whoever is at its other end is looked at, and greeted."""
        site, connection = self._site, self.connection
        site.open()
        connection.address = str(shell.transport.get_extra_info("peername")[0])
        found = self._find_peer(connection, self.end.link.peer)
        if isinstance(found, Refused):
            self._fail(found.text)
            return False
        self.peer = found
        greeting = self.end.greeting(found)
        version = connection.version = greeting.version
        properties = greeting.properties
        if version == V5:
            properties = replace(properties, maximum_packet_size=self._max_packet)
        greeting = replace(greeting, keep_alive=max(1, ceil(self.keep_alive)), properties=properties)
        connection.write(encode(greeting, version))
        return True

    def _receive(self, data: bytes) -> None:
        """CONNACK, and maybe what comes after it in the same read."""
        if self._connected.done():
            return  # it was given up
        data = self._unread = self._unread + data
        try:
            if data[0] != Type.CONNACK << 4:
                raise ProtocolError("the first packet is not CONNACK")
            whole = frame(data, 0, MAX_CONNACK)
            if whole is None:
                return
            first, start, stop = whole
            packet = decode(first, data[start:stop], self.connection.version)
        except PacketError as error:
            self._fail(f"it does not answer as a broker does: {error}")
            self.abort()
            return
        assert isinstance(packet, Connack)
        if packet.reason:
            self._fail(self.end.refusal(packet))
        elif why := self._attach(packet):
            self._fail(why)
        else:
            self._take_over(packet, data[stop:])
            return
        self.abort()

    def _attach(self, packet: Connack) -> str:
        """Why the link does not take the connection; empty: it has."""
        assert self.peer is not None
        self._site.open()
        try:
            return self.end.connected(self.connection, packet, self.peer)
        except Exception as error:  # noqa: BLE001 - a bug ends one connection and is reported, the loop goes on
            self._on_bug(self.connection, error)
            return "internal error"

    def _take_over(self, packet: Connack, rest: bytes) -> None:
        """From now on the session reads."""
        asked = packet.properties.server_keep_alive
        if asked:
            self.keep_alive = min(self.keep_alive, asked)
        shell = self._shell
        self._unread = b""
        shell.data_received = receive = self.connection.reader.receive
        shell.transport.set_protocol(shell)  # uvloop asks a protocol only once what it does with data
        self._connected.set_result(True)
        if rest:
            receive(rest)

    # -- while it is open --------------------------------------------------------------------------------------

    async def hold(self) -> None:
        """Until the connection has ended: PINGREQ, and an end to silence."""
        due = self.loop.time()
        while not self._gone.done():
            now, connection = self.loop.time(), self.connection
            if connection.phase is Phase.CLOSED:
                await self._wait(LINGER)
                self.abort()
                return
            silent = (now if connection.holds else connection.reader.last_read) + self.keep_alive * self._silence
            if silent <= now:
                self._fail(f"nothing came for {self.keep_alive * self._silence:g} s")
                self.end_with(Reason.KEEP_ALIVE_TIMEOUT)
                self.abort()
                return
            if due <= now:
                due = now + self.keep_alive
                self._ping()
            await self._wait(min(due, silent) - now)

    async def _wait(self, seconds: float) -> None:
        await asyncio.wait((self._gone,), timeout=seconds)

    def _ping(self) -> None:
        self._site.open()
        self._pinged = perf_counter()
        self.connection.write(PINGREQ)  # also while its session is not to write

    def _answered(self, packet: Packet) -> None:
        if isinstance(packet, Pingresp):
            self.round_trip = perf_counter() - self._pinged
        else:
            self.end.take_answer(packet)

    # -- the end -----------------------------------------------------------------------------------------------

    def end_with(self, reason: Reason, text: str = "") -> None:
        """Takes leave."""
        self._site.open()
        self.connection.close(reason, text)

    async def close(self) -> None:
        """Takes leave, and gives the other side a moment to hear it."""
        if self.connection.phase is Phase.OPEN:
            self.end_with(Reason.NORMAL_DISCONNECTION)
            await self._wait(LINGER)
        self.abort()

    def abort(self) -> None:
        if self.connection.phase is Phase.OPEN:
            self.end_with(Reason.UNSPECIFIED_ERROR)  # the session has to know
        if self._shell.transport is not None:
            self._shell.abort()

    def lost(self, shell: ConnectionShell, error: Exception | None) -> None:
        if error is not None:
            self._fail(_reason(error))
        elif self._connected.done():
            self._fail("the connection ended")
        else:
            self._fail("it ended the connection without an answer; does it accept this node's certificate?")
        self._gone.set_result(None)

    def _fail(self, why: str) -> None:
        """The first reason counts: the others follow from it."""
        self.error = self.error or why
        if not self._connected.done():
            self._connected.set_result(False)


def _reason(error: Exception) -> str:
    match error:
        case ssl.SSLError(reason=str(reason)):
            return f"TLS: {reason.lower().replace('_', ' ')}"
        case OSError(strerror=str(text)):
            return text
        case _:
            return str(error) or type(error).__name__
