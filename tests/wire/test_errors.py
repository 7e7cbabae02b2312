"""What the specifications forbid: the bytes, the error they must raise, and the reason code to answer with.

The tables follow the specifications section by section. A clause number belongs to the version in its row; in
rows for both it is the number of 5.0.
"""

from __future__ import annotations

import pytest

from tidegate.errors import MalformedPacket, PacketError, ProtocolError
from tidegate.topics import valid_filter, valid_topic
from tidegate.wire import V5, V311, Publish, Reason, Type, decode, decode_properties, frame
from tidegate.wire.primitives import check_first
from tidegate.wire.properties import (
    ALL,
    ALLOWED,
    BINARY,
    FLAG,
    PAIR,
    PROPERTIES,
    U16,
    U32,
    UTF8,
    VARINT,
    WILL,
    Property,
)
from tidegate.wire.reasons import REASONS
from wire.notation import octets

LIMIT = 1 << 20
BOTH = (V5, V311)
FIVE = (V5,)
THREE = (V311,)
M = MalformedPacket
P = ProtocolError

Row = tuple[str, tuple[int, ...], str, type[PacketError], int]

# 1.5 Data representation

DATA: list[Row] = [
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
    ("1.5.4-2 NUL beside wildcards", BOTH, "30 <0003 '+' 00 '#'>", M, 0x81),
    ("1.5.4-2 NUL in a filter", THREE, "82 <0001 0001 00 00>", M, 0x81),
    ("1.5.4-2 NUL in a filter", FIVE, "82 <0001 <> 0001 00 00>", M, 0x81),
    ("1.5.4-1 filter to leave", THREE, "a2 <0001 0001 ff>", M, 0x81),
    ("1.5.4-1 filter to leave", FIVE, "a2 <0001 <> 0001 ff>", M, 0x81),
    ("1.5.4-1 client identifier", THREE, '10 <"MQTT" 04 02 0000 0001 ff>', M, 0x81),
    ("1.5.4-1 client identifier", FIVE, '10 <"MQTT" 05 02 0000 <> 0001 ff>', M, 0x81),
    ("1.5.4-2 client identifier", FIVE, '10 <"MQTT" 05 02 0000 <> 0001 00>', M, 0x81),
    ("1.5.4-1 will topic", THREE, '10 <"MQTT" 04 06 0000 "c" 0001 ff "">', M, 0x81),
    ("1.5.4-1 will topic", FIVE, '10 <"MQTT" 05 06 0000 <> "c" <> 0001 ff "">', M, 0x81),
    ("1.5.4-1 user name", THREE, '10 <"MQTT" 04 82 0000 "c" 0001 ff>', M, 0x81),
    ("1.5.4-2 user name", FIVE, '10 <"MQTT" 05 82 0000 <> "c" 0001 00>', M, 0x81),
    ("1.5.4-1 protocol name", BOTH, "10 <0004 'MQT' ff 04 02 0000 \"c\">", M, 0x81),
    ("1.5.4-1 property", FIVE, '30 <"a" <03 0001 ff>>', M, 0x81),
    ("1.5.4-2 property", FIVE, '30 <"a" <03 0001 00>>', M, 0x81),
    ("1.5.7 name of a user property", FIVE, '30 <"a" <26 0001 ff "v">>', M, 0x81),
    ("1.5.7 value of a user property", FIVE, '30 <"a" <26 "k" 0001 00>>', M, 0x81),
    ("1.5.7 user property without a value", FIVE, '30 <"a" <26 "k"> "v">', M, 0x81),
    ("1.5.4 topic longer than the packet", BOTH, "30 <0005 'abcd'>", M, 0x81),
    ("1.5.4 topic without a length", BOTH, "30 <00>", M, 0x81),
    ("1.5.4 nothing at all", BOTH, "30 <>", M, 0x81),
    ("1.5.6 password longer than the packet", THREE, '10 <"MQTT" 04 c2 0000 "c" "u" 0003 \'pw\'>', M, 0x81),
    ("1.5.5 property length of five bytes", FIVE, '30 <"a" 8080808001>', M, 0x81),
    ("1.5.5 property length cut", FIVE, '30 <"a" 80>', M, 0x81),
    ("1.5.5-1 property length not minimal", FIVE, '30 <"a" 8000>', M, 0x81),
    ("1.5.5-1 property length not minimal", FIVE, '30 <"a" 8200 0101>', M, 0x81),
    ("1.5.5 subscription identifier of five bytes", FIVE, '30 <"a" <0b 8080808001>>', M, 0x81),
    ("1.5.5 subscription identifier cut", FIVE, '30 <"a" <0b 80> 01>', M, 0x81),
    ("1.5.5-1 subscription identifier not minimal", FIVE, '30 <"a" <0b 8100>>', M, 0x81),
    ("1.5.5-1 subscription identifier not minimal", FIVE, '30 <"a" <0b ffff8000>>', M, 0x81),
]

# 2.1 Fixed header and 2.2 Variable header

HEADERS: list[Row] = [
    ("2.1.2 type 0", BOTH, "00 <>", M, 0x81),
    ("2.1.2 type 0 with flags", BOTH, "0f <>", M, 0x81),
    ("2.2.1 type 15", THREE, "f0 <>", M, 0x81),
    ("2.2.1 type 15 with a body", THREE, 'f0 <18 <15 "m">>', M, 0x81),
    ("3.3.1-4 QoS 3", BOTH, '36 <"a" 0001>', M, 0x81),
    ("3.3.1-4 QoS 3 with all flags", BOTH, '3f <"a" 0001>', M, 0x81),
    ("3.3.1-2 DUP at QoS 0", THREE, '38 <"a">', M, 0x81),
    ("3.3.1-2 DUP at QoS 0", FIVE, '39 <"a" <>>', M, 0x81),
    ("2.2.1-3 PUBLISH identifier 0", THREE, '32 <"a" 0000>', P, 0x82),
    ("2.2.1-3 PUBLISH identifier 0", FIVE, '34 <"a" 0000 <>>', P, 0x82),
    ("2.2.1 PUBLISH identifier missing", BOTH, '32 <"a">', M, 0x81),
    ("2.2.1 PUBLISH identifier cut", BOTH, '34 <"a" 00>', M, 0x81),
    ("2.2.1-3 SUBSCRIBE identifier 0", THREE, '82 <0000 "a" 00>', P, 0x82),
    ("2.2.1-3 SUBSCRIBE identifier 0", FIVE, '82 <0000 <> "a" 00>', P, 0x82),
    ("2.2.1-3 UNSUBSCRIBE identifier 0", THREE, 'a2 <0000 "a">', P, 0x82),
    ("2.2.1-3 UNSUBSCRIBE identifier 0", FIVE, 'a2 <0000 <> "a">', P, 0x82),
    ("2.2.1-5 PUBACK identifier 0", BOTH, "40 <0000>", P, 0x82),
    ("2.2.1-5 PUBREC identifier 0", BOTH, "50 <0000>", P, 0x82),
    ("2.2.1-5 PUBREL identifier 0", BOTH, "62 <0000>", P, 0x82),
    ("2.2.1-5 PUBCOMP identifier 0", BOTH, "70 <0000>", P, 0x82),
    ("2.2.1-6 SUBACK identifier 0", THREE, "90 <0000 00>", P, 0x82),
    ("2.2.1-6 SUBACK identifier 0", FIVE, "90 <0000 <> 00>", P, 0x82),
    ("2.2.1-6 UNSUBACK identifier 0", THREE, "b0 <0000>", P, 0x82),
    ("2.2.1-6 UNSUBACK identifier 0", FIVE, "b0 <0000 <> 00>", P, 0x82),
    ("2.2.2.1 properties missing", FIVE, '30 <"a">', M, 0x81),
    ("2.2.2.1 properties longer than the packet", FIVE, "30 <\"a\" 05 03 0001 'x'>", M, 0x81),
    ("2.2.2.1 string past the properties", FIVE, "30 <\"a\" <03 0005 'tex'> 'more'>", M, 0x81),
    ("2.2.2.1 number past the properties", FIVE, '30 <"a" <02 000000> 01>', M, 0x81),
    ("2.2.2.1 short number past the properties", FIVE, '30 <"a" <23 00> 01>', M, 0x81),
    ("2.2.2.1 byte past the properties", FIVE, '30 <"a" <01> 01>', M, 0x81),
    ("2.2.2.1 data past the properties", FIVE, '30 <"a" <09 0001> 01>', M, 0x81),
    ("2.2.2.2 identifier of two bytes", FIVE, '30 <"a" <8101 01>>', M, 0x81),
    ("2.2.2.2 identifier not minimal", FIVE, '30 <"a" <8100 01>>', M, 0x81),
]

# 3.1 CONNECT

CONNECT: list[Row] = [
    ("3.1.1 flags", BOTH, '11 <"MQTT" 05 02 0000 <> "c">', M, 0x81),
    ("3.1.2-1 other protocol", BOTH, '10 <"HTTP" 05 02 0000 <> "c">', P, 0x84),
    ("3.1.2-1 case matters", BOTH, '10 <"mqtt" 04 02 0000 "c">', P, 0x84),
    ("3.1.2-1 the name of MQTT 3.1 with another level", BOTH, '10 <"MQIsdp" 04 02 0000 "c">', P, 0x84),
    ("3.1.2-1 no name", BOTH, '10 <"" 05 02 0000 <> "c">', P, 0x84),
    ("3.1.2-2 level 3", BOTH, '10 <"MQTT" 03 02 0000 "c">', P, 0x84),
    ("3.1.2-2 level 6", BOTH, '10 <"MQTT" 06 02 0000 <> "c">', P, 0x84),
    ("3.1.2-2 level 0", BOTH, '10 <"MQTT" 00 02 0000 "c">', P, 0x84),
    ("3.1.2-2 the level of a bridge in MQTT 5, which has none", BOTH, '10 <"MQTT" 85 02 0000 "c">', P, 0x84),
    ("3.1.2-2 other level, whatever follows", BOTH, '10 <"MQTT" 07>', P, 0x84),
    ("3.1.2.2 no level", BOTH, '10 <"MQTT">', M, 0x81),
    ("3.1.2.1 no name", BOTH, "10 <>", M, 0x81),
    ("3.1.2-3 reserved flag", THREE, '10 <"MQTT" 04 03 0000 "c">', M, 0x81),
    ("3.1.2-3 reserved flag", FIVE, '10 <"MQTT" 05 03 0000 <> "c">', M, 0x81),
    ("3.1.2-11 will QoS without a will", THREE, '10 <"MQTT" 04 0a 0000 "c">', M, 0x81),
    ("3.1.2-11 will QoS without a will", FIVE, '10 <"MQTT" 05 12 0000 <> "c">', M, 0x81),
    ("3.1.2-15 will retain without a will", THREE, '10 <"MQTT" 04 22 0000 "c">', M, 0x81),
    ("3.1.2-13 will retain without a will", FIVE, '10 <"MQTT" 05 22 0000 <> "c">', M, 0x81),
    ("3.1.2-14 will QoS 3", THREE, '10 <"MQTT" 04 1e 0000 "c" "w" "">', M, 0x81),
    ("3.1.2-12 will QoS 3", FIVE, '10 <"MQTT" 05 1e 0000 <> "c" <> "w" "">', M, 0x81),
    ("3.1.2-12 will QoS 3 without a will", BOTH, '10 <"MQTT" 05 1a 0000 <> "c">', M, 0x81),
    ("3.1.2-22 password without a user name", THREE, '10 <"MQTT" 04 42 0000 "c" "pw">', P, 0x82),
    ("3.1.2.10 no keep alive", BOTH, '10 <"MQTT" 04 02>', M, 0x81),
    ("3.1.2.10 keep alive cut", BOTH, '10 <"MQTT" 05 02 00>', M, 0x81),
    ("3.1.2.11 no properties", FIVE, '10 <"MQTT" 05 02 0000>', M, 0x81),
    ("3.1.2.11.2 session expiry twice", FIVE, '10 <"MQTT" 05 02 0000 <11 00000001 11 00000001> "c">', P, 0x82),
    ("3.1.2.11.3 receive maximum 0", FIVE, '10 <"MQTT" 05 02 0000 <21 0000> "c">', P, 0x82),
    ("3.1.2.11.4 maximum packet size 0", FIVE, '10 <"MQTT" 05 02 0000 <27 00000000> "c">', P, 0x82),
    ("3.1.2.11.6 request response information 2", FIVE, '10 <"MQTT" 05 02 0000 <19 02> "c">', P, 0x82),
    ("3.1.2.11.7 request problem information 2", FIVE, '10 <"MQTT" 05 02 0000 <17 02> "c">', P, 0x82),
    ("3.1.2.11.10 data without a method", FIVE, '10 <"MQTT" 05 02 0000 <16 "d"> "c">', P, 0x82),
    ("3.1.2.11.10 empty data without a method", FIVE, '10 <"MQTT" 05 02 0000 <16 ""> "c">', P, 0x82),
    ("3.1.3-3 no client identifier", THREE, '10 <"MQTT" 04 02 0000>', M, 0x81),
    ("3.1.3-3 no client identifier", FIVE, '10 <"MQTT" 05 02 0000 <>>', M, 0x81),
    ("3.1.3-8 keep a session of nobody", THREE, '10 <"MQTT" 04 00 0000 "">', P, 0x85),
    ("3.1.3-8 ... with credentials", THREE, '10 <"MQTT" 04 c0 0000 "" "u" "p">', P, 0x85),
    ("3.1.2-9 no will topic", THREE, '10 <"MQTT" 04 06 0000 "c">', M, 0x81),
    ("3.1.2-9 no will properties", FIVE, '10 <"MQTT" 05 06 0000 <> "c">', M, 0x81),
    ("3.1.2-9 no will payload", THREE, '10 <"MQTT" 04 06 0000 "c" "w">', M, 0x81),
    ("3.1.2-9 no will payload", FIVE, '10 <"MQTT" 05 06 0000 <> "c" <> "w">', M, 0x81),
    ("3.1.3.2 will delay twice", FIVE, '10 <"MQTT" 05 06 0000 <> "c" <18 00000001 18 00000001> "w" "">', P, 0x82),
    ("3.1.3.2 alias in a will", FIVE, '10 <"MQTT" 05 06 0000 <> "c" <23 0001> "w" "">', M, 0x81),
    ("3.1.3.2.6 response topic of a will", FIVE, '10 <"MQTT" 05 06 0000 <> "c" <08 "+"> "w" "">', P, 0x82),
    ("4.7.1-1 will topic with a wildcard", THREE, '10 <"MQTT" 04 06 0000 "c" "w/#" "">', P, 0x90),
    ("4.7.0-1 will topic with a wildcard", FIVE, '10 <"MQTT" 05 06 0000 <> "c" <> "+" "">', P, 0x90),
    ("4.7.3-1 empty will topic", THREE, '10 <"MQTT" 04 06 0000 "c" "" "">', P, 0x90),
    ("4.7.3-1 empty will topic", FIVE, '10 <"MQTT" 05 06 0000 <> "c" <> "" "">', P, 0x90),
    ("3.1.2-17 no user name", FIVE, '10 <"MQTT" 05 82 0000 <> "c">', M, 0x81),
    ("3.1.2-19 no password", FIVE, '10 <"MQTT" 05 c2 0000 <> "c" "u">', M, 0x81),
    ("3.1.2-16 user name without its flag", FIVE, '10 <"MQTT" 05 02 0000 <> "c" "u">', M, 0x81),
    ("3.1.2-20 password without its flag", THREE, '10 <"MQTT" 04 82 0000 "c" "u" "p">', M, 0x81),
]

# 3.2 CONNACK

CONNACK: list[Row] = [
    ("3.2.1 flags", BOTH, "21 <00 00>", M, 0x81),
    ("3.2.2 nothing", BOTH, "20 <>", M, 0x81),
    ("3.2.2 no reason", BOTH, "20 <00>", M, 0x81),
    ("3.2.2 a byte too many", THREE, "20 <00 00 00>", M, 0x81),
    ("3.2.2.3 no properties", FIVE, "20 <00 00>", M, 0x81),
    ("3.2.2.3 a byte too many", FIVE, "20 <00 00 <> 00>", M, 0x81),
    ("3.2.2-1 reserved flags", THREE, "20 <02 00>", M, 0x81),
    ("3.2.2-1 reserved flags", FIVE, "20 <81 00 <>>", M, 0x81),
    ("3.2.2-6 session present and refused", FIVE, "20 <01 87 <>>", P, 0x82),
    ("3.2.2-4 session present and refused", THREE, "20 <01 05>", P, 0x82),
    ("3.2.2.3 return code 6", THREE, "20 <00 06>", M, 0x81),
    ("3.2.2.3 a reason of 5.0", THREE, "20 <00 87>", M, 0x81),
    ("3.2.2-8 a return code of 3.1.1", FIVE, "20 <00 05 <>>", M, 0x81),
    ("3.2.2.3.3 receive maximum 0", FIVE, "20 <00 00 <21 0000>>", P, 0x82),
    ("3.2.2.3.4 maximum QoS 2", FIVE, "20 <00 00 <24 02>>", P, 0x82),
    ("3.2.2.3.5 retain available 2", FIVE, "20 <00 00 <25 02>>", P, 0x82),
    ("3.2.2.3.6 maximum packet size 0", FIVE, "20 <00 00 <27 00000000>>", P, 0x82),
    ("3.2.2.3.11 wildcards 255", FIVE, "20 <00 00 <28 ff>>", P, 0x82),
    ("3.2.2.3.12 subscription identifiers 2", FIVE, "20 <00 00 <29 02>>", P, 0x82),
    ("3.2.2.3.13 shared subscriptions 2", FIVE, "20 <00 00 <2a 02>>", P, 0x82),
]

# 3.3 PUBLISH

PUBLISH: list[Row] = [
    ("3.3.2-2 topic with +", THREE, '30 <"a/+">', P, 0x90),
    ("3.3.2-2 topic with +", FIVE, '30 <"a/+" <>>', P, 0x90),
    ("3.3.2-2 topic with #", THREE, '31 <"#">', P, 0x90),
    ("3.3.2-2 topic with #", FIVE, '31 <"a#b" <>>', P, 0x90),
    ("4.7.3-1 empty topic", THREE, '30 <"">', P, 0x90),
    ("3.3.2.1 empty topic without an alias", FIVE, '30 <"" <>>', P, 0x82),
    ("3.3.2.1 empty topic, other properties", FIVE, '30 <"" <26 "k" "v">>', P, 0x82),
    ("3.3.2.3.2 payload format indicator 2", FIVE, '30 <"a" <01 02>>', P, 0x82),
    ("3.3.2-8 alias 0", FIVE, '30 <"a" <23 0000>>', P, 0x94),
    ("3.3.2-8 alias 0 and no topic", FIVE, '30 <"" <23 0000>>', P, 0x94),
    ("3.3.2-14 response topic with +", FIVE, '30 <"a" <08 "a/+">>', P, 0x82),
    ("3.3.2-14 response topic with #", FIVE, '30 <"a" <08 "#">>', P, 0x82),
    ("4.7.3-1 empty response topic", FIVE, '30 <"a" <08 "">>', P, 0x82),
    ("3.3.2.3.8 subscription identifier 0", FIVE, '30 <"a" <0b 00>>', P, 0x82),
    ("3.3.2.3.8 subscription identifiers 1, 0", FIVE, '30 <"a" <0b 01 0b 00>>', P, 0x82),
    ("3.3.2.3 will delay in PUBLISH", FIVE, '30 <"a" <18 00000001>>', M, 0x81),
]

# 3.4 PUBACK, 3.5 PUBREC, 3.6 PUBREL, 3.7 PUBCOMP

ACKS: list[Row] = []
for name, first, flags, reason in (
    ("PUBACK", "40", "42", "92"),
    ("PUBREC", "50", "51", "92"),
    ("PUBREL", "62", "60", "10"),
    ("PUBCOMP", "70", "72", "10"),
):
    ACKS += [
        (f"2.1.3-1 {name} flags", BOTH, f"{flags} <0001>", M, 0x81),
        (f"{name} of no bytes", BOTH, f"{first} <>", M, 0x81),
        (f"{name} of one byte", BOTH, f"{first} <00>", M, 0x81),
        (f"{name} with a reason", THREE, f"{first} <0001 00>", M, 0x81),
        (f"{name} with properties", THREE, f"{first} <0001 00 <>>", M, 0x81),
        (f"{name} a reason of another packet", FIVE, f"{first} <0001 {reason}>", M, 0x81),
        (f"{name} a byte too many", FIVE, f"{first} <0001 00 <> 00>", M, 0x81),
        (f"{name} properties cut", FIVE, f"{first} <0001 00 01>", M, 0x81),
        (f"{name} reason string twice", FIVE, f'{first} <0001 00 <1f "" 1f "">>', P, 0x82),
        (f"{name} identifier 0 with a reason", FIVE, f"{first} <0000 00>", P, 0x82),
    ]

# 3.8 SUBSCRIBE to 3.11 UNSUBACK

SUBSCRIBE: list[Row] = [
    ("3.8.1-1 flags 0", THREE, '80 <0001 "a" 00>', M, 0x81),
    ("3.8.1-1 flags 0", FIVE, '80 <0001 <> "a" 00>', M, 0x81),
    ("3.8.1-1 flags with DUP", BOTH, '8a <0001 "a" 00>', M, 0x81),
    ("3.8.2 nothing", BOTH, "82 <>", M, 0x81),
    ("3.8.2.1 no properties", FIVE, "82 <0001>", M, 0x81),
    ("3.8.3-3 no filter", THREE, "82 <0001>", P, 0x82),
    ("3.8.3-2 no filter", FIVE, "82 <0001 <>>", P, 0x82),
    ("3.8.2.1.2 subscription identifier 0", FIVE, '82 <0001 <0b 00> "a" 00>', P, 0x82),
    ("3.8.2.1.2 subscription identifier twice", FIVE, '82 <0001 <0b 01 0b 01> "a" 00>', P, 0x82),
    ("3.8.3 filter without options", THREE, '82 <0001 "a">', M, 0x81),
    ("3.8.3 filter without options", FIVE, '82 <0001 <> "a">', M, 0x81),
    ("3.8.3 second filter without options", FIVE, '82 <0001 <> "a" 00 "b">', M, 0x81),
    ("3-8.3-4 QoS 3", THREE, '82 <0001 "a" 03>', M, 0x81),
    ("3-8.3-4 reserved bits", THREE, '82 <0001 "a" 04>', M, 0x81),
    ("3-8.3-4 reserved bits", THREE, '82 <0001 "a" 80>', M, 0x81),
    ("3.8.3.1 QoS 3", FIVE, '82 <0001 <> "a" 03>', P, 0x82),
    ("3.8.3.1 retain handling 3", FIVE, '82 <0001 <> "a" 30>', P, 0x82),
    ("3.8.3-5 reserved bit 6", FIVE, '82 <0001 <> "a" 40>', M, 0x81),
    ("3.8.3-5 reserved bit 7", FIVE, '82 <0001 <> "a" 80>', M, 0x81),
    ("3.8.3-5 all bits", FIVE, '82 <0001 <> "a" ff>', M, 0x81),
    ("3.8.3-4 no local on a shared one", FIVE, '82 <0001 <> "$share/g/a" 04>', P, 0x82),
    ("3.9.1 flags", BOTH, "92 <0001 00>", M, 0x81),
    ("3.9.2 nothing", BOTH, "90 <>", M, 0x81),
    ("3.9.3 no return code", THREE, "90 <0001>", P, 0x82),
    ("3.9.2.1 no properties", FIVE, "90 <0001>", M, 0x81),
    ("3.9.3 no reason", FIVE, "90 <0001 <>>", P, 0x82),
    ("3.9.3-2 return code 3", THREE, "90 <0001 00 03>", M, 0x81),
    ("3.9.3-2 a reason of 5.0", THREE, "90 <0001 87>", M, 0x81),
    ("3.9.3-2 reason 3", FIVE, "90 <0001 <> 00 03>", M, 0x81),
    ("3.10.1-1 flags", BOTH, 'a0 <0001 "a">', M, 0x81),
    ("3.10.2 nothing", BOTH, "a2 <>", M, 0x81),
    ("3.10.2.1 no properties", FIVE, "a2 <0001>", M, 0x81),
    ("3.10.3-2 no filter", THREE, "a2 <0001>", P, 0x82),
    ("3.10.3-2 no filter", FIVE, "a2 <0001 <>>", P, 0x82),
    ("3.10.2.1 subscription identifier", FIVE, 'a2 <0001 <0b 01> "a">', M, 0x81),
    ("3.10.3 filter cut", THREE, "a2 <0001 00>", M, 0x81),
    ("3.10.3 filter cut", FIVE, "a2 <0001 <> 00>", M, 0x81),
    ("3.11.1 flags", BOTH, "b2 <0001>", M, 0x81),
    ("3.11.2 nothing", BOTH, "b0 <>", M, 0x81),
    ("3.11.3 a payload", THREE, "b0 <0001 00>", M, 0x81),
    ("3.11.2.1 no properties", FIVE, "b0 <0001>", M, 0x81),
    ("3.11.3 no reason", FIVE, "b0 <0001 <>>", P, 0x82),
    ("3.11.3-2 a reason of SUBACK", FIVE, "b0 <0001 <> 01>", M, 0x81),
]
for filter in (
    *("", "a+", "+a", "a/b+/c", "#a", "a#", "#/a", "a/#/b", "##", "+#", "/#/"),
    *("$share/", "$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/#/a", "$share/g/a#", "$share/g/#/a"),
):
    SUBSCRIBE += [
        (f"4.7.1, 4.8.2 {filter!r}", THREE, f'82 <0001 "{filter}" 00>', P, 0x8F),
        (f"4.7.1, 4.8.2 {filter!r}", FIVE, f'82 <0001 <> "{filter}" 00>', P, 0x8F),
        (f"4.7.1, 4.8.2 {filter!r} after a good one", FIVE, f'82 <0001 <> "a" 00 "{filter}" 00>', P, 0x8F),
        (f"4.7.1, 4.8.2 leaving {filter!r}", THREE, f'a2 <0001 "{filter}">', P, 0x8F),
        (f"4.7.1, 4.8.2 leaving {filter!r}", FIVE, f'a2 <0001 <> "{filter}">', P, 0x8F),
    ]

# 3.12 PINGREQ to 3.15 AUTH

REST: list[Row] = [
    ("3.12.1 flags", BOTH, "c1 <>", M, 0x81),
    ("3.12.1 a body", BOTH, "c0 <00>", M, 0x81),
    ("3.13.1 flags", BOTH, "d8 <>", M, 0x81),
    ("3.13.1 a body", BOTH, "d0 <00>", M, 0x81),
    ("3.14.1-1 flags", BOTH, "e1 <>", M, 0x81),
    ("3.14.2 a body", THREE, "e0 <00>", M, 0x81),
    ("3.14.2-1 a reason of CONNACK", FIVE, "e0 <86>", M, 0x81),
    ("3.14.2-1 a reason of SUBACK", FIVE, "e0 <01>", M, 0x81),
    ("3.14.2.2 a byte too many", FIVE, "e0 <00 <> 00>", M, 0x81),
    ("3.14.2.2 properties cut", FIVE, "e0 <00 05 11 0000>", M, 0x81),
    ("3.14.2.2.2 session expiry twice", FIVE, "e0 <00 <11 00000001 11 00000001>>", P, 0x82),
    ("3.14.2.2 receive maximum", FIVE, "e0 <00 <21 0001>>", M, 0x81),
    ("3.15.1-1 flags", BOTH, "f1 <>", M, 0x81),
    ("3.15.2-1 a reason of CONNACK", FIVE, 'f0 <87 <15 "m">>', M, 0x81),
    ("3.15.2.2 no properties", FIVE, "f0 <18>", M, 0x81),
    ("3.15.2.2 a byte too many", FIVE, 'f0 <18 <15 "m"> 00>', M, 0x81),
    ("3.15.2.2.2 no method", FIVE, "f0 <18 <>>", P, 0x82),
    ("3.15.2.2.2 no method, other properties", FIVE, 'f0 <18 <1f "why">>', P, 0x82),
    ("3.15.2.2.2 no method, but data", FIVE, 'f0 <18 <16 "d">>', P, 0x82),
    ("3.15.2.2.2 method twice", FIVE, 'f0 <18 <15 "m" 15 "m">>', P, 0x82),
]

TABLE = [
    pytest.param(version, octets(text), error, reason, id=f"{version} {clause}")
    for clause, versions, text, error, reason in (
        *DATA,
        *HEADERS,
        *CONNECT,
        *CONNACK,
        *PUBLISH,
        *ACKS,
        *SUBSCRIBE,
        *REST,
    )
    for version in versions
]


@pytest.mark.parametrize(("version", "data", "error", "reason"), TABLE)
def test_refused(version: int, data: bytes, error: type[PacketError], reason: int) -> None:
    found = frame(data, 0, LIMIT)
    assert found is not None
    first, start, end = found
    assert end == len(data)
    with pytest.raises(PacketError) as caught:
        decode(first, data[start:end], version)
    assert type(caught.value) is error
    assert caught.value.reason == reason
    assert str(caught.value)


# 2.1.4 Remaining length


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("30 80808080", M, 0x81),  # 1.5.5: a fifth byte is announced, no need to see it
        ("30 ffffffff 01", M, 0x81),
        ("30 80000000", M, 0x81),
        ("30 8000", M, 0x81),  # 1.5.5-1, and in 3.1.1 table 2.4: two bytes begin at 128
        ("30 ff00", M, 0x81),
        ("30 808000", M, 0x81),
        ("30 ffff00", M, 0x81),
        ("30 80808000", M, 0x81),
        ("30 ffffff00", M, 0x81),
        ("30 808040", P, 0x95),  # a body as large as the whole packet may be
        ("30 fdff3f", P, 0x95),  # one byte too many
        ("30 ffffff7f", P, 0x95),
        ("00 ffffff7f", P, 0x95),
    ],
)
def test_remaining_length(text: str, error: type[PacketError], reason: int) -> None:
    with pytest.raises(PacketError) as caught:
        frame(octets(text), 0, LIMIT)
    assert type(caught.value) is error
    assert caught.value.reason == reason


@pytest.mark.parametrize("text", ["", "30", "30 80", "30 ffff", "30 ffffff", "30 01", "30 fcff3f"])
def test_bytes_not_there_yet(text: str) -> None:
    data = octets(text)
    assert frame(data, 0, LIMIT) is None
    assert frame(b"\xff" + data, 1, LIMIT) is None


def test_the_largest_packet_is_refused_from_its_header() -> None:
    with pytest.raises(ProtocolError):
        frame(b"\x30\xff\xff\xff\x7f", 0, 268_435_459)
    assert frame(b"\x30\xff\xff\xff\x7f", 0, 268_435_460) is None


# 2.1.3 Flags, 2.2.2.2 Properties and 2.4 Reason codes, exhaustively


def test_first_bytes() -> None:
    publishes = {0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x3A, 0x3B, 0x3C, 0x3D}
    good = {0x10, 0x20, *publishes, 0x40, 0x50, 0x62, 0x70, 0x82, 0x90, 0xA2, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0}
    for first in range(256):
        if first in good:
            check_first(first)
            continue
        with pytest.raises(MalformedPacket) as caught:
            check_first(first)
        assert caught.value.reason == Reason.MALFORMED_PACKET
        for version in BOTH:
            with pytest.raises(MalformedPacket):
                decode(first, b"\x00\x01a\x00\x01\x00", version)


# A good value of each property, and what stands around the properties of each packet
VALUES = {FLAG: "01", U16: "0001", U32: "00000001", VARINT: "01", BINARY: '"x"', UTF8: '"x"', PAIR: '"k" "v"'}
SAMPLES = {row.id: octets(f"{row.id:02x} {VALUES[row.kind]}") for row in PROPERTIES}
AROUND: dict[Type, tuple[str, str]] = {
    Type.CONNECT: ('"MQTT" 05 02 0000', '"c"'),
    Type.CONNACK: ("00 00", ""),
    Type.PUBLISH: ('"a"', "'x'"),
    Type.PUBACK: ("0001 00", ""),
    Type.PUBREC: ("0001 00", ""),
    Type.PUBREL: ("0001 00", ""),
    Type.PUBCOMP: ("0001 00", ""),
    Type.SUBSCRIBE: ("0001", '"a" 00'),
    Type.SUBACK: ("0001", "00"),
    Type.UNSUBSCRIBE: ("0001", '"a"'),
    Type.UNSUBACK: ("0001", "00"),
    Type.DISCONNECT: ("00", ""),
    Type.AUTH: ("18", ""),
}
FLAGS = {Type.PUBREL: 2, Type.SUBSCRIBE: 2, Type.UNSUBSCRIBE: 2}


def with_properties(kind: Type, raw: bytes) -> bytes:
    before, after = AROUND[kind]
    return octets(before) + octets(f"<{raw.hex()}>") + octets(after)


def needs(kind: Type, id: int) -> bytes:
    """What must stand beside a property for the packet to be right."""
    method = SAMPLES[21]
    return method if id != 21 and (kind is Type.AUTH or (kind is Type.CONNECT and id == 22)) else b""


@pytest.mark.parametrize("kind", AROUND, ids=lambda kind: kind.name)
def test_each_property_in_each_packet(kind: Type) -> None:
    first = kind << 4 | FLAGS.get(kind, 0)
    for id in range(128):
        raw = SAMPLES.get(id, bytes([id, 1]))
        beside = needs(kind, id)
        if id in ALLOWED[kind]:
            decode(first, with_properties(kind, raw + beside), V5)
            if id == 38 or (id == 11 and kind is Type.PUBLISH):  # 2.2.2.2: these may repeat
                decode(first, with_properties(kind, raw + raw + beside), V5)
                continue
            with pytest.raises(ProtocolError) as twice:
                decode(first, with_properties(kind, raw + raw + beside), V5)
            assert twice.value.reason == Reason.PROTOCOL_ERROR
        else:
            with pytest.raises(MalformedPacket) as caught:
                decode(first, with_properties(kind, raw + beside), V5)
            assert caught.value.reason == Reason.MALFORMED_PACKET


def test_each_property_in_a_will() -> None:
    for id in range(128):
        raw = SAMPLES.get(id, bytes([id, 1]))
        body = octets(f'"MQTT" 05 06 0000 <> "c" <{raw.hex()}> "w" ""')
        if id in WILL:
            decode(0x10, body, V5)
        else:
            with pytest.raises(MalformedPacket):
                decode(0x10, body, V5)


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.name)
def test_each_property_cut_short(row: Property) -> None:
    raw = SAMPLES[row.id]
    whole = octets(f"<{raw.hex()}>")
    properties, end = decode_properties(whole, 0, len(whole), ALL)
    assert end == len(whole)
    assert getattr(properties, row.name) not in (None, ())
    for size in range(1, len(raw)):
        cut = octets(f"<{raw[:size].hex()}>") + b"\x01" * 8
        with pytest.raises(MalformedPacket):
            decode_properties(cut, 0, len(cut), ALL)


@pytest.mark.parametrize("kind", REASONS, ids=lambda kind: kind.name)
def test_each_reason_in_each_packet(kind: Type) -> None:
    first = kind << 4 | FLAGS.get(kind, 0)
    for code in range(256):
        body = {
            Type.CONNACK: f"00 {code:02x} <>",
            Type.SUBACK: f"0001 <> {code:02x}",
            Type.UNSUBACK: f"0001 <> {code:02x}",
            Type.DISCONNECT: f"{code:02x}",
            Type.AUTH: f'{code:02x} <15 "m">',
        }.get(kind, f"0001 {code:02x}")
        if code in REASONS[kind]:
            packet = decode(first, octets(body), V5)
            assert getattr(packet, "reason", None) == code or getattr(packet, "reasons", None) == (code,)
        else:
            with pytest.raises(MalformedPacket) as caught:
                decode(first, octets(body), V5)
            assert caught.value.reason == Reason.MALFORMED_PACKET


# 4.7 Topic names: the decoder checks them in line and must agree with `topics`


@pytest.mark.parametrize("topic", ["a", "/", "//", "a/b", " ", "$SYS/x", "$share/g/a", "a+", "#", "+/#", "é", "\x01"])
def test_topic_names_as_topics_has_them(topic: str) -> None:
    raw = topic.encode()
    body = len(raw).to_bytes(2, "big") + raw
    if valid_topic(topic):
        packet = decode(0x30, body, V311)
        assert isinstance(packet, Publish)
        assert packet.topic == topic
    else:
        with pytest.raises(ProtocolError):
            decode(0x30, body, V311)


def test_the_longest_topic_and_filter() -> None:
    long = "é" * 32767 + "x"
    assert len(long.encode()) == 65535
    assert valid_topic(long)
    assert valid_filter(long)
    raw = b"\xff\xff" + long.encode()
    packet = decode(0x30, raw, V311)
    assert isinstance(packet, Publish)
    assert packet.topic == long
    decode(0x82, b"\x00\x01" + raw + b"\x00", V311)
