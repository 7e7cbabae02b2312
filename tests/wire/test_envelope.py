"""The envelope there and back, and everything that may not be believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import cbor2
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import MalformedPacket
from tidegate.wire import envelope
from tidegate.wire.envelope import Envelope, MessageId, Static, decode_static, encode_static
from tidegate.wire.envelope_static import HEAD, MAX_DEPTH, MAX_FACTS, MAX_ITEMS, MAX_OTHERS, MAX_PATH, MAX_STATIC
from wire.packets import topics

PAGE = Path(__file__).parents[2] / "docs/reference/envelope.md"
KEY = bytes(range(32))
NODE = "6f3c0a1b2c3d4e5f"
ORIGIN = bytes.fromhex(NODE + "0102030405ff")
PAYLOAD = b"7.5"
STATIC = Static(
    origin=NODE,
    owner="i-7",
    publisher={"kind": "client", "client": "tr1", "user": "mary"},
    topic="gym/1/speed",
    demand="tls",
    floor="mtls",
    facts=("inside",),
    path=(f"gym@{NODE}",),
    preferences=("home", "i-7", 1767225600000),
    link="up",
)
ENVELOPE = Envelope(
    static=STATIC,
    id=MessageId(origin=ORIGIN, number=0x2B7F),
    published=1767225600.25,
    expiry=60,
    qos=1,
    retain=False,
)
FULL = replace(ENVELOPE, proof=b"7.proof", signature=bytes(64), retain=True)


def write(
    value: Envelope, payload: bytes = PAYLOAD, key: bytes | None = None, make: Callable[..., bytes] = envelope.seal
) -> bytes:
    return make(
        encode_static(value.static),
        value.id.origin,
        value.id.number,
        value.id.output,
        value.published,
        value.expiry,
        value.qos,
        value.retain,
        payload,
        key,
        value.proof,
        value.signature,
    )


def read(data: bytes, key: bytes | None = None) -> tuple[Envelope, bytes]:
    return envelope.open(data, key, envelope.static_cache(4))


def refused(data: bytes, key: bytes | None = None) -> str:
    with pytest.raises(MalformedPacket) as error:
        read(data, key)
    return str(error.value)


# -- there and back ----------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
integers = st.integers(-(2**63), 2**63 - 1)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts
nodes = st.binary(min_size=8, max_size=8).map(bytes.hex)
scopes = st.builds(lambda name, node: f"{name}@{node}", st.from_regex(r"\A[^@]{1,8}\Z"), nodes)
keys = st.none() | st.binary(min_size=16, max_size=64)


def values(depth: int) -> st.SearchStrategy[Any]:
    if not depth:
        return scalars
    inner = values(depth - 1)
    return scalars | st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)


attributes = st.dictionaries(texts, values(2), max_size=4)
statics = st.builds(
    Static,
    origin=nodes,
    owner=texts,
    publisher=st.builds(lambda rest, kind, client: {**rest, "kind": kind, "client": client}, attributes, texts, texts),
    topic=topics,
    demand=st.none() | texts,
    floor=texts,
    facts=st.lists(texts.filter(bool), max_size=3).map(tuple),
    path=st.lists(scopes, max_size=3).map(tuple),
    preferences=st.none() | st.tuples(texts, texts, st.integers(0, 2**63 - 1)),
    view=st.none() | texts,
    capability=st.none() | st.binary(max_size=20),
    link=texts,
    surroundings=attributes,
    sealed=st.booleans(),
    signed=st.booleans(),
    scored=st.booleans(),
    under=st.none() | topics,
    others=st.lists(st.binary(max_size=20), max_size=2).map(tuple),
)
counts = st.integers(0, 2**63 - 1)
envelopes = st.builds(
    Envelope,
    static=statics,
    id=st.builds(MessageId, origin=st.binary(min_size=14, max_size=14), number=counts, output=counts),
    published=st.integers(0, 2**32 * 10**6 - 1).map(lambda micros: micros / 10**6),
    expiry=st.none() | st.integers(0, 2**32 - 1),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    proof=st.none() | st.binary(min_size=1, max_size=200),
    signature=st.none() | st.binary(min_size=64, max_size=64),
)


@given(envelopes, st.binary(max_size=100), keys)
@settings(max_examples=150)
def test_there_and_back(value: Envelope, payload: bytes, key: bytes | None) -> None:
    data = write(value, payload, key)
    back, rest = read(data, key)
    assert back == value
    assert rest == payload
    again = replace(back, static=replace(back.static))  # a copy has no bytes yet
    assert write(again, rest, key) == data  # which tells 1, 1.0 and true apart


@given(envelopes, st.binary(max_size=100), keys)
@settings(max_examples=30)
def test_as_a_user_property(value: Envelope, payload: bytes, key: bytes | None) -> None:
    head = write(value, payload, key, envelope.prefix)
    assert head + payload == write(value, payload, key)
    text = envelope.to_property(head)
    assert envelope.from_property(text) == head
    assert envelope.open_property(text, payload, key, envelope.static_cache(4)) == value


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


def test_the_example_of_the_reference() -> None:
    fence = PAGE.read_text().split("```hex\n")[1].split("```")[0]
    data = bytes.fromhex("".join(line.partition("#")[0] for line in fence.splitlines()))
    assert write(ENVELOPE, PAYLOAD, KEY) == data
    assert read(data, KEY) == (ENVELOPE, PAYLOAD)


def test_the_layout_of_the_reference() -> None:
    """The rows of its tables say where the bytes are."""
    data = write(FULL, PAYLOAD, KEY)
    static = encode_static(STATIC)
    dynamic = data[len(static) : len(static) + 43]
    assert data.startswith(static)
    assert static[:3] == b"TG\x01"
    assert HEAD.size + int.from_bytes(static[3:5], "big") + int.from_bytes(static[5:7], "big") == len(static)
    assert dynamic[0] == 0b0111_1101
    assert dynamic[1:15] == ORIGIN
    assert int.from_bytes(dynamic[15:23], "big") == 0x2B7F
    assert int.from_bytes(dynamic[23:31], "big") == 0
    assert int.from_bytes(dynamic[31:39], "big") == 1767225600_250000
    assert int.from_bytes(dynamic[39:43], "big") == 60
    assert data[len(static) + 43 :][: 64 + 2 + 7] == bytes(64) + b"\x00\x077.proof"
    assert data[len(static) + 43 + 64 + 2 + 7 + 16 :] == PAYLOAD


def test_an_id_says_its_node_and_boot() -> None:
    assert (ENVELOPE.id.node, ENVELOPE.id.boot) == (NODE, 0x0102030405FF)


# -- bytes that may not be believed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY], ids=["no key", "key"])
@pytest.mark.parametrize("value", [ENVELOPE, FULL], ids=["least", "full"])
def test_cut_short_at_every_index(value: Envelope, key: bytes | None) -> None:
    head = write(value, PAYLOAD, key, envelope.prefix)
    for end in range(len(head)):
        refused(head[:end], key)
        with pytest.raises(MalformedPacket):
            envelope.open_property(envelope.to_property(head[:end]), PAYLOAD, key, envelope.static_cache(4))
    if key:
        for end in range(len(PAYLOAD)):
            refused(head + PAYLOAD[:end], key)
    for end in range(len(encode_static(STATIC))):
        with pytest.raises(MalformedPacket):
            decode_static(head[:end])


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("value", [ENVELOPE, FULL], ids=["least", "full"])
def test_every_changed_bit_is_refused_with_a_mac(value: Envelope, warm: bool) -> None:
    data = write(value, PAYLOAD, KEY)
    cache = envelope.static_cache(4)
    if warm:
        envelope.open(data, KEY, cache)
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises(MalformedPacket):
                envelope.open(bytes(damaged), KEY, cache)
    assert len(cache) == warm  # nothing was kept of what was refused


def test_what_is_forged_or_replayed() -> None:
    data = write(ENVELOPE, PAYLOAD, KEY)
    head = write(ENVELOPE, PAYLOAD, KEY, envelope.prefix)
    assert refused(data, KEY[::-1]) == "an envelope with a wrong MAC"
    assert refused(head + b"9.5", KEY) == "an envelope with a wrong MAC"
    assert refused(head, KEY) == "an envelope with a wrong MAC"
    assert refused(data + b" ", KEY) == "an envelope with a wrong MAC"
    assert refused(write(ENVELOPE), KEY) == "an envelope without MAC"
    assert refused(data) == "an envelope with a MAC, and no key to verify it with"
    assert refused(write(ENVELOPE, data), KEY) == "an envelope without MAC"  # nor is it looked for inside
    other = write(replace(ENVELOPE, static=replace(STATIC, owner="i-8")), PAYLOAD, KEY, envelope.prefix)
    assert refused(other[:-16] + head[-16:] + PAYLOAD, KEY) == "an envelope with a wrong MAC"


def test_bytes_that_move_between_property_and_payload() -> None:
    head = write(FULL, PAYLOAD, KEY, envelope.prefix)
    cache = envelope.static_cache(4)
    for at in range(len(head)):
        with pytest.raises(MalformedPacket):
            envelope.open_property(envelope.to_property(head[:at]), head[at:] + PAYLOAD, KEY, cache)
    for at in range(1, len(PAYLOAD)):
        with pytest.raises(MalformedPacket):
            envelope.open_property(envelope.to_property(head + PAYLOAD[:at]), PAYLOAD[at:], KEY, cache)


@pytest.mark.parametrize("text", ["VE=", "VEc=", "VE\n", "V E", "V", "VF", "V+", "V/", "é", "\ud800", "VEcB"])
def test_a_property_that_is_no_envelope(text: str) -> None:
    with pytest.raises(MalformedPacket):
        envelope.open_property(text, PAYLOAD, None, envelope.static_cache(4))


def test_no_other_version_and_no_other_magic() -> None:
    data = write(ENVELOPE)
    assert refused(b"TG\x02" + data[3:]) == "an envelope of version 2; this node reads version 1"
    assert refused(b"TH" + data[2:]) == "not an envelope"
    assert refused(b"") == "not an envelope"
    with pytest.raises(MalformedPacket, match="version 9"):
        decode_static(b"TG\x09" + encode_static(STATIC)[3:])


START = len(encode_static(STATIC))
DYNAMIC: list[tuple[str, int, str]] = [
    ("QoS 3", 0, "0b"),
    ("an unknown flag", 0, "89"),
    ("expiry without its flag", 0, "01"),
    ("a number of 64 bits", 15, "80"),
    ("an output of 64 bits", 23, "80"),
    ("published in 2106", 31, "000f424000000000"),
    ("a signature that is missing", 0, "19"),
    ("a proof that is missing", 0, "29"),
]


@pytest.mark.parametrize(("at", "octets"), [row[1:] for row in DYNAMIC], ids=[row[0] for row in DYNAMIC])
def test_a_dynamic_part_that_says_what_there_is_not(at: int, octets: str) -> None:
    data = bytearray(write(ENVELOPE))
    new = bytes.fromhex(octets)
    assert data[START + at : START + at + len(new)] != new
    data[START + at : START + at + len(new)] = new
    refused(bytes(data))


@pytest.mark.parametrize("size", ["0000", "1001", "ffff"])
def test_a_proof_of_a_wrong_size(size: str) -> None:
    head = bytearray(write(ENVELOPE, b"", None, envelope.prefix))
    head[START] |= 1 << 5
    assert "a proof of" in refused(bytes(head) + bytes.fromhex(size) + bytes(0xFFFF))


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


@given(st.binary(max_size=120))
def test_any_bytes(data: bytes) -> None:
    for attempt in (data, b"TG\x01" + data, write(ENVELOPE)[:START] + data):
        survives(attempt)


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_any_bytes_as_halves(origin: bytes, hop: bytes) -> None:
    survives(HEAD.pack(b"TG", 1, len(origin), len(hop)) + origin + hop + write(ENVELOPE)[START:])


@given(st.sampled_from([ENVELOPE, FULL]), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3))
@settings(max_examples=300)
def test_damaged_without_a_mac(value: Envelope, changes: list[tuple[int, int]]) -> None:
    data = bytearray(write(value))
    for at, byte in changes:
        data[at % len(data)] = byte
    survives(bytes(data))


def survives(data: bytes) -> None:
    """Refused, or an envelope that is written in exactly these bytes."""
    try:
        value, payload = read(data)
    except MalformedPacket as error:
        assert str(error)  # noqa: PT017
        return
    assert write(replace(value, static=replace(value.static)), payload) == data


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


WRONG: list[Mapping[str, Any]] = [
    {"id": MessageId(origin=ORIGIN[1:], number=1)},
    {"id": MessageId(origin=ORIGIN, number=-1)},
    {"id": MessageId(origin=ORIGIN, number=1 << 63)},
    {"id": MessageId(origin=ORIGIN, number=1, output=1 << 63)},
    {"published": -1.0},
    {"published": float("nan")},
    {"published": float("inf")},
    {"published": float(2**32)},
    {"expiry": -1},
    {"expiry": 1 << 32},
    {"qos": 3},
    {"qos": -1},
    {"proof": b""},
    {"proof": bytes(envelope.MAX_PROOF + 1)},
    {"signature": bytes(63)},
]


@pytest.mark.parametrize("fields", WRONG, ids=[repr(fields)[:40] for fields in WRONG])
def test_what_cannot_be_said(fields: Mapping[str, Any]) -> None:
    for key in (None, KEY):
        with pytest.raises(ValueError):  # noqa: PT011
            write(replace(FULL, **fields), PAYLOAD, key)


def test_a_key_that_is_none() -> None:
    for key in (b"", bytes(15), bytes(65)):
        with pytest.raises(ValueError):  # noqa: PT011
            write(ENVELOPE, PAYLOAD, key)
        with pytest.raises(ValueError):  # noqa: PT011
            read(write(ENVELOPE, PAYLOAD, KEY), key)


def test_a_property_has_an_end() -> None:
    assert len(envelope.to_property(bytes(49_151))) == 65_535
    with pytest.raises(ValueError, match="does not fit"):
        envelope.to_property(bytes(49_152))


def test_the_cache_is_bounded() -> None:
    cache = envelope.static_cache(4)
    for number in range(9):
        envelope.open(write(replace(ENVELOPE, static=replace(STATIC, owner=f"i-{number}"))), None, cache)
    assert 0 < len(cache) <= 4


# -- from node to node -------------------------------------------------------------------------------------------------


def hop(value: Envelope, **fields: Any) -> Envelope:
    """As another node reads it after one that gave it another hop's half and passed it on."""
    static = envelope.relayed(encode_static(value.static), **fields)
    head, id = static, value.id
    data = envelope.seal(
        head,
        id.origin,
        id.number,
        id.output,
        value.published,
        59,
        value.qos,
        value.retain,
        PAYLOAD,
        KEY,
        value.proof,
        value.signature,
    )
    return read(data, KEY)[0]


def test_a_signature_holds_over_hops() -> None:
    key = Ed25519PrivateKey.generate()
    value = replace(FULL, signature=key.sign(envelope.signed_bytes(FULL, PAYLOAD)))
    path = (*STATIC.path, "house@0011223344556677")
    far = hop(hop(value, floor="tls", facts=(), path=path, link="down"), floor="plain", facts=(), path=path, link="")
    assert far.static == replace(STATIC, floor="plain", facts=(), path=path, link="")
    assert far.expiry == 59
    assert far.signature is not None
    key.public_key().verify(far.signature, envelope.signed_bytes(far, PAYLOAD))
    with pytest.raises(InvalidSignature):
        key.public_key().verify(far.signature, envelope.signed_bytes(far, b"9.5"))


CHANGED: Iterable[Mapping[str, Any]] = [
    {"origin": NODE[::-1]},
    {"owner": "i-8"},
    {"publisher": ATTRIBUTES},
    {"topic": "gym/2/speed"},
    {"demand": None},
    {"preferences": None},
    {"view": "{}"},
    {"capability": b"a"},
    {"surroundings": {"a": 1}},
    {"sealed": True},
    {"signed": True},
    {"scored": True},
    {"under": "a"},
    {"others": (b"a",)},
]
FIELDS: Iterable[Mapping[str, Any]] = [
    {"id": replace(ENVELOPE.id, number=1)},
    {"id": replace(ENVELOPE.id, output=1)},
    {"id": replace(ENVELOPE.id, origin=bytes(14))},
    {"published": 1767225600.250001},
    {"qos": 0},
    {"retain": True},
    {"proof": b"8.proof"},
]


def test_everything_that_stays_is_signed() -> None:
    changed = [replace(ENVELOPE, static=replace(STATIC, **fields)) for fields in CHANGED]
    changed += [replace(ENVELOPE, **fields) for fields in FIELDS]
    stated = [envelope.signed_bytes(value, PAYLOAD) for value in chain([ENVELOPE], changed)]
    assert len(set(stated)) == len(stated)
    assert {name for fields in CHANGED for name in fields} | {"floor", "facts", "path", "link", "data"} == set(
        Static.__slots__
    )


def test_a_hop_that_cannot_be_said() -> None:
    good: dict[str, Any] = {"floor": "tls", "facts": (), "path": (), "link": ""}
    data = encode_static(STATIC)
    for wrong in ({"floor": 1}, {"facts": ["a"]}, {"path": ("gym",)}, {"link": None}):
        with pytest.raises(ValueError, match="envelope"):
            envelope.relayed(data, **good | wrong)
    with pytest.raises(MalformedPacket):
        envelope.relayed(data[:-1], **good)
