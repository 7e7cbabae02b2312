"""Running the application: on a socket that the node made, until the node goes away.

- The head of a request arrives within `HEAD` seconds, else the connection is closed; so is one that says nothing for
  `IDLE` seconds between requests, and one that takes nothing of its answer for `http.timeout`.
- There are so many places for connections, in all and for one address, and some for those who must get in (`places`).
- Metrics may have a listener of their own, which answers nothing else and asks for no token.
- The process ends when its standard input does: when the node closes it, or is no more.
- Who comes with a certificate that was revoked is refused, and who is connected with one is cut off.
- It gives way to the broker: its priority is lower.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

import h11
import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidegate.addresses import network
from tidegate.api.app import Application, Pages
from tidegate.api.places import Places
from tidegate.api.problems import MEDIA_TYPE, Kind, Problem
from tidegate.api.tls_server import TlsServer
from tidegate.net.crl import RevocationFile
from tidegate.node.http import Serving, tls_context
from tidegate.session import Bucket

HEAD: Final = 10.0
IDLE: Final = 30
METRICS_CONNECTIONS: Final = 16
HEADERS: Final = 16 << 10  # bytes of a head
LEAVING: Final = 2  # seconds for answers in the making when it stops
LINES: Final = 10.0  # log lines a second about those who are refused
NICE: Final = 10

log = structlog.get_logger("tidegate.api")


def run(serving: Serving, pages: Pages | None = None) -> int:
    os.nice(NICE)
    _log_through()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_main(serving, pages))


async def _main(serving: Serving, pages: Pages | None) -> int:
    revocation = RevocationFile("http", serving.crl, serving.client_ca, serving.revoked)
    server = Server(Application(serving, pages), tls_context(serving), revocation)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, server.stop)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # it is for the node, which then closes our input
    await _watch_input(server.stop)
    descriptors = [one for one in (serving.descriptor, serving.metrics) if one >= 0]
    watching = loop.create_task(revocation.watch(server.dismiss_revoked))
    try:
        await server.serve(sockets=[socket.socket(fileno=one) for one in descriptors])
    finally:
        watching.cancel()
    return 0


async def _watch_input(ended: Callable[[], None]) -> None:
    class Input(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            ended()

    await asyncio.get_running_loop().connect_read_pipe(Input, sys.stdin.buffer)


class Server(uvicorn.Server):
    """Tells streams to end when it stops, and gives handshakes an end."""

    def __init__(
        self,
        application: Application,
        tls: ssl.SSLContext | None = None,
        revocation: RevocationFile | None = None,
    ) -> None:
        config = uvicorn.Config(
            application.asgi,
            http=_Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=LEAVING,
            h11_max_incomplete_event_size=HEADERS,
        )
        super().__init__(config)
        self._tls = tls
        self._revocation = revocation
        self._lines = Bucket(LINES, LINES, 0.0)
        self._timeout = application.timeout
        self._application = application
        self._stopping = application.stopping

    def stop(self) -> None:
        self.should_exit = True

    def dismiss_revoked(self) -> None:
        """Closes connections whose certificates count no more."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, _Protocol):
                connection.check_certificate()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        assert sockets is not None
        application = self._application
        ordinary = partial(self._protocol, application.places, application.asgi, application.asgi_kept)
        few = Places(METRICS_CONNECTIONS, METRICS_CONNECTIONS)
        metrics = partial(self._protocol, few, application.metrics, application.metrics)
        if self._tls is None:
            self.servers = [await loop.create_server(ordinary, sock=sockets[0])]
        else:
            door: Any = TlsServer(sockets[0], self._tls, ordinary, patience=HEAD)
            self.servers = [door]
        self.servers += [await loop.create_server(metrics, sock=one) for one in sockets[1:]]
        self.started = True

    def _protocol(self, places: Places, app: ASGIApp, kept: ASGIApp) -> _Protocol:
        """For a new connection. `kept`: the application for one that finds no ordinary place."""
        made = _Protocol(self.config, self.server_state, self.lifespan.state)
        made.patience = self._timeout
        made.places, made.apps = places, (kept, app)
        made.revocation, made.lines = self._revocation, self._lines
        return made

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping.set()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals are for whoever runs it."""
        yield


class _Protocol(H11Protocol):
    """HTTP/1.1 with an end to waiting: for the head of a request, and for answers to be taken."""

    patience = 30.0
    places: Places
    apps: tuple[ASGIApp, ASGIApp]
    """In a kept place, and in an ordinary one."""
    revocation: RevocationFile | None = None
    lines: Bucket
    """Log lines about those who are refused."""
    _waiting: asyncio.TimerHandle | None = None
    _handshake: asyncio.Task[None] | None = None
    """It has a place since that began."""

    # -- tls_server.Entering

    @property
    def protocol(self) -> asyncio.Protocol:
        return self

    def enter(self, address: str, handshake: asyncio.Task[None] | None) -> None:
        self._handshake = handshake
        self.app = self.apps[self.places.enter(self, network(address))]

    def failed(self) -> None:
        self.places.left(self)

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._handshake is None:
            self.enter(self.client[0] if self.client else "", None)
        if transport.is_closing() or not self.check_certificate():
            return
        line = transport.get_extra_info("socket")
        # head and body are two writes; without it the second waits for the other side to acknowledge the first
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # whoever does not read is cut off by the kernel, also when we have closed the connection and only flush it
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self.patience * 1000))
        self._wait()

    def check_certificate(self) -> bool:
        """Closes the connection if the certificate of the other side was revoked; else True."""
        tls = self.transport.get_extra_info("ssl_object")
        if tls is None or self.revocation is None:
            return True
        objection = self.revocation.objection(tls.getpeercert(binary_form=True))
        if objection:
            if self.lines.afford(self.loop.time()):
                log.warning("refused", address=self.client, reason=f"its certificate is not accepted: {objection}")
            self.transport.abort()
        return not objection

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self.places.asks(self)
            self._heard()

    def leave(self) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.places.left(self)
        self._heard()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        body = Problem(Kind.MALFORMED, "this is not HTTP/1.1 as it should be", "send it as RFC 9112 says").body()
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        with contextlib.suppress(h11.LocalProtocolError):  # an answer is under way: closing is all that is left
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEAD, self.transport.abort)

    def _heard(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


class _Forward(logging.Handler):
    """What the server says goes where our own lines go. Clients that break rules are no news."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            log.error("server failed", exc_info=record.exc_info)
        else:
            log.debug("server", text=record.getMessage())


def _log_through() -> None:
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [_Forward()]
        logger.propagate = False
        logger.setLevel(logging.INFO)
