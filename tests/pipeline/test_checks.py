"""Each check on a few records, written out; and what is told about arguments that are wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.frames import NOON, records
from tidegate.errors import PipelineError
from tidegate.pipeline import checks
from tidegate.pipeline.checks import registry
from tidegate.pipeline.columns import DIMENSIONS
from tidegate.pipeline.conditions import Kind
from tidegate.pipeline.rules import Score

HISTORY = (
    "source string, name string, count bigint, mean double, deviation double, "
    "last_value double, last_at timestamp, run bigint, decimals double"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A rule, some records, and what it says of them; `history` is (source, what is known of it)."""

    rule: Score
    rows: Sequence[dict[str, Any]]
    scores: Sequence[float | None]
    history: Sequence[tuple[str, dict[str, Any]]] = ()


def rule(check: str, **args: Any) -> Score:
    return Score(id="r", dimension=registry.REGISTRY[check].dimensions[0], check=check, args=args)


def values(*found: float | None, source: str = "") -> list[dict[str, Any]]:
    return [{"value": None if value is None else float(value), "source": source} for value in found]


def later(*seconds: float | None, source: str = "") -> list[dict[str, Any]]:
    """Records measured so many seconds after noon, received at noon."""
    times = [None if found is None else NOON + timedelta(seconds=found) for found in seconds]
    return [{"measured_at": time, "source": source} for time in times]


def rows(column: str, *found: Any) -> list[dict[str, Any]]:
    return [{column: value} for value in found]


KNOWN = {
    "count": 100,
    "mean": 20.0,
    "deviation": 1.0,
    "last_value": 20.0,
    "last_at": NOON,
    "run": 1,
    "decimals": 1.0,
}
TEN_AGO = ("late", {"last_at": NOON - timedelta(seconds=10)})
LEVELS = rows("floor", "plain", "tls", "mtls", "trusted", "unheard-of", None)
EXTRAS = rows(
    "extra",
    None,
    '{"battery": 3}',
    '{"Email": "a@b"}',
    '{"who": {"email" : "a@b"}}',
    '{"note": "\\"email\\": none"}',
    '{"/who/email": "a@b"}',
    '{"emails": 1}',
    '{"a.b": 1, "axb": 2}',
)
NEIGHBOURS = [
    *({"source": f"s{number}", "value": 20 + number / 10} for number in range(5)),
    *values(*[90.0] * 9, source="s5"),  # much of one source is still one source
    {"source": "w1", "type": "wind", "value": 500.0},
    {"source": "s6", "value": None, "text": "on"},
    {"source": "s7", "value": 1000.0, "fault": "broken"},
]

CASES = {
    "in_range": Case(
        rule=rule("in_range", column="value", min=-40, max=60, soft=10),
        rows=values(-40, 60, 62.5, -45, 70, 1e308, math.nan, -math.inf, None),
        scores=[1, 1, 0.75, 0.5, 0, 0, 0, 0, None],
    ),
    "in_range, hard": Case(rule=rule("in_range", min=0, max=1), rows=values(0, 1, 1.001, -0.0), scores=[1, 1, 0, 1]),
    "deviates_from_history": Case(
        rule=rule("deviates_from_history"),
        rows=[
            *values(20, 23, 24.5, 26, 1e300, math.nan, None),
            *values(90, source="new"),
            *values(20, 20.1, source="constant"),
            *values(20, source="unheard-of"),
        ],
        scores=[1, 1, 0.5, 0, 0, None, None, None, 1, 0, None],
        history=[("", {}), ("new", {"count": 5}), ("constant", {"deviation": 0.0})],
    ),
    "deviates_from_history, floor": Case(
        rule=rule("deviates_from_history", floor=0.1),
        rows=values(20.1),
        scores=[1],
        history=[("", {"deviation": 0.0})],
    ),
    "deviates_from_neighbours": Case(
        rule=rule("deviates_from_neighbours"),
        rows=NEIGHBOURS,
        scores=[*[1.0] * 5, *[0.0] * 9, None, None, None],
    ),
    "deviates_from_neighbours, too few": Case(
        rule=rule("deviates_from_neighbours", count=6), rows=NEIGHBOURS, scores=[None] * len(NEIGHBOURS)
    ),
    "deviates_from_neighbours, huge": Case(
        rule=rule("deviates_from_neighbours"),
        rows=[{"source": f"s{number}", "value": 1.7e308 * (-1) ** number} for number in range(6)],
        scores=[None] * 6,
    ),
    "not_stuck": Case(
        rule=rule("not_stuck", good=4, bad=8),
        rows=[
            *values(*[5.0] * 6),
            *values(*[5.0] * 6, 5.5, source="varies"),
            *values(None, source="text"),
            *values(20.0, source="still"),
            *values(20.1, source="moves"),
        ],
        scores=[*[0.5] * 6, *[1.0] * 7, None, 0.5, 1],
        history=[("still", {"run": 5}), ("moves", {"run": 5})],
    ),
    "decimals": Case(
        rule=rule("decimals", good=2, bad=0),
        rows=[
            *values(21.0, source="none"),
            *values(21.0, 21.5, None, source="one"),
            *values(21.0, -21.57, source="two"),
            *values(0.1 + 0.2, source="rounding"),
            *values(21.0, source="before"),
            *values(1e308, math.inf, math.nan, source="huge"),
        ],
        scores=[0, 0.5, 0.5, None, 1, 1, 0.5, 1, 0, None, None],
        history=[("before", {"decimals": 1.8})],
    ),
    "resolution": Case(
        rule=rule("resolution", good=0.25, bad=0.75, count=3),
        rows=[*values(1.0, 1.5, 2.5, 2.5), *values(1.0, 2.0, 2.0, source="few"), *values(1.0, source="one")],
        scores=[*[0.5] * 4, *[None] * 4],
    ),
    "spread_under": Case(
        rule=rule("spread_under", good=1, bad=2),
        rows=[*values(1), *values(1, source="other")],
        scores=[0.5, None],
        history=[("", {"deviation": 1.5})],
    ),
    "age_under": Case(
        rule=rule("age_under", good="2s", bad="60s"),
        rows=later(0, -2, -31, -60, -1e9, 5, None),
        scores=[1, 1, 0.5, 0, 0, 1, None],
    ),
    "not_in_future": Case(
        rule=rule("not_in_future", skew="1s", bad="3s"), rows=later(-9, 1, 2, 3, 1e9), scores=[1, 1, 0.5, 0, 0]
    ),
    "present": Case(
        rule=rule("present", columns=["unit", "value", "measured_at", "registered"]),
        rows=[
            {},
            {"unit": ""},
            {"unit": None, "value": math.nan},
            {"unit": None, "value": None, "measured_at": None},
        ],
        scores=[1, 0.75, 0.5, 0.25],
    ),
    "has_unit": Case(
        rule=rule("has_unit"),
        rows=[{}, {"unit": None}, {"unit": ""}, {"value": None, "text": "on", "unit": None}],
        scores=[1, 0, 0, None],
    ),
    "expected_rate": Case(
        rule=rule("expected_rate", interval="1s"),
        rows=[
            *later(0, 1, 2, 3, source="all"),
            *later(3, 0, source="half"),
            *later(0, source="one"),
            *later(0, 0, 0, source="same"),
            *later(0, source="late"),
            *later(-20, source="older"),  # than what is known: no gap
            *later(None, source="timeless"),
        ],
        scores=[*[1.0] * 4, 0.5, 0.5, 1, 1, 1, 1, 0.1, 1, None],
        history=[TEN_AGO, ("older", {})],
    ),
    "no_gaps": Case(
        rule=rule("no_gaps", good="2s", bad="4s"),
        rows=[
            *later(0, source="one"),
            *later(3, 0, source="gap"),
            *later(0, 1, 2, None, source="none"),
            *later(0, 1, source="late"),
        ],
        scores=[None, 0.5, 0.5, 1, 1, 1, 1, 0, 0],
        history=[TEN_AGO],
    ),
    "level_at_least": Case(rule=rule("level_at_least", level="mtls"), rows=LEVELS, scores=[0, 0.5, 1, 1, 0, None]),
    "level_at_least, lowest": Case(
        rule=rule("level_at_least", level="plain"), rows=LEVELS, scores=[1, 1, 1, 1, 1, None]
    ),
    "level_at_least, connection": Case(
        rule=rule("level_at_least", level="tls", of="level"), rows=[{"floor": "plain", "level": "tls"}], scores=[1]
    ),
    "level_at_least, own": Case(
        rule=rule("level_at_least", level="top", order=["low", "middle", "top"]),
        rows=rows("floor", "middle"),
        scores=[0.5],
    ),
    "level_for_category": Case(
        rule=rule("level_for_category", categories=["personal", "sensitive"], level="tls"),
        rows=[{"category": "personal", "floor": "tls"}, {"category": "personal"}, {"category": "other"}, {}],
        scores=[1, 0, None, None],
    ),
    "schema_in": Case(
        rule=rule("schema_in", schemas=["thermo", "x"]), rows=rows("schema", "thermo", "other", None), scores=[1, 0, 0]
    ),
    "in_order": Case(
        rule=rule("in_order", good="1s", bad="3s"),
        rows=[*later(5, 0, -2, -3, None), *later(-9, source="new")],
        scores=[1, 1, 0.5, 0, None, None],
        history=[("", {})],
    ),
    "category_in": Case(
        rule=rule("category_in", good=["generic"], bad=["sensitive"]),
        rows=rows("category", "generic", "sensitive", "other", None),
        scores=[1, 0, None, None],
    ),
    "owner_known": Case(rule=rule("owner_known"), rows=rows("owner", "mary", None, ""), scores=[1, 0, 0]),
    "no_personal_extra": Case(
        rule=rule("no_personal_extra", names=["email", "phone"]), rows=EXTRAS, scores=[1, 1, 0, 0, 1, 0, 1, 1]
    ),
    "no_personal_extra, a dot": Case(rule=rule("no_personal_extra", names=["a.b"]), rows=EXTRAS[-1:], scores=[0]),
    "no_personal_extra, no pattern": Case(rule=rule("no_personal_extra", names=["x.b"]), rows=EXTRAS[-1:], scores=[1]),
    "registered": Case(rule=rule("registered"), rows=rows("registered", True, False, None), scores=[1, 0, None]),
    "source_is_client": Case(
        rule=rule("source_is_client"), rows=[{}, *rows("client", "gateway", None)], scores=[1, 0, None]
    ),
    "a filter limits, and faults are not judged": Case(
        rule=Score(id="r", dimension="completeness", check="has_unit", filter="value > 3"),
        rows=[{}, {"value": 1.0}, {"fault": "broken"}],
        scores=[1, None, None],
    ),
}


@pytest.fixture(scope="module")
def said(spark: SparkSession) -> dict[str, list[float | None]]:
    """What the rule of each case says, all in one job; sources and types of a case are its own."""
    made, place, history = [], {}, []
    for id, case in CASES.items():
        place[id] = range(len(made), len(made) + len(case.rows))
        for row in case.rows:
            source = f"{id}/{row.get('source', '')}"
            made.append({"client": source, **row, "source": source, "type": f"{id}/{row.get('type', '')}"})
        history += [(f"{id}/{source}", "temperature", *(KNOWN | known).values()) for source, known in case.history]
    frame = checks.gathered(
        records(spark, made),
        checks.needed(case.rule for case in CASES.values()),
        spark.createDataFrame(history, HISTORY),
    )
    columns = [checks.column(case.rule).alias(f"c{number}") for number, case in enumerate(CASES.values())]
    found = {row.offset: row for row in frame.select("offset", *columns).collect()}
    assert len(found) == len(made)
    return {id: [found[offset][f"c{number}"] for offset in place[id]] for number, id in enumerate(CASES)}


@pytest.mark.parametrize("id", CASES)
def test_says(said: dict[str, list[float | None]], id: str) -> None:
    rounded = [None if score is None else round(score, 6) for score in said[id]]
    assert rounded == list(CASES[id].scores)


def test_every_check_is_shown() -> None:
    assert {case.rule.check for case in CASES.values()} == set(registry.REGISTRY)


def test_without_history_there_is_nothing_to_say(spark: SparkSession) -> None:
    found = checks.gathered(records(spark, [{}]), [checks.Evidence.HISTORY], None)
    (row,) = found.select(checks.column(rule("deviates_from_history")).alias("score")).collect()
    assert row.score is None


def test_every_dimension_has_checks() -> None:
    for dimension in DIMENSIONS:
        assert len([found for found in checks.listed() if dimension in found.dimensions]) >= 2, dimension
    for found in checks.listed():
        assert found.about.endswith("."), found.name


@pytest.mark.parametrize(
    ("check", "args", "problem"),
    [
        ("in_rnge", {}, "there is no check `in_rnge`; did you mean `in_range`?"),
        ("xyz", {}, "there is no check `xyz`; there is age_under, "),
        ("in_range", {"min": 1, "max": 2, "sotf": 1}, "`in_range` has no argument `sotf`; did you mean `soft`?"),
        ("in_range", {"min": 1}, "`in_range` needs `max`; add it to `args`: a number"),
        ("in_range", {"min": 5, "max": 3}, "`min` of `in_range` must be below `max`; write a smaller `min`"),
        ("in_range", {"min": 5, "max": 3e200}, "must be a number of at most 1e+150"),
        ("in_range", {"min": 5, "max": 10**400}, "must be a number of at most 1e+150"),
        ("in_range", {"min": 5, "max": math.nan}, "must be a number of at most 1e+150"),
        ("in_range", {"min": "5", "max": 9}, "`min` of `in_range` must be a number, not 5"),
        ("in_range", {"min": True, "max": 9}, "`min` of `in_range` must be a number, not True"),
        ("in_range", {"min": 1, "max": 2, "soft": -1}, "`soft` of `in_range` must be at least 0; write a larger one"),
        ("in_range", {"column": "valeu", "min": 1, "max": 2}, "not valeu; did you mean `value`?"),
        ("in_range", {"column": "unit", "min": 1, "max": 2}, "must be a column of numbers, and `unit` is one of kind"),
        ("age_under", {"good": "2 parsecs", "bad": "60s"}, "`good` of `age_under` must be a duration, not '2 parsecs'"),
        ("age_under", {"good": "2m", "bad": "60s"}, "`good` of `age_under` must be below `bad`"),
        ("decimals", {"good": 1.5}, "`good` of `decimals` must be a whole number of at most 1000000000, not 1.5"),
        ("present", {"columns": "unit"}, "`columns` of `present` must be a list of 1 to 256, not unit"),
        ("present", {"columns": ["payload"]}, "`columns` of `present` must be a column of a record, not payload"),
        ("present", {"columns": []}, "must be a list of 1 to 256"),
        ("has_unit", {"x": 1}, "`has_unit` has no argument `x`; it takes none; leave `args` out"),
        ("level_at_least", {"level": "tsl"}, "must be in `order`; write one of plain, tls, mtls, trusted"),
        ("level_at_least", {"level": "tls", "of": "x"}, "`of` of `level_at_least` must be floor or level, not x"),
        ("schema_in", {"schemas": ["a", 3]}, "`schemas` of `schema_in` must be a text, not 3; put it in quotes"),
    ],
)
def test_arguments_are_checked(check: str, args: dict[str, Any], problem: str) -> None:
    known = registry.REGISTRY.get(check)
    score = Score(id="r", dimension=known.dimensions[0] if known else "accuracy", check=check, args=args)
    (found,) = checks.problems(score)
    assert problem in found
    with pytest.raises(PipelineError):
        checks.column(score)


def test_dimension_and_filter_are_checked() -> None:
    score = Score(id="r", dimension="precisoin", check="in_range", args={"min": 1, "max": 2}, filter="valeu > 3")
    assert list(checks.problems(score)) == [
        "there is no dimension `precisoin`; did you mean `precision`?",
        "filter: there is no column `valeu` at character 1; did you mean `value`?",
    ]
    other = Score(id="r", dimension="privacy", check="in_range", args={"min": 1, "max": 2})
    assert list(checks.problems(other)) == ["`in_range` judges accuracy, not privacy; write `dimension: accuracy`"]


def test_a_check_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="no argument of a check"):

        @registry.check(dimension="accuracy")
        def impossible(*, when: dict[str, Kind]) -> None: ...

    with pytest.raises(ValueError, match="there already"):

        @registry.check(dimension="accuracy")
        def in_range() -> None: ...
