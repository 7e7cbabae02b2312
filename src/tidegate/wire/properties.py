"""MQTT 5 properties: the class, the table of what each is and where it may stand, and both directions.

A `Properties` is never changed after it is made: packets share the empty one, `NONE`. A property that
does not belong to the packet at hand is malformed, one that comes twice or has a forbidden value is a
protocol error (2.2.2.2 and the section of each property). What depends on more than the property itself
(one subscription identifier in SUBSCRIBE, authentication data without a method) is for the packet's decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.topics import valid_topic
from tidegate.wire.primitives import (
    binary,
    encode_binary,
    encode_u16,
    encode_u32,
    encode_utf8,
    encode_varint,
    u16,
    u32,
    utf8,
    varint,
)
from tidegate.wire.reasons import Reason, Type


# unsafe_hash, because a value that nobody changes may be a default and a dictionary key; frozen would make
# the decoder pay object.__setattr__ for each of the 27 fields.
@dataclass(slots=True, kw_only=True, unsafe_hash=True, repr=False)
class Properties:
    """Every property of MQTT 5, 2.2.2.2, in the order of their identifiers; absent is None or empty."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        present = (f"{name}={value!r}" for name, value in values if value is not None and value != ())
        return f"Properties({', '.join(present)})"


NONE: Final = Properties()


@dataclass(frozen=True, slots=True)
class Kind:
    """How a property's value is read and written (1.5)."""

    read: Callable[[bytes, int, int], tuple[Any, int]]
    write: Callable[[Any], bytes]


def _pair(data: bytes, pos: int, end: int) -> tuple[tuple[str, str], int]:
    name, pos = utf8(data, pos, end)
    value, pos = utf8(data, pos, end)
    return (name, value), pos


def _flag(data: bytes, pos: int, end: int) -> tuple[int, int]:
    if pos >= end:
        raise MalformedPacket("byte cut short")
    return data[pos], pos + 1


def _encode_pair(pair: tuple[str, str]) -> bytes:
    return encode_utf8(pair[0]) + encode_utf8(pair[1])


def _encode_flag(value: int) -> bytes:
    if value not in (0, 1):
        raise ValueError(f"{value} where only 0 and 1 are allowed")
    return value.to_bytes(1, "big")


FLAG: Final = Kind(_flag, _encode_flag)  # a byte that may only be 0 or 1
U16: Final = Kind(u16, encode_u16)
U32: Final = Kind(u32, encode_u32)
VARINT: Final = Kind(varint, encode_varint)
BINARY: Final = Kind(binary, encode_binary)
UTF8: Final = Kind(utf8, encode_utf8)
PAIR: Final = Kind(_pair, _encode_pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One row of the table of 2.2.2.2; `zero` is the reason code for a forbidden value of zero."""

    id: int
    name: str
    kind: Kind
    packets: frozenset[Type]
    will: bool = False
    zero: int | None = None


def _row(id: int, name: str, kind: Kind, *packets: Type, will: bool = False, zero: int | None = None) -> Property:
    return Property(id=id, name=name, kind=kind, packets=frozenset(packets), will=will, zero=zero)


_ANSWERS: Final = (
    Type.CONNACK,
    Type.PUBACK,
    Type.PUBREC,
    Type.PUBREL,
    Type.PUBCOMP,
    Type.SUBACK,
    Type.UNSUBACK,
    Type.DISCONNECT,
    Type.AUTH,
)
_REQUESTS: Final = (Type.CONNECT, Type.PUBLISH, Type.SUBSCRIBE, Type.UNSUBSCRIBE)
_HANDSHAKE: Final = (Type.CONNECT, Type.CONNACK)
_PE: Final = int(Reason.PROTOCOL_ERROR)

MOST: Final = 1000  # properties of a packet: each takes a microsecond to read, and may be copied for every receiver
USER: Final = 38
SUBSCRIPTION: Final = 11

PROPERTIES: Final[tuple[Property, ...]] = (
    _row(1, "payload_format_indicator", FLAG, Type.PUBLISH, will=True),
    _row(2, "message_expiry_interval", U32, Type.PUBLISH, will=True),
    _row(3, "content_type", UTF8, Type.PUBLISH, will=True),
    _row(8, "response_topic", UTF8, Type.PUBLISH, will=True),
    _row(9, "correlation_data", BINARY, Type.PUBLISH, will=True),
    _row(SUBSCRIPTION, "subscription_identifiers", VARINT, Type.PUBLISH, Type.SUBSCRIBE, zero=_PE),
    _row(17, "session_expiry_interval", U32, *_HANDSHAKE, Type.DISCONNECT),
    _row(18, "assigned_client_identifier", UTF8, Type.CONNACK),
    _row(19, "server_keep_alive", U16, Type.CONNACK),
    _row(21, "authentication_method", UTF8, *_HANDSHAKE, Type.AUTH),
    _row(22, "authentication_data", BINARY, *_HANDSHAKE, Type.AUTH),
    _row(23, "request_problem_information", FLAG, Type.CONNECT),
    _row(24, "will_delay_interval", U32, will=True),
    _row(25, "request_response_information", FLAG, Type.CONNECT),
    _row(26, "response_information", UTF8, Type.CONNACK),
    _row(28, "server_reference", UTF8, Type.CONNACK, Type.DISCONNECT),
    _row(31, "reason_string", UTF8, *_ANSWERS),
    _row(33, "receive_maximum", U16, *_HANDSHAKE, zero=_PE),
    _row(34, "topic_alias_maximum", U16, *_HANDSHAKE),
    # [MQTT-3.3.2-8] with 3.3.4: an alias of zero is answered with 0x94
    _row(35, "topic_alias", U16, Type.PUBLISH, zero=int(Reason.TOPIC_ALIAS_INVALID)),
    _row(36, "maximum_qos", FLAG, Type.CONNACK),
    _row(37, "retain_available", FLAG, Type.CONNACK),
    _row(USER, "user_properties", PAIR, *_REQUESTS, *_ANSWERS, will=True),
    _row(39, "maximum_packet_size", U32, *_HANDSHAKE, zero=_PE),
    _row(40, "wildcard_subscription_available", FLAG, Type.CONNACK),
    _row(41, "subscription_identifier_available", FLAG, Type.CONNACK),
    _row(42, "shared_subscription_available", FLAG, Type.CONNACK),
)

ALLOWED: Final[dict[Type, frozenset[int]]] = {
    kind: frozenset(row.id for row in PROPERTIES if kind in row.packets) for kind in Type
}
WILL: Final = frozenset(row.id for row in PROPERTIES if row.will)
ALL: Final = frozenset(row.id for row in PROPERTIES)

_BY_ID: Final = {row.id: row for row in PROPERTIES}
# hot: what decode_properties needs of a row, without an attribute look-up for each
_READ: Final = {row.id: (row.name, row.kind.read, row.kind is FLAG, row.zero) for row in PROPERTIES}
_VALUES: Final = attrgetter(*(row.name for row in PROPERTIES))


def decode_properties(data: bytes, pos: int, end: int, allowed: frozenset[int]) -> tuple[Properties, int]:
    """The properties whose length stands at `pos`, and the position after them."""
    if pos < end and data[pos] == 0:
        return NONE, pos + 1
    size, pos = varint(data, pos, end)
    stop = pos + size
    if stop > end:
        raise MalformedPacket("properties run past the end of the packet")
    values: dict[str, Any] = {}
    left = MOST
    while pos < stop:
        left -= 1
        if left < 0:
            raise ProtocolError(f"more than {MOST} properties", Reason.QUOTA_EXCEEDED)
        id = data[pos]  # identifiers are variable byte integers, but all that exist have one byte
        if id not in allowed:
            raise MalformedPacket(_misplaced(id))  # 2.2.2.2
        name, read, flag, zero = _READ[id]
        value, pos = read(data, pos + 1, stop)
        if flag and value > 1:
            raise ProtocolError(f"{name} is {value}, allowed are 0 and 1")
        if zero is not None and value == 0:
            raise ProtocolError(f"{name} is 0", zero)
        if id in (USER, SUBSCRIPTION):
            values.setdefault(name, []).append(value)
        elif name in values:
            raise ProtocolError(f"{name} more than once")
        else:
            values[name] = value
    if "response_topic" in values and not valid_topic(values["response_topic"]):
        raise ProtocolError("response topic is no topic name")  # [MQTT-3.3.2-14] [MQTT-4.7.3-1]
    if "user_properties" in values:
        values["user_properties"] = tuple(values["user_properties"])
    if "subscription_identifiers" in values:
        values["subscription_identifiers"] = tuple(values["subscription_identifiers"])
    return Properties(**values), stop


def _misplaced(id: int) -> str:
    row = _BY_ID.get(id)
    return f"property {id:#04x} does not exist" if row is None else f"{row.name} is not allowed here"


def encode_properties(p: Properties, will: bool = False, allowed: frozenset[int] = ALL) -> bytes:
    """The properties with their length in front, ordered by identifier.

    `allowed` (for a will: what a will may carry) is what the packet has a place for; more is a ValueError.
    """
    if p is NONE:
        return b"\0"
    if will:
        allowed = WILL
    out = bytearray()
    for row, value in zip(PROPERTIES, _VALUES(p), strict=True):
        if value is None or value == ():
            continue
        if row.id not in allowed:
            raise ValueError(f"{row.name} is not allowed here")
        for one in value if row.id in (USER, SUBSCRIPTION) else (value,):
            if row.zero is not None and one == 0:
                raise ValueError(f"{row.name} may not be 0")
            out.append(row.id)
            out += row.kind.write(one)
    if p.response_topic is not None and not valid_topic(p.response_topic):
        raise ValueError("response topic is no topic name")
    return encode_varint(len(out)) + bytes(out)
