"""Some fields of the content, decoded as the whole would have been."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.gate.payload_fields import REST, SHORT, VAIN, FieldDecoder, decoder

NAMES = st.sampled_from(["a", "b", "a.b", "", "é", "long name"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
PATHS = st.sets(
    st.sampled_from(["o.payload.a", "o.payload.b", "o.payload.a.b", "o.payload.b.a", "o.payload.", "o.payload.é"]),
    min_size=1,
)
PAD = b" " * SHORT


def asked(document: Any, path: str) -> Any:
    """What a condition finds under a path, however it was written; None if nothing."""
    name = path.removeprefix("o.payload.")
    found = []
    for fields in ([name], name.split(".")):
        here = document
        for each in fields:
            here = here.get(each, KeyError) if isinstance(here, dict) else TypeError
        found.append(here)
    return found


def outcome(decode: Any, payload: bytes) -> Any:
    try:
        return decode(payload)
    except orjson.JSONDecodeError:
        return ValueError


@given(st.one_of(VALUES, st.dictionaries(NAMES, VALUES, max_size=5)), PATHS)
def test_what_is_read_is_what_the_whole_says(value: Any, paths: set[str]) -> None:
    payload = PAD + orjson.dumps(value)
    some, whole = decoder(paths)(payload), orjson.loads(payload)
    for path in paths:
        assert repr(asked(some, path)) == repr(asked(whole, path))
    assert isinstance(some, dict) == isinstance(whole, dict)


@given(
    st.dictionaries(NAMES, VALUES, max_size=5),
    PATHS,
    st.integers(0, 200),
    st.sampled_from(b'"\\{}[],:0-.\xff\x00\x1f a'),
)
def test_what_is_no_json_is_none(value: dict[str, Any], paths: set[str], at: int, byte: int) -> None:
    text = bytearray(orjson.dumps(value))
    text[at % len(text)] = byte
    payload = PAD + bytes(text)
    some, whole = outcome(decoder(paths), payload), outcome(orjson.loads, payload)
    assert (some is ValueError) is (whole is ValueError)
    if whole is not ValueError:
        for path in paths:
            assert repr(asked(some, path)) == repr(asked(whole, path))


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a":[1],"a":2}',
        '{"a":18446744073709551616}',
        '{"a":9223372036854775808}',
        '{"a":-0}',
        '{"a":1e3}',
        '{"a":1e400}',
        '{"a":1,"b":"\\ud800"}',
        '{"a":1,"b":' + "[" * 1500 + "]" * 1500 + "}",
        '{"\\u0061":1}',
        '{"a":{"b":1,"b":[]}}',
        '\ufeff{"a":1}',
    ],
)
def test_what_json_leaves_open_is_answered_as_for_the_whole(text: str) -> None:
    payload = text.encode() + PAD
    paths = {"o.payload.a", "o.payload.a.b"}
    some, whole = outcome(decoder(paths), payload), outcome(orjson.loads, payload)
    assert (some is ValueError) is (whole is ValueError)
    assert some is ValueError or repr(some.get("a")) == repr(whole.get("a"))


def test_a_number_that_nobody_reads_may_be_too_large_for_a_double() -> None:
    payload = b'{"a":1,"b":1e400}' + PAD
    assert FieldDecoder({"a": {}})(payload) == {"a": 1}
    assert outcome(FieldDecoder({"b": {}}), payload) is ValueError


def test_what_cannot_be_named_is_read_whole() -> None:
    assert decoder(["o.topic"]) is orjson.loads
    assert decoder(["o.payload", "o.payload.a"]) is orjson.loads
    assert decoder(["o.payload.a.b.c"]) is orjson.loads
    assert decoder([f"o.payload.a{number}" for number in range(100)]) is orjson.loads


def test_it_does_not_try_for_a_while_where_it_always_fails() -> None:
    decode = FieldDecoder({"a": {}})
    listed, plain = b'{"a":[1]}' + PAD, b'{"a":1,"other":2}' + PAD
    for _ in range(VAIN):
        assert decode(listed) == {"a": [1]}
    assert decode(plain) == {"a": 1}
    assert decode(listed) == {"a": [1]}
    for _ in range(REST):
        assert decode(plain) == {"a": 1, "other": 2}
    assert decode(plain) == {"a": 1}
