"""Bytes to packets and back, MQTT 3.1.1 and 5.0, both directions.

`frame` finds where a packet ends, `decode` reads its body, `encode` writes a whole frame. Whatever bytes
come in, these raise `MalformedPacket` or `ProtocolError` and nothing else. Packets are plain values; what
they mean in a conversation is known to `session`.
"""

from __future__ import annotations

from tidegate.wire.decode import decode, level
from tidegate.wire.encode import encode, encode_publish_parts, publish_head
from tidegate.wire.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from tidegate.wire.primitives import announced, encode_varint, frame
from tidegate.wire.properties import NONE, Properties, decode_properties, encode_properties
from tidegate.wire.reasons import V5, V311, Reason, Type

__all__ = [
    "NONE",
    "V5",
    "V311",
    "Auth",
    "Connack",
    "Connect",
    "Disconnect",
    "Packet",
    "Pingreq",
    "Pingresp",
    "Properties",
    "Puback",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "Pubrel",
    "Reason",
    "Suback",
    "Subscribe",
    "Subscription",
    "Type",
    "Unsuback",
    "Unsubscribe",
    "Will",
    "announced",
    "decode",
    "decode_properties",
    "encode",
    "encode_properties",
    "encode_publish_parts",
    "encode_varint",
    "frame",
    "level",
    "publish_head",
]
