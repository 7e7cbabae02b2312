"""Accepting connections with TLS: each has its place before the handshake begins (`places`).

So handshakes are bounded as connections are, in all and for one address, and whoever begins many and ends none keeps
neither health checks nor administrators out.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import structlog

ACCEPTED: Final = 16  # connections in one turn of the loop at most
FULL: Final = 1.0  # seconds before it tries again when the system has no descriptor for another connection

log = structlog.get_logger("tidegate.api")


class Entering(Protocol):
    """The protocol of a connection that has a place before it has a transport."""

    @property
    def protocol(self) -> asyncio.Protocol: ...

    def enter(self, address: str, handshake: asyncio.Task[None]) -> None:
        """It takes a place, or loses it at once; then the handshake is cancelled."""
        ...

    def failed(self) -> None:
        """The handshake has ended, and there is no connection."""
        ...


class TlsServer:
    """In place of `asyncio.Server`."""

    def __init__(
        self, listening: socket.socket, context: ssl.SSLContext, make: Callable[[], Entering], *, patience: float
    ) -> None:
        """`patience`: seconds for a handshake."""
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._context = context
        self._make = make
        self._patience = patience
        self._handshakes: set[asyncio.Task[None]] = set()
        self._closed = False
        listening.setblocking(False)
        self._read_on()

    def close(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for handshake in self._handshakes:
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Until all handshakes have ended."""
        if self._handshakes:
            await asyncio.wait(self._handshakes)

    def _read_on(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED):
            try:
                connected, name = self._listening.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # it has left before it was accepted
                continue
            except OSError as error:
                log.warning("cannot accept", reason=error.strerror)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(FULL, self._read_on)
                return
            connected.setblocking(False)
            entering = self._make()
            handshake = self._loop.create_task(self._shake(connected, entering))
            self._handshakes.add(handshake)
            handshake.add_done_callback(partial(self._ended, connected, entering))
            entering.enter(str(name[0]), handshake)

    async def _shake(self, connected: socket.socket, entering: Entering) -> None:
        await self._loop.connect_accepted_socket(
            lambda: entering.protocol, connected, ssl=self._context, ssl_handshake_timeout=self._patience
        )

    def _ended(self, connected: socket.socket, entering: Entering, handshake: asyncio.Task[None]) -> None:
        """Well or badly."""
        self._handshakes.discard(handshake)
        error = None if handshake.cancelled() else handshake.exception()
        if handshake.cancelled() or error is not None:
            connected.close()
            entering.failed()
        if not (error is None or isinstance(error, (OSError, TimeoutError))):  # who cannot speak TLS is no news
            log.error("handshake failed", exc_info=error)
