# ruff: noqa: E501  rows of tables are not broken
"""Compiled predicates against an independent implementation of CEL, over random expressions and environments.

Left out, because the oracle (`common-expression-language`) departs from the CEL specification or lacks them:

| what | the oracle | CEL |
|---|---|---|
| an error in the body of `all` and `exists` | is the result | is absorbed when another element decides |
| `-x` of the least int | wraps around | is an overflow |
| a list indexed by a whole double, a double looked for in the keys of a map | is an error | compares as a number |
| an int key looked up by a uint | is not found | compares as a number |
| `size` of strings beyond ASCII | counts bytes | counts code points |
| `map` and `filter` over a map | run over its keys | are for lists only |
| a key given twice in a map literal | the last one counts | is an error |
| `string` of doubles, timestamps and durations | Rust's formats | as in cel-go |
| `bool()`, time zones, `sets.*`, Tidegate's own functions | lacks them | |
| comparisons that can never be true (`1 == 'a'`) | false | refused when loaded, which a type checker may |
"""

from __future__ import annotations

from typing import Any

import cel
import pytest
from hypothesis import HealthCheck, given, settings

from predicate.expressions import bools, environments
from tidegate.predicate import PredicateError, PredicateFailed, compile

ERROR = "error"
COUNTS = {"all": 0, "absorbed": 0, True: 0, False: 0, ERROR: 0}


def ours(text: str, env: dict[str, Any]) -> object:
    try:
        return compile(text)(env)
    except PredicateFailed:
        return ERROR


def theirs(text: str, env: dict[str, Any]) -> object:
    try:
        answer = cel.evaluate(text, env)
    except (TypeError, ValueError, RuntimeError, ArithmeticError, LookupError):
        return ERROR
    return answer if isinstance(answer, bool) else ERROR


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=bools(3, (), True), env=environments())
def compare(text: str, env: dict[str, Any]) -> None:
    mine, other = ours(text, env), theirs(text, env)
    COUNTS["all"] += 1
    COUNTS[mine] += 1  # type: ignore[index]
    if mine != other and other == ERROR and (".all(" in text or ".exists(" in text):
        COUNTS["absorbed"] += 1
        return
    assert mine == other, text


def test_random_expressions_agree_with_the_oracle() -> None:
    compare()
    assert COUNTS["absorbed"] <= COUNTS["all"] // 20
    assert min(COUNTS[True], COUNTS[False], COUNTS[ERROR]) >= COUNTS["all"] // 20, "the expressions say nothing"


ENV: dict[str, Any] = {"s": {"user": "alice", "age": 30, "tls": {"v": "1.3"}, "l": [1, 2]}}

AGREED = [
    "1 + 2 * 3 == 7", "-7 / 2 == -3", "-7 % 3 == -1", "7 % -3 == 1", "1 / 0 == 1", "9223372036854775807 + 1 == 0",
    "1u - 2u == 0u", "-9223372036854775808 / -1 == 1", "1 == 1.0", "1 < 1.5", "1u == 1", "1.0 / 0.0 > 1.0", "false && 1 / 0 == 1",
    "1 / 0 == 1 && false", "true || 1 / 0 == 1", "1 / 0 == 1 || true", "1 / 0 == 1 || false", "s.nope == 1", "has(s.nope)",
    "has(s.tls.v)", "has(s.nope.v)", "s.user + 'x' == 'alicex'", "s.age + 1.0 == 31.0", "s.age > 18 && s.user == 'alice'",
    "s.user < s.age", "s.age ? true : false", "s.user && false", "[1, 'a', 1.0] == [1.0, 'a', 1]", "{'a': 1} == {'a': 1.0}", "1 in [1.0]",
    "'a' in {'a': 1}", "[1, 2][0u] == 1", "[1, 2][2] == 1", "{'a': 1}['b'] == 1", r"'\x41\u00e9\101' == 'AéA'", r"r'\n' == '\\n'",
    r"b'\xff' == b'\377'", "'''a'b''' == 'a\\'b'", "int('42') == 42", "int('x') == 42", "int(1.9) == 1", "int(1e30) == 1", "uint(-1) == 1u",
    "double('1e3') == 1000.0", "string(1) == '1'", "string(b'abc') == 'abc'", "bytes('é') == b'é'", "'abc'.matches('^a.c$')", "'abc'.matches('^b')",
    "timestamp('2020-01-01T00:00:00Z') < timestamp('2020-01-01T00:00:00.5Z')", "timestamp('2020-01-01T01:00:00+01:00') == timestamp('2020-01-01T00:00:00Z')",
    "duration('1h') + duration('1m') == duration('61m')", "timestamp('2020-01-01T00:00:00Z') + duration('1h') == timestamp('2020-01-01T01:00:00Z')",
    "timestamp('2020-02-13T23:31:30Z').getFullYear() == 2020", "timestamp('2020-02-13T23:31:30Z').getMonth() == 1", "timestamp('2020-02-13T23:31:30Z').getHours() == 23",
    "timestamp('2020-02-16T23:31:30Z').getDayOfWeek() == 0", "timestamp('2020-02-13T23:31:30Z').getDayOfYear() == 43", "timestamp('2020-02-13T23:31:30Z').getDate() == 13",
    "timestamp('2020-02-13T23:31:30Z').getDayOfMonth() == 12", "[1, 2].exists_one(x, x > 1)", "[1, 2, 3].map(x, x > 1, x * 2) == [4, 6]", "[1, 2].filter(x, x > 5) == []",
    "[].all(x, x > 1)", "[].exists(x, x > 1)", "s.l.all(x, s.l.exists(y, y == x))", "[1].map(x, [2].map(x, x)) == [[2]]", "true < false", "b'a' < b'b'", "null == null",
    "1 < 2 == true", "false ? 1 / 0 == 1 : true", "!!true", "0x1F == 31", ".5 + 1e0 == 1.5", "1 + // one\n 1 == 2",
]  # fmt: skip


@pytest.mark.parametrize("text", AGREED)
def test_these_agree_with_the_oracle(text: str) -> None:
    try:
        mine = ours(text, ENV)
    except PredicateError:
        mine = ERROR  # a literal that can only fail is refused when loaded
    assert mine == theirs(text, ENV)


DIFFERENT = [
    ("[0, 1].exists(x, 1 / x == 1)", True, ERROR),
    ("[0, 1].all(x, 1 / x > 1)", False, ERROR),
    ("-(-9223372036854775808) == 1", ERROR, False),
    ("[7, 8][1.0] == 8", True, ERROR),
    ("1.0 in {1: 2}", True, ERROR),
    ("{1: 2}[1u] == 2", True, ERROR),
    ("1u in {1: 2}", True, False),
    ("size('é') == 1", True, False),
    ("{1: 1, 1: 2} == {1: 2}", ERROR, True),
    ("string(1e100) == '1e+100'", True, False),
    ("string(timestamp('2020-01-01T00:00:00Z')) == '2020-01-01T00:00:00Z'", True, False),
    ("string(duration('90s')) == '90s'", True, False),
    ("bool('true')", True, ERROR),
    ("timestamp('2020-01-01T00:00:00Z').getHours('Europe/Rome') == 1", True, ERROR),
    ("sets.contains([1], [1])", True, ERROR),
    ("s.tls.map(k, k) == ['v']", ERROR, True),
]


@pytest.mark.parametrize(("text", "mine", "other"), DIFFERENT)
def test_what_is_left_out_is_really_different(text: str, mine: object, other: object) -> None:
    assert ours(text, ENV) == mine
    assert theirs(text, ENV) == other
