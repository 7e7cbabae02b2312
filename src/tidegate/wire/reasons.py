"""The numbers of the protocol: levels, packet types, and the MQTT 5 reason codes.

Which reason codes may appear in which packet is a table here too, because both the decoder and the
encoder ask. MQTT 3.1.1 has return codes in CONNACK and SUBACK only; `connack_code` translates.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

V31: Final = 3
V311: Final = 4
V5: Final = 5
BRIDGE: Final = 0x80  # of the protocol level of 3.1 and 3.1.1: the client is a bridge of another broker


class Type(IntEnum):
    """Control packet types (MQTT 5, 2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Reason(IntEnum):
    """Reason codes (MQTT 5, 2.4). Codes under 0x80 are successes; 0x00 has three names by packet."""

    SUCCESS = 0x00
    NORMAL_DISCONNECTION = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


def _codes(*codes: int) -> frozenset[int]:
    return frozenset(codes)


_ERRORS: Final = range(Reason.UNSPECIFIED_ERROR, Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED + 1)
_PUBLISHED: Final = _codes(0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
_RELEASED: Final = _codes(0x00, 0x92)

REASONS: Final[dict[Type, frozenset[int]]] = {
    Type.CONNACK: _codes(  # 3.2.2.2
        *(0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97),
        *(0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F),
    ),
    Type.PUBACK: _PUBLISHED,  # 3.4.2.1
    Type.PUBREC: _PUBLISHED,  # 3.5.2.1
    Type.PUBREL: _RELEASED,  # 3.6.2.1
    Type.PUBCOMP: _RELEASED,  # 3.7.2.1
    Type.SUBACK: _codes(0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2),  # 3.9.3
    Type.UNSUBACK: _codes(0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91),  # 3.11.3
    # 3.14.2.1, which leaves 0x8C out; but the table of 2.4 gives it to DISCONNECT too, and a failed
    # re-authentication (4.12.1) has no better answer.
    Type.DISCONNECT: _codes(
        *(0x00, 0x04),
        *(code for code in _ERRORS if code not in (0x84, 0x85, 0x86, 0x88, 0x8A, 0x91, 0x92)),
    ),
    Type.AUTH: _codes(0x00, 0x18, 0x19),  # 3.15.2.1
}

_CONNACK_CODES: Final = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.BAD_AUTHENTICATION_METHOD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BANNED: 5,
}


def connack_code(reason: int) -> int:
    """The MQTT 3.1.1 return code (table 3.1) for a reason; a return code stays what it is.

    What 3.1.1 has no word for is 3, "server unavailable": the one code that blames neither the
    identifier nor the credentials.
    """
    if 0 <= reason <= 5:
        return reason
    return _CONNACK_CODES.get(Reason(reason), 3)
