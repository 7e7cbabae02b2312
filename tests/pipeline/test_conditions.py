"""The language of `filter:`: what it says, what it refuses and where, and that Spark sees the same as plain Python."""

from __future__ import annotations

import math
import operator
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.frames import NOON, records
from tidegate.errors import PipelineError
from tidegate.pipeline import conditions
from tidegate.pipeline.columns import RECORD

Row: TypeAlias = Mapping[str, Any]
Meaning: TypeAlias = Callable[[Row], bool | None]
"""What a condition says of a row, worked out by hand: True, False, or None for neither."""

ROWS: list[dict[str, Any]] = [
    {"value": 3.0, "registered": True},
    {"value": -0.0, "name": "it's", "registered": False},
    {"value": None, "text": "on", "unit": None, "registered": None},
    {"value": math.nan, "unit": ""},
    {"value": math.inf, "owner": None},
    {"value": -math.inf, "type": "wind"},
    {"value": 1e308, "category": "personal"},
    {"value": 5e-324, "type": None, "name": "Ünïcødé 🌊"},
    {"measured_at": NOON + timedelta(seconds=5)},
    {"measured_at": None, "value": 20.0},
]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("type = 'temperature' and value > 3 or name in ('a', 'b') and not registered", [4, 6, 8, 9]),
        ("type == 'wind'", [5]),
        ("type <> 'temperature'", [5]),
        ("value is null", [2, 3]),
        ("value IS NOT NULL AND value < 0", [5]),
        ("value = 0", [1]),
        ("not registered", [1]),
        ("registered = false", [1]),
        ("registered is null", [2]),
        ("not (registered and value > 3)", [0, 1, 5, 7]),
        ("name = 'it''s'", [1]),
        ("name not in ('temperature')", [1, 7]),
        ("measured_at > received_at", [8]),
        ("(((value >= 1e308)))", [4, 6]),
        ("3 <= value and value <= 2.1e1", [0, 9]),
        ("unit = ''", [3]),
        ("true", list(range(10))),
        ("value in (3, 20.0, -0)", [0, 1, 9]),
    ],
)
def test_says(spark: SparkSession, text: str, fits: list[int]) -> None:
    found = records(spark, ROWS).where(conditions.fits(text)).select("offset").collect()
    assert sorted(row.offset for row in found) == fits


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("value > 'x'", "`value` (a number) cannot be compared with 'x' (a text) at character 7; write a number"),
        ("unit = 3", "`unit` (a text) cannot be compared with 3.0 (a number) at character 6; write a text in single"),
        ("registered = 'yes'", "`registered` (a boolean) cannot be compared with 'yes' (a text) at character 12"),
        ("measured_at > '2026-01-01'", "compare it with `measured_at` or `received_at`"),
        ("name in ('a', 3)", "cannot be compared with 3.0 (a number) at character 15"),
        ("valeu > 3", "there is no column `valeu` at character 1; did you mean `value`?"),
        ("qqqqqq = 3", "there is no column `qqqqqq` at character 1; there is source, type"),
        ("payload is null", "there is no column `payload`"),
        ("fault is null", "there is no column `fault`"),
        ("value = null", "nothing equals null at character 9; write `is null` or `is not null`"),
        ("value", "`value` (a number) is neither true nor false at character 1; compare it"),
        ("registered < true", "true and false have no order for `<` at character 12"),
        ("value > 1e999", "1e999 is too large a number at character 9"),
        ('type = "a"', "unexpected '\"' at character 8; write texts in single quotes"),
        ("type = 'a", 'unexpected "\'" at character 8; write texts in single quotes'),
        ("value >", "the condition ends too early"),
        ("value > 3 value", "unexpected 'value' at character 11"),
        ("value > 3; drop table x", "unexpected ';' at character 10"),
        ("exists(select 1)", "unexpected '(' at character 7"),
        ("value + 1 > 3", "unexpected '+' at character 7"),
        ("owner in ()", "unexpected ')' at character 11"),
        ("value > 3x", "unexpected '3' at character 9"),
        ("  ", "the condition is empty; leave `filter` out"),
        ("type = '\ud800'", "characters that are no text"),
        ("not " * 40 + "registered", "nested more than 32 deep"),
        ("(" * 500 + "registered" + ")" * 500, "nested more than 32 deep"),
        ("registered or " * 400 + "registered", "longer than 4096 characters"),
    ],
)
def test_refuses(text: str, problem: str) -> None:
    (found,) = conditions.problems(text)
    assert problem in found
    with pytest.raises(PipelineError):
        conditions.fits(text)


def test_tells_everything_at_once() -> None:
    assert len(conditions.problems("valeu > 3 and registered < true or unit = 4")) == 3


def test_reads_only_columns_of_records() -> None:
    types = dict(RECORD)
    assert set(conditions.COLUMNS) <= set(types)
    assert not {"payload", "context", "fault", "shard", "offset"} & set(conditions.COLUMNS)


def test_the_largest_is_still_understood(spark: SparkSession) -> None:
    text = "registered or " * 290 + "registered"
    assert len(text) <= conditions.MAX_SOURCE
    assert records(spark, [{}]).where(conditions.fits(text)).count() == 1


def test_parses_without_spark() -> None:
    code = (
        "import sys; from tidegate.pipeline import checks, conditions; conditions.parse('value > 3'); checks.listed()"
    )
    subprocess.run([sys.executable, "-c", f"{code}; assert 'pyspark' not in sys.modules"], check=True)


@given(st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_condition_or_a_problem(text: str) -> None:
    parsed = conditions.parse(text)
    assert (parsed.tree is None) == bool(parsed.problems)


WORDS = st.sampled_from(
    [
        "(",
        ")",
        "and",
        "or",
        "not",
        "in",
        "is",
        "null",
        "true",
        ",",
        "=",
        "<",
        "value",
        "type",
        "registered",
        "'a'",
        "3",
        "-1.5",
        "name",
        "''",
        "valeu",
    ]
)


@given(st.lists(WORDS, max_size=30).map(" ".join))
@settings(max_examples=300, deadline=None)
def test_any_words_are_a_condition_or_a_problem(text: str) -> None:
    parsed = conditions.parse(text)
    assert (parsed.tree is None) == bool(parsed.problems)


# an independent evaluator: each text is generated together with its meaning

NUMBERS = st.sampled_from([0.0, 3.0, -3.5, 20.0, 1e308, 5e-324, 21.5])
TEXTS = st.sampled_from(["", "a", "it's", "temperature", "wind", "C", "Ünïcødé 🌊", "personal", "zz"])
OPERATORS = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def number(row: Row) -> float | None:
    value: float | None = row["value"]
    return None if value is None or math.isnan(value) else value


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def asked(read: Callable[[Row], Any], sign: str, literal: Any) -> Meaning:
    def meaning(row: Row) -> bool | None:
        value = read(row)
        return None if value is None else bool(OPERATORS[sign](value, literal))

    return meaning


def among(read: Callable[[Row], Any], items: list[Any]) -> Meaning:
    return lambda row: None if read(row) is None else read(row) in items


def both(left: Meaning, right: Meaning) -> Meaning:
    def meaning(row: Row) -> bool | None:
        found = (left(row), right(row))
        return False if False in found else None if None in found else True

    return meaning


def either(left: Meaning, right: Meaning) -> Meaning:
    def meaning(row: Row) -> bool | None:
        found = (left(row), right(row))
        return True if True in found else None if None in found else False

    return meaning


def negated(part: Meaning) -> Meaning:
    def meaning(row: Row) -> bool | None:
        found = part(row)
        return None if found is None else not found

    return meaning


@st.composite
def simple(draw: st.DrawFn) -> tuple[str, Meaning]:
    sign = draw(st.sampled_from(sorted(OPERATORS)))
    name = draw(st.sampled_from(["type", "name", "unit", "owner", "category", "text"]))
    which = draw(st.integers(0, 6))
    if which == 0:
        literal = draw(NUMBERS)
        return f"value {sign} {literal!r}", asked(number, sign, literal)
    if which == 1:
        text = draw(TEXTS)
        return f"{name} {sign} {quoted(text)}", asked(operator.itemgetter(name), sign, text)
    if which == 2:
        texts = draw(st.lists(TEXTS, min_size=1, max_size=3))
        return f"{name} in ({', '.join(map(quoted, texts))})", among(operator.itemgetter(name), texts)
    if which == 3:
        items = draw(st.lists(NUMBERS, min_size=1, max_size=3))
        return f"value not in ({', '.join(map(repr, items))})", negated(among(number, items))
    if which == 4:
        return f"{name} is null", lambda row: row[name] is None
    if which == 5:
        return "value is not null", lambda row: number(row) is not None
    return "registered", operator.itemgetter("registered")


def joined(parts: st.SearchStrategy[tuple[str, Meaning]]) -> st.SearchStrategy[tuple[str, Meaning]]:
    pairs = st.tuples(parts, parts)
    return st.one_of(
        pairs.map(lambda p: (f"({p[0][0]}) and ({p[1][0]})", both(p[0][1], p[1][1]))),
        pairs.map(lambda p: (f"({p[0][0]}) or ({p[1][0]})", either(p[0][1], p[1][1]))),
        parts.map(lambda p: (f"not ({p[0]})", negated(p[1]))),
    )


ANY = st.recursive(simple(), joined, max_leaves=6)


@given(st.lists(ANY, min_size=20, max_size=40))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_spark_agrees_with_plain_python(spark: SparkSession, found: list[tuple[str, Meaning]]) -> None:
    frame = records(spark, ROWS)
    columns = [conditions.fits(text).alias(f"c{position}") for position, (text, _) in enumerate(found)]
    for row in frame.select(F.struct(*frame.columns).alias("record"), *columns).collect():
        record = row.record.asDict()
        for position, (text, meaning) in enumerate(found):
            assert row[f"c{position}"] is meaning(record), (text, record)


def test_and_binds_tighter_than_or_and_not_tightest() -> None:
    whole = conditions.parse("registered or registered and not registered").tree
    assert whole is not None
    either: Any = whole.children[0]
    assert either.data == "any_"
    assert either.children[1].data == "all_"
    assert either.children[1].children[1].data == "negated"
