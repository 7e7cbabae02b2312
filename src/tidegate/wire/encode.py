"""Packets to bytes.

`encode` gives a whole frame in the shortest legal form, and raises ValueError for what the version cannot
say: what it returns, `decode` accepts. What MQTT 3.1.1 merely has no place for (properties, reasons of
acknowledgements, subscription options other than QoS) is left out there.
"""

from __future__ import annotations

from typing import Final, assert_never

from tidegate.topics import share, valid_filter, valid_topic
from tidegate.wire import packets
from tidegate.wire.packets import Ack, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tidegate.wire.primitives import MAX_U16, encode_binary, encode_u16, encode_utf8, encode_varint
from tidegate.wire.properties import ALLOWED, NONE, Properties, encode_properties
from tidegate.wire.reasons import BRIDGE, REASONS, V5, V31, V311, Type, connack_code

_PUBLISH: Final = ALLOWED[Type.PUBLISH]


def encode(packet: Packet, version: int) -> bytes:
    """The whole frame; a CONNECT is encoded for the version it names itself."""
    if version not in (V5, V311):
        raise ValueError(f"protocol level {version}")
    v5 = version == V5
    match packet:
        case Publish():
            return _publish(packet, v5)
        case Puback():
            return _ack(0x40, Type.PUBACK, packet, v5)
        case Pubrec():
            return _ack(0x50, Type.PUBREC, packet, v5)
        case Pubrel():
            return _ack(0x62, Type.PUBREL, packet, v5)
        case Pubcomp():
            return _ack(0x70, Type.PUBCOMP, packet, v5)
        case packets.Subscribe():
            return _frame(0x82, _subscribe(packet, v5))
        case packets.Suback():
            return _frame(0x90, _suback(packet, v5))
        case packets.Unsubscribe():
            return _frame(0xA2, _unsubscribe(packet, v5))
        case packets.Unsuback():
            return _frame(0xB0, _unsuback(packet, v5))
        case packets.Pingreq():
            return b"\xc0\x00"
        case packets.Pingresp():
            return b"\xd0\x00"
        case packets.Connect():
            return _frame(0x10, _connect(packet))
        case packets.Connack():
            return _frame(0x20, _connack(packet, v5))
        case packets.Disconnect():
            return _frame(0xE0, _disconnect(packet) if v5 else b"")
        case packets.Auth():
            return _frame(0xF0, _auth(packet, v5))
        case _:
            assert_never(packet)


def _frame(first: int, body: bytes) -> bytes:
    return first.to_bytes(1, "big") + encode_varint(len(body)) + body


def _publish(packet: Publish, v5: bool) -> bytes:
    # hot: the frame is joined once
    topic = packet.topic
    raw = topic.encode()
    length = len(raw)
    if "+" in topic or "#" in topic or "\0" in topic or length > MAX_U16:
        raise ValueError(f"{topic[:64]!r} is no topic name")
    first = 0x30 | packet.qos << 1
    if packet.retain:
        first |= 1
    packet_id = packet.packet_id
    if packet.qos == 0:
        if packet_id or packet.dup:
            raise ValueError("PUBLISH at QoS 0 with a packet identifier or DUP")
        identifier = b""
    elif packet.qos in (1, 2) and 0 < packet_id <= MAX_U16:
        if packet.dup:
            first |= 8
        identifier = packet_id.to_bytes(2, "big")
    else:
        raise ValueError(f"PUBLISH with QoS {packet.qos} and packet identifier {packet_id}")
    if not length and not (v5 and packet.properties.topic_alias):
        raise ValueError("PUBLISH with neither topic nor alias")
    properties = b""
    if v5:
        properties = b"\0" if packet.properties is NONE else encode_properties(packet.properties, False, _PUBLISH)
    payload = packet.payload
    size = 2 + length + len(identifier) + len(properties) + len(payload)
    head = bytes((first, size)) if size < 128 else first.to_bytes(1, "big") + encode_varint(size)
    return b"".join((head, length.to_bytes(2, "big"), raw, identifier, properties, payload))


def encode_publish_parts(
    topic: bytes, payload: bytes, qos: int, retain: bool, version: int, properties: Properties
) -> tuple[bytes, bytes]:
    """A PUBLISH as it stands before its packet identifier and behind it, of what has been checked before."""
    tail = payload
    if version == V5:
        tail = b"\0" + payload if properties is NONE else encode_properties(properties) + payload
    return publish_head(topic, qos, retain, len(tail)), tail


def publish_head(topic: bytes, qos: int, retain: bool, rest: int) -> bytes:
    """A PUBLISH as it stands before its packet identifier; `rest`: how many bytes stand behind that."""
    name = len(topic)
    length = 2 + name + (2 if qos else 0) + rest
    first = 0x30 | qos << 1 | retain
    if length < 128:  # hot: most are short, and two calls are saved
        return bytes((first, length, name >> 8, name & 0xFF)) + topic
    if length < 16384:
        return bytes((first, length & 0x7F | 0x80, length >> 7, name >> 8, name & 0xFF)) + topic
    return b"%c%b%b%b" % (first, encode_varint(length), name.to_bytes(2, "big"), topic)


def _ack(first: int, kind: Type, packet: Ack, v5: bool) -> bytes:
    packet_id = packet.packet_id
    if not 0 < packet_id <= MAX_U16:
        raise ValueError(f"packet identifier {packet_id}")
    if not v5 or (packet.reason == 0 and packet.properties is NONE):
        return bytes((first, 2, packet_id >> 8, packet_id & 0xFF))
    reason = _reason(kind, packet.reason)
    properties = _properties(kind, packet.properties)
    if properties == b"\0":
        properties = b""  # 3.4.2.2.1
        if packet.reason == 0:
            reason = b""  # 3.4.2.1
    return _frame(first, packet_id.to_bytes(2, "big") + reason + properties)


def _reason(kind: Type, reason: int) -> bytes:
    if reason not in REASONS[kind]:
        raise ValueError(f"{kind.name} with reason code {reason:#04x}")
    return reason.to_bytes(1, "big")


def _properties(kind: Type, properties: Properties) -> bytes:
    return encode_properties(properties, False, ALLOWED[kind])


def _packet_id(packet_id: int) -> bytes:
    if packet_id == 0:
        raise ValueError("packet identifier 0")
    return encode_u16(packet_id)


def _connect(packet: packets.Connect) -> bytes:
    v5 = packet.version == V5
    flags = packet.clean_start << 1
    if not v5:
        if packet.version != V311:
            raise ValueError(f"protocol level {packet.version}")
        if packet.password is not None and packet.username is None:
            raise ValueError("password without a user name")  # 3.1.1 [MQTT-3.1.2-22]
        if not packet.client_id and not packet.clean_start:
            raise ValueError("a session to keep without a client identifier")  # 3.1.1 [MQTT-3.1.3-7]
    elif packet.properties.authentication_data is not None and packet.properties.authentication_method is None:
        raise ValueError("authentication data without a method")
    payload = encode_utf8(packet.client_id)
    if packet.will is not None:
        flags |= 0x04 | packet.will.qos << 3 | packet.will.retain << 5
        payload += _will(packet.will, v5)
    if packet.username is not None:
        flags |= 0x80
        payload += encode_utf8(packet.username)
    if packet.password is not None:
        flags |= 0x40
        payload += encode_binary(packet.password)
    if v5 and (packet.old or packet.bridge):
        raise ValueError("MQTT 5 as if it were 3.1, or with the bit of a bridge")
    name, level = (b"\x00\x06MQIsdp", V31) if packet.old else (b"\x00\x04MQTT", packet.version)
    head = name + bytes((level | BRIDGE if packet.bridge else level, flags)) + encode_u16(packet.keep_alive)
    return head + (_properties(Type.CONNECT, packet.properties) if v5 else b"") + payload


def _will(will: packets.Will, v5: bool) -> bytes:
    if will.qos not in (0, 1, 2):
        raise ValueError(f"will with QoS {will.qos}")
    if not valid_topic(will.topic):
        raise ValueError(f"{will.topic[:64]!r} is no topic name")
    properties = encode_properties(will.properties, will=True) if v5 else b""
    return properties + encode_utf8(will.topic) + encode_binary(will.payload)


def _connack(packet: packets.Connack, v5: bool) -> bytes:
    if packet.session_present and packet.reason:
        raise ValueError("session present, though the connection is refused")  # [MQTT-3.2.2-6]
    flags = b"\1" if packet.session_present else b"\0"
    if not v5:
        return flags + connack_code(packet.reason).to_bytes(1, "big")
    return flags + _reason(Type.CONNACK, packet.reason) + _properties(Type.CONNACK, packet.properties)


def _subscribe(packet: packets.Subscribe, v5: bool) -> bytes:
    if not packet.subscriptions:
        raise ValueError("SUBSCRIBE without a filter")
    if len(packet.properties.subscription_identifiers) > 1:
        raise ValueError("SUBSCRIBE with more than one subscription identifier")
    parts = [_packet_id(packet.packet_id)]
    if v5:
        parts.append(_properties(Type.SUBSCRIBE, packet.properties))
    for subscription in packet.subscriptions:
        parts.append(_filter(subscription.filter))
        parts.append(_options(subscription, v5))
    return b"".join(parts)


def _options(subscription: packets.Subscription, v5: bool) -> bytes:
    options = subscription.qos
    if options not in (0, 1, 2):
        raise ValueError(f"subscription with QoS {options}")
    if v5:
        if subscription.retain_handling not in (0, 1, 2):
            raise ValueError(f"subscription with retain handling {subscription.retain_handling}")
        if subscription.no_local and share(subscription.filter)[0] is not None:
            raise ValueError("shared subscription with no local")  # [MQTT-3.8.3-4]
        options |= subscription.no_local << 2
        options |= subscription.retain_as_published << 3
        options |= subscription.retain_handling << 4
    return options.to_bytes(1, "big")


def _filter(filter: str) -> bytes:
    if not valid_filter(filter):
        raise ValueError(f"topic filter {filter[:64]!r} is not valid")
    return encode_utf8(filter)


def _suback(packet: packets.Suback, v5: bool) -> bytes:
    if not packet.reasons:
        raise ValueError("SUBACK without a reason code")
    if v5:
        head = _packet_id(packet.packet_id) + _properties(Type.SUBACK, packet.properties)
        return head + b"".join(_reason(Type.SUBACK, reason) for reason in packet.reasons)
    # 3.1.1 has one word for every failure [MQTT-3.9.3-2]
    codes = (0x80 if reason >= 0x80 else reason for reason in packet.reasons)
    return _packet_id(packet.packet_id) + b"".join(_reason(Type.SUBACK, code) for code in codes)


def _unsubscribe(packet: packets.Unsubscribe, v5: bool) -> bytes:
    if not packet.filters:
        raise ValueError("UNSUBSCRIBE without a filter")
    properties = _properties(Type.UNSUBSCRIBE, packet.properties) if v5 else b""
    return b"".join((_packet_id(packet.packet_id), properties, *map(_filter, packet.filters)))


def _unsuback(packet: packets.Unsuback, v5: bool) -> bytes:
    if not v5:
        return _packet_id(packet.packet_id)
    if not packet.reasons:
        raise ValueError("UNSUBACK without a reason code")
    head = _packet_id(packet.packet_id) + _properties(Type.UNSUBACK, packet.properties)
    return head + b"".join(_reason(Type.UNSUBACK, reason) for reason in packet.reasons)


def _disconnect(packet: packets.Disconnect) -> bytes:
    reason = _reason(Type.DISCONNECT, packet.reason)
    properties = _properties(Type.DISCONNECT, packet.properties)
    if properties != b"\0":
        return reason + properties
    return reason if packet.reason else b""  # 3.14.2.1, 3.14.2.2.1


def _auth(packet: packets.Auth, v5: bool) -> bytes:
    if not v5:
        raise ValueError("AUTH in MQTT 3.1.1")
    reason = _reason(Type.AUTH, packet.reason)
    properties = _properties(Type.AUTH, packet.properties)
    if properties == b"\0" and packet.reason == 0:
        return b""  # 3.15.2.1
    if packet.properties.authentication_method is None:
        raise ValueError("AUTH without an authentication method")  # 3.15.2.2.2
    return reason + properties
