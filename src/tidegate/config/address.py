"""Where a listener listens: `mqtt://host:port`, `mqtts://`, `ws://host:port/path`, `wss://`; IPv6 in
brackets.

The host is never guessed: all interfaces must be asked for by name (`0.0.0.0`, `[::]`), because a listener
that is open further than its writer thought is the oldest mistake there is.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tidegate.config.enums import Scheme
from tidegate.config.units import refusal

DEFAULT_PORTS: Final = {Scheme.MQTT: 1883, Scheme.MQTTS: 8883, Scheme.WS: 8083, Scheme.WSS: 8084}
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_EXAMPLE: Final = "write for example `mqtt://127.0.0.1:1883`, `mqtts://[::]:8883` or `ws://127.0.0.1:8083/mqtt`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Scheme, host, port and (WebSocket only) path. An empty path accepts every request path."""

    scheme: Scheme
    host: str
    port: int
    path: str = ""

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.scheme in (Scheme.MQTTS, Scheme.WSS)

    @property
    def websocket(self) -> bool:
        """Whether MQTT travels inside WebSocket frames."""
        return self.scheme in (Scheme.WS, Scheme.WSS)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect. A name other than localhost counts as reachable."""
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host.rstrip(".").lower() == "localhost"

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
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_address(written: object) -> Address:
    """The address that a URL names, or a refusal that says what is wrong with it."""
    if isinstance(written, Address):
        return written
    if not isinstance(written, str):
        raise refusal(f"must be a URL; {_EXAMPLE}")
    if any(character <= " " or character == "\x7f" for character in written):
        raise refusal("contains a space or control character; remove it")
    try:
        parts = urlsplit(written)
        port = parts.port
    except ValueError as broken:
        raise refusal(f"is not a URL ({broken}); {_EXAMPLE}") from None
    try:
        scheme = Scheme(parts.scheme)
    except ValueError:
        raise refusal(f"must begin with mqtt://, mqtts://, ws:// or wss://; {_EXAMPLE}") from None
    return Address(
        scheme=scheme,
        host=_host(parts),
        port=DEFAULT_PORTS[scheme] if port is None else port,
        path=_path(parts, scheme),
    )


def _host(parts: SplitResult) -> str:
    if parts.username is not None or parts.password is not None:
        raise refusal("must not contain a user name or password; list users under `directory.users`")
    place, bracket, after = parts.netloc.rpartition("]")
    if bracket and after and not after.startswith(":"):
        raise refusal(f"has text between `]` and the port; {_EXAMPLE}")
    if bracket:
        host = place.removeprefix("[")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise refusal(f"has no valid IPv6 address in the brackets; {_EXAMPLE}") from None
        return host
    host = parts.netloc.partition(":")[0]
    if not host:
        raise refusal("names no host; write `127.0.0.1` for this machine, `0.0.0.0` for all interfaces")
    if re.fullmatch(r"[0-9.]+", host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise refusal(f"has no valid IPv4 address; {_EXAMPLE}") from None
    elif not _HOST_NAME.fullmatch(host):
        raise refusal(f"has no valid host name; {_EXAMPLE}")
    return host


def _path(parts: SplitResult, scheme: Scheme) -> str:
    if parts.query or parts.fragment:
        raise refusal("must not have a query or fragment; end it after the path")
    if scheme in (Scheme.MQTT, Scheme.MQTTS):
        if parts.path not in ("", "/"):
            raise refusal("has a path, which only ws:// and wss:// have; end it after the port")
        return ""
    return parts.path


ListenAddress = Annotated[
    Address,
    PlainValidator(parse_address),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^(mqtt|mqtts|ws|wss)://[^/\s]+(/\S*)?$", "title": "URL"}),
]
