"""What encode refuses, and how it says in MQTT 3.1.1 what only MQTT 5 has words for."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.wire import (
    NONE,
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
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
    Unsuback,
    Unsubscribe,
    Will,
    encode,
    encode_properties,
    encode_varint,
)
from tidegate.wire.properties import BINARY, FLAG, PAIR, PROPERTIES, UTF8, Property
from wire.notation import length, octets

BOTH = (V5, V311)
FIVE = (V5,)


def connect(version: int = V5, **fields: Any) -> Connect:
    return Connect(**{"version": version, "client_id": "c", "clean_start": True, "keep_alive": 0, **fields})


def will(**fields: Any) -> Will:
    return Will(**{"topic": "w", "payload": b"", "qos": 0, "retain": False, **fields})


def publish(**fields: Any) -> Publish:
    return Publish(**{"topic": "a", "payload": b"", **fields})


def subscribe(*subscriptions: Subscription, **fields: Any) -> Subscribe:
    return Subscribe(**{"packet_id": 1, "subscriptions": subscriptions, **fields})


IMPOSSIBLE: list[tuple[str, tuple[int, ...], Packet]] = [
    ("level", BOTH, connect(3)),
    ("keep alive", BOTH, connect(keep_alive=65536)),
    ("keep alive", BOTH, connect(keep_alive=-1)),
    ("client identifier with NUL", BOTH, connect(client_id="\0")),
    ("client identifier too long", BOTH, connect(client_id="x" * 65536)),
    ("client identifier with a surrogate", BOTH, connect(client_id="\ud800")),
    ("password too long", BOTH, connect(password=b"x" * 65536)),
    ("3.1.1 password without a user name", BOTH, connect(V311, password=b"x")),
    ("3.1.1 session of nobody", BOTH, connect(V311, client_id="", clean_start=False)),
    ("data without a method", BOTH, connect(properties=Properties(authentication_data=b""))),
    ("property of another packet", BOTH, connect(properties=Properties(topic_alias=1))),
    ("will QoS", BOTH, connect(will=will(qos=3))),
    ("will topic with a wildcard", BOTH, connect(will=will(topic="#"))),
    ("will without a topic", BOTH, connect(will=will(topic=""))),
    ("will payload too long", BOTH, connect(will=will(payload=b"x" * 65536))),
    ("property of another packet in a will", BOTH, connect(will=will(properties=Properties(topic_alias=1)))),
    ("session present and refused", BOTH, Connack(session_present=True, reason=0x87)),
    ("a return code of 3.1.1", FIVE, Connack(session_present=False, reason=5)),
    ("a reason that does not exist", BOTH, Connack(session_present=False, reason=0x7F)),
    ("QoS 3", BOTH, publish(qos=3, packet_id=1)),
    ("QoS -1", BOTH, publish(qos=-1, packet_id=1)),
    ("identifier at QoS 0", BOTH, publish(packet_id=1)),
    ("DUP at QoS 0", BOTH, publish(dup=True)),
    ("no identifier at QoS 1", BOTH, publish(qos=1)),
    ("identifier too large", BOTH, publish(qos=2, packet_id=65536)),
    ("identifier negative", BOTH, publish(qos=2, packet_id=-1)),
    ("topic with +", BOTH, publish(topic="a/+")),
    ("topic with #", BOTH, publish(topic="#")),
    ("topic with NUL", BOTH, publish(topic="\0")),
    ("topic with a surrogate", BOTH, publish(topic="\udfff")),
    ("topic too long", BOTH, publish(topic="x" * 65536)),
    ("no topic", BOTH, publish(topic="")),
    ("3.1.1 alias for a topic", (V311,), publish(topic="", properties=Properties(topic_alias=1))),
    ("alias 0", FIVE, publish(properties=Properties(topic_alias=0))),
    ("alias 0 for a topic", FIVE, publish(topic="", properties=Properties(topic_alias=0))),
    ("property of another packet", FIVE, publish(properties=Properties(reason_string=""))),
    ("response topic", FIVE, publish(properties=Properties(response_topic="+"))),
    ("empty response topic", FIVE, publish(properties=Properties(response_topic=""))),
    ("no filter", BOTH, subscribe()),
    ("identifier 0", BOTH, subscribe(Subscription(filter="a"), packet_id=0)),
    ("filter", BOTH, subscribe(Subscription(filter="a#"))),
    ("no characters", BOTH, subscribe(Subscription(filter=""))),
    ("QoS 3", BOTH, subscribe(Subscription(filter="a", qos=3))),
    ("retain handling", FIVE, subscribe(Subscription(filter="a", retain_handling=3))),
    ("no local shared", FIVE, subscribe(Subscription(filter="$share/g/a", no_local=True))),
    (
        "two identifiers",
        FIVE,
        subscribe(Subscription(filter="a"), properties=Properties(subscription_identifiers=(1, 2))),
    ),
    ("no reasons", BOTH, Suback(packet_id=1, reasons=())),
    ("reason", BOTH, Suback(packet_id=1, reasons=(3,))),
    ("reason", FIVE, Suback(packet_id=1, reasons=(0x81,))),
    ("identifier 0", BOTH, Suback(packet_id=0, reasons=(0,))),
    ("no filter", BOTH, Unsubscribe(packet_id=1, filters=())),
    ("filter", BOTH, Unsubscribe(packet_id=1, filters=("#/a",))),
    ("identifier", BOTH, Unsubscribe(packet_id=65536, filters=("a",))),
    ("no reasons", FIVE, Unsuback(packet_id=1)),
    ("reason", FIVE, Unsuback(packet_id=1, reasons=(1,))),
    ("identifier 0", BOTH, Unsuback(packet_id=0, reasons=(0,))),
    ("reason", FIVE, Disconnect(reason=0x86)),
    ("property of another packet", FIVE, Disconnect(properties=Properties(topic_alias=1))),
    ("AUTH in 3.1.1", (V311,), Auth()),
    ("no method", FIVE, Auth(reason=0x18)),
    ("no method, data", FIVE, Auth(properties=Properties(authentication_data=b""))),
    ("reason", FIVE, Auth(reason=0x87, properties=Properties(authentication_method="m"))),
]
for ack in (Puback, Pubrec, Pubrel, Pubcomp):
    IMPOSSIBLE += [
        ("identifier 0", BOTH, ack(packet_id=0)),
        ("identifier too large", BOTH, ack(packet_id=65536)),
        ("reason", FIVE, ack(packet_id=1, reason=1)),
        ("property of another packet", FIVE, ack(packet_id=1, properties=Properties(topic_alias=1))),
    ]


@pytest.mark.parametrize(
    ("version", "packet"),
    [
        pytest.param(version, packet, id=f"{version} {type(packet).__name__}: {name}")
        for name, versions, packet in IMPOSSIBLE
        for version in versions
    ],
)
def test_impossible(version: int, packet: Packet) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        encode(packet, version)


def test_impossible_versions() -> None:
    with pytest.raises(ValueError, match="level 3"):
        encode(Disconnect(), 3)


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.name)
def test_impossible_property_values(row: Property) -> None:
    wrong: dict[str, list[object]] = {
        "int": [2, -1] if row.kind is FLAG else [-1, 1 << 32],
        "str": ["\0", "\ud800", "x" * 65536],
        "bytes": [b"x" * 65536],
    }
    kind = {UTF8: "str", BINARY: "bytes"}.get(row.kind, "pairs" if row.kind is PAIR else "int")
    if row.name == "subscription_identifiers":
        values: list[object] = [(0,), (1, 0), (1 << 28,), (-1,)]
    elif row.name == "user_properties":
        values = [(("\0", ""),), (("", "\0"),), (("k", "v"), ("x" * 65536, ""))]
    else:
        values = wrong[kind]
    for value in values:
        with pytest.raises(ValueError):  # noqa: PT011
            encode_properties(Properties(**{row.name: value}))
    if row.zero is not None and kind == "int" and row.name != "subscription_identifiers":
        with pytest.raises(ValueError, match="may not be 0"):
            encode_properties(Properties(**{row.name: 0}))


def test_properties_are_allowed_or_refused_by_name() -> None:
    expiry = Properties(session_expiry_interval=1)
    assert encode_properties(expiry) == octets("<11 00000001>")
    with pytest.raises(ValueError, match="session_expiry_interval is not allowed"):
        encode_properties(expiry, will=True)
    with pytest.raises(ValueError, match="session_expiry_interval is not allowed"):
        encode_properties(expiry, allowed=frozenset({1}))
    assert encode_properties(NONE) == encode_properties(Properties()) == b"\0"


def test_too_large() -> None:
    with pytest.raises(ValueError, match="variable byte integer"):
        encode(publish(payload=bytes(268_435_455 - 2)), V311)


@pytest.mark.parametrize("n", [0, 1, 127, 128, 16383, 16384, 2097151, 2097152, 268435455])
def test_varint(n: int) -> None:
    assert encode_varint(n) == length(n)


@pytest.mark.parametrize("n", [-1, 268435456])
def test_varint_out_of_range(n: int) -> None:
    with pytest.raises(ValueError, match="variable byte integer"):
        encode_varint(n)


# In the words of MQTT 3.1.1

CONNACK_CODES = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.SERVER_BUSY: 3,
    Reason.QUOTA_EXCEEDED: 3,
    Reason.CONNECTION_RATE_EXCEEDED: 3,
    Reason.UNSPECIFIED_ERROR: 3,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.BAD_AUTHENTICATION_METHOD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BANNED: 5,
}


@pytest.mark.parametrize(("reason", "code"), CONNACK_CODES.items())
def test_connack_return_codes(reason: Reason, code: int) -> None:
    assert encode(Connack(session_present=False, reason=reason), V311) == bytes([0x20, 2, 0, code])


def test_every_failure_to_subscribe_is_one() -> None:
    reasons = (0, 1, 2, 0x80, 0x87, 0x8F, 0x97, 0xA2)
    assert encode(Suback(packet_id=1, reasons=reasons), V311) == octets("90 <0001 00 01 02 80 80 80 80 80>")


def test_what_311_has_no_place_for_is_left_out() -> None:
    user = Properties(user_properties=(("k", "v"),))
    options = Subscription(filter="a", qos=1, no_local=True, retain_as_published=True, retain_handling=2)
    for packet, text in (
        (connect(V311, properties=user, will=will(properties=user)), '10 <"MQTT" 04 06 0000 "c" "w" "">'),
        (Connack(session_present=True, reason=0, properties=user), "20 <01 00>"),
        (publish(properties=user, payload=b"x"), "30 <\"a\" 'x'>"),
        (Puback(packet_id=1, reason=0x97, properties=user), "40 <0001>"),
        (Pubrec(packet_id=1, reason=0x97, properties=user), "50 <0001>"),
        (Pubrel(packet_id=1, reason=0x92, properties=user), "62 <0001>"),
        (Pubcomp(packet_id=1, reason=0x92, properties=user), "70 <0001>"),
        (subscribe(options, properties=user), '82 <0001 "a" 01>'),
        (Suback(packet_id=1, reasons=(0,), properties=user), "90 <0001 00>"),
        (Unsubscribe(packet_id=1, filters=("a",), properties=user), 'a2 <0001 "a">'),
        (Unsuback(packet_id=1, reasons=(0x11,), properties=user), "b0 <0001>"),
        (Disconnect(reason=0x8B, properties=user), "e0 <>"),
    ):
        assert encode(packet, V311) == octets(text)


def test_an_empty_properties_of_ones_own_is_as_good_as_none() -> None:
    for packet in (Puback(packet_id=1, properties=Properties()), Disconnect(properties=Properties())):
        bare = type(packet)(packet_id=1) if isinstance(packet, Puback) else Disconnect()
        assert encode(packet, V5) == encode(bare, V5)


def test_a_properties_shows_what_it_has() -> None:
    assert repr(NONE) == "Properties()"
    assert repr(Properties(topic_alias=1, content_type="")) == "Properties(content_type='', topic_alias=1)"
    assert len({Properties(topic_alias=1), Properties(topic_alias=1), NONE}) == 2
