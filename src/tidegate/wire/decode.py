"""Bytes to packets.

`decode` looks the first byte up in a table of 256 decoders, one table per protocol version, so that the
flags of the fixed header are checked by the look-up itself. Every decoder must consume its body to the last
byte. It raises `MalformedPacket` for bytes that cannot be parsed and `ProtocolError` for what parses but
the specification forbids, as the section of each field tells them apart; any other exception is a bug.

It will not judge what depends on state or direction: whether this peer may send this packet now, whether
a packet identifier is in use, whether an alias is within its maximum, or a subscription identifier in a
PUBLISH from a client [MQTT-3.3.4-6].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias

from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.topics import share, valid_filter, valid_topic
from tidegate.wire import packets
from tidegate.wire.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tidegate.wire.primitives import FIRST, binary, check_first, u16, utf8
from tidegate.wire.properties import ALLOWED, NONE, WILL, Properties, decode_properties
from tidegate.wire.reasons import BRIDGE, REASONS, V5, V31, V311, Reason, Type

Decoder: TypeAlias = Callable[[int, bytes], Packet]
Ack: TypeAlias = Puback | Pubrec | Pubrel | Pubcomp

_ALLOWED_IN_PUBLISH: Final = ALLOWED[Type.PUBLISH]
_MQTT: Final = b"\x00\x04MQTT"
# what CONNECT says: the version that is spoken, whether it is 3.1, and whether a bridge speaks it
_PROTOCOLS: Final = {
    ("MQTT", V5): (V5, False, False),
    ("MQTT", V311): (V311, False, False),
    ("MQTT", V311 | BRIDGE): (V311, False, True),
    ("MQIsdp", V31): (V311, True, False),
    ("MQIsdp", V31 | BRIDGE): (V311, True, True),
}


def decode(first: int, body: bytes, version: int) -> Packet:
    """The packet with this first byte and exactly this body; `version` does not matter for CONNECT."""
    return (_V5 if version == V5 else _V311)[first](first, body)


def level(body: bytes) -> int | None:
    """The protocol level that the body of a CONNECT claims, however broken the rest; None if it has none.

    So that a CONNECT that cannot be decoded is refused in the words of its own version.
    """
    return body[6] if body.startswith(_MQTT) and len(body) > 6 else None


# PUBLISH


def _publish(v5: bool) -> Decoder:
    def decoder(first: int, body: bytes) -> Publish:
        # hot: one slice for the topic, one for the payload; slots are set directly, which costs a third of
        # what calling the class with keywords does
        size = len(body)
        if size < 2:
            raise MalformedPacket("PUBLISH without a topic")
        pos = 2 + (body[0] << 8 | body[1])
        if pos > size:
            raise MalformedPacket("topic runs past the end of the packet")
        try:
            topic = body[2:pos].decode()
        except UnicodeDecodeError as error:
            raise MalformedPacket(f"topic is not UTF-8: {error.reason}") from None  # [MQTT-1.5.4-1]
        if "+" in topic or "#" in topic or "\0" in topic:
            _refuse_topic(topic)
        packet = Publish.__new__(Publish)
        packet.topic = topic
        packet.retain = first & 1 == 1
        packet.dup = first & 8 == 8
        packet.qos = qos = first >> 1 & 3
        if qos:
            if pos + 2 > size:
                raise MalformedPacket("PUBLISH without a packet identifier")
            packet.packet_id = packet_id = body[pos] << 8 | body[pos + 1]
            if packet_id == 0:
                raise ProtocolError("packet identifier is 0")  # [MQTT-2.2.1-3] [MQTT-2.2.1-4]
            pos += 2
        else:
            packet.packet_id = 0
        packet.properties = NONE
        if v5:
            if pos < size and body[pos] == 0:
                pos += 1
            else:
                packet.properties, pos = decode_properties(body, pos, size, _ALLOWED_IN_PUBLISH)
        if not topic:
            _check_alias(packet, v5)
        packet.payload = body[pos:]
        return packet

    return decoder


def _refuse_topic(topic: str) -> NoReturn:
    if "\0" in topic:
        raise MalformedPacket("topic contains U+0000")  # [MQTT-1.5.4-2]
    raise ProtocolError("topic contains a wildcard", Reason.TOPIC_NAME_INVALID)  # [MQTT-3.3.2-2]


def _check_alias(packet: Publish, v5: bool) -> None:
    if not v5:
        raise ProtocolError("topic is empty", Reason.TOPIC_NAME_INVALID)  # 3.1.1 [MQTT-4.7.3-1]
    if packet.properties.topic_alias is None:
        raise ProtocolError("topic is empty and has no alias")  # 3.3.2.1


# PUBACK, PUBREC, PUBREL, PUBCOMP


def _ack_v5(kind: Type, ack: type[Ack]) -> Decoder:
    def decoder(first: int, body: bytes) -> Ack:
        # hot: nearly all have two bytes
        size = len(body)
        if size < 2:
            raise MalformedPacket(f"{kind.name} without a packet identifier")
        packet = ack.__new__(ack)
        packet.packet_id = packet_id = body[0] << 8 | body[1]
        packet.reason = 0
        packet.properties = NONE
        if size > 2:
            packet.reason = _reason(kind, body[2])
            if size > 3:  # 3.4.2.2.1: under four bytes there is no property length
                packet.properties = _last_properties(kind, body, 3)
        if packet_id == 0:
            raise ProtocolError("packet identifier is 0")  # [MQTT-2.2.1-5] with [MQTT-2.2.1-3]
        return packet

    return decoder


def _ack_v311(kind: Type, ack: type[Ack]) -> Decoder:
    def decoder(first: int, body: bytes) -> Ack:
        if len(body) != 2:
            raise MalformedPacket(f"{kind.name} of {len(body)} bytes instead of 2")
        packet = ack.__new__(ack)
        packet.packet_id = packet_id = body[0] << 8 | body[1]
        packet.reason = 0
        packet.properties = NONE
        if packet_id == 0:
            raise ProtocolError("packet identifier is 0")  # 3.1.1 [MQTT-2.3.1-6] with [MQTT-2.3.1-1]
        return packet

    return decoder


# What several packets end or begin with


def _reason(kind: Type, code: int) -> int:
    if code not in REASONS[kind]:
        raise MalformedPacket(f"{kind.name} with reason code {code:#04x}")
    return code


def _last_properties(kind: Type, body: bytes, pos: int) -> Properties:
    properties, pos = decode_properties(body, pos, len(body), ALLOWED[kind])
    if pos != len(body):
        raise MalformedPacket(f"{kind.name} with {len(body) - pos} bytes too many")
    return properties


def _packet_id(body: bytes) -> int:
    packet_id, _ = u16(body, 0, len(body))
    if packet_id == 0:
        raise ProtocolError("packet identifier is 0")  # [MQTT-2.2.1-3], 3.1.1 [MQTT-2.3.1-1]
    return packet_id


def _head(kind: Type, body: bytes, v5: bool = True) -> tuple[int, Properties, int]:
    """The packet identifier, the properties, and where the rest begins."""
    packet_id = _packet_id(body)
    if not v5:
        return packet_id, NONE, 2
    return packet_id, *decode_properties(body, 2, len(body), ALLOWED[kind])


# CONNECT, CONNACK


def _connect(first: int, body: bytes) -> packets.Connect:
    end = len(body)
    name, pos = utf8(body, 0, end)
    if pos >= end:
        raise MalformedPacket("CONNECT without a protocol level")
    protocol = _PROTOCOLS.get((name, body[pos]))
    if protocol is None:
        # [MQTT-3.1.2-1] [MQTT-3.1.2-2]; the rest is not looked at, for its form is unknown
        raise ProtocolError(f"protocol {name[:16]!r} level {body[pos]}", Reason.UNSUPPORTED_PROTOCOL_VERSION)
    version, old, bridge = protocol
    v5 = version == V5
    if pos + 4 > end:
        raise MalformedPacket("CONNECT cut short")
    flags = body[pos + 1]
    _check_connect_flags(flags)
    keep_alive = body[pos + 2] << 8 | body[pos + 3]
    pos += 4
    properties = will_properties = NONE
    if v5:
        properties, pos = decode_properties(body, pos, end, ALLOWED[Type.CONNECT])
    client_id, pos = utf8(body, pos, end)
    will: packets.Will | None = None
    if flags & 0x04:
        if v5:
            will_properties, pos = decode_properties(body, pos, end, WILL)
        topic, pos = utf8(body, pos, end)
        payload, pos = binary(body, pos, end)
        will = packets.Will(
            topic=topic,
            payload=payload,
            qos=flags >> 3 & 3,
            retain=flags & 0x20 != 0,
            properties=will_properties,
        )
    username: str | None = None
    password: bytes | None = None
    if flags & 0x80:
        username, pos = utf8(body, pos, end)
    if flags & 0x40:
        password, pos = binary(body, pos, end)
    if pos != end:
        raise MalformedPacket(f"CONNECT with {end - pos} bytes too many")
    packet = packets.Connect(
        version=version,
        client_id=client_id,
        clean_start=flags & 0x02 != 0,
        keep_alive=keep_alive,
        username=username,
        password=password,
        will=will,
        properties=properties,
        old=old,
        bridge=bridge,
    )
    _check_connect(packet)
    return packet


def _check_connect_flags(flags: int) -> None:
    if flags & 0x01:
        raise MalformedPacket("CONNECT with its reserved flag set")  # [MQTT-3.1.2-3]
    if flags & 0x18 == 0x18:
        raise MalformedPacket("will with QoS 3")  # [MQTT-3.1.2-12], 3.1.1 [MQTT-3.1.2-14]
    if not flags & 0x04 and flags & 0x38:
        # [MQTT-3.1.2-11] [MQTT-3.1.2-13], 3.1.1 also [MQTT-3.1.2-15]
        raise MalformedPacket("will QoS or will retain without a will")


def _check_connect(packet: packets.Connect) -> None:
    """What is wrong though it parses; only a CONNECT that is whole is worth an answer in kind."""
    if packet.will is not None and not valid_topic(packet.will.topic):
        raise ProtocolError("will topic is no topic name", Reason.TOPIC_NAME_INVALID)  # [MQTT-4.7.0-1]
    if packet.version == V5:
        if packet.properties.authentication_data is not None and packet.properties.authentication_method is None:
            raise ProtocolError("authentication data without a method")  # 3.1.2.11.10
        return
    if packet.password is not None and packet.username is None:
        raise ProtocolError("password without a user name")  # 3.1.1 [MQTT-3.1.2-22]
    if not packet.client_id and not packet.clean_start:
        # 3.1.1 [MQTT-3.1.3-8]
        raise ProtocolError("a session to keep without a client identifier", Reason.CLIENT_IDENTIFIER_NOT_VALID)


def _connack_v5(first: int, body: bytes) -> packets.Connack:
    session_present, reason = _connack_head(body)
    _reason(Type.CONNACK, reason)
    properties = _last_properties(Type.CONNACK, body, 2)
    if session_present and reason:
        raise ProtocolError("session present, though the connection is refused")  # [MQTT-3.2.2-6]
    return packets.Connack(session_present=session_present, reason=reason, properties=properties)


def _connack_v311(first: int, body: bytes) -> packets.Connack:
    session_present, reason = _connack_head(body)
    if len(body) > 2:
        raise MalformedPacket(f"CONNACK of {len(body)} bytes instead of 2")
    if reason > 5:
        raise MalformedPacket(f"CONNACK with return code {reason}")  # 3.1.1, 3.2.2.3
    if session_present and reason:
        raise ProtocolError("session present, though the connection is refused")  # 3.1.1 [MQTT-3.2.2-4]
    return packets.Connack(session_present=session_present, reason=reason)


def _connack_head(body: bytes) -> tuple[bool, int]:
    if len(body) < 2:
        raise MalformedPacket("CONNACK cut short")
    if body[0] > 1:
        raise MalformedPacket("CONNACK with reserved flags set")  # [MQTT-3.2.2-1]
    return body[0] == 1, body[1]


# SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK


def _subscribe(v5: bool) -> Decoder:
    subscription, missing = (_subscription, "subscription options") if v5 else (_subscription_v311, "a QoS")

    def decoder(first: int, body: bytes) -> packets.Subscribe:
        packet_id, properties, pos = _head(Type.SUBSCRIBE, body, v5)
        if len(properties.subscription_identifiers) > 1:
            raise ProtocolError("subscription_identifier more than once")  # 3.8.2.1.2
        end = len(body)
        subscriptions = []
        while pos < end:
            filter, pos = utf8(body, pos, end)
            if pos >= end:
                raise MalformedPacket(f"filter without {missing}")
            subscriptions.append(subscription(filter, body[pos]))
            pos += 1
        if not subscriptions:
            raise ProtocolError("SUBSCRIBE without a filter")  # [MQTT-3.8.3-2], 3.1.1 [MQTT-3.8.3-3]
        return packets.Subscribe(packet_id=packet_id, subscriptions=tuple(subscriptions), properties=properties)

    return decoder


def _subscription(filter: str, options: int) -> packets.Subscription:
    if options & 0xC0:
        raise MalformedPacket("subscription options with reserved bits set")  # [MQTT-3.8.3-5]
    if options & 3 == 3:
        raise ProtocolError("subscription with QoS 3")  # 3.8.3.1
    if options >> 4 == 3:
        raise ProtocolError("subscription with retain handling 3")  # 3.8.3.1
    _check_filter(filter)
    if options & 4 and share(filter)[0] is not None:
        raise ProtocolError("shared subscription with no local")  # [MQTT-3.8.3-4]
    return packets.Subscription(
        filter=filter,
        qos=options & 3,
        no_local=options & 4 != 0,
        retain_as_published=options & 8 != 0,
        retain_handling=options >> 4,
    )


def _subscription_v311(filter: str, qos: int) -> packets.Subscription:
    if qos > 2:
        raise MalformedPacket(f"subscription with QoS byte {qos:#04x}")  # 3.1.1 [MQTT-3-8.3-4]
    _check_filter(filter)
    return packets.Subscription(filter=filter, qos=qos)


def _unsubscribe(v5: bool) -> Decoder:
    def decoder(first: int, body: bytes) -> packets.Unsubscribe:
        packet_id, properties, pos = _head(Type.UNSUBSCRIBE, body, v5)
        return packets.Unsubscribe(packet_id=packet_id, filters=_filters(body, pos), properties=properties)

    return decoder


def _filters(body: bytes, pos: int) -> tuple[str, ...]:
    filters = []
    while pos < len(body):
        filter, pos = utf8(body, pos, len(body))
        _check_filter(filter)
        filters.append(filter)
    if not filters:
        raise ProtocolError("UNSUBSCRIBE without a filter")  # [MQTT-3.10.3-2]
    return tuple(filters)


def _check_filter(filter: str) -> None:
    if not valid_filter(filter):
        # [MQTT-4.7.1-2] [MQTT-4.7.1-3] [MQTT-4.7.3-1] [MQTT-4.8.2-1] [MQTT-4.8.2-2]
        raise ProtocolError(f"topic filter {filter[:64]!r} is not valid", Reason.TOPIC_FILTER_INVALID)


def _suback_v5(first: int, body: bytes) -> packets.Suback:
    packet_id, properties, pos = _head(Type.SUBACK, body)
    return packets.Suback(packet_id=packet_id, reasons=_reasons(Type.SUBACK, body, pos), properties=properties)


def _suback_v311(first: int, body: bytes) -> packets.Suback:
    packet_id = _packet_id(body)
    reasons = tuple(body[2:])
    if not reasons:
        raise ProtocolError("SUBACK without a return code")  # 3.1.1, 3.9.3
    for code in reasons:
        if code not in (0, 1, 2, 0x80):
            raise MalformedPacket(f"SUBACK with return code {code:#04x}")  # 3.1.1 [MQTT-3.9.3-2]
    return packets.Suback(packet_id=packet_id, reasons=reasons)


def _unsuback_v5(first: int, body: bytes) -> packets.Unsuback:
    packet_id, properties, pos = _head(Type.UNSUBACK, body)
    return packets.Unsuback(packet_id=packet_id, reasons=_reasons(Type.UNSUBACK, body, pos), properties=properties)


def _unsuback_v311(first: int, body: bytes) -> packets.Unsuback:
    if len(body) != 2:
        raise MalformedPacket(f"UNSUBACK of {len(body)} bytes instead of 2")
    return packets.Unsuback(packet_id=_packet_id(body))


def _reasons(kind: Type, body: bytes, pos: int) -> tuple[int, ...]:
    """One for each filter of the request, which had at least one [MQTT-3.8.4-6] [MQTT-3.11.3-1]."""
    if pos == len(body):
        raise ProtocolError(f"{kind.name} without a reason code")
    return tuple(_reason(kind, code) for code in body[pos:])


# PINGREQ, PINGRESP, DISCONNECT, AUTH


def _empty(kind: Type, packet: type[packets.Pingreq | packets.Pingresp | packets.Disconnect]) -> Decoder:
    def decoder(first: int, body: bytes) -> packets.Pingreq | packets.Pingresp | packets.Disconnect:
        if body:
            raise MalformedPacket(f"{kind.name} of {len(body)} bytes instead of none")
        return packet()

    return decoder


def _disconnect_v5(first: int, body: bytes) -> packets.Disconnect:
    if not body:
        return packets.Disconnect()
    reason = _reason(Type.DISCONNECT, body[0])
    if len(body) == 1:  # 3.14.2.2.1: under two bytes there is no property length
        return packets.Disconnect(reason=reason)
    return packets.Disconnect(reason=reason, properties=_last_properties(Type.DISCONNECT, body, 1))


def _auth_v5(first: int, body: bytes) -> packets.Auth:
    if not body:
        # 3.15.2.1 allows the empty form though 3.15.2.2.2 asks for a method; who expects one will miss it
        return packets.Auth()
    reason = _reason(Type.AUTH, body[0])
    properties = _last_properties(Type.AUTH, body, 1)
    if properties.authentication_method is None:
        raise ProtocolError("AUTH without an authentication method")  # 3.15.2.2.2
    return packets.Auth(reason=reason, properties=properties)


def _auth_v311(first: int, body: bytes) -> NoReturn:
    raise MalformedPacket("packet type 15 is forbidden in MQTT 3.1.1")  # 3.1.1 table 2.1


# The tables


def _refuse_first(first: int, body: bytes) -> NoReturn:
    check_first(first)
    raise AssertionError(first)


def _table(decoders: dict[Type, Decoder]) -> tuple[Decoder, ...]:
    return tuple(decoders[Type(first >> 4)] if wrong is None else _refuse_first for first, wrong in enumerate(FIRST))


_DECODERS: Final[dict[Type, Decoder]] = {
    Type.CONNECT: _connect,
    Type.CONNACK: _connack_v5,
    Type.PUBLISH: _publish(v5=True),
    Type.PUBACK: _ack_v5(Type.PUBACK, Puback),
    Type.PUBREC: _ack_v5(Type.PUBREC, Pubrec),
    Type.PUBREL: _ack_v5(Type.PUBREL, Pubrel),
    Type.PUBCOMP: _ack_v5(Type.PUBCOMP, Pubcomp),
    Type.SUBSCRIBE: _subscribe(v5=True),
    Type.SUBACK: _suback_v5,
    Type.UNSUBSCRIBE: _unsubscribe(v5=True),
    Type.UNSUBACK: _unsuback_v5,
    Type.PINGREQ: _empty(Type.PINGREQ, packets.Pingreq),
    Type.PINGRESP: _empty(Type.PINGRESP, packets.Pingresp),
    Type.DISCONNECT: _disconnect_v5,
    Type.AUTH: _auth_v5,
}
_V5: Final = _table(_DECODERS)
_V311: Final = _table(
    _DECODERS
    | {
        Type.CONNACK: _connack_v311,
        Type.PUBLISH: _publish(v5=False),
        Type.PUBACK: _ack_v311(Type.PUBACK, Puback),
        Type.PUBREC: _ack_v311(Type.PUBREC, Pubrec),
        Type.PUBREL: _ack_v311(Type.PUBREL, Pubrel),
        Type.PUBCOMP: _ack_v311(Type.PUBCOMP, Pubcomp),
        Type.SUBSCRIBE: _subscribe(v5=False),
        Type.SUBACK: _suback_v311,
        Type.UNSUBSCRIBE: _unsubscribe(v5=False),
        Type.UNSUBACK: _unsuback_v311,
        Type.DISCONNECT: _empty(Type.DISCONNECT, packets.Disconnect),
        Type.AUTH: _auth_v311,
    }
)
