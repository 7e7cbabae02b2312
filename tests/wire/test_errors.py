"""What the specifications forbid: the bytes, the error they must raise, and the reason code to answer with.

The tables follow the specifications section by section, 5.0 first. Where a clause number is the same in both,
the version column tells whose it is.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.errors import MalformedPacket, PacketError, ProtocolError
from tidegate.wire import (
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Subscription,
    Type,
    Unsuback,
    Unsubscribe,
    Will,
    check_first,
    decode,
    decode_properties,
    encode,
    encode_properties,
    encode_varint,
    frame,
)
from tidegate.wire.primitives import MAX_VARINT
from tidegate.wire.properties import ALL, ALLOWED, PROPERTIES, WILL
from tidegate.wire.reasons import REASONS
from wire.notation import octets

BOTH = (V5, V311)
M = MalformedPacket
P = ProtocolError

# A long string, longer than its length field says it may be within the packet
Row = tuple[str, tuple[int, ...], str, type[PacketError], int]

STRINGS: list[Row] = [
    # 1.5.4 UTF-8 encoded string, in each kind of place where one stands
    ("1.5.4-1 surrogate", BOTH, "30 <0003 eda080>", M, 0x81),
    ("1.5.4-1 surrogate pair", BOTH, "30 <0006 eda081edb080>", M, 0x81),
    ("1.5.4-1 overlong", BOTH, "30 <0002 c0af>", M, 0x81),
    ("1.5.4-1 overlong NUL", BOTH, "30 <0002 c080>", M, 0x81),
    ("1.5.4-1 lone continuation", BOTH, "30 <0001 80>", M, 0x81),
    ("1.5.4-1 cut sequence", BOTH, "30 <0002 e282>", M, 0x81),
    ("1.5.4-1 past U+10FFFF", BOTH, "30 <0004 f4908080>", M, 0x81),
    ("1.5.4-1 five bytes", BOTH, "30 <0005 f888808080>", M, 0x81),
    ("1.5.4-1 byte that never occurs", BOTH, "30 <0001 ff>", M, 0x81),
    ("1.5.4-2 NUL in a topic", BOTH, "30 <0003 'a' 00 'b'>", M, 0x81),
    ("1.5.4-2 NUL beside a wildcard", BOTH, "30 <0003 '+' 00 '#'>", M, 0x81),
    ("1.5.4-2 NUL in a filter", (V311,), "82 <0001 0001 00 00>", M, 0x81),
    ("1.5.4-2 NUL in a filter", (V5,), "82 <0001 <> 0001 00 00>", M, 0x81),
    ("1.5.4-1 filter to leave", (V311,), "a2 <0001 0001 ff>", M, 0x81),
    ("1.5.4-1 filter to leave", (V5,), "a2 <0001 <> 0001 ff>", M, 0x81),
    ("1.5.4-1 client identifier", BOTH, '10 <"MQTT" 04 02 0000 0001 ff>', M, 0x81),
    ("1.5.4-2 client identifier", BOTH, '10 <"MQTT" 04 02 0000 0001 00>', M, 0x81),
    ("1.5.4-1 will topic", BOTH, '10 <"MQTT" 04 06 0000 "c" 0001 ff "">', M, 0x81),
    ("1.5.4-1 user name", BOTH, '10 <"MQTT" 04 82 0000 "c" 0001 ff>', M, 0x81),
    ("1.5.4-2 user name", BOTH, '10 <"MQTT" 05 82 0000 <> "c" 0001 00>', M, 0x81),
    ("1.5.4-1 protocol name", BOTH, "10 <0004 'MQT' ff 04 02 0000 \"c\">", M, 0x81),
    ("1.5.4-1 property", (V5,), '30 <"a" <03 0001 ff>>', M, 0x81),
    ("1.5.4-2 property", (V5,), '30 <"a" <03 0001 00>>', M, 0x81),
    ("1.5.7 name of a user property", (V5,), '30 <"a" <26 0001 ff "v">>', M, 0x81),
    ("1.5.7 value of a user property", (V5,), '30 <"a" <26 "k" 0001 00>>', M, 0x81),
    # Lengths that lead out of the packet
    ("1.5.4 topic longer than the packet", BOTH, "30 <0005 'abcd'>", M, 0x81),
    ("1.5.4 topic without a length", BOTH, "30 <00>", M, 0x81),
    ("1.5.4 nothing at all", BOTH, "30 <>", M, 0x81),
    ("1.5.6 password longer than the packet", BOTH, '10 <"MQTT" 04 c2 0000 "c" "u" 0003 \'pw\'>', M, 0x81),
    ("1.5.4 property longer than the properties", (V5,), "30 <\"a\" <03 0004 'text'> 'more'>", None or "ok", 0),  # type: ignore[list-item]
]
