"""Listeners: where clients connect, over what, and who is let in.

A setting that would have no effect is an error rather than a warning, because it looks enforced and is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from tidegate.config.address import Address, ListenAddress
from tidegate.config.directory import MOSQUITTO, PLAIN, has_other_authentication
from tidegate.config.policies import EnvironmentAttributes
from tidegate.config.problems import Finding, refusal, unknown
from tidegate.config.section import FilePath, Identity, Section
from tidegate.config.units import Count, Duration, Rate, Size, Switch

if TYPE_CHECKING:
    from tidegate.config.administration import Http
    from tidegate.config.model import Config

_ORIGIN: Final = re.compile(r"(null|[a-z][a-z0-9+.-]*://[^/?#\s]+)", re.IGNORECASE)


class ClientCert(StrEnum):
    """Whether a TLS listener asks clients for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class CertificateUser(StrEnum):
    """Which name a certificate speaks for."""

    COMMON_NAME = "common_name"
    SUBJECT = "subject"
    NONE = "none"


class TlsVersion(StrEnum):
    """The oldest TLS version that a listener accepts."""

    V12 = "1.2"
    V13 = "1.3"


def _origin(written: str) -> str:
    if not _ORIGIN.fullmatch(written):
        raise refusal("must be an origin; write scheme and host, such as `https://example.org`")
    return written.lower()


def _not_a_number(written: object) -> object:
    return str(written) if isinstance(written, float) else written


class Listener(Section):
    """One address on which clients connect."""

    url: ListenAddress
    """`mqtt://`, `mqtts://`, `ws://` or `wss://`, host, port (default 1883, 8883, 8083, 8084) and, for
    WebSocket, the path; without a path every path is accepted. IPv6 addresses in brackets. Port 0: any free
    port."""
    scope: str = ""
    """The scope whose clients connect here. Default: the only scope."""
    anonymous: Switch = False
    """Whether clients may connect without proving who they are."""
    cert: FilePath | None = None
    """Certificate chain (PEM) of a TLS listener."""
    key: FilePath | None = None
    """Private key (PEM) of a TLS listener. Default: the one in the file of the certificate."""
    client_ca: FilePath | None = None
    """Certificates (PEM) of the authorities whose client certificates are accepted."""
    crl: FilePath | None = None
    """Certificate revocation lists (PEM or DER) of those authorities. The file is read again when it changes. A
    certificate of an authority without a list, or whose list has expired, is refused. Default: none are looked up."""
    client_cert: ClientCert = ClientCert.NONE
    """Whether clients are asked for a certificate; `optional` and `required` need `client_ca`."""
    users: tuple[Identity, ...] | None = None
    """The users who may connect here. Default: all. Clients without a user are not meant: see `anonymous`."""
    certificate_user: CertificateUser = CertificateUser.COMMON_NAME
    """Who connects with a certificate and without a user name: `common_name`: whoever that is in the certificate.
    `subject`: the whole subject as RFC 4514 writes it, `CN=mary,O=Gym`. `none`: nobody; the certificate only opens the
    listener."""
    tls_min: Annotated[TlsVersion, BeforeValidator(_not_a_number)] = TlsVersion.V12
    """The oldest TLS version accepted."""
    proxy: Switch = False
    """Whether connections begin with a PROXY header (version 1 or 2), as a load balancer sends it; the address in it
    is that of the client. A connection without one is closed. Switch it on only where nobody but the load balancer can
    connect: the header is believed."""
    max_connections: Count = Field(default=100_000, ge=1)
    """Connections at a time; more are refused."""
    address_connections: Count = Field(default=20_000, ge=1)
    """Connections at a time from one address (IPv6: from one /64 network); more are refused."""
    handshakes: Count = Field(default=1000, ge=1)
    """TLS handshakes at a time; who comes to more waits."""
    address_handshakes: Count = Field(default=200, ge=1)
    """TLS handshakes at a time with one address (IPv6: with one /64 network); who comes to more waits."""
    connect_rate: Rate | None = Field(default=None, gt=0, le=1e6)
    """New connections per second. More wait before TLS and MQTT begin, and the address that was given least is next.
    Default: no limit."""
    connect_timeout: Duration = Field(default=10.0, gt=0, le=3600)
    """Time a client has, from the first byte of the connection on, until its CONNECT is complete."""
    max_packet: Size = Field(default=1 << 20, ge=1, le=268_435_460)
    """Largest packet accepted; a larger one is refused from its header."""
    max_connect: Size = Field(default=128 << 10, ge=64, le=1 << 20)
    """Largest CONNECT or AUTH accepted before a client has logged in; a larger one is refused from its header."""
    publish_rate: Rate | None = Field(default=None, gt=0, le=1e9)
    """Messages per second that one client may publish; a faster one is slowed down. Default: no limit."""
    publish_burst: Count | None = Field(default=None, ge=1)
    """Messages that may come at once before `publish_rate` applies. Default: those of one second."""
    origins: tuple[Annotated[str, AfterValidator(_origin)], ...] | None = Field(default=None, min_length=1)
    """`Origin` headers accepted on a WebSocket listener, such as `https://example.org`. Default: any."""
    environment: EnvironmentAttributes = Field(default_factory=dict)
    """What conditions read as `e.…` for whoever connects here; it wins over the `environment` of the node."""

    @property
    def burst(self) -> int:
        """`publish_burst`, or the messages of one second."""
        return self.publish_burst or max(1, math.ceil(self.publish_rate or 1))


def problems(config: Config) -> Iterator[Finding]:
    """Listeners whose settings contradict each other, the scopes, or other listeners."""
    for index, listener in enumerate(config.listeners):
        here = ("listeners", index)
        for key, text in _listener(listener):
            yield (*here, key), text
        for number, name in enumerate(listener.users or ()):
            if name not in config.directory.users and not has_other_authentication(config):
                yield (*here, "users", number), unknown("user", name, config.directory.users, "directory.users")
        if not listener.scope:
            yield (*here, "scope"), "is missing and there are several scopes; say which one clients enter here"
        elif listener.scope not in config.scopes:
            yield (*here, "scope"), unknown("scope", listener.scope, tuple(config.scopes), "scopes")
        for other_index, other in enumerate(config.listeners[:index]):
            if listener.url.clashes(other.url):
                yield (*here, "url"), f"takes the same address as listener {other_index}; choose another port"


def _listener(listener: Listener) -> Iterator[tuple[str, str]]:
    asks = listener.client_cert is not ClientCert.NONE
    yield from certificate_problems(listener, listener.url)
    if listener.url.tls:
        if asks and listener.client_ca is None:
            yield "client_ca", f"is missing, which `client_cert: {listener.client_cert}` needs; name a file"
        if listener.client_ca is not None and not asks:
            yield "client_ca", "has no effect while no certificate is asked for; add `client_cert: required`"
        if "certificate_user" in listener.model_fields_set and not asks:
            yield "certificate_user", "has no effect while no certificate is asked for; add `client_cert: required`"
        if listener.crl is not None and not asks:
            yield "crl", "has no effect while no certificate is asked for; add `client_cert: required`"
    if listener.origins is not None and not listener.url.websocket:
        yield "origins", f"has no effect on {listener.url.scheme}://; remove it"
    if listener.publish_burst is not None and listener.publish_rate is None:
        yield "publish_burst", "has no effect without `publish_rate`; add that, or remove it"


def certificate_problems(section: Listener | Http, url: Address) -> Iterator[tuple[str, str]]:
    """A missing certificate of a TLS address, and settings that only TLS uses at another address."""
    if url.tls and section.cert is None:
        yield "cert", f"is missing, which {url.scheme}:// needs; make one with `tidegate cert issue`"
    for key in ("cert", "key", "client_ca", "crl", "client_cert", "certificate_user", "tls_min"):
        if not url.tls and key in section.model_fields_set:
            yield key, f"has no effect on {url.scheme}://; write {url.scheme}s://, or remove it"


def warnings(config: Config) -> Iterator[Finding]:
    """Users who cannot connect, and listeners that let in nobody, or more than is probably meant."""
    hashes = [name for name, user in config.directory.users.items() if MOSQUITTO.fullmatch(user.password or "")]
    if hashes:
        more = "" if len(hashes) == 1 else f", as {len(hashes) - 1} more"
        how = "replace it with what `tidegate passwd` prints, or give the users to the node with `tidegate apply`"
        text = f"is a hash of Mosquitto's{more}, which is guessed faster than argon2id; {how}"
        yield ("directory", "users", hashes[0], "password"), text
    users, others = config.directory.users, has_other_authentication(config)
    with_certificates = any(listener.client_cert is not ClientCert.NONE for listener in config.listeners)
    for name, user in users.items():
        at = ("directory", "users", name)
        if user.password is not None and user.password.startswith(PLAIN):
            yield (*at, "password"), "is written in plain; replace it with what `tidegate passwd` prints"
        elif user.password is None and not with_certificates and not others:
            yield at, "has no password, and no listener asks for certificates; this user cannot connect"
    nobody = not (users or others or config.http is not None)
    for index, listener in enumerate(config.listeners):
        for text in _exposure(config, listener, nobody=nobody):
            yield ("listeners", index), text
        if listener.max_packet > config.limits.queue.bytes:
            text = "is larger than `limits.queue.bytes`, so the largest packets can never be queued; lower it"
            yield ("listeners", index, "max_packet"), text


def _exposure(config: Config, listener: Listener, *, nobody: bool) -> Iterator[str]:
    asks = listener.client_cert is not ClientCert.NONE
    if listener.anonymous and not listener.url.loopback:
        yield "lets everybody on the network in; set `anonymous: false`, or listen on 127.0.0.1"
    if nobody and not listener.anonymous and not asks:
        yield "lets nobody in: there are no users; add some under `directory.users`, or set `anonymous: true`"
    if config.directory.users and not listener.url.tls and not listener.url.loopback:
        yield f"carries passwords unencrypted over the network; use {listener.url.scheme}s://"
