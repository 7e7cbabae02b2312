"""One listening socket: TCP, TLS, WebSocket or both, with its limits.

The socket is bound and listening before the first connection is accepted by `start`, and stays open while certificates
are replaced: nobody is refused meanwhile. `accepting` takes connections from it, `admission` says when each is opened.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from tidegate.net.accepting import Acceptor, ProxyAcceptor
from tidegate.net.admission import Admission
from tidegate.net.binding import bound
from tidegate.net.connection_shell import ConnectionShell
from tidegate.net.endpoint import Endpoint
from tidegate.session import Connection, Host, Site

BACKLOG = 4096
HANDSHAKE = 10.0

log = structlog.get_logger(__name__)


class Listener:
    """Accepts connections for one scope."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        site: Site,
        host: Host,
        loop: asyncio.AbstractEventLoop,
        on_bug: Callable[[Connection, BaseException], None],
    ) -> None:
        if endpoint.path is not None:  # here: to import wsproto takes too long for the first connection
            from tidegate.net.websocket import WebSocket

            self._websocket = WebSocket
        self.endpoint = endpoint
        self.name = endpoint.name
        self.max_packet = endpoint.max_packet
        self.publish_rate = endpoint.publish_rate
        self.publish_burst = endpoint.publish_burst
        self.anonymous = endpoint.anonymous
        self.certificate_user = endpoint.certificate_user
        self.loopback = endpoint.loopback
        self.site = site
        self.host = host
        self.loop = loop
        self.connections: set[ConnectionShell] = set()
        self.admission = Admission(endpoint, site, self._open)
        self._on_bug = on_bug
        self._socket: socket.socket | None = None
        self._acceptor: Acceptor | None = None
        self._context: ssl.SSLContext | None = None
        self._opening: set[asyncio.Task[None]] = set()  # in a TLS handshake, mostly

    @property
    def port(self) -> int:
        """The port it really listens on; the configuration may say 0."""
        assert self._socket is not None
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def turned_away(self) -> int:
        """Connections for which there was no place."""
        return self.admission.turned_away

    def status(self) -> dict[str, Any]:
        """For `tidegate status`."""
        opened = len(self.connections)
        return {
            "url": self.name,
            "port": self.port,
            "connections": opened,
            "waiting": self.admission.connections - opened,
            "turned_away": self.turned_away,
        }

    def bind(self) -> None:
        """Takes the address. Who connects waits in the system's queue: nothing is accepted before `start`."""
        # getaddrinfo gives it the protocol TCP: asyncio sets TCP_NODELAY only then
        family = socket.AF_INET6 if ":" in self.endpoint.host else socket.AF_INET
        self._socket = bound(self.name, self.endpoint.host, self.endpoint.port, BACKLOG, family)

    def inherit(self, older: Listener) -> None:
        """Takes the socket of a listener with the same address: nobody who waits there is turned away."""
        assert older._socket is not None
        self._socket = older._socket.dup()

    def adopt(self, older: Listener) -> None:
        """Takes over the connections of the listener it replaces; what they were told at CONNECT stays."""
        for shell in older.connections:
            shell.owner = shell.connection.listener = self
            self.admission.enter(shell.connection.address)
        self.connections |= older.connections
        older.connections = set()
        for connected, address in older.admission.close():
            self.admission.arrive(connected, address)

    def start(self) -> None:
        """Accepts from now on. Called again, it takes up certificates that have changed."""
        assert self._socket is not None
        endpoint = self.endpoint
        self._context = endpoint.tls.context() if endpoint.tls is not None else None
        if self._acceptor is not None:
            return
        listening, arrived = self._socket.dup(), self.admission.arrive
        if endpoint.proxy:
            patience, most = endpoint.connect_timeout, endpoint.max_connections
            self._acceptor = ProxyAcceptor(listening, self.loop, self.site, arrived, patience=patience, most=most)
        else:
            self._acceptor = Acceptor(listening, self.loop, self.site, arrived)

    def _open(self, connected: socket.socket, address: str) -> asyncio.Task[None]:
        """Begins TLS or MQTT."""
        endpoint = self.endpoint
        connection = Connection(
            site=self.site, host=self.host, listener=self, on_bug=self._on_bug, max_connect=endpoint.max_connect
        )
        shell = ConnectionShell(self, connection, address)
        opening = self.loop.create_task(self._make_connection(connected, shell, self._context))
        self._opening.add(opening)
        opening.add_done_callback(partial(self._opened, connected, shell, address))
        return opening

    async def _make_connection(
        self, connected: socket.socket, shell: ConnectionShell, context: ssl.SSLContext | None
    ) -> None:
        try:
            await self.loop.connect_accepted_socket(
                lambda: self._protocol(shell),
                connected,
                ssl=context,
                # the time before CONNECT begins with the connection, not with the end of the handshake
                ssl_handshake_timeout=min(HANDSHAKE, self.endpoint.connect_timeout) if context else None,
            )
        except (OSError, TimeoutError) as error:
            log.debug("connection failed", reason=str(error))

    def _opened(
        self, connected: socket.socket, shell: ConnectionShell, address: str, opening: asyncio.Task[None]
    ) -> None:
        """It is open now, or never will be."""
        self.site.open()
        self._opening.discard(opening)
        if self.endpoint.tls is not None:
            self.admission.handshake_ended(opening, address)
        if shell.transport is None:  # else it leaves when it is lost
            connected.close()
            self.admission.leave(address)

    def _protocol(self, shell: ConnectionShell) -> asyncio.Protocol:
        endpoint = self.endpoint
        if endpoint.path is None:
            return shell
        # one WebSocket message may carry many packets, and the reader has its own say about their size
        most, reader = max(2**20, 16 * endpoint.max_packet), shell.connection.reader
        return self._websocket(shell, endpoint.path, endpoint.origins, most, keep_head=reader.keep_head, pay=reader.pay)

    def admits(self, shell: ConnectionShell) -> bool:
        """Whether the listener is still there. Then the client has `connect_timeout` to say CONNECT."""
        site, reader = self.site, shell.connection.reader
        site.open()
        if self._socket is None:
            self.admission.leave(shell.connection.address)
            return False  # the listener was closed during its TLS handshake
        self.connections.add(shell)
        reader.payer = self.admission.payer(shell.connection.address)
        opened, reader.last_read = reader.last_read, site.now
        shell.connection.timer = site.timers.at(opened + self.endpoint.connect_timeout, shell.late)
        return True

    def lost(self, shell: ConnectionShell, error: Exception | None) -> None:
        if shell in self.connections:
            self.connections.discard(shell)
            self.admission.leave(shell.connection.address)

    def stop_accepting(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        for connected, _ in self.admission.close():
            connected.close()
        for opening in self._opening:
            opening.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
