"""Hypothesis strategies for packets: everything that a version can say."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.topics import share, valid_filter, valid_topic
from tidegate.wire import (
    NONE,
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
    Type,
    Unsuback,
    Unsubscribe,
    Will,
)
from tidegate.wire.properties import ALLOWED, BINARY, FLAG, PAIR, PROPERTIES, U16, U32, UTF8, VARINT, WILL
from tidegate.wire.reasons import REASONS

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
level = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/+#"), max_size=8)
topics = st.lists(level, min_size=1, max_size=5).map("/".join).filter(valid_topic)
plain_filters = st.builds(
    lambda levels, last: "/".join([*levels, *last]),
    st.lists(level | st.just("+"), min_size=1, max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(valid_filter) | st.just("#")
shared_filters = st.builds(lambda group, rest: f"$share/{group}/{rest}", level, plain_filters).filter(valid_filter)
filters = plain_filters | shared_filters
payloads = st.binary(max_size=300)
flags = st.booleans()
qos = st.integers(0, 2)
packet_ids = st.integers(1, 65535)
kinds: dict[Any, st.SearchStrategy[Any]] = {
    FLAG: st.integers(0, 1),
    U16: st.integers(0, 65535),
    U32: st.integers(0, 0xFFFFFFFF),
    VARINT: st.integers(1, 268_435_455),
    BINARY: st.binary(max_size=40),
    UTF8: texts,
    PAIR: st.tuples(texts, texts),
}


def properties(allowed: frozenset[int], *, many: bool = True) -> st.SearchStrategy[Properties]:
    """Any of the allowed properties; `many` subscription identifiers only in PUBLISH."""
    choices: dict[str, st.SearchStrategy[Any]] = {}
    for row in PROPERTIES:
        if row.id not in allowed:
            continue
        values = kinds[row.kind]
        if row.zero is not None:
            values = values.filter(bool)
        if row.name == "response_topic":
            values = topics
        if row.kind in (PAIR, VARINT):
            limit = 3 if many or row.kind is PAIR else 1
            values = st.lists(values, max_size=limit).map(tuple)
        choices[row.name] = values
    some = st.fixed_dictionaries({}, optional=choices).map(lambda chosen: Properties(**chosen))
    return st.just(NONE) | some


def of(kind: Type, version: int) -> st.SearchStrategy[Properties]:
    return properties(ALLOWED[kind], many=kind is Type.PUBLISH) if version == V5 else st.just(NONE)


def reasons(kind: Type) -> st.SearchStrategy[int]:
    return st.sampled_from(sorted(REASONS[kind]))


def wills(version: int) -> st.SearchStrategy[Will]:
    carried = properties(WILL) if version == V5 else st.just(NONE)
    return st.builds(Will, topic=topics, payload=payloads, qos=qos, retain=flags, properties=carried)


def sayable(connect: Connect) -> bool:
    if connect.version == V5:
        method, data = connect.properties.authentication_method, connect.properties.authentication_data
        return data is None or method is not None
    if connect.password is not None and connect.username is None:
        return False
    return bool(connect.client_id) or connect.clean_start


def connects(version: int) -> st.SearchStrategy[Connect]:
    return st.builds(
        Connect,
        version=st.just(version),
        client_id=texts,
        clean_start=flags,
        keep_alive=st.integers(0, 65535),
        username=st.none() | texts,
        password=st.none() | st.binary(max_size=20),
        will=st.none() | wills(version),
        properties=of(Type.CONNECT, version),
    ).filter(sayable)


def connacks(version: int) -> st.SearchStrategy[Connack]:
    codes = reasons(Type.CONNACK) if version == V5 else st.integers(0, 5)
    carried = of(Type.CONNACK, version)
    return st.builds(Connack, session_present=st.just(False), reason=codes, properties=carried) | st.builds(
        Connack, session_present=st.just(True), reason=st.just(0), properties=carried
    )


def publishes(version: int) -> st.SearchStrategy[Publish]:
    common = {"payload": payloads, "retain": flags, "properties": of(Type.PUBLISH, version)}
    acknowledged = {"qos": st.integers(1, 2), "dup": flags, "packet_id": packet_ids}
    named = st.builds(Publish, topic=topics, **common) | st.builds(Publish, topic=topics, **acknowledged, **common)
    if version == V311:
        return named
    aliased = st.integers(1, 65535).map(lambda alias: Properties(topic_alias=alias))
    return named | st.builds(Publish, topic=st.just(""), payload=payloads, properties=aliased)


def acks(ack: Any, kind: Type, version: int) -> st.SearchStrategy[Any]:
    codes = reasons(kind) if version == V5 else st.just(0)
    return st.builds(ack, packet_id=packet_ids, reason=codes, properties=of(kind, version))


def subscriptions(version: int) -> st.SearchStrategy[Subscription]:
    if version == V311:
        return st.builds(Subscription, filter=filters, qos=qos)
    return st.builds(
        Subscription,
        filter=filters,
        qos=qos,
        no_local=flags,
        retain_as_published=flags,
        retain_handling=st.integers(0, 2),
    ).filter(lambda one: not (one.no_local and share(one.filter)[0] is not None))


def subacks(version: int) -> st.SearchStrategy[Suback]:
    codes = reasons(Type.SUBACK) if version == V5 else st.sampled_from((0, 1, 2, 0x80))
    many = st.lists(codes, min_size=1, max_size=8).map(tuple)
    return st.builds(Suback, packet_id=packet_ids, reasons=many, properties=of(Type.SUBACK, version))


def unsubacks(version: int) -> st.SearchStrategy[Unsuback]:
    if version == V311:
        return st.builds(Unsuback, packet_id=packet_ids)
    many = st.lists(reasons(Type.UNSUBACK), min_size=1, max_size=8).map(tuple)
    return st.builds(Unsuback, packet_id=packet_ids, reasons=many, properties=of(Type.UNSUBACK, version))


def packets(version: int) -> st.SearchStrategy[Packet]:
    """Any packet of this version, each type as likely as the others."""
    kinds: list[st.SearchStrategy[Any]] = [
        connects(version),
        connacks(version),
        publishes(version),
        acks(Puback, Type.PUBACK, version),
        acks(Pubrec, Type.PUBREC, version),
        acks(Pubrel, Type.PUBREL, version),
        acks(Pubcomp, Type.PUBCOMP, version),
        st.builds(
            Subscribe,
            packet_id=packet_ids,
            subscriptions=st.lists(subscriptions(version), min_size=1, max_size=5).map(tuple),
            properties=of(Type.SUBSCRIBE, version),
        ),
        subacks(version),
        st.builds(
            Unsubscribe,
            packet_id=packet_ids,
            filters=st.lists(filters, min_size=1, max_size=5).map(tuple),
            properties=of(Type.UNSUBSCRIBE, version),
        ),
        unsubacks(version),
        st.just(Pingreq()),
        st.just(Pingresp()),
    ]
    if version == V311:
        return st.one_of(*kinds, st.just(Disconnect()))
    named = of(Type.AUTH, version).filter(lambda carried: carried.authentication_method is not None)
    return st.one_of(
        *kinds,
        st.builds(Disconnect, reason=reasons(Type.DISCONNECT), properties=of(Type.DISCONNECT, version)),
        st.just(Auth()),
        st.builds(Auth, reason=reasons(Type.AUTH), properties=named),
    )
