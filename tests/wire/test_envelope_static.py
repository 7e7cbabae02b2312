"""The static part of an envelope: one form for each value, and nothing that is not plain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import cbor2
import pytest
from hypothesis import given

from tidegate.errors import MalformedPacket
from tidegate.wire import envelope
from tidegate.wire.envelope import Static, decode_static, encode_static
from tidegate.wire.envelope_static import HEAD, MAX_DEPTH, MAX_FACTS, MAX_ITEMS, MAX_OTHERS, MAX_PATH, MAX_STATIC
from wire.envelopes import ENVELOPE, NODE, START, STATIC, attributes, refused, write


@given(attributes)
def test_equal_statics_have_equal_bytes(extra: Mapping[str, Any]) -> None:
    """In whatever order their attributes stand."""

    def turned(value: Any) -> Any:
        match value:
            case dict():
                return {key: turned(value[key]) for key in reversed(value)}
            case list():
                return [turned(item) for item in value]
            case _:
                return value

    publisher = {**STATIC.publisher, **extra, "kind": "client", "client": "tr1"}
    one = replace(STATIC, publisher=publisher, surroundings=extra)
    other = replace(STATIC, publisher=turned(publisher), surroundings=turned(extra))
    assert encode_static(one) == encode_static(other)


def test_another_value_has_other_bytes() -> None:
    changed = (
        replace(STATIC, publisher={**STATIC.publisher, "a": 1}),
        replace(STATIC, publisher={**STATIC.publisher, "a": 1.0}),
        replace(STATIC, publisher={**STATIC.publisher, "a": True}),
        replace(STATIC, demand=None),
        replace(STATIC, demand=""),
        replace(STATIC, floor="tls"),
    )
    assert len({encode_static(static) for static in (STATIC, *changed)}) == 7


# -- static parts that may not be believed -----------------------------------------------------------------------------

ATTRIBUTES: dict[str, Any] = {"kind": "client", "client": "tr1"}
LEAST: dict[str, Any] = {"topic": "t", "origin": NODE, "publisher": {"kind": "client", "client": "tr1"}}
HOP = cbor2.dumps({"floor": "tls"}).hex()


def static_of(origin: str, hop: str = HOP) -> bytes:
    return HEAD.pack(b"TG", 1, len(origin) // 2, len(hop) // 2) + bytes.fromhex(origin + hop)


def least(**other: Any) -> str:
    """The origin's half with other fields; None leaves one out."""
    fields = {key: value for key, value in (LEAST | other).items() if value is not None}
    return cbor2.dumps(fields, canonical=True).hex()


def test_the_least_static_part() -> None:
    static = decode_static(static_of(least()))
    assert static == Static(origin=NODE, topic="t", publisher=ATTRIBUTES, floor="tls")


def with_e(item: str) -> str:
    """A half whose surroundings hold this item under the key `a`."""
    return f"a4 6165 a1 6161 {item}".replace(" ", "") + least()[2:]


def test_the_table_below_fails_for_its_items() -> None:
    assert decode_static(static_of(with_e("01"))).surroundings == {"a": 1}


ITEMS = [
    ("integer not in shortest form", "1801", "canonical"),
    ("long integer not in shortest form", "1b0000000000000001", "canonical"),
    ("string not in shortest form", "780161", "canonical"),
    ("list not in shortest form", "980101", "canonical"),
    ("integer of 64 bits", "1b8000000000000000", "eight bytes"),
    ("negative integer of 64 bits", "3b8000000000000000", "eight bytes"),
    ("NaN", "fb7ff8000000000000", "finite"),
    ("infinity", "fb7ff0000000000000", "finite"),
    ("half a float", "f93c00", "0xf9"),
    ("a short float", "fa3f800000", "0xfa"),
    ("undefined", "f7", "0xf7"),
    ("a simple value", "f820", "0xf8"),
    ("the end of nothing", "ff", "0xff"),
    ("a string without end", "7f6161ff", "indefinite"),
    ("bytes without end", "5f4161ff", "indefinite"),
    ("a list without end", "9f01ff", "indefinite"),
    ("a map without end", "bf616101ff", "indefinite"),
    ("a reserved length", "1c", "indefinite"),
    ("bytes", "4161", "type bytes"),
    ("not UTF-8", "62c328", "UTF-8"),
    ("a surrogate", "63eda080", "UTF-8"),
    ("a large number", "c24901000000000000000000", "tag"),
    ("a regular expression", "d8236161", "tag"),
    ("a date", "c074323032352d30312d30315430303a30303a30305a", "tag"),
    ("a decimal number of a huge power", "c4821b7fffffffffffffff01", "tag"),
    ("a set", "d9010280", "tag"),
    ("a shared value", "d81c80", "tag"),
    ("a key that is a number", "a10101", "key"),
    ("a key that is a list", "a18001", "nested"),
    ("keys in another order", "a2616201616101", "canonical"),
    ("a long key before a short one", "a262616101616201", "canonical"),
    ("the same key twice", "a2616101616101", "canonical"),
    ("a list of 2**32", "9affffffff", "cut short"),
    ("a list of 2**63", "9b8000000000000000", "cut short"),
    ("a map of 2**63", "bb8000000000000000", "cut short"),
    ("bytes of 2**63", "5b8000000000000000", "cut short"),
    ("a deep list", "81" * 9 + "80", "nested"),
    ("a very deep list", "81" * 10_000 + "80", "nested"),
    ("a deep map", "a16161" * 9 + "80", "nested"),
    ("many items", "990400" + "01" * 1024, "more than"),
    ("very many items", "992710" + "80" * 10_000, "too many"),
]


@pytest.mark.parametrize(("item", "message"), [row[1:] for row in ITEMS], ids=[row[0] for row in ITEMS])
def test_an_item_that_is_not_plain(item: str, message: str) -> None:
    data = static_of(with_e(item))
    with pytest.raises(MalformedPacket, match=message):
        decode_static(data)
    cache = envelope.static_cache(4)
    with pytest.raises(MalformedPacket, match=message):
        envelope.open(data + write(ENVELOPE)[START:], None, cache)
    assert not cache


def hops(**fields: Any) -> str:
    return cbor2.dumps({"floor": "tls"} | fields, canonical=True).hex()


HALVES = [
    ("an unknown key", least(zone="a"), HOP, "unknown key 'zone'"),
    ("an unknown key of the hop", least(), hops(owner="a"), "unknown key 'owner'"),
    ("a hop's key in the origin's half", least(floor="tls"), HOP, "unknown key 'floor'"),
    ("the bytes as a field", least(data=b"a"), HOP, "unknown key 'data'"),
    ("no origin", least(origin=None), HOP, "without origin"),
    ("no topic", least(topic=None), HOP, "without topic"),
    ("no publisher", least(publisher=None), HOP, "without publisher"),
    ("no floor", least(), "a0", "without floor"),
    ("nothing", "", HOP, "cut short"),
    ("no hop", least(), "", "cut short"),
    ("a list", "80", HOP, "not a map"),
    ("a number", least(), "01", "not a map"),
    ("something behind it", least() + "00", HOP, "behind its end"),
    ("something behind the hop", least(), HOP + "f6", "behind its end"),
    ("an owner that is the default", least(owner=""), HOP, "canonical"),
    ("a flag that is the default", least(sealed=False), HOP, "canonical"),
    ("nothing demanded", "a4" + "6664656d616e64f6" + least()[2:], HOP, "canonical"),
    ("surroundings without any", least(e={}), HOP, "canonical"),
    ("no path", least(), hops(path=[]), "canonical"),
    ("an owner that is a number", least(owner=1), HOP, "owner .* wrong type"),
    ("a topic that is bytes", least(topic=b"t"), HOP, "topic .* wrong type"),
    ("a view that is a list", least(view=["a"]), HOP, "view .* wrong type"),
    ("a flag that is a number", least(signed=1), HOP, "signed .* wrong type"),
    ("a capability that is text", least(capability="a"), HOP, "capability .* wrong type"),
    ("a publisher that is a list", least(publisher=[]), HOP, "publisher .* wrong type"),
    ("facts that are text", least(), hops(facts="ab"), "facts .* wrong type"),
    ("facts that are a map", least(), hops(facts={"a": 1}), "facts .* wrong type"),
    ("a fact that is a number", least(), hops(facts=[1]), "facts"),
    ("an empty fact", least(), hops(facts=[""]), "facts"),
    ("a floor that is a number", least(), hops(floor=1), "floor .* wrong type"),
    ("a publisher without client", least(publisher={"kind": "client"}), HOP, "no client"),
    ("a publisher whose kind is a number", least(publisher={"kind": 1, "client": ""}), HOP, "no kind"),
    ("an origin in capitals", least(origin=NODE.upper()), HOP, "id of a node"),
    ("an origin that is too long", least(origin=NODE + "0"), HOP, "id of a node"),
    ("an origin with a line end", least(origin=NODE[1:] + "\n"), HOP, "id of a node"),
    ("a filter as topic", least(topic="a/#"), HOP, "topic"),
    ("an empty topic", least(topic=""), HOP, "topic"),
    ("sealed under a filter", least(under="+"), HOP, "topic"),
    ("a scope without node", least(), hops(path=["gym"]), "path"),
    ("a scope without name", least(), hops(path=[f"@{NODE}"]), "path"),
    ("a scope of two nodes", least(), hops(path=[f"gym@{NODE}@{NODE}"]), "path"),
    ("a scope that is a number", least(), hops(path=[1]), "path"),
    ("preferences of two parts", least(preferences=["a", "b"]), HOP, "preferences"),
    ("preferences of four parts", least(preferences=["a", "b", 1, 1]), HOP, "preferences"),
    ("preferences with a flag as number", least(preferences=["a", "b", True]), HOP, "preferences"),
    ("preferences with a negative number", least(preferences=["a", "b", -1]), HOP, "preferences"),
    ("preferences that are text", least(preferences="abc"), HOP, "preferences .* wrong type"),
    ("others that are text", least(others=["a"]), HOP, "other messages"),
]


@pytest.mark.parametrize(
    ("origin", "hop", "message"), [row[1:] for row in HALVES], ids=[row[0].replace(" ", "-") for row in HALVES]
)
def test_a_half_that_is_wrong(origin: str, hop: str, message: str) -> None:
    with pytest.raises(MalformedPacket, match=message):
        decode_static(static_of(origin, hop))


def test_lengths_that_are_wrong() -> None:
    good = encode_static(STATIC)
    for damaged in (good + b"\0", good[:-1], HEAD.pack(b"TG", 1, 0xFFFF, 0) + good[7:]):
        with pytest.raises(MalformedPacket):
            decode_static(damaged)
    size = MAX_STATIC + 1
    assert f"has {size} bytes" in refused(HEAD.pack(b"TG", 1, size, 0) + bytes(size + 43))
    assert "has 131070 bytes" in refused(HEAD.pack(b"TG", 1, 0xFFFF, 0xFFFF) + bytes(131070 + 43))


# -- limits ------------------------------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def of_size(size: int) -> Static:
    """A static part whose halves have this many bytes."""
    base = replace(STATIC, view="a" * 1000)  # lengths up to 65,535 are written alike
    return replace(base, view="a" * (1000 + size - (len(encode_static(base)) - HEAD.size)))


MOST: list[tuple[str, Callable[[int], Static], int]] = [
    ("bytes", of_size, MAX_STATIC),
    ("path", lambda n: replace(STATIC, path=(f"a@{NODE}",) * n), MAX_PATH),
    ("facts", lambda n: replace(STATIC, facts=("a",) * n), MAX_FACTS),
    ("others", lambda n: replace(STATIC, others=(b"a",) * n), MAX_OTHERS),
    ("depth", lambda n: replace(STATIC, surroundings={"a": nested(n - 1)}), MAX_DEPTH),
    ("items", lambda n: replace(STATIC, surroundings={"a": [0] * (n - 3)}), MAX_ITEMS),
    ("keys", lambda n: replace(STATIC, surroundings={f"{i}": 0 for i in range(n)}), (MAX_ITEMS - 1) // 2),
    ("number", lambda n: replace(STATIC, surroundings={"a": n}), 2**63 - 1),
    ("preferences", lambda n: replace(STATIC, preferences=("a", "b", n)), 2**63 - 1),
]


@pytest.mark.parametrize(("make", "most"), [row[1:] for row in MOST], ids=[row[0] for row in MOST])
def test_as_much_as_is_allowed_and_one_more(make: Callable[[int], Static], most: int) -> None:
    static = make(most)
    assert decode_static(encode_static(static)) == static
    with pytest.raises(ValueError, match="envelope"):
        encode_static(make(most + 1))


def test_both_kinds_of_attributes_may_be_as_large_as_each_is_allowed() -> None:
    full = {"a": [0] * (MAX_ITEMS - 7)}
    static = replace(STATIC, surroundings=full, publisher=ATTRIBUTES | full, path=(f"a@{NODE}",) * MAX_PATH)
    assert decode_static(encode_static(static)) == static


@pytest.mark.parametrize(
    "extra", [{"a": b"a"}, {"a": {1, 2}}, {"a": object()}, {1: "a"}, {"a": float("nan")}, {"a": "\ud800"}]
)
def test_attributes_that_cannot_be_said(extra: dict[Any, Any]) -> None:
    with pytest.raises(ValueError, match=r"envelope|surrogates"):
        encode_static(replace(STATIC, publisher=ATTRIBUTES | extra))


def test_a_hop_that_cannot_be_said() -> None:
    good: dict[str, Any] = {"floor": "tls", "facts": (), "path": (), "link": ""}
    data = encode_static(STATIC)
    for wrong in ({"floor": 1}, {"facts": ["a"]}, {"path": ("gym",)}, {"link": None}):
        with pytest.raises(ValueError, match="envelope"):
            envelope.relayed(data, **good | wrong)
    with pytest.raises(MalformedPacket):
        envelope.relayed(data[:-1], **good)
