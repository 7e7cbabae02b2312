"""A predicate as text again reads back as the same."""

from __future__ import annotations

import pytest

from tidegate.predicate import compile

TEXTS = [
    "s.a == 1 && (s.b || s.c) || !s.d",
    "s.a - (s.b - s.c) == s.a - s.b - s.c",
    "(s.a + 1) * 2 > 3 / (s.b % 4)",
    "-s.a < -1 && s.b == -9223372036854775808",
    "s.a ? s.b : (s.c ? true : false)",
    "(s.a ? s.b : s.c) ? true : s.d",
    "s['strange name'].x == 'it\\'s \"so\"' && s.list[0] == b'\\x00a'",
    "has(s.a.b) && s.list.exists(x, x.y > 1 && x.z in [1, 2u, 1.5])",
    "s.list.map(x, x > 1, x * 2).size() == 2",
    "{'a': 1, 'b': [s.c]}.a == 1",
    "sets.contains(s.groups, ['a']) && s.name.startsWith('a') && s.name.matches('^a+$')",
    "within(e.now, '22:00-06:00') && age(p.time) < duration('1h30m')",
    "cidr(s.address, '10.0.0.0/8') && timestamp('2026-01-01T00:00:00Z') < e.now",
    "s.a == null || s.b == 'ünï\\n'",
]


@pytest.mark.parametrize("text", TEXTS)
def test_it_reads_back_as_the_same(text: str) -> None:
    once = compile(text).written
    assert compile(once).written == once
    assert compile(once).reads == compile(text).reads


def test_what_is_left() -> None:
    left = compile("s.user == 'bob' && (o.payload.v > 3 || s.age > 25)").partial({"s": {"user": "bob", "age": 20}})
    assert getattr(left, "written", None) == "o.payload.v > 3"


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("s.user == 'a' || 'b' != s.user", {"s.user": frozenset(("a", "b"))}),
        ("s.user in ['a', 'b'] && s.role == 'c'", {"s.user": frozenset(("a", "b")), "s.role": frozenset("c")}),
        ("s.user == 'a' && s.user.startsWith('b')", {"s.user": None}),
        ("s.age == 1", {"s.age": None}),
        ("s.user in s.friends", {"s.user": None, "s.friends": None}),
        ("has(s.user) && s.user == 'a'", {"s.user": frozenset("a"), "s": None}),
        ("s.list.exists(x, x == s.user)", {"s.list": None, "s.user": None}),
    ],
)
def test_what_attributes_are_compared_with(text: str, constants: dict[str, frozenset[str] | None]) -> None:
    assert compile(text).constants == constants
