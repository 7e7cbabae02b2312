"""Envelopes for tests: two of them, and Hypothesis strategies for everything that can be said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from tidegate.errors import MalformedPacket
from tidegate.wire import envelope
from tidegate.wire.envelope import Envelope, MessageId, Static, encode_static
from wire.packets import topics

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


START = len(encode_static(STATIC))
"""Where its dynamic part begins."""


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
