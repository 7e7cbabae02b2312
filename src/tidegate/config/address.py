"""Addresses in the configuration, as URLs: listeners (`mqtt://host:port`, `mqtts://`, `ws://host:port/path`, `wss://`),
HTTP (`http://`, `https://`), the key service (`tls://`), the other end of a link (`mqtts://`) and a guarded broker
(`mqtt://`, `mqtts://`, `unix://`). IPv6 addresses stand in brackets.

The host is never guessed: all interfaces must be asked for by name (`0.0.0.0`, `[::]`), because a listener
that is open further than its writer thought is the oldest mistake there is.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tidegate.config.problems import alternatives, refusal

LONGEST_SOCKET_PATH: Final = 107  # bytes, on Linux
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")


class Scheme(StrEnum):
    """The protocol of an address."""

    MQTT = "mqtt"
    MQTTS = "mqtts"
    WS = "ws"
    WSS = "wss"
    HTTP = "http"
    HTTPS = "https"
    TLS = "tls"
    LDAP = "ldap"
    LDAPS = "ldaps"
    UNIX = "unix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Scheme, host, port and, of a WebSocket or a Unix socket only, path. An empty one accepts every request path."""

    scheme: Scheme
    host: str
    port: int
    path: str = ""

    @property
    def tls(self) -> bool:
        return self.scheme in (Scheme.MQTTS, Scheme.WSS, Scheme.HTTPS, Scheme.TLS, Scheme.LDAPS)

    @property
    def websocket(self) -> bool:
        return self.scheme in (Scheme.WS, Scheme.WSS)

    @property
    def loopback(self) -> bool:
        return self.scheme is Scheme.UNIX or is_loopback(self.host)

    @property
    def everywhere(self) -> bool:
        """Whether it listens on all interfaces of an address family."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104 - recognised, not bound

    def clashes(self, other: Address) -> bool:
        """Whether the two cannot be listened on at the same time."""
        if self.port != other.port or self.port == 0:
            return False
        same_family = (":" in self.host) == (":" in other.host)
        return self.host.lower() == other.host.lower() or (same_family and (self.everywhere or other.everywhere))

    def __str__(self) -> str:
        if self.scheme is Scheme.UNIX:
            return f"{self.scheme}://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine. A name other than localhost counts as another one."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """Which addresses a key takes."""

    ports: Mapping[Scheme, int]
    """The schemes, each with its default port."""
    example: str
    identity: str
    """How clients prove who they are, since the address cannot hold a password."""
    hosts: str = "write `127.0.0.1` for this machine, `0.0.0.0` for all interfaces"
    """What may stand for the host."""

    def parse(self, written: object) -> Address:
        """The address that a URL names, or a refusal that says what is wrong with it."""
        if isinstance(written, Address):
            return written
        if not isinstance(written, str):
            raise refusal(f"must be a URL; {self.example}")
        if any(character <= " " or character == "\x7f" for character in written):
            raise refusal("contains a space or control character; remove it")
        try:
            parts = urlsplit(written)
            port = parts.port
        except ValueError as error:
            raise refusal(f"is not a URL ({error}); {self.example}") from None
        scheme = next((scheme for scheme in self.ports if scheme == parts.scheme), None)
        if scheme is None:
            raise refusal(f"must begin with {alternatives(f'{each}://' for each in self.ports)}; {self.example}")
        address = Address(scheme=scheme, host=self._host(parts), port=self.ports[scheme] if port is None else port)
        if address.websocket:
            if parts.query or parts.fragment:
                raise refusal("has a query or fragment; end it after the path")
            return replace(address, path=parts.path)
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise refusal("has a path, query or fragment; end it after the port")
        return address

    def _host(self, parts: SplitResult) -> str:
        if parts.username is not None or parts.password is not None:
            raise refusal(f"must not contain a user name or password; {self.identity}")
        place, bracket, after = parts.netloc.rpartition("]")
        if bracket and after and not after.startswith(":"):
            raise refusal(f"has text between `]` and the port; {self.example}")
        host = place.removeprefix("[") if bracket else parts.netloc.partition(":")[0]
        if not host:
            raise refusal(f"names no host; {self.hosts}")
        try:
            if bracket:
                ipaddress.IPv6Address(host)
            elif re.fullmatch(r"[0-9.]+", host):
                ipaddress.IPv4Address(host)
        except ValueError:
            kind = "IPv6 address in the brackets" if bracket else "IPv4 address"
            raise refusal(f"has no valid {kind}; {self.example}") from None
        if not bracket and not _HOST_NAME.fullmatch(host):
            raise refusal(f"has no valid host name; {self.example}")
        return host


parse_address: Final = _Format(
    ports={Scheme.MQTT: 1883, Scheme.MQTTS: 8883, Scheme.WS: 8083, Scheme.WSS: 8084},
    example="write for example `mqtt://127.0.0.1:1883`, `mqtts://[::]:8883` or `ws://127.0.0.1:8083/mqtt`",
    identity="list users under `directory.users`",
).parse
_parse_http: Final = _Format(
    ports={Scheme.HTTP: 8080, Scheme.HTTPS: 8443},
    example="write for example `http://127.0.0.1:8080` or `https://0.0.0.0:8443`",
    identity="clients come with a token",
).parse
parse_tls: Final = _Format(
    ports={Scheme.TLS: 8450},
    example="write for example `tls://127.0.0.1:8450`",
    identity="nodes come with a certificate",
).parse
_parse_far: Final = _Format(
    ports={Scheme.MQTTS: 8883, Scheme.MQTT: 1883},
    example="write for example `mqtts://remote.example:8883`",
    identity="nodes come with a certificate",
    hosts="write the name or address of the other machine",
).parse


def parse_far(written: object) -> Address:
    """The address of another node or broker, to connect to."""
    return _connectable(_parse_far(written), "the other machine")


def _connectable(address: Address, whose: str) -> Address:
    """An address that somebody can connect to, or a refusal."""
    if address.everywhere or address.port == 0:
        what = "means all interfaces of a machine" if address.everywhere else "has the port 0"
        raise refusal(f"{what}, and nobody can connect to that; write the host and port of {whose}")
    return address


_parse_backend: Final = _Format(
    ports={Scheme.MQTT: 1883, Scheme.MQTTS: 8883},
    example="write for example `mqtt://127.0.0.1:1884` or `unix:///run/mosquitto/mosquitto.sock`",
    identity="write them as `username` and `password` beside it",
    hosts="write the name or address of the broker's machine",
).parse


def _unix_socket(path: str) -> Address:
    """A socket in the file system of this machine."""
    if not path.startswith("/") or "\0" in path:
        raise refusal("must name the socket by its whole path, as `unix:///run/mosquitto/mosquitto.sock` does")
    if len(path.encode()) > LONGEST_SOCKET_PATH:
        raise refusal(f"is longer than the path of a socket may be, {LONGEST_SOCKET_PATH} bytes; move the socket")
    return Address(scheme=Scheme.UNIX, host="", port=0, path=path)


def parse_backend(written: object) -> Address:
    """The address of a broker that this node guards."""
    if isinstance(written, str) and written.startswith("unix://"):
        return _unix_socket(written.removeprefix("unix://"))
    return _connectable(_parse_backend(written), "the broker")


_parse_ldap: Final = _Format(
    ports={Scheme.LDAPS: 636, Scheme.LDAP: 389},
    example="write for example `ldaps://directory.example`, or `ldap://directory.example` for StartTLS",
    identity="write them as `bind` beside it",
    hosts="write the name or address of the directory's machine",
).parse


def parse_ldap(written: object) -> Address:
    """The address of an LDAP directory."""
    return _connectable(_parse_ldap(written), "the directory")


_TEXT: Final = PlainSerializer(str, return_type=str)


def _url(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "title": "URL"})


ListenAddress = Annotated[
    Address, PlainValidator(parse_address), _TEXT, _url(r"^(mqtt|mqtts|ws|wss)://[^/\s]+(/\S*)?$")
]
HttpAddress = Annotated[Address, PlainValidator(_parse_http), _TEXT, _url(r"^https?://[^/\s]+/?$")]
FarAddress = Annotated[Address, PlainValidator(parse_far), _TEXT, _url(r"^mqtts?://[^/\s]+/?$")]
TlsAddress = Annotated[Address, PlainValidator(parse_tls), _TEXT, _url(r"^tls://[^/\s]+/?$")]
BackendAddress = Annotated[Address, PlainValidator(parse_backend), _TEXT, _url(r"^(mqtts?://[^/\s]+/?|unix:///.+)$")]
LdapAddress = Annotated[Address, PlainValidator(parse_ldap), _TEXT, _url(r"^ldaps?://[^/\s]+/?$")]
