# ruff: noqa: E501  rows of tables are not broken
"""Texts and values meant to hurt: refused or failed, within bounds, and never with anything but our two errors."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from predicate.expressions import evaluate_text
from tidegate.predicate import Predicate, PredicateError, PredicateFailed, compile

QUICK = 2.0
"""Seconds: generous for a loaded machine, far below what an unbounded evaluation takes."""


def nested(depth: int) -> list[str]:
    return [
        "(" * depth + "true" + ")" * depth,
        "[" * depth + "]" * depth + " == []",
        "{'a': " * depth + "1" + "}" * depth + " == {}",
        "!" * depth + "true",
        "-" * depth + "1 == 1",
        "true ? true : " * depth + "true",
        "1 + " * depth + "1 == 1",
        "s" + ".a" * depth,
        "s" + "[0]" * depth,
        "string(" * depth + "s" + ")" * depth + " == ''",
        "[1].all(x, " * depth + "true" + ")" * depth,
        "s.a" + ".map(x, [x, x])" * depth + " == []",
        "s.a" + ".union([])" * depth + " == []",
        "dyn(" * depth + "true" + ")" * depth,
    ]


@pytest.mark.parametrize("text", [text for depth in (70, 1000) for text in nested(depth) if len(text) <= 16384])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(PredicateError, match="nested"):
        compile(text)


@pytest.mark.parametrize("text", nested(31))
def test_nesting_that_cel_demands_is_accepted(text: str) -> None:
    assert isinstance(compile(text), Predicate)


def test_wide_texts_are_fine() -> None:
    many = 900
    assert compile(" || ".join(["s.a == 'x'"] * many))({"s": {"a": "y"}}) is False
    assert compile("s.a in [" + ", ".join(["'x'"] * many) + "]")({"s": {"a": "y"}}) is False
    assert compile(" && ".join(["has(s.a)"] * many))({"s": {"a": "y"}}) is True


def test_long_texts_are_refused() -> None:
    with pytest.raises(PredicateError, match="longer"):
        compile("true" + " " * 16384)
    with pytest.raises(PredicateError, match="longer"):
        compile("'" + "é" * 8200 + "' == ''")
    with pytest.raises(PredicateError, match="64 bits"):
        compile("9" * 16000 + " == 1")


def bounded(text: str, env: dict[str, Any]) -> str:
    """The reason of the failure, which must come quickly."""
    begin = time.process_time()
    with pytest.raises(PredicateFailed) as caught:
        compile(text)(env)
    assert time.process_time() - begin < QUICK
    return caught.value.reason


HUGE = list(range(10_000))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("s.l.all(x, s.l.all(y, s.l.all(z, true)))", "too much work"),
        ("s.l.all(x, s.l.all(y, x == x))", "too much work"),
        ("s.l.all(x, x in s.l)", "too much work"),
        ("s.l.all(x, s.l == s.l)", "too much work"),
        ("s.l.all(x, s.deep == s.deep)", "too much work"),
        ("s.l.all(x, !s.text.contains('b'))", "too much work"),
        ("s.l.all(x, s.text.matches('(a+)+$'))", "too much work"),
        ("s.l.map(x, s.l.map(y, x)).size() == 0", "too much work"),
        ("s.l.map(x, string(x) + s.text).size() == 0", "too much work"),
        ("s.l.all(x, s.nope) || s.l.all(x, s.l.all(y, true))", "too much work"),
        ("s.huger.all(x, true)", "more than 10000"),
        ("s.huger.map(x, x) == []", "more than 10000"),
        ("(s.l + s.l).size() == 1", "more than 10000"),
        ("sets.contains(s.huger, s.huger)", "more than 10000"),
        ("s.text + s.text == ''", "more than 1048576"),
        ("[s.l].map(x, x + x) == []", "more than 10000"),
        ("s.pairs == s.pairs && sets.equivalent(s.pairs, s.pairs)", "too large"),
        ("[1]" + ".map(x, [x, x])" * 40 + " == [1]" + ".map(x, [x, x])" * 40, "too"),
        ("sets.contains([[1]" + ".map(x, [x, x])" * 40 + "], [[1]" + ".map(x, [x, x])" * 40 + "])", "too"),
        ("[[1]" + ".map(x, [x, x])" * 40 + "].all(y, y == y)", "too"),
    ],
)
def test_work_is_bounded(text: str, reason: str) -> None:
    env = {
        "s": {
            "l": HUGE,
            "huger": list(range(20_001)),
            "deep": {"a": [HUGE]},
            "text": "a" * 800_000,
            "pairs": [[n, n] for n in range(9_000)],
        }
    }
    assert reason in bounded(text, env)


def test_a_pass_over_a_long_list_is_within_bounds_and_over_the_longest_with_a_larger_budget() -> None:
    text = "s.l.all(x, x >= 0 && x < 10000)"
    assert compile(text)({"s": {"l": HUGE[:500]}}) is True
    assert "too much work" in bounded(text, {"s": {"l": HUGE}})
    assert compile(text, budget=200_000)({"s": {"l": HUGE}}) is True


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b", "(?:a?){30}a{30}$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_evil_patterns_are_linear(pattern: str) -> None:
    begin = time.process_time()
    assert compile(f"s.t.matches('{pattern}')")({"s": {"t": "a" * 1_000 + "!"}}) is False
    assert compile("s.t.matches(s.p)")({"s": {"t": "a" * 400 + "!", "p": pattern}}) is False
    larger = compile(f"s.t.matches('{pattern}')", budget=200_000)
    assert larger({"s": {"t": "a" * 20_000 + "!"}}) is False
    assert time.process_time() - begin < QUICK


@pytest.mark.parametrize(
    "pattern", ["a" * 1025, "((a{1000}){1000}){1000}", "(", "a{1001}", "\ud800", "\\C", "\\pL" * 9, "\\pL{99}"]
)
def test_patterns_too_large_or_wrong_fail(pattern: str) -> None:
    begin = time.process_time()
    try:
        answer: object = compile("s.t.matches(s.p)")({"s": {"t": "a", "p": pattern}})
    except PredicateFailed:
        answer = "failed"
    assert answer == "failed" or pattern == "\\C"
    assert time.process_time() - begin < QUICK


def test_values_nested_deeper_than_the_stack_fail() -> None:
    deep: list[Any] = []
    other: list[Any] = []
    for _ in range(50_000):
        deep, other = [deep], [other]
    with pytest.raises(PredicateFailed):
        compile("s.a == s.b")({"s": {"a": deep, "b": other}})
    assert isinstance(compile("s.a == s.b && o.x").partial({"s": {"a": deep, "b": other}}), Predicate | PredicateFailed)


class Rude:
    """Attributes that misbehave."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getitem__(self, name: str) -> object:
        raise self.error


@pytest.mark.parametrize(
    "error", [ValueError("x"), RecursionError(), MemoryError(), AttributeError("x"), StopIteration()]
)
def test_attributes_that_raise_fail(error: Exception) -> None:
    env: dict[str, Any] = {"s": Rude(error)}
    for text in ("s.a == 'x'", "has(s.a)", "s.a.b", "[1].all(x, s.a == x)", "'a' in s"):
        with pytest.raises(PredicateFailed):
            compile(text)(env)
        assert isinstance(compile(text).partial(env), Predicate | PredicateFailed)
    assert compile("s.a == 'x' || true")(env) is True


@pytest.mark.parametrize("env", [{}, {"s": None}, {"s": 3}, {"s": "text"}, {"s": []}, {"s": object()}, None, 3])
def test_environments_that_are_none_fail(env: Any) -> None:
    with pytest.raises(PredicateFailed):
        compile("s.a == 'x'")(env)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text("soep.()[]{}'\"\\+-*/%!&|?:,<>=0123456789 xu\n", max_size=60))
@example("\0")
@example("'\ud800'")
@example("s.a == '\u202e'")
@example("0" * 5000)
def test_any_text_is_a_predicate_or_an_error(text: str) -> None:
    try:
        predicate = compile(text)
    except PredicateError:
        return
    try:
        assert predicate({"s": {}, "o": {}, "e": {}, "p": {}}) in (True, False)
    except PredicateFailed:
        pass


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5) | st.just({1, 2})
    | st.timedeltas() | st.datetimes() | st.datetimes(timezones=st.timezones()) | st.just(object()) | st.just(Rude(OSError())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2) | st.booleans() | st.integers(0, 1), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip

OPERATIONS = [
    f"s.a {op} s.b" for op in ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "in", "&&", "||")
] + [
    "s.a[s.b]", "-s.a", "!s.a", "s.a ? s.b : s.a", "s.a.x", "has(s.a.x)", "s.a.all(x, x == s.b)", "s.a.map(x, x)", "{s.a: s.b}", "[s.a, s.b]",
    "s.a.contains(s.b)", "s.a.startsWith(s.b)", "s.a.matches(s.b)", "size(s.a)", "int(s.a)", "uint(s.a)", "double(s.a)", "string(s.a)", "bytes(s.a)", "bool(s.a)",
    "timestamp(s.a)", "duration(s.a)", "s.a.getHours()", "s.a.getHours(s.b)", "s.a.getDayOfYear('Asia/Tokyo')", "s.a.getMilliseconds()",
    "sets.contains(s.a, s.b)", "sets.equivalent(s.a, s.b)", "union(s.a, s.b)", "difference(s.a, s.b)", "matchesFilter(s.a, s.b)", "within(s.a, s.b)",
    "within(s.a, '08:00-20:00')", "cidr(s.a, s.b)", "age(s.a)", "s.a == 'x'", "s.a == 1", "s.a in ['x', 'y']", "s.a != true",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(OPERATIONS), VALUES, VALUES)
def test_any_values_give_a_value_or_a_failure(text: str, a: object, b: object) -> None:
    env: dict[str, Any] = {"s": {"a": a, "b": b}, "e": {"now": b}}
    try:
        evaluate_text(text, env)
    except PredicateFailed:
        pass
    try:
        assert compile(f"dyn({text})")(env) in (True, False)
    except PredicateFailed:
        pass
