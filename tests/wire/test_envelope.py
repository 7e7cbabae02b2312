"""The envelope there and back, and everything that may not be believed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import MalformedPacket
from tidegate.wire import envelope
from tidegate.wire.envelope import Envelope, MessageId, Static, decode_static, encode_static
from tidegate.wire.envelope_static import HEAD
from wire.envelopes import (
    ENVELOPE,
    FULL,
    KEY,
    NODE,
    ORIGIN,
    PAYLOAD,
    START,
    STATIC,
    envelopes,
    keys,
    read,
    refused,
    write,
)

PAGE = Path(__file__).parents[2] / "docs/reference/envelope.md"
# -- there and back ----------------------------------------------------------------------------------------------------


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


def test_several_messages_in_one_envelope() -> None:
    """As the reference says, one by one again, and refused where there has to be one."""
    static, payloads = encode_static(STATIC), [b"a", b"", b"ccc"]
    data = static + envelope.bundle(ORIGIN, 0x2B7F, 1767225600.25, payloads)
    dynamic = data[len(static) : len(static) + 43]
    assert dynamic[0] == 0b1000_0000
    assert dynamic[1:39] == write(ENVELOPE)[len(static) :][1:39]
    assert int.from_bytes(dynamic[39:43], "big") == 3
    assert data[len(static) + 43 :] == b"\0\1\0\0\0\3accc"
    plain = replace(ENVELOPE, qos=0, expiry=None)
    singles = [(replace(plain, id=replace(plain.id, number=0x2B7F + n)), payload) for n, payload in enumerate(payloads)]
    assert [read(each) for each in envelope.single(data)] == singles
    assert refused(data) == "an envelope of several messages where there has to be one"
    for end in range(len(static), len(data)):
        with pytest.raises(MalformedPacket):
            list(envelope.single(data[:end])) if envelope.is_bundle(data[:end]) else read(data[:end])


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


def test_a_property_is_written_in_one_way() -> None:
    head = write(replace(FULL, signature=b"\xfb\xff" * 32), b"", KEY, envelope.prefix)
    text = envelope.to_property(head)
    assert envelope.from_property(text) == head
    assert {"-", "_"} < set(text)
    other = (text + "=", text + "==", text + "\n", f"{text[:8]} {text[8:]}", text + "!", text.replace("-", "+"))
    for wrong in (*other, text.replace("_", "/"), "=" + text):
        with pytest.raises(MalformedPacket, match="base64url"):
            envelope.from_property(wrong)


def test_no_other_version_and_no_other_magic() -> None:
    data = write(ENVELOPE)
    assert refused(b"TG\x02" + data[3:]) == "an envelope of version 2; this node reads version 1"
    assert refused(b"TH" + data[2:]) == "not an envelope"
    assert refused(b"") == "not an envelope"
    with pytest.raises(MalformedPacket, match="version 9"):
        decode_static(b"TG\x09" + encode_static(STATIC)[3:])


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
    {"publisher": {"kind": "client", "client": "tr1"}},
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
    {"signer": bytes(32)},
]
FIELDS: Iterable[Mapping[str, Any]] = [
    {"id": replace(ENVELOPE.id, number=1)},
    {"id": replace(ENVELOPE.id, output=1)},
    {"id": replace(ENVELOPE.id, origin=bytes(14))},
    {"published": 1767225600.250001},
    {"qos": 0},
    {"retain": True},
]


def test_everything_that_stays_is_signed() -> None:
    changed = [replace(ENVELOPE, static=replace(STATIC, **fields)) for fields in CHANGED]
    changed += [replace(ENVELOPE, **fields) for fields in FIELDS]
    changed += [FULL, replace(FULL, proof=b"8.proof")]
    stated = [envelope.signed_bytes(value, PAYLOAD) for value in chain([ENVELOPE], changed)]
    stated += [envelope.signed_bytes(ENVELOPE, b"9.5"), envelope.signed_bytes(ENVELOPE, PAYLOAD, b"text")]
    assert len(set(stated)) == len(stated)
    assert {name for fields in CHANGED for name in fields} | {"floor", "facts", "path", "link", "data"} == set(
        Static.__slots__
    )
