"""The packets as values; they know nothing of bytes.

Fields carry what both protocol versions can say; what 3.1.1 has no place for (properties, most reason
codes, subscription options) stays at its default there. Packets are values: nobody changes one after
making it, though they are not frozen, because making a frozen dataclass costs three times as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidegate.wire.properties import NONE, Properties


@dataclass(slots=True, kw_only=True)
class Will:
    """The message a server publishes when a client goes without saying goodbye (3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties = NONE


@dataclass(slots=True, kw_only=True)
class Connect:
    """`clean_start` is the Clean Session flag in 3.1.1.

    MQTT 3.1 is 3.1.1 in other words: `version` says 3.1.1 then, and `old` is set. `bridge`: the sender is a broker that
    bridges, as some tell with a bit of the protocol level; MQTT 5 has options of subscriptions instead.
    """

    version: int
    client_id: str
    clean_start: bool
    keep_alive: int
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NONE
    old: bool = False
    bridge: bool = False


@dataclass(slots=True, kw_only=True)
class Connack:
    """Decoded from 3.1.1, `reason` is the raw return code 0 to 5; encoding to 3.1.1 translates reasons."""

    session_present: bool
    reason: int
    properties: Properties = NONE


@dataclass(slots=True, kw_only=True)
class Publish:
    """`packet_id` is 0 at QoS 0; `topic` is empty only with a topic alias (MQTT 5)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NONE


@dataclass(slots=True, kw_only=True)
class Ack:
    """What the four acknowledgements of a PUBLISH have."""

    packet_id: int
    reason: int = 0
    properties: Properties = NONE


class Puback(Ack):
    __slots__ = ()


class Pubrec(Ack):
    __slots__ = ()


class Pubrel(Ack):
    __slots__ = ()


class Pubcomp(Ack):
    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class Subscription:
    """One filter of a SUBSCRIBE with its options; 3.1.1 knows only `qos`."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True, kw_only=True)
class Subscribe:
    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NONE


@dataclass(slots=True, kw_only=True)
class Suback:
    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = NONE


@dataclass(slots=True, kw_only=True)
class Unsubscribe:
    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NONE


@dataclass(slots=True, kw_only=True)
class Unsuback:
    """3.1.1 has no reasons here; they are dropped on encoding."""

    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: Properties = NONE


@dataclass(slots=True, kw_only=True)
class Pingreq:
    pass


@dataclass(slots=True, kw_only=True)
class Pingresp:
    pass


@dataclass(slots=True, kw_only=True)
class Disconnect:
    reason: int = 0
    properties: Properties = NONE


@dataclass(slots=True, kw_only=True)
class Auth:
    """MQTT 5 only."""

    reason: int = 0
    properties: Properties = NONE


Packet: TypeAlias = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
