# ruff: noqa: E501  rows of tables are not broken
"""Partial evaluation: what is known is folded, what is not remains, and the answer is the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from predicate.expressions import bools, environments
from tidegate.predicate import UNKNOWN, Predicate, PredicateFailed, compile, function
from tidegate.predicate.exact import closure, evaluate
from tidegate.predicate.failure import CelError
from tidegate.predicate.parse import parse

ERROR = "error"
SUBJECT = {"user": "alice", "role": "coach", "roles": ["coach", "member"]}


def ask(predicate: bool | Predicate | PredicateFailed, env: dict[str, Any]) -> object:
    if isinstance(predicate, bool):
        return predicate
    if isinstance(predicate, PredicateFailed):
        return ERROR
    try:
        return predicate(env)
    except PredicateFailed:
        return ERROR


@st.composite
def known(draw: st.DrawFn, env: dict[str, Any]) -> dict[str, Any]:
    """A part of an environment: roots left out, roots unknown, attributes unknown, at any depth."""
    part: dict[str, Any] = {}
    for root, attributes in env.items():
        match draw(st.integers(0, 3)):
            case 0:
                continue
            case 1:
                part[root] = UNKNOWN
            case _:
                hide = draw(st.sets(st.sampled_from([*sorted(attributes), "maybe"])))
                part[root] = {**attributes, **dict.fromkeys(hide, UNKNOWN)}
                if "payload" in attributes and "payload" not in hide and draw(st.booleans()):
                    part[root]["payload"] = {**attributes["payload"], "n": UNKNOWN}
    return part


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), text=bools(3), env=environments())
def test_partial_then_the_rest_is_the_whole(data: st.DataObject, text: str, env: dict[str, Any]) -> None:
    predicate = compile(text)
    whole = ask(predicate, env)
    node = parse(text, {}, frozenset("soep"))
    try:
        exact = evaluate(closure(node), env)
    except CelError:
        exact = ERROR
    assert whole == (exact if isinstance(exact, bool) else ERROR), "generated and exact evaluators differ"

    assert ask(predicate.partial(env), env) == whole
    part = data.draw(known(env))
    rest = predicate.partial(part)
    assert ask(rest, env) == whole
    if isinstance(rest, Predicate):
        assert rest.reads <= predicate.reads
        assert ask(rest.partial(env), env) == whole


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=bools(3), env=environments())
def test_only_what_it_reads_is_read(text: str, env: dict[str, Any]) -> None:
    seen: set[str] = set()

    class Spy:
        def __init__(self, name: str, values: dict[str, Any]) -> None:
            self.name, self.values = name, values

        def __getitem__(self, field: str) -> object:
            seen.add(f"{self.name}.{field}")
            return self.values[field]

    predicate = compile(text)
    ask(predicate, {root: Spy(root, values) for root, values in env.items()})
    allowed = {".".join(path.split(".")[:2]) for path in predicate.reads}
    assert seen <= allowed


@pytest.mark.parametrize(
    ("text", "part", "wanted"),
    [
        ("s.role == 'coach'", {"s": SUBJECT}, True),
        ("s.role == 'x' && o.payload.level > 3", {"s": SUBJECT}, False),
        ("o.payload.level > 3 && s.role == 'x'", {"s": SUBJECT}, False),
        ("o.payload.level > 3 || s.role == 'coach'", {"s": SUBJECT}, True),
        ("s.nope == 1 && s.role == 'coach'", {"s": SUBJECT}, ERROR),
        ("s.nope == 1 && o.size > 3", {"s": SUBJECT}, {"o.size"}),
        ("s.role == 'coach' && o.payload.level > 3", {"s": SUBJECT}, {"o.payload.level"}),
        ("s.role == 'coach' && o.topic == 'a' && o.size > 3", {"s": SUBJECT, "o": {"topic": "a", "size": UNKNOWN}}, {"o.size"}),
        ("s.role == 'coach' ? o.size > 3 : e.hour > 3", {"s": SUBJECT}, {"o.size"}),
        ("s.roles.exists(r, r == 'coach') && e.hour > 3", {"s": SUBJECT}, {"e.hour"}),
        ("s.roles.exists(r, r == o.payload.role)", {"s": SUBJECT}, {"o.payload.role"}),
        ("o.payload.roles.exists(r, r == s.role)", {"s": SUBJECT}, {"o.payload.roles"}),
        ("has(s.nope) || e.hour > 3", {"s": SUBJECT}, {"e.hour"}),
        ("has(o.payload.x)", {"o": {"payload": UNKNOWN}}, {"o.payload.x"}),
        ("age(p.time) < duration('1h')", {"p": {"time": 3}}, {"e.now"}),
        ("s.user", {"s": SUBJECT}, ERROR),
        ("true && s.flag", {}, {"s.flag"}),
        ("s == o", {"s": SUBJECT}, {"o"}),
    ],
)  # fmt: skip
def test_what_remains(text: str, part: dict[str, Any], wanted: object) -> None:
    rest = compile(text).partial(part)
    match rest:
        case bool():
            assert rest is wanted
        case PredicateFailed():
            assert wanted == ERROR
        case _:
            assert rest.reads == wanted


def test_volatile_functions_are_never_folded() -> None:
    calls: list[str] = []

    @function(volatile=True)
    def dice(name: str) -> bool:
        calls.append(name)
        return True

    @function()
    def fixed(name: str) -> bool:
        calls.append(name)
        return True

    predicate = compile("dice('a') && fixed('b')", functions={"dice": dice, "fixed": fixed})
    assert calls == ["b"]
    assert predicate.volatile
    rest = predicate.partial({})
    assert isinstance(rest, Predicate)
    assert calls == ["b"]
    assert rest({}) is True
    assert calls == ["b", "a"]
    assert not compile("fixed(s.user)", functions={"fixed": fixed}).volatile
    assert compile("age(p.time) < duration('1h')").volatile


def test_lazy_attributes_cost_nothing_until_read() -> None:
    class Lazy(dict[str, object]):
        parsed = 0

        def __missing__(self, name: str) -> object:
            if name != "payload":
                raise KeyError(name)
            self.parsed += 1
            self[name] = {"level": 7}
            return self[name]

    message = Lazy(topic="a")
    predicate = compile("o.topic == 'b' && o.payload.level > 3")
    assert predicate({"o": message}) is False
    assert message.parsed == 0
    message["topic"] = "b"
    assert predicate({"o": message}) is True
    assert predicate({"o": message}) is True
    assert message.parsed == 1
