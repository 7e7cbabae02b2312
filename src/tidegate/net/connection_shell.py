"""The shell around one connection: it feeds bytes in, writes bytes out, and closes in bounded time.

`data_received` is the reader's own `receive`: on the hot path the loop calls into the session room directly.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable
from typing import Any, Protocol

from tidegate.net.endpoint import Context
from tidegate.policy.revocation import PeerCertificate
from tidegate.policy.trust_list import fingerprint
from tidegate.session import Connection, Phase
from tidegate.wire import Reason

LINGER = 5.0  # seconds a closed connection has to take what was written to it
DER = 2  # how OpenSSL's bindings write a certificate
HIGH_WATER = 256 * 1024  # bytes that may wait for a client that reads slowly, before QoS 0 is dropped for it
LINK_HIGH_WATER = 4 * 2**20  # the same of another node


class Owner(Protocol):
    """Whoever has accepted or made connections, and counts them."""

    loop: asyncio.AbstractEventLoop

    def admits(self, shell: ConnectionShell) -> bool:
        """Whether a connection that is open now may stay."""
        ...

    def lost(self, shell: ConnectionShell, error: Exception | None) -> None:
        """It is gone; with what error, if the system names one."""
        ...


class ConnectionShell(asyncio.Protocol):
    """One socket, accepted or made."""

    __slots__ = ("_address", "connection", "data_received", "owner", "transport")

    def __init__(self, owner: Owner, connection: Connection, address: str) -> None:
        self._address = address
        self.owner = owner
        self.connection = connection
        self.data_received: Callable[[bytes], None] = connection.reader.receive  # type: ignore[assignment]
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        connection = self.connection
        tls = transport.get_extra_info("ssl_object")
        connection.opened(self, self._address, _certificate(tls))
        self.transport.set_write_buffer_limits(high=HIGH_WATER)
        connection.write = self.transport.write  # hot: no call in between
        if not self.owner.admits(self):
            connection.phase = Phase.CLOSED
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self.connection.lost()
        finally:
            self.owner.lost(self, exc)  # whatever fails, its place is free again

    def pause_writing(self) -> None:
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        self.connection.resume_writing()

    # -- session.Shell -----------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def close(self) -> None:
        """Closes when everything is written; a client that does not read gets `LINGER` seconds."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.owner.loop.call_later(LINGER, self.transport.abort)

    def pause_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def hold_more(self) -> None:
        self.transport.set_write_buffer_limits(high=LINK_HIGH_WATER)

    def late(self) -> None:
        """No CONNECT in the time allowed, or no end of the handshake."""
        if self.connection.phase in (Phase.NEW, Phase.WAITING):
            self.connection.refuse(Reason.NOT_AUTHORIZED) if self.connection.phase is Phase.WAITING else self.abort()

    def abort(self) -> None:
        self.connection.phase = Phase.CLOSED
        self.transport.abort()


def _certificate(tls: ssl.SSLObject | None) -> dict[str, Any] | None:
    """The verified certificate of the peer, and which protocol protects the connection; None without TLS."""
    if tls is None:
        return None
    cipher = tls.cipher()
    certificate, der = tls.getpeercert() or None, tls.getpeercert(binary_form=True)
    verified = None
    if certificate is not None and der is not None:
        expires = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
        verified = PeerCertificate(der=der, expires=expires, authorities=_authorities(tls))
    return {
        "version": tls.version(),
        "cipher": cipher[0] if cipher else None,
        "certificate": certificate,
        "verified": verified,
    }


def _authorities(tls: ssl.SSLObject) -> frozenset[str]:
    """By which authority its certificate was verified: all that were asked if TLS does not say, as in a session that
    is resumed."""
    if sys.version_info >= (3, 13):
        chain = tls.get_verified_chain()
    else:
        chain = [each.public_bytes(DER) for each in tls._sslobj.get_verified_chain() or ()]  # type: ignore[attr-defined]
    if chain:
        return frozenset((fingerprint(chain[-1]),))
    return tls.context.authorities if isinstance(tls.context, Context) else frozenset()
