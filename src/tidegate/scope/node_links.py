"""Links to scopes of other nodes: one session for each, at both ends, and how a connection is attached to it.

The end that connects sends CONNECT (`LinkEnd.greeting`), and hands its socket over when CONNACK has come
(`LinkEnd.connected`). The end that is connected to is asked by the handshake (`NodeLinks.find`, `LinkEnd.welcome`). From
then on both are the same: PUBLISH and its acknowledgements have no direction in MQTT.

Who the other node is has been found out before: by its certificate, which both ends have tested (`Peer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

GREETING: Final = "tidegate-link"
"""The user property of CONNECT and CONNACK: version, the link as its sender names it, the node's id, its domain."""
VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The node at the other end of a connection, as its certificate proves it, and how well the connection is
    protected."""

    subject: str  # of its certificate, RFC 4514; empty: it showed none
    certificate: bytes | None = None  # DER
    address: str = ""
    listener: str = ""
    level: str = "plain"
    facts: tuple[str, ...] = ()
    tls: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a node says of itself when a link opens."""

    link: str  # `from->to` as it names it: from its scope to the other's
    node: str  # its id
    domain: str

    @property
    def text(self) -> str:
        return f"{VERSION} {self.link} {self.node} {self.domain}"

    @classmethod
    def read(cls, pairs: tuple[tuple[str, str], ...]) -> Greeting | None:
        """From user properties; None if there is none that is understood."""
        for name, value in pairs:
            if name == GREETING:
                match value.split(" "):
                    case [version, link, node, domain] if version == VERSION:
                        return cls(link=link, node=node, domain=domain)
        return None
