"""The shell around one peer: it feeds bytes in, writes bytes out, and closes in bounded time.

`data_received` is the peer's own `receive`: on the hot path the loop calls into the session room directly.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegate.session import Peer, Phase
from tidegate.wire import Reason

if TYPE_CHECKING:
    from tidegate.net.listener import Listener

LINGER = 5.0  # seconds a closed connection has to take what was written to it
HIGH_WATER = 256 * 1024  # bytes that may wait for a client that reads slowly, before QoS 0 is dropped for it


class Connection(asyncio.Protocol):
    """One accepted socket."""

    __slots__ = ("data_received", "listener", "peer", "transport")

    def __init__(self, listener: Listener, peer: Peer) -> None:
        self.listener = listener
        self.peer = peer
        self.data_received: Callable[[bytes], None] = peer.receive  # type: ignore[assignment]
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        peer = self.peer
        name = transport.get_extra_info("peername")
        address = f"{name[0]}" if isinstance(name, tuple) else ""
        tls = transport.get_extra_info("ssl_object")
        peer.made(self, address, _certificate(tls))
        self.transport.set_write_buffer_limits(high=HIGH_WATER)
        peer.write = self.transport.write  # hot: no call in between
        if not self.listener.admits(self):
            peer.phase = Phase.CLOSED
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self.peer.lost()
        finally:
            self.listener.lost(self)  # whatever fails, its place is free again

    def pause_writing(self) -> None:
        self.peer.pause_writing()

    def resume_writing(self) -> None:
        self.peer.resume_writing()

    # -- session.Shell -----------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def close(self) -> None:
        """Closes when everything is written; a client that does not read gets `LINGER` seconds."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.listener.loop.call_later(LINGER, self.transport.abort)

    def pause_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def late(self) -> None:
        """No CONNECT in the time allowed, or no end of the handshake."""
        if self.peer.phase in (Phase.NEW, Phase.WAITING):
            self.peer.refuse(Reason.NOT_AUTHORIZED) if self.peer.phase is Phase.WAITING else self.abort()

    def abort(self) -> None:
        self.peer.phase = Phase.CLOSED
        self.transport.abort()


def _certificate(tls: ssl.SSLObject | None) -> dict[str, Any] | None:
    """The client's verified certificate, and which protocol protects the connection; None without TLS."""
    if tls is None:
        return None
    cipher = tls.cipher()
    return {
        "version": tls.version(),
        "cipher": cipher[0] if cipher else None,
        "certificate": tls.getpeercert() or None,
        "der": tls.getpeercert(binary_form=True),
    }
