"""What two nodes say of themselves when a link opens, and what each finds out of the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from tidegate.session.link_session import ROOM_FOR_BUNDLES
from tidegate.wire import Connack, Properties, Reason

GREETING: Final = "tidegate-link"
"""The user property of CONNECT and CONNACK: version, the link as its sender names it, the node's id, its domain."""
VERSION: Final = "1"
BUNDLES: Final = "tidegate-link-bundles"
BUNDLES_VERSION: Final = "1"
"""And another one of a node that takes several QoS 0 messages in one envelope."""
UNTRUSTED: Final = "tidegate-link-untrusted"
UNTRUSTED_VERSION: Final = "1"
"""And another one of a node that does not trust the other: then neither believes what comes over the connection."""
_NODE: Final = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The node at the other end of a connection, as its certificate proves it, and how well the connection is
    protected."""

    subject: str  # of its certificate, RFC 4514
    name: str  # the common name there; empty: it has none, or several
    certificate: bytes | None = None  # DER
    address: str = ""
    listener: str = ""
    level: str = "plain"
    facts: tuple[str, ...] = ()
    tls: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    degraded: str = ""
    """Why it is not trusted, and the connection is kept nevertheless; empty: it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a node says of itself when a link opens."""

    link: str  # `from->to` as it names it: from its scope to the other's
    node: str  # its id
    domain: str

    @property
    def text(self) -> str:
        return f"{VERSION} {self.link} {self.node} {self.domain}"

    def pairs(self, *, untrusted: bool) -> tuple[tuple[str, str], ...]:
        """All that a node says of itself, and that it does not trust the other one if so."""
        pairs = (GREETING, self.text), (BUNDLES, BUNDLES_VERSION)
        return (*pairs, (UNTRUSTED, UNTRUSTED_VERSION)) if untrusted else pairs

    @classmethod
    def read(cls, pairs: tuple[tuple[str, str], ...]) -> Greeting | None:
        """From user properties; None if there is none that is understood."""
        for name, value in pairs:
            if name == GREETING:
                match value.split(" "):
                    case [version, link, node, domain] if version == VERSION and _NODE.fullmatch(node):
                        return cls(link=link, node=node, domain=domain)
        return None


def takes_bundles(terms: Properties) -> bool:
    """Whether the other node takes several QoS 0 messages in one envelope."""
    room = terms.maximum_packet_size
    return (BUNDLES, BUNDLES_VERSION) in terms.user_properties and (room is None or room >= ROOM_FOR_BUNDLES)


def refusal_text(packet: Connack) -> str:
    """Why a CONNACK of MQTT 5 says no."""
    try:
        name = Reason(packet.reason).name.lower().replace("_", " ")
    except ValueError:
        name = "refused"
    text = packet.properties.reason_string
    return f"{name} (0x{packet.reason:02X})" + (f": {text}" if text else "")
