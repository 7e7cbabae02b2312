"""One listening socket: TCP, TLS, WebSocket or both, with its limits.

The socket is bound and listening before the first connection is accepted by `start`, and stays open while
certificates are replaced: a new server takes over the same socket, so nobody is refused meanwhile.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import structlog

from tidegate.errors import ConfigError
from tidegate.net.binding import bound
from tidegate.net.connection import ConnectionShell
from tidegate.net.proxy_header import Acceptor
from tidegate.session import Bucket, Connection, Host, Site
from tidegate.session.prices import Payer

BACKLOG = 4096
HANDSHAKE = 10.0

log = structlog.get_logger(__name__)


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
    proxy: bool = False  # connections begin with a PROXY header
    max_connections: int = 100_000
    address_connections: int = 20_000
    connect_rate: float | None = None
    connect_timeout: float = 10.0
    max_packet: int = 2**20
    max_connect: int = 2**17
    publish_rate: float | None = None
    publish_burst: float = 1.0


class Address:
    """Where connections come from: how many there are, and who pays for them until they have logged in."""

    __slots__ = ("connections", "payer")

    def __init__(self) -> None:
        self.connections = 0
        self.payer = Payer()


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Whom an address belongs to: with IPv6 everybody has a whole network of them."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


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
        self.site = site
        self.host = host
        self.loop = loop
        self.connections: set[ConnectionShell] = set()
        self.addresses: dict[str, Address] = {}
        self.turned_away = 0
        self._on_bug = on_bug
        self._bucket: Bucket | None = None
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._acceptor: Acceptor | None = None
        self._handshakes: set[asyncio.Task[None]] = set()  # of connections that came through a proxy

    @property
    def port(self) -> int:
        """The port it really listens on; the configuration may say 0."""
        assert self._socket is not None
        port: int = self._socket.getsockname()[1]
        return port

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
            shell.listener = shell.connection.listener = self
            self._address(shell.connection.address).connections += 1
        self.connections |= older.connections
        older.connections = set()
        older.addresses = {}

    async def start(self) -> None:
        """Accepts from now on. Called again, it takes up certificates that have changed."""
        assert self._socket is not None
        tls = self.endpoint.tls
        context = tls.context() if tls is not None else None
        if self.endpoint.proxy:
            self._accept_from_proxy(context)
            return
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

    def _accept_from_proxy(self, context: ssl.SSLContext | None) -> None:
        """Each connection says first whose it is; what follows is as on any other listener."""
        assert self._socket is not None
        endpoint, old = self.endpoint, self._acceptor

        def accepted(connected: socket.socket, address: str) -> None:
            handshake = self.loop.create_task(self._take_over(connected, address, context))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

        listening = self._socket.dup()
        patience, most = endpoint.connect_timeout, endpoint.max_connections
        self._acceptor = Acceptor(listening, self.loop, accepted, patience=patience, most=most)
        if old is not None:
            old.close()

    async def _take_over(self, connected: socket.socket, address: str, context: ssl.SSLContext | None) -> None:
        try:
            await self.loop.connect_accepted_socket(
                partial(self._connection, address),
                connected,
                ssl=context,
                ssl_handshake_timeout=min(HANDSHAKE, self.endpoint.connect_timeout) if context else None,
            )
        except (OSError, TimeoutError) as error:
            log.debug("connection through a proxy failed", address=address, reason=str(error))
            connected.close()

    def _connection(self, address: str = "") -> asyncio.Protocol:
        endpoint = self.endpoint
        connection = Connection(
            site=self.site, host=self.host, listener=self, on_bug=self._on_bug, max_connect=endpoint.max_connect
        )
        shell = ConnectionShell(self, connection, address)
        if endpoint.path is None:
            return shell
        # one WebSocket message may carry many packets, and the reader has its own say about their size
        return self._websocket(shell, endpoint.path, endpoint.origins, max(2**20, 16 * endpoint.max_packet))

    def admits(self, shell: ConnectionShell) -> bool:
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
        address = self._address(shell.connection.address)
        if len(self.connections) >= endpoint.max_connections or address.connections >= endpoint.address_connections:
            self.turned_away += 1
            return False
        address.connections += 1
        self.connections.add(shell)
        shell.connection.reader.payer = address.payer
        shell.connection.reader.last_read = site.now
        shell.connection.timer = site.timers.at(site.now + endpoint.connect_timeout, shell.late)
        return True

    def lost(self, shell: ConnectionShell) -> None:
        if shell in self.connections:
            self.connections.discard(shell)
            network = network_of(shell.connection.address)
            address = self.addresses[network]
            address.connections -= 1
            if not address.connections:
                del self.addresses[network]

    def _address(self, address: str) -> Address:
        return self.addresses.setdefault(network_of(address), Address())

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        for handshake in self._handshakes:
            handshake.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
