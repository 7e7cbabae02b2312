"""The bytes that the load generator sends and expects, made by hand and once.

Deliberately independent of `tidegate.wire`: a generator that shared the codec of the server under test
would share its mistakes. Only what a well-behaved client of MQTT 3.1.1 (version 4) or 5.0 (version 5)
needs for the works; nothing here parses more than a length.
"""

from __future__ import annotations

from collections.abc import Sequence

PUBLISH = 0x30
PUBACK = 0x40
PUBREC = 0x50
PUBREL = 0x62
PUBCOMP = 0x70
CONNACK = 0x20
SUBACK = 0x90
PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"
DISCONNECT = b"\xe0\x00"
SESSION_EXPIRY = 3600
Pairs = Sequence[tuple[str, str]]


def _string(text: str) -> bytes:
    raw = text.encode()
    return len(raw).to_bytes(2, "big") + raw


def _packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint(len(body)) + body


def varint(value: int) -> bytes:
    """A variable byte integer (MQTT 3.1.1, 2.2.3; MQTT 5, 1.5.5)."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _properties(pairs: Pairs, version: int, others: bytes = b"") -> bytes:
    """The property block of version 5: user properties, and `others` as they are."""
    if version != 5:
        return b""
    body = others + b"".join(b"\x26" + _string(name) + _string(value) for name, value in pairs)
    return varint(len(body)) + body


def connect(client_id: str, *, version: int, clean: bool, login: str = "", pairs: Pairs = ()) -> bytes:
    """CONNECT without keep-alive; a session that is not clean is also kept for an hour in version 5.

    `login` is user name and password in one. `pairs` here and below are user properties, of version 5 only.
    """
    expiry = b"" if clean else b"\x11" + SESSION_EXPIRY.to_bytes(4, "big")
    flags = (2 if clean else 0) | (0xC0 if login else 0)
    head = _string("MQTT") + bytes([version, flags, 0, 0])
    who = _string(client_id) + (2 * _string(login) if login else b"")
    return _packet(0x10, head + _properties(pairs, version, expiry) + who)


def subscribe(packet_id: int, filters: Sequence[str], *, qos: int, version: int, pairs: Pairs = ()) -> bytes:
    body = b"".join(_string(text) + bytes([qos]) for text in filters)
    return _packet(0x82, packet_id.to_bytes(2, "big") + _properties(pairs, version) + body)


def unsubscribe(packet_id: int, filters: Sequence[str], *, version: int) -> bytes:
    properties = b"\x00" if version == 5 else b""
    return _packet(0xA2, packet_id.to_bytes(2, "big") + properties + b"".join(map(_string, filters)))


def publish(topic: str, payload: bytes, *, qos: int, packet_id: int, version: int, pairs: Pairs = ()) -> bytes:
    """PUBLISH as client or server would send it: no flag but the QoS, no property but `pairs`."""
    head = _string(topic)
    if qos:
        head += packet_id.to_bytes(2, "big")
    return _packet(PUBLISH | qos << 1, head + _properties(pairs, version) + payload)


def packet_id_offset(topic: str, payload_length: int, *, version: int) -> int:
    """Where the packet id stands in a PUBLISH with QoS 1 or 2 made by `publish`."""
    frame = publish(topic, bytes(payload_length), qos=1, packet_id=0, version=version)
    return len(frame) - payload_length - (1 if version == 5 else 0) - 2


def answer(kind: int, packet_id: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP in its four-byte form, which both versions share."""
    return bytes([kind, 2]) + packet_id.to_bytes(2, "big")


def total_length(head: bytes) -> int | None:
    """The whole length of the packet that starts with `head`, or None when that cannot be told yet."""
    value = 0
    for place, byte in enumerate(head[1:5]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value + 2 + place
    return None
