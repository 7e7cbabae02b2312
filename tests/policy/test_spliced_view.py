"""Parts cut out of the bytes are the parts that the document has."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy import View, pointers
from tidegate.policy.spliced_view import NOT_CUT, REST, SHORT, VAIN, splicer

NAMES = st.sampled_from(["a", "b", "0", "a/b", "é"])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(-1e9, 1e9), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
POINTERS = st.sets(st.lists(NAMES, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4)
PAD = b" " * SHORT


@given(VALUES, POINTERS)
def test_it_shows_what_the_pointers_keep(value: Any, keep: set[tuple[str, ...]]) -> None:
    view = View(frozenset(keep))
    left = pointers.kept(value, pointers.tree(view.keep or ()))
    shown = view.apply(orjson.dumps(value) + PAD)
    if pointers.hidden(left):
        assert shown is None
    else:
        assert shown is not None
        assert orjson.loads(shown) == left


def test_the_bytes_are_those_that_came() -> None:
    payload = b'{ "a" : {"b": 1.50, "c": [1, {"d":2}]}, "e": 1e2, "f": 3 }' + PAD
    assert View.parse(["/a/b", "/e"]).apply(payload) == b'{"a":{"b":1.50},"e":1e2}'
    assert View.parse(["/a/c"]).apply(payload) == b'{"a":{"c":[1, {"d":2}]}}'
    assert View.parse(["/a/c/1/d"]).apply(payload) == b'{"a":{"c":[null,{"d":2}]}}'  # an array on the way
    assert View.parse(["/g", "/a/g"]).apply(payload) is None


@pytest.mark.parametrize(
    "payload",
    [b'{"a":1', b'{"a":1}x', b'{"a":"\xff"}', b'{"a":01}', b"", b"x", b'{"a":1,"b":"\x01"}', b'{"a":1,"b":"\xff"}'],
)
def test_what_is_no_json_is_not_shown(payload: bytes) -> None:
    assert View.parse(["/a"]).apply(payload + PAD) is None


def test_the_last_of_several_of_one_name_counts() -> None:
    assert View.parse(["/a"]).apply(b'{"a":1,"a":[2]}' + PAD) == b'{"a":[2]}'


def test_it_does_not_try_for_a_while_where_it_always_fails() -> None:
    cut = splicer({"tried": {"0": {}}})
    assert cut is not None
    plain, listed = b'{"tried":{"0":1}}' + PAD, b'{"tried":[1]}' + PAD
    for _ in range(VAIN + 1):
        assert cut(listed) == NOT_CUT
    for _ in range(REST):
        assert cut(plain) == NOT_CUT
    assert cut(plain) == b'{"tried":{"0":1}}'
