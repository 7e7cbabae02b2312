# ruff: noqa: E501  rows of tables are not broken
"""One evaluation costs no more than its budget, whatever the predicate and the values.

Work is counted, not timed: Python's own events (calls, lines, returns) for what Python does, and operations paid for
what is done below Python (searching, comparing, hashing, copying), which must grow with the size of the values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicate.adversaries import ABSORBED, LARGE, MACROS, asked, environment, texts, wide
from tidegate.predicate import PredicateError, PredicateFailed, compile, function
from tidegate.predicate.compile import NAMES
from tidegate.predicate.cost import most
from tidegate.predicate.exact import evaluate, paid
from tidegate.predicate.failure import CelError
from tidegate.predicate.fast import fast
from tidegate.predicate.parse import parse
from tidegate.predicate.partial import fold
from tidegate.predicate.work import BUDGET, LOADING, Handover, Spare, Trial, Work

FAILED = "failed"
EVENTS = 7
"""Events of Python for one operation, at most: about 0.1 µs."""


def events(run: Callable[[], object]) -> int:
    """Calls, lines and returns of Python code that something takes."""
    seen = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal seen
        seen += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return seen


def spent(text: str, subject: dict[str, Any]) -> int:
    """Operations that the exact evaluator pays for a text."""
    node = fold(parse(text, {}, NAMES), {}, Work(LOADING))
    work = Work(LOADING)
    try:
        evaluate(paid(node), {"s": subject, "e": environment()["e"]}, work)
    except (CelError, PredicateFailed):
        pass
    return LOADING - work.left


@pytest.mark.parametrize(("budget", "limit"), [(BUDGET, 2_048), (2_000, 2_048)])
def test_an_evaluation_takes_no_more_than_its_budget(budget: int, limit: int) -> None:
    env, failed = environment(), 0
    for text in texts(limit):
        predicate = compile(text, budget=budget, limit=limit)
        answer = asked(predicate, env)
        taken = events(lambda ask=predicate: asked(ask, env))  # type: ignore[misc]
        assert taken <= EVENTS * budget + 500, text[:80]
        assert asked(predicate, env) == answer
        failed += answer not in ("True", "False")
    assert failed > 150, "the adversaries have become harmless"


def test_partial_evaluation_takes_no_more_than_its_budget_and_the_text() -> None:
    env = environment()
    for text in texts(2_048):
        predicate = compile(text, budget=2_000)
        taken = events(lambda ask=predicate: ask.partial({"s": env["s"]}))  # type: ignore[misc]
        assert taken <= EVENTS * 2_000 + 30 * len(text) + 40_000, text[:80]


@pytest.mark.parametrize("text", [*MACROS, *ABSORBED, *LARGE, *wide(2_048)])
def test_the_exact_evaluator_alone_decides_about_bounds(text: str) -> None:
    """What the fast one cannot afford is asked again, so both ways come to the same."""
    env = environment()
    node = fold(parse(text, {}, NAMES), {}, Work(), Work(LOADING))
    try:
        exact = str(evaluate(paid(node), env, Work()))
    except PredicateFailed as failure:
        exact = failure.reason
    except CelError as error:
        exact = str(error)
    assert asked(compile(text), env) == exact
    generated = fast(node)
    if generated is not None and exact.startswith("too much work"):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            generated(env)
        assert not isinstance(caught.value, PredicateFailed) or not str(caught.value).startswith("too much work")


GROWING: list[tuple[str, Callable[[int], dict[str, Any]], int]] = [
    ("s.a == s.b", lambda n: {"a": "x" * n, "b": "x" * (n - 1) + "y"}, 64),
    ("s.a < s.b", lambda n: {"a": "x" * n, "b": "x" * (n - 1) + "y"}, 64),
    ("s.a == s.b", lambda n: {"a": b"x" * n, "b": b"x" * (n - 1) + b"y"}, 64),
    ("s.a >= s.b", lambda n: {"a": b"x" * n, "b": b"x" * (n - 1) + b"y"}, 64),
    ("[s.a] == [s.b]", lambda n: {"a": "x" * n, "b": "x" * (n - 1) + "y"}, 64),
    ("{'k': s.a} == {'k': s.b}", lambda n: {"a": "x" * n, "b": "x" * (n - 1) + "y"}, 64),
    ("s.a + 'b' == ''", lambda n: {"a": "x" * n}, 64),
    ("s.a + b'b' == b''", lambda n: {"a": b"x" * n}, 64),
    ("bytes(s.a) == b''", lambda n: {"a": "x" * n}, 64),
    ("string(s.a) == ''", lambda n: {"a": b"x" * n}, 64),
    ("s.a + [1] == []", lambda n: {"a": [1] * (n // 4)}, 64),
    ("s.a.contains('b')", lambda n: {"a": "x" * n}, 32),
    ("s.a.contains(s.b)", lambda n: {"a": "x" * n, "b": "y" * (n // 2)}, 32),
    ("s.b.startsWith(s.a)", lambda n: {"a": "x" * n, "b": "x" * n}, 64),
    ("s.b.endsWith(s.a)", lambda n: {"a": "x" * n, "b": "x" * n}, 64),
    ("s.a.matches('(a|b)*c')", lambda n: {"a": "x" * n}, 4),
    ("s.a.matches(s.b)", lambda n: {"a": "x" * n, "b": "(a|b)*c"}, 4),
    ("s.a in s.l", lambda n: {"a": "x", "l": ["y"] * n}, 4),
    ("1 in s.l", lambda n: {"l": [2] * n}, 1),
    ("s.a in s.l", lambda n: {"a": "x" * 128, "l": ["y"] * n}, 1),
    ("s.a in s.m", lambda n: {"a": "x" * n, "m": {}}, 64),
    ("s.m[s.a] == 1", lambda n: {"a": "x" * n, "m": {}}, 64),
    ("{s.a: 1} == {}", lambda n: {"a": "x" * n}, 64),
    ("true in s.m", lambda n: {"m": dict.fromkeys(range(2, n + 2))}, 2),
    ("s.m[1] == 1", lambda n: {"m": dict.fromkeys(range(n))}, 2),
    ("s.l == s.k", lambda n: {"l": [1] * n, "k": [1] * n}, 1),
    ("s.l == s.k", lambda n: {"l": {str(i): i for i in range(n)}, "k": {str(i): i for i in range(n)}}, 1),
    ("sets.contains(s.l, s.l)", lambda n: {"l": list(range(n))}, 1),
    ("sets.intersects(s.l, [s.a])", lambda n: {"l": [str(i) for i in range(n)], "a": 1}, 1),
    ("sets.contains([s.a], [])", lambda n: {"a": "x" * n}, 64),
    ("union(s.l, []) == []", lambda n: {"l": list(range(n))}, 1),
    ("intersection(s.l, []) == []", lambda n: {"l": list(range(n))}, 1),
    ("difference([], s.l) == []", lambda n: {"l": list(range(n))}, 1),
    ("matchesFilter(s.a, '+/#')", lambda n: {"a": "/" * n}, 1),
    ("matchesFilter('a', s.a)", lambda n: {"a": "+/" * (n // 2) + "#"}, 2),
    ("cidr('10.0.0.1', s.l)", lambda n: {"l": ["11.0.0.0/8"] * n}, 1),
    ("within(e.now, s.l)", lambda n: {"l": ["01:00-02:00"] * n}, 1),
    ("s.l.all(x, true)", lambda n: {"l": [1] * n}, 1),
    ("s.l.exists(x, s.nope)", lambda n: {"l": [1] * n}, 1),
]
"""What is charged, values of a size, and how much of that size may cost one operation."""


@pytest.mark.parametrize(("text", "made", "rate"), GROWING, ids=[f"{n} {row[0]}" for n, row in enumerate(GROWING)])
def test_what_is_large_is_paid_for(text: str, made: Callable[[int], dict[str, Any]], rate: int) -> None:
    small, large = spent(text, made(100)), spent(text, made(10_000))
    assert large - small >= 9_900 // rate - 1


@pytest.mark.parametrize(
    ("length", "part", "least"),
    [(2_400, 1_200, 3_000), (29_000, 99, 4_500), (29_000, 50, 2_500), (100_000, 5, 2_500), (10_000, 9_000, 12_000), (1_000_000, 999_000, 2_000_000), (100_000, 1_000, 3_000)],
)  # fmt: skip
def test_searching_is_paid_for_as_if_it_were_the_worst(length: int, part: int, least: int) -> None:
    """Python's search compares the part at every place where it thinks both are short."""
    subject = {"t": "a" * length, "p": "a" * (part // 2) + "b" + "a" * (part - part // 2 - 1)}
    assert spent("s.t.contains(s.p)", subject) >= least


def test_patterns_are_paid_for_by_what_they_may_take() -> None:
    text = {"t": "ab" * 500}
    small, large = spent("s.t.matches('b')", text), spent("s.t.matches('[ab]*a[ab]{99}c')", text)
    assert large > 10 * small
    assert spent("s.t.matches(s.p)", {**text, "p": "b"}) > small + 400, "it has to be compiled"
    assert spent("s.t.matches(s.p)", {"t": "", "p": "\\pL"}) > 1500
    with pytest.raises(PredicateFailed, match="too large"):
        compile("s.t.matches(s.p) || true == s.b")({"s": {"t": "", "p": "\\pL{99}", "b": True}})
    with pytest.raises(PredicateError, match="too large"):
        compile("s.t.matches('\\\\pL{99}')")


def test_a_zone_that_comes_with_the_message_is_paid_for() -> None:
    known, unknown = (
        spent("e.now.getHours('Asia/Tokyo') == 1", {}),
        spent("e.now.getHours(s.z) == 1", {"z": "Asia/Tokyo"}),
    )
    assert unknown > known + 1000
    assert (
        spent("s.t == 1 || s.t + 1 == 1 || s.t == 2", {"t": "x"})
        > spent("s.t == 1 || s.t + 1 == 1 || s.t == 2", {"t": 7}) + 20
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4_000), st.sampled_from(["s.l.all(x, x >= 0)", "s.l.exists(x, x == -1)", "s.l == s.k", "-1 in s.l", "sets.contains(s.l, s.k)", "s.l.map(x, x + 1).all(y, y > 0)", "s.a == s.b", "s.a.contains('y')"]), st.integers(50, 20_000))  # fmt: skip
def test_bounds_are_where_they_are_whichever_evaluator_runs(size: int, text: str, budget: int) -> None:
    subject = {"l": list(range(size)), "k": list(range(size)), "a": "x" * (size * 100), "b": "x" * (size * 100)}
    node = fold(parse(text, {}, NAMES), {}, Work(LOADING))
    try:
        wanted: object = evaluate(paid(node), {"s": subject}, Work(budget))
    except PredicateFailed:
        wanted = FAILED
    assert wanted == FAILED or spent(text, subject) <= budget
    try:
        got: object = compile(text, budget=budget)({"s": subject})
    except PredicateFailed:
        got = FAILED
    assert got == wanted


def test_the_budget_can_be_chosen() -> None:
    env = {"s": {"l": list(range(500))}}
    text = "s.l.all(x, x >= 0)"
    assert compile(text)(env) is True
    assert compile(text, budget=100_000)({"s": {"l": list(range(9_000))}}) is True
    for predicate in (compile(text, budget=2_000), compile(text + " && o.x", budget=2_000).partial({"o": {"x": True}})):
        assert not isinstance(predicate, bool | PredicateFailed)
        with pytest.raises(PredicateFailed, match="too much work"):
            predicate(env)


def test_the_length_of_the_text_can_be_chosen() -> None:
    text = "s.a == '" + "x" * 100 + "'"
    assert compile(text, limit=200)({"s": {"a": "y"}}) is False
    with pytest.raises(PredicateError, match="longer than 100 bytes"):
        compile(text, limit=100)
    with pytest.raises(PredicateError, match="longer than 16384 bytes"):
        compile("true" + " " * 16_384, limit=1_000_000)


def test_what_is_ordinary_is_far_from_the_bounds() -> None:
    roles = {"role": "coach", "roles": ["member", "coach"], "address": "10.1.2.3", "text": "all is well " * 20}
    for text, most_of_it in [
        ("s.role == 'coach' && s.roles.exists(r, r == s.role)", 60),
        ("within(e.now, '08:00-20:00') && cidr(s.address, ['10.0.0.0/8', '192.168.0.0/16'])", 140),
        ("s.text.contains('alarm') || s.text.matches('(?i)error|fail')", 550),
        ("sets.contains(s.roles, ['coach'])", 60),
    ]:
        assert spent(text, roles) <= most_of_it


def test_long_lists_of_literals_are_prepared_once() -> None:
    networks = ", ".join(f"'11.{n}.0.0/16'" for n in range(200))
    names = ", ".join(f"'name {n}'" for n in range(1000))
    assert spent(f"cidr(s.a, [{networks}])", {"a": "11.77.1.2"}) < 200
    assert spent(f"s.a in [{names}]", {"a": "name 999"}) < 50
    for subject, wanted in (({"a": "11.77.1.2"}, True), ({"a": "12.0.0.1"}, False)):
        assert compile(f"cidr(s.a, [{networks}])")({"s": subject}) is wanted
    for value, wanted in (
        ("name 999", True),
        ("name 1000", False),
        ("x" * 5000, False),
        (3, False),
        (["name 1"], False),
    ):
        assert compile(f"s.a in [{names}]")({"s": {"a": value}}) is wanted


def test_networks_and_windows_known_from_the_subject_are_prepared() -> None:
    subject = {
        "nets": ["10.0.0.0/8", "fe80::/10", "192.168.7.0/24"],
        "shift": ["08:00-12:00", "22:00-06:00"],
        "zone": "Asia/Tokyo",
    }
    left = compile("cidr(o.a, s.nets) && within(e.now, s.shift, s.zone)").partial({"s": subject})
    assert not isinstance(left, bool | PredicateFailed)
    assert left.reads == {"o.a", "e.now"}
    now = environment()["e"]["now"]  # 18:30 in Tokyo
    whole = compile("cidr(o.a, s.nets) && !within(e.now, s.shift, s.zone)")
    for address, wanted in (
        ("10.1.1.1", True),
        ("::ffff:10.1.1.1", True),
        ("fe80::1", True),
        ("192.168.8.1", False),
        ("192.168.7.9", True),
        ("::1", False),
    ):
        env: dict[str, Any] = {"o": {"a": address}, "e": {"now": now}, "s": subject}
        assert whole(env) is wanted
        rest = whole.partial({"s": subject})
        assert not isinstance(rest, bool | PredicateFailed)
        assert rest(env) is wanted
        assert left(env) is False


def test_large_values_that_are_known_are_left_where_they_are() -> None:
    subject = {"l": list(range(20_000)), "m": {str(n): [n] for n in range(20_000)}, "a": 1}
    rest = compile("s.a == 1 && o.x in s.l").partial({"s": subject})
    assert not isinstance(rest, bool | PredicateFailed)
    assert rest.reads == {"o.x", "s.l"}
    assert rest({"s": subject, "o": {"x": 5}}) is True


def test_functions_of_administrators_count_as_operations() -> None:
    calls = []

    @function()
    def seen(value: int) -> bool:
        calls.append(value)
        return True

    with pytest.raises(PredicateFailed, match="too much work"):
        compile("s.l.all(x, seen(x))", functions={"seen": seen}, budget=1_000)({"s": {"l": list(range(1_000))}})
    assert len(calls) < 100


def test_meters() -> None:
    work = Work(10)
    work.spend(10)
    with pytest.raises(PredicateFailed):
        work.spend(1)
    assert work.total() is work
    trial = Trial(10)
    with pytest.raises(Handover):
        trial.spend(11)
    spare = Spare(10)
    for _ in range(100):
        spare.spend(10)
    with pytest.raises(Handover):
        spare.spend(11)
    total = spare.total()
    total.spend(10)
    with pytest.raises(Handover):
        total.spend(1)


def test_a_tree_that_costs_more_than_the_budget_is_left_to_the_exact_evaluator() -> None:
    node = parse(" || ".join(["s.a < s.b"] * 40), {}, NAMES)
    assert most(node) > 300
    assert fast(node, 300) is None
    assert fast(node, 100_000) is not None
    assert compile(" || ".join(["s.a <= s.b"] * 40), budget=300)({"s": {"a": 1, "b": 1}}) is True
