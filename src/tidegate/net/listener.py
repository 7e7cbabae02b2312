"""One listening socket: TCP, TLS, WebSocket or both, with its limits.

The socket is bound and listening before the first connection is accepted by `start`, and stays open while
certificates are replaced: a new server takes over the same socket, so nobody is refused meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import ConfigError
from tidegate.net.connection import Connection
from tidegate.session import Bucket, Host, Peer, Site

BACKLOG = 4096
HANDSHAKE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificates of a listener."""

    cert: Path
    key: Path
    client_ca: Path | None = None
    client_cert: str = "none"  # none, optional, required
    minimum: str = "1.2"

    def context(self) -> ssl.SSLContext:
        """A fresh context from the files as they are now."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3 if self.minimum == "1.3" else ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        try:
            context.load_cert_chain(self.cert, self.key, password=_no_password)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot load the certificate {self.cert} or its key or CA: {error}") from error
        modes = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
        context.verify_mode = modes[self.client_cert]
        return context


def _no_password() -> str:
    raise ConfigError("the private key is encrypted; decrypt it, nobody is there to type a password")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how to listen."""

    name: str  # the URL
    host: str
    port: int
    path: str | None = None  # WebSocket
    origins: tuple[str, ...] | None = None
    tls: Tls | None = None
    anonymous: bool = False
    max_connections: int = 100_000
    connect_rate: float | None = None
    connect_timeout: float = 10.0
    max_packet: int = 2**20
    publish_rate: float | None = None
    publish_burst: float = 1.0


class Listener:
    """Accepts connections for one scope."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        site: Site,
        host: Host,
        loop: asyncio.AbstractEventLoop,
        on_bug: Callable[[Peer, BaseException], None],
    ) -> None:
        self.endpoint = endpoint
        self.name = endpoint.name
        self.max_packet = endpoint.max_packet
        self.publish_rate = endpoint.publish_rate
        self.publish_burst = endpoint.publish_burst
        self.anonymous = endpoint.anonymous
        self.site = site
        self.host = host
        self.loop = loop
        self.connections: set[Connection] = set()
        self.turned_away = 0
        self._on_bug = on_bug
        self._bucket: Bucket | None = None
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port it really listens on; the configuration may say 0."""
        assert self._socket is not None
        port: int = self._socket.getsockname()[1]
        return port

    def bind(self) -> None:
        """Takes the address. Who connects waits in the system's queue: nothing is accepted before `start`."""
        endpoint = self.endpoint
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY only then
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setblocking(False)
            sock.bind((endpoint.host, endpoint.port))
            sock.listen(BACKLOG)  # here and not in `start`: only now is it certain that the address is ours
        except OSError as error:
            sock.close()
            raise ConfigError(
                f"cannot listen on {endpoint.name}: {error.strerror}; free the port or choose another address"
            ) from error
        self._socket = sock

    def inherit(self, older: Listener) -> None:
        """Takes the socket of a listener with the same address: nobody who waits there is turned away."""
        assert older._socket is not None
        self._socket = older._socket.dup()

    def adopt(self, older: Listener) -> None:
        """Takes over the connections of the listener it replaces; what they were told at CONNECT stays."""
        for connection in older.connections:
            connection.listener = connection.peer.listener = self
        self.connections |= older.connections
        older.connections = set()

    async def start(self) -> None:
        """Accepts from now on. Called again, it takes up certificates that have changed."""
        assert self._socket is not None
        tls = self.endpoint.tls
        context = tls.context() if tls is not None else None
        old = self._server
        self._server = await self.loop.create_server(
            self._connection,
            sock=self._socket.dup(),
            backlog=BACKLOG,
            ssl=context,
            # the time before CONNECT begins with the connection, not with the end of the handshake
            ssl_handshake_timeout=min(HANDSHAKE, self.endpoint.connect_timeout) if context else None,
        )
        if old is not None:
            old.close()

    def _connection(self) -> asyncio.Protocol:
        peer = Peer(site=self.site, host=self.host, listener=self, on_bug=self._on_bug)
        connection = Connection(self, peer)
        endpoint = self.endpoint
        if endpoint.path is None:
            return connection
        # one WebSocket message may carry many packets, and the peer has its own say about their size
        from tidegate.net.websocket import WebSocket

        return WebSocket(connection, endpoint.path, endpoint.origins, max(2**20, 16 * endpoint.max_packet))

    def admits(self, connection: Connection) -> bool:
        """Within the limits of this listener? Then it has `connect_timeout` to say CONNECT."""
        endpoint = self.endpoint
        site = self.site
        site.open()
        if self._socket is None:
            return False  # the listener was closed during its TLS handshake
        if endpoint.connect_rate is not None:
            if self._bucket is None:
                self._bucket = Bucket(endpoint.connect_rate, max(1.0, endpoint.connect_rate), site.now)
            if not self._bucket.afford(site.now):
                self.turned_away += 1
                return False
        if len(self.connections) >= endpoint.max_connections:
            self.turned_away += 1
            return False
        self.connections.add(connection)
        connection.peer.seen = site.now
        connection.peer.timer = site.timers.at(site.now + endpoint.connect_timeout, connection.late)
        return True

    def lost(self, connection: Connection) -> None:
        self.connections.discard(connection)

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
