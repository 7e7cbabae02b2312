# ruff: noqa: E501  rows of texts are not broken
"""Random CEL texts, typed so that most of them have a value, and environments to evaluate them in.

`careful` leaves out what the oracle is known to answer differently (see test_oracle).
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.predicate import BUDGET, NAMES, Env, PredicateFailed
from tidegate.predicate.check import static
from tidegate.predicate.compile import loaded
from tidegate.predicate.exact import evaluate, paid
from tidegate.predicate.failure import CelError
from tidegate.predicate.parse import parse

INTS = st.one_of(st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), 2**31, 100]))
DOUBLES = st.sampled_from([0.0, 1.0, -1.5, 2.5, 1e300, 3.0])
STRINGS = st.text("abcé/ ", max_size=4)
SCALARS = st.one_of(INTS, DOUBLES, STRINGS, st.booleans(), st.none())


def quoted(text: str) -> str:
    return "'" + text + "'"


@st.composite
def environments(draw: st.DrawFn) -> dict[str, Any]:
    """Every root; `o.any` holds anything, `s.gone` is never there, `o.maybe` sometimes."""
    payload: dict[str, Any] = {"n": draw(SCALARS), "l": draw(st.lists(SCALARS, max_size=3))}
    env: dict[str, Any] = {
        "s": {
            "i": draw(INTS),
            "t": draw(STRINGS),
            "b": draw(st.booleans()),
            "l": draw(st.lists(INTS, max_size=4)),
            "ts": draw(st.lists(STRINGS, max_size=3)),
            "m": draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), INTS, max_size=3)),
        },
        "o": {"d": draw(DOUBLES), "any": draw(SCALARS), "payload": payload, "i": draw(INTS)},
    }
    if draw(st.booleans()):
        env["o"]["maybe"] = draw(SCALARS)
    return env


def _int_literal(value: int) -> str:
    return str(value) if value >= 0 else f"({value})"


@st.composite
def ints(draw: st.DrawFn, depth: int, variables: tuple[str, ...] = (), careful: bool = False) -> str:
    leaves = ["s.i", "o.i", "o.any", "s.gone", "o.payload.n", *variables]
    if depth <= 0:
        return draw(st.one_of(INTS.map(_int_literal), st.sampled_from(leaves)))
    match draw(st.integers(0, 7)):
        case 0 | 1:
            operator = draw(st.sampled_from("+-*/%"))
            return (
                f"({draw(ints(depth - 1, variables, careful))} {operator} {draw(ints(depth - 1, variables, careful))})"
            )
        case 2:
            return f"size({draw(lists(depth - 1, variables, careful))})"
        case 3:
            test = draw(bools(depth - 1, variables, careful))
            return (
                f"({test} ? {draw(ints(depth - 1, variables, careful))} : {draw(ints(depth - 1, variables, careful))})"
            )
        case 4:
            index = st.sampled_from(["0", "1", "s.i"]) if careful else ints(0, variables)
            return f"{draw(lists(depth - 1, variables, careful))}[{draw(index)}]"
        case 5:
            return f"s.m[{draw(strings(depth - 1, variables, careful))}]"
        case 6:
            return "s.m.a" if careful or depth < 2 else f"(-{draw(ints(0, variables))})"
        case _:
            return draw(ints(0, variables, careful))


@st.composite
def strings(draw: st.DrawFn, depth: int, variables: tuple[str, ...] = (), careful: bool = False) -> str:
    if depth <= 0 or draw(st.booleans()):
        return draw(st.one_of(STRINGS.map(quoted), st.sampled_from(["s.t", "o.any"])))
    return f"({draw(strings(depth - 1, variables, careful))} + {draw(strings(depth - 1, variables, careful))})"


@st.composite
def lists(draw: st.DrawFn, depth: int, variables: tuple[str, ...] = (), careful: bool = False) -> str:
    if depth <= 0:
        return draw(st.sampled_from(["s.l", "o.payload.l", "[1, 2, 3]", "[s.i, o.i]", "[]"]))
    name = f"v{len(variables)}"
    inner = (*variables, name)
    match draw(st.integers(0, 3)):
        case 0:
            return f"({draw(lists(depth - 1, variables, careful))} + {draw(lists(depth - 1, variables, careful))})"
        case 1:
            return f"{draw(lists(depth - 1, variables, careful))}.map({name}, {draw(ints(depth - 1, inner, careful))})"
        case 2:
            return (
                f"{draw(lists(depth - 1, variables, careful))}.filter({name}, {draw(bools(depth - 1, inner, careful))})"
            )
        case _:
            return f"[{draw(ints(depth - 1, variables, careful))}, {draw(ints(depth - 1, variables, careful))}]"


@st.composite
def bools(draw: st.DrawFn, depth: int, variables: tuple[str, ...] = (), careful: bool = False) -> str:
    if depth <= 0:
        return draw(st.sampled_from(["true", "false", "s.b", "o.any", "s.gone", "has(o.maybe)", "has(s.gone)"]))
    name = f"v{len(variables)}"
    inner = (*variables, name)
    match draw(st.integers(0, 10)):
        case 0 | 1:
            operator = draw(st.sampled_from(["&&", "||"]))
            parts = [draw(bools(depth - 1, variables, careful)) for _ in range(draw(st.integers(2, 3)))]
            return "(" + f" {operator} ".join(parts) + ")"
        case 2:
            return (
                f"!{draw(bools(depth - 1, variables, careful))}"
                if depth < 2
                else f"!({draw(bools(depth - 1, variables, careful))})"
            )
        case 3:
            operator = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
            return (
                f"({draw(ints(depth - 1, variables, careful))} {operator} {draw(ints(depth - 1, variables, careful))})"
            )
        case 4:
            right = draw(st.sampled_from(["o.d", "1.0", "2.5", "0.0", "true", "null", "'a'", "o.any", "1u"]))
            left = draw(st.sampled_from(["o.any", "o.maybe", "o.payload.n", "s.gone", *variables]))
            return f"({left} {draw(st.sampled_from(['==', '!=']))} {right})"
        case 5:
            function = draw(st.sampled_from(["contains", "startsWith", "endsWith"]))
            return f"{draw(strings(depth - 1, variables, careful))}.{function}({draw(strings(depth - 1, variables, careful))})"
        case 6:
            return f"({draw(ints(depth - 1, variables, careful))} in {draw(lists(depth - 1, variables, careful))})"
        case 7:
            macro = draw(st.sampled_from(["all", "exists", "exists_one"]))
            return f"{draw(lists(depth - 1, variables, careful))}.{macro}({name}, {draw(bools(depth - 1, inner, careful))})"
        case 8:
            return f"({draw(lists(depth - 1, variables, careful))} == {draw(lists(depth - 1, variables, careful))})"
        case 9:
            where = draw(st.sampled_from(["s.m", "s.ts", "o.payload"]))
            return f"({'s.t' if careful else draw(strings(depth - 1, variables))} in {where})"
        case _:
            test = draw(bools(depth - 1, variables, careful))
            return f"({test} ? {draw(bools(depth - 1, variables, careful))} : {draw(bools(depth - 1, variables, careful))})"


def evaluate_text(text: str, env: Env) -> object:
    """The value of any expression, not only of a bool; raises as a predicate does."""
    node = parse(text, {}, NAMES)
    static(node)
    try:
        return evaluate(paid(loaded(node, BUDGET)), env)
    except CelError as error:
        raise PredicateFailed(str(error)) from error
