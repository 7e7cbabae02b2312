"""Where and how to listen: an address, its certificates, its limits."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import ConfigError
from tidegate.policy.revocation import authorities_in


class Context(ssl.SSLContext):
    """A TLS context that knows which authorities it verifies clients by."""

    authorities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificates of a listener."""

    cert: Path
    key: Path
    client_ca: Path | None = None
    client_cert: str = "none"  # none, optional, required
    minimum: str = "1.2"

    def context(self) -> Context:
        """A fresh context from the files as they are now."""
        context = Context(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3 if self.minimum == "1.3" else ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        if self.client_ca is not None:
            context.authorities = authorities_in(_read(self.client_ca))
        _load(context, self.cert, self.key, self.client_ca)
        modes = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
        context.verify_mode = modes[self.client_cert]
        return context


def client_context(*, cert: Path | None, key: Path | None, ca: Path | None, minimum: str = "1.2") -> ssl.SSLContext:
    """For a node that connects to another, from the files as they are now: each shows the other its certificate, if it
    has one. Without `ca` it is the authorities of the system that count."""
    context = Context(ssl.PROTOCOL_TLS_CLIENT)
    if ca is not None:
        context.authorities = authorities_in(_read(ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if minimum == "1.3" else ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if ca is None:
        context.load_default_certs()
    else:
        _trust(context, ca)
    if cert is not None:
        _load(context, cert, key or cert, None)
    return context


def _trust(context: ssl.SSLContext, ca: Path) -> None:
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot load the authorities in {ca}: {error}") from error


def _load(context: ssl.SSLContext, cert: Path, key: Path, ca: Path | None) -> None:
    try:
        context.load_cert_chain(cert, key, password=_no_password)
        if ca is not None:
            context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot load the certificate {cert} or its key or CA: {error}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot load the certificates in {path}: {error.strerror}") from error


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
    certificate_user: str = "common_name"
    loopback: bool = False  # only this machine can connect
    proxy: bool = False  # connections begin with a PROXY header
    max_connections: int = 100_000
    address_connections: int = 20_000
    handshakes: int = 1000
    address_handshakes: int = 200
    connect_rate: float | None = None
    connect_timeout: float = 10.0
    max_packet: int = 2**20
    max_connect: int = 2**17
    publish_rate: float | None = None
    publish_burst: float = 1.0
