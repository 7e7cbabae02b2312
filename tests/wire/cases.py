"""The table of packets: what each looks like as bytes and as a value. Every test of the room draws on it.

All packet types of both versions with every property, every reason code, every short form.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.wire import (
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
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
from wire.notation import octets


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`canonical`: the form that encode chooses. `cuts`: lengths at which the body ends legally too."""

    name: str
    version: int
    frame: bytes
    packet: Packet
    canonical: bool
    cuts: frozenset[int]

    @property
    def first(self) -> int:
        return self.frame[0]

    @property
    def body(self) -> bytes:
        start = 1
        while self.frame[start] > 127:
            start += 1
        return self.frame[start + 1 :]


CASES: list[Case] = []


def case(
    name: str, version: int, text: str, packet: Packet, *, canonical: bool = True, cuts: tuple[int, ...] = ()
) -> None:
    frame = octets(text)
    label = f"{'5.0' if version == V5 else '3.1.1'} {name}"
    added = Case(name=label, version=version, frame=frame, packet=packet, canonical=canonical, cuts=frozenset())
    if isinstance(packet, Publish):  # whatever is cut off a payload, it is still a payload
        size = len(added.body)
        cuts = tuple(range(size - len(packet.payload), size))
    CASES.append(
        Case(name=label, version=version, frame=frame, packet=packet, canonical=canonical, cuts=frozenset(cuts))
    )


def both(name: str, text: str, packet: Packet, *, cuts: tuple[int, ...] = ()) -> None:
    """The same bytes in both versions."""
    case(name, V311, text, packet, cuts=cuts)
    case(name, V5, text, packet, cuts=cuts)


# 3.1 CONNECT

case(
    "CONNECT smallest",
    V311,
    '10 <"MQTT" 04 02 0000 "">',
    Connect(version=V311, client_id="", clean_start=True, keep_alive=0),
)
case(
    "CONNECT with a session to keep",
    V311,
    '10 <"MQTT" 04 00 003c "dev">',
    Connect(version=V311, client_id="dev", clean_start=False, keep_alive=60),
)
case(
    "CONNECT with everything",
    V311,
    '10 <"MQTT" 04 f6 ffff "dev" "will/t" "bye" "user" 0002 00ff>',
    Connect(
        version=V311,
        client_id="dev",
        clean_start=True,
        keep_alive=65535,
        username="user",
        password=b"\x00\xff",
        will=Will(topic="will/t", payload=b"bye", qos=2, retain=True),
    ),
)
case(
    "CONNECT with a user name alone and an empty will",
    V311,
    '10 <"MQTT" 04 8c 000a "dev" "w" 0000 "user">',
    Connect(
        version=V311,
        client_id="dev",
        clean_start=False,
        keep_alive=10,
        username="user",
        will=Will(topic="w", payload=b"", qos=1, retain=False),
    ),
)
case(
    "CONNECT smallest",
    V5,
    '10 <"MQTT" 05 00 0000 <> "">',
    Connect(version=V5, client_id="", clean_start=False, keep_alive=0),
)
case(
    "CONNECT with everything",
    V5,
    """10 <"MQTT" 05 f6 003c
       <11 00000e10 15 "SCRAM" 16 0002 0102 17 00 19 01 21 000a 22 0005 26 "k" "v" 26 "k" "v2" 27 00010000>
       "dev" <01 01 02 0000003c 03 "text" 08 "r" 09 0002 abcd 18 0000000a 26 "a" "b"> "will/t" "bye"
       "user" 0002 00ff>""",
    Connect(
        version=V5,
        client_id="dev",
        clean_start=True,
        keep_alive=60,
        username="user",
        password=b"\x00\xff",
        will=Will(
            topic="will/t",
            payload=b"bye",
            qos=2,
            retain=True,
            properties=Properties(
                payload_format_indicator=1,
                message_expiry_interval=60,
                content_type="text",
                response_topic="r",
                correlation_data=b"\xab\xcd",
                will_delay_interval=10,
                user_properties=(("a", "b"),),
            ),
        ),
        properties=Properties(
            session_expiry_interval=3600,
            authentication_method="SCRAM",
            authentication_data=b"\x01\x02",
            request_problem_information=0,
            request_response_information=1,
            receive_maximum=10,
            topic_alias_maximum=5,
            user_properties=(("k", "v"), ("k", "v2")),
            maximum_packet_size=65536,
        ),
    ),
)
case(
    "CONNECT with a password alone",  # 3.1.2.9: allowed, unlike in 3.1.1
    V5,
    '10 <"MQTT" 05 42 0000 <> "dev" 0005 \'token\'>',
    Connect(version=V5, client_id="dev", clean_start=True, keep_alive=0, password=b"token"),
)
case(
    "CONNECT with a bare will",
    V5,
    '10 <"MQTT" 05 2c 0000 <> "dev" <> "w" "">',
    Connect(
        version=V5,
        client_id="dev",
        clean_start=False,
        keep_alive=0,
        will=Will(topic="w", payload=b"", qos=1, retain=True),
    ),
)
case(
    "CONNECT with properties in another order",
    V5,
    '10 <"MQTT" 05 02 0000 <22 0000 26 "" "" 11 ffffffff> "dev">',
    Connect(
        version=V5,
        client_id="dev",
        clean_start=True,
        keep_alive=0,
        properties=Properties(session_expiry_interval=0xFFFFFFFF, topic_alias_maximum=0, user_properties=(("", ""),)),
    ),
    canonical=False,
)

# 3.2 CONNACK

case("CONNACK", V311, "20 <00 00>", Connack(session_present=False, reason=0))
case("CONNACK session present", V311, "20 <01 00>", Connack(session_present=True, reason=0))
for code in range(1, 6):
    case(f"CONNACK {code}", V311, f"20 <00 {code:02x}>", Connack(session_present=False, reason=code))
case("CONNACK", V5, "20 <00 00 <>>", Connack(session_present=False, reason=0))
case("CONNACK session present", V5, "20 <01 00 <>>", Connack(session_present=True, reason=0))
case(
    "CONNACK with everything",
    V5,
    """20 <01 00 <11 00000001 12 "assigned" 13 001e 15 "m" 16 0000 1a "info" 1c "other:1883" 1f "why"
       21 0014 22 ffff 24 01 25 00 26 "k" "v" 27 ffffffff 28 00 29 01 2a 00>>""",
    Connack(
        session_present=True,
        reason=0,
        properties=Properties(
            session_expiry_interval=1,
            assigned_client_identifier="assigned",
            server_keep_alive=30,
            authentication_method="m",
            authentication_data=b"",
            response_information="info",
            server_reference="other:1883",
            reason_string="why",
            receive_maximum=20,
            topic_alias_maximum=65535,
            maximum_qos=1,
            retain_available=0,
            user_properties=(("k", "v"),),
            maximum_packet_size=0xFFFFFFFF,
            wildcard_subscription_available=0,
            subscription_identifier_available=1,
            shared_subscription_available=0,
        ),
    ),
)
for code in (
    *(0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97),
    *(0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F),
):
    case(f"CONNACK {code:#x}", V5, f"20 <00 {code:02x} <>>", Connack(session_present=False, reason=code))

# 3.3 PUBLISH

case("PUBLISH", V311, "30 <\"a/b\" 'hello'>", Publish(topic="a/b", payload=b"hello"))
case("PUBLISH empty", V311, '31 <"a">', Publish(topic="a", payload=b"", retain=True))
case(
    "PUBLISH QoS 1",
    V311,
    "32 <\"a/b\" 0001 'x'>",
    Publish(topic="a/b", payload=b"x", qos=1, packet_id=1),
)
case(
    "PUBLISH QoS 2 with all flags",
    V311,
    "3d <\"é/€/😀\" ffff '\0'>",
    Publish(topic="é/€/😀", payload=b"\0", qos=2, retain=True, dup=True, packet_id=65535),
)
case(
    "PUBLISH with a length of two bytes",
    V311,
    f"30 <\"a\" '{'x' * 200}'>",
    Publish(topic="a", payload=b"x" * 200),
)
case("PUBLISH", V5, "30 <\"a/b\" <> 'hello'>", Publish(topic="a/b", payload=b"hello"))
case("PUBLISH empty", V5, '31 <"a" <>>', Publish(topic="a", payload=b"", retain=True))
case(
    "PUBLISH QoS 1",
    V5,
    "32 <\"a/b\" 0001 <> 'x'>",
    Publish(topic="a/b", payload=b"x", qos=1, packet_id=1),
)
case(
    "PUBLISH QoS 2 with all flags",
    V5,
    "3d <\"é/€/😀\" ffff <> '\0'>",
    Publish(topic="é/€/😀", payload=b"\0", qos=2, retain=True, dup=True, packet_id=65535),
)
case(
    "PUBLISH with everything",
    V5,
    """34 <"a/b" 1234 <01 01 02 00000e10 03 "text/plain" 08 "answer/here" 09 0003 00ff01
       0b 01 0b ffffff7f 0b 01 23 0007 26 "k" "v" 26 "k" "v" 26 "a" "é">
       'payload'>""",
    Publish(
        topic="a/b",
        payload=b"payload",
        qos=2,
        packet_id=0x1234,
        properties=Properties(
            payload_format_indicator=1,
            message_expiry_interval=3600,
            content_type="text/plain",
            response_topic="answer/here",
            correlation_data=b"\x00\xff\x01",
            subscription_identifiers=(1, 268435455, 1),
            topic_alias=7,
            user_properties=(("k", "v"), ("k", "v"), ("a", "é")),
        ),
    ),
)
case(
    "PUBLISH with an alias for a topic",
    V5,
    "30 <\"\" <23 ffff> 'x'>",
    Publish(topic="", payload=b"x", properties=Properties(topic_alias=65535)),
)
case(
    "PUBLISH with properties of two length bytes",
    V5,
    f'30 <"a" <26 "k" "{"v" * 300}"> \'x\'>',
    Publish(topic="a", payload=b"x", properties=Properties(user_properties=(("k", "v" * 300),))),
)
case(
    "PUBLISH with zeros that are allowed and empty strings",
    V5,
    '30 <"a" <01 00 02 00000000 03 "" 09 "" 26 "" ""> \'x\'>',
    Publish(
        topic="a",
        payload=b"x",
        properties=Properties(
            payload_format_indicator=0,
            message_expiry_interval=0,
            content_type="",
            correlation_data=b"",
            user_properties=(("", ""),),
        ),
    ),
)
both_texts = "\ufeff\u0001\u001f\u007f\u009f\ufdd0\uffff\U0010ffff"  # [MQTT-1.5.4-3] and the SHOULD NOTs of 1.5.4
case("PUBLISH with odd characters", V311, f"30 <\"{both_texts}\" 'x'>", Publish(topic=both_texts, payload=b"x"))
case(
    "PUBLISH with odd characters",
    V5,
    f"30 <\"{both_texts}\" <> 'x'>",
    Publish(topic=both_texts, payload=b"x"),
)

# 3.4 PUBACK, 3.5 PUBREC, 3.6 PUBREL, 3.7 PUBCOMP

PUBLISHED = (0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
ACKS: tuple[tuple[type[Puback | Pubrec | Pubrel | Pubcomp], str, tuple[int, ...]], ...] = (
    (Puback, "40", PUBLISHED),
    (Pubrec, "50", PUBLISHED),
    (Pubrel, "62", (0x92,)),
    (Pubcomp, "70", (0x92,)),
)
for ack, first, codes in ACKS:
    label = ack.__name__.upper()
    both(label, f"{first} <0001>", ack(packet_id=1))
    both(f"{label} with the last identifier", f"{first} <ffff>", ack(packet_id=65535))
    for code in codes:
        case(f"{label} {code:#x}", V5, f"{first} <0102 {code:02x}>", ack(packet_id=258, reason=code), cuts=(2,))
    case(
        f"{label} with everything",
        V5,
        f'{first} <0001 {codes[-1]:02x} <1f "why" 26 "k" "v" 26 "k" "w">>',
        ack(
            packet_id=1,
            reason=codes[-1],
            properties=Properties(reason_string="why", user_properties=(("k", "v"), ("k", "w"))),
        ),
        cuts=(2, 3),
    )
    case(
        f"{label} success with properties",
        V5,
        f'{first} <0001 00 <1f "">>',
        ack(packet_id=1, properties=Properties(reason_string="")),
        cuts=(2, 3),
    )
    case(f"{label} of three bytes", V5, f"{first} <0001 00>", ack(packet_id=1), canonical=False, cuts=(2,))
    case(f"{label} of four bytes", V5, f"{first} <0001 00 <>>", ack(packet_id=1), canonical=False, cuts=(2, 3))

# 3.8 SUBSCRIBE

case(
    "SUBSCRIBE",
    V311,
    '82 <0001 "a/+" 00 "#" 01 "$share/g/a" 02>',
    Subscribe(
        packet_id=1,
        subscriptions=(
            Subscription(filter="a/+"),
            Subscription(filter="#", qos=1),
            Subscription(filter="$share/g/a", qos=2),
        ),
    ),
    cuts=(8, 12),
)
case(
    "SUBSCRIBE",
    V5,
    '82 <000a <> "a/b" 01>',
    Subscribe(packet_id=10, subscriptions=(Subscription(filter="a/b", qos=1),)),
)
case(
    "SUBSCRIBE with everything",
    V5,
    """82 <ffff <0b 8001 26 "k" "v">
       "a" 00 "b" 04 "c" 08 "d" 10 "e" 20 "+/#" 2e "$share/g/+" 19>""",
    Subscribe(
        packet_id=65535,
        subscriptions=(
            Subscription(filter="a"),
            Subscription(filter="b", no_local=True),
            Subscription(filter="c", retain_as_published=True),
            Subscription(filter="d", retain_handling=1),
            Subscription(filter="e", retain_handling=2),
            Subscription(filter="+/#", qos=2, no_local=True, retain_as_published=True, retain_handling=2),
            Subscription(filter="$share/g/+", qos=1, retain_as_published=True, retain_handling=1),
        ),
        properties=Properties(subscription_identifiers=(128,), user_properties=(("k", "v"),)),
    ),
    cuts=(17, 21, 25, 29, 33, 39),
)

# 3.9 SUBACK

case("SUBACK", V311, "90 <0001 00 01 02 80>", Suback(packet_id=1, reasons=(0, 1, 2, 0x80)), cuts=(3, 4, 5))
case(
    "SUBACK with every reason",
    V5,
    "90 <0001 <> 00 01 02 80 83 87 8f 91 97 9e a1 a2>",
    Suback(packet_id=1, reasons=(0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)),
    cuts=tuple(range(4, 15)),
)
case(
    "SUBACK with everything",
    V5,
    '90 <0001 <1f "why" 26 "k" "v"> 02>',
    Suback(packet_id=1, reasons=(2,), properties=Properties(reason_string="why", user_properties=(("k", "v"),))),
)

# 3.10 UNSUBSCRIBE, 3.11 UNSUBACK

case("UNSUBSCRIBE", V311, 'a2 <0001 "a/+" "#">', Unsubscribe(packet_id=1, filters=("a/+", "#")), cuts=(7,))
case("UNSUBSCRIBE", V5, 'a2 <0001 <> "a/+" "#">', Unsubscribe(packet_id=1, filters=("a/+", "#")), cuts=(8,))
case(
    "UNSUBSCRIBE with everything",
    V5,
    'a2 <0001 <26 "k" "v" 26 "k" "v"> "$share/g/#">',
    Unsubscribe(
        packet_id=1,
        filters=("$share/g/#",),
        properties=Properties(user_properties=(("k", "v"), ("k", "v"))),
    ),
)
case("UNSUBACK", V311, "b0 <0001>", Unsuback(packet_id=1))
case(
    "UNSUBACK with every reason",
    V5,
    "b0 <0001 <> 00 11 80 83 87 8f 91>",
    Unsuback(packet_id=1, reasons=(0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91)),
    cuts=tuple(range(4, 10)),
)
case(
    "UNSUBACK with everything",
    V5,
    'b0 <0001 <1f "why" 26 "k" "v"> 11>',
    Unsuback(
        packet_id=1,
        reasons=(0x11,),
        properties=Properties(reason_string="why", user_properties=(("k", "v"),)),
    ),
)

# 3.12 PINGREQ, 3.13 PINGRESP

both("PINGREQ", "c0 00", Pingreq())
both("PINGRESP", "d0 00", Pingresp())

# 3.14 DISCONNECT

both("DISCONNECT", "e0 00", Disconnect())
for code in (
    *(0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96),
    *(0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2),
):
    case(f"DISCONNECT {code:#x}", V5, f"e0 <{code:02x}>", Disconnect(reason=code), cuts=(0,))
case(
    "DISCONNECT with everything",
    V5,
    'e0 <9d <11 0000000a 1c "there" 1f "why" 26 "k" "v">>',
    Disconnect(
        reason=0x9D,
        properties=Properties(
            session_expiry_interval=10,
            server_reference="there",
            reason_string="why",
            user_properties=(("k", "v"),),
        ),
    ),
    cuts=(0, 1),
)
case(
    "DISCONNECT normal with properties",
    V5,
    "e0 <00 <11 00000000>>",
    Disconnect(properties=Properties(session_expiry_interval=0)),
    cuts=(0, 1),
)
case("DISCONNECT of one byte", V5, "e0 <00>", Disconnect(), canonical=False, cuts=(0,))
case("DISCONNECT of two bytes", V5, "e0 <00 <>>", Disconnect(), canonical=False, cuts=(0, 1))

# 3.15 AUTH

case("AUTH", V5, "f0 00", Auth())
for code in (0x00, 0x18, 0x19):
    case(
        f"AUTH {code:#x} with everything",
        V5,
        f'f0 <{code:02x} <15 "SCRAM" 16 0002 0102 1f "why" 26 "k" "v">>',
        Auth(
            reason=code,
            properties=Properties(
                authentication_method="SCRAM",
                authentication_data=b"\x01\x02",
                reason_string="why",
                user_properties=(("k", "v"),),
            ),
        ),
        cuts=(0,),
    )
