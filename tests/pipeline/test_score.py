"""The stage score: means, versions, and the law that nothing hostile leaves [0, 1] or makes or takes a row."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.frames import NOON, records
from tidegate.pipeline import checks, series_statistics
from tidegate.pipeline.columns import DIMENSIONS, RECORD, SCORED, struct
from tidegate.pipeline.rules import Rules, Score
from tidegate.pipeline.score import needs_history, score

RANGE = Score(id="range", dimension="accuracy", weight=2, check="in_range", args={"min": 0, "max": 50, "soft": 10})
WIND = Score(
    id="wind", dimension="accuracy", filter="type = 'wind'", check="in_range", args={"min": 0, "max": 1}, weight=1
)
FRESH = Score(id="fresh", dimension="timeliness", check="age_under", args={"good": "2s", "bad": "60s"})

ARGUMENTS: dict[str, dict[str, Any]] = {
    "in_range": {"min": -40, "max": 60, "soft": 10},
    "resolution": {"good": 0.1, "bad": 1, "count": 2},
    "spread_under": {"good": 1, "bad": 2, "count": 2},
    "age_under": {"good": "2s", "bad": "60s"},
    "present": {"columns": ["unit", "value", "extra"]},
    "expected_rate": {"interval": "1s"},
    "no_gaps": {"good": "1s", "bad": "9s"},
    "level_at_least": {"level": "mtls"},
    "level_for_category": {"categories": ["personal"], "level": "tls"},
    "schema_in": {"schemas": ["thermo"]},
    "category_in": {"good": ["generic"], "bad": ["personal"]},
    "no_personal_extra": {"names": ["email"]},
    "deviates_from_history": {"count": 2},
    "deviates_from_neighbours": {"count": 2},
}
EVERY = Rules(
    version_text="abcdef012345",
    scores=tuple(
        Score(id=f"{found.name}-{dimension}", dimension=dimension, check=found.name, args=ARGUMENTS.get(found.name, {}))
        for found in checks.listed()
        for dimension in found.dimensions
    ),
)


def test_means_are_weighted_over_what_was_said(spark: SparkSession) -> None:
    rules = Rules(version_text="0123456789ab", scores=(RANGE, WIND, FRESH))
    rows = [
        {"value": 55.0},
        {"value": 30.0, "type": "wind"},
        {"value": 55.0, "type": "wind", "measured_at": NOON - timedelta(seconds=31)},
        {"value": None, "text": "on", "measured_at": None},
        {"fault": "broken", "payload": b"x"},
    ]
    frame = score(records(spark, rows), rules)
    assert [(field.name, field.dataType) for field in frame.schema] == [
        (field.name, field.dataType) for field in struct((*RECORD, *SCORED))
    ]
    found = frame.orderBy("offset").collect()
    assert [(row.scores.accuracy, row.scores.timeliness) for row in found] == [
        (0.5, 1.0),
        (0.666667, 1.0),
        (0.333333, 0.5),
        (None, None),
        (None, None),
    ]
    others = [name for name in DIMENSIONS if name not in ("accuracy", "timeliness")]
    assert all(row.scores is not None and row.scores[name] is None for row in found for name in others)
    assert {row.rules_version for row in found} == {"0123456789ab"}


def test_without_rules_nothing_is_made_up(spark: SparkSession) -> None:
    (row,) = score(records(spark, [{}]), Rules(version_text="0" * 12)).collect()
    assert tuple(row.scores) == (None,) * 8


def test_large_weights(spark: SparkSession) -> None:
    heavy = [Score(id=str(n), dimension="completeness", check="has_unit", weight=1.7e308) for n in range(3)]
    (row,) = score(records(spark, [{}]), Rules(version_text="0" * 12, scores=tuple(heavy))).collect()
    assert row.scores.completeness == 1.0


def test_needs_history() -> None:
    assert not needs_history(Rules(version_text="0" * 12, scores=(RANGE, FRESH)))
    assert needs_history(EVERY)


def test_columns_are_left_as_they_were(spark: SparkSession) -> None:
    rows = [{"source": f"s{number % 4}", "value": float(number)} for number in range(20)]
    before = records(spark, rows)
    after = score(before, EVERY).select(*before.columns)
    assert sorted(map(repr, after.collect())) == sorted(map(repr, before.collect()))


NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1.7976931348623157e308, -1.7e308, 5e-324, 20.0]),
)
WORDS = st.one_of(st.none(), st.sampled_from(["", "a", "t1", "plain", "mtls", "personal", "thermo", "🌊"]))
TIMES = st.one_of(st.none(), st.integers(-(10**10), 2 * 10**11).map(lambda seconds: NOON + timedelta(seconds=seconds)))
ROW = st.fixed_dictionaries(
    {
        "value": NUMBERS,
        "source": WORDS,
        "name": WORDS,
        "type": WORDS,
        "unit": WORDS,
        "owner": WORDS,
        "category": WORDS,
        "floor": WORDS,
        "level": WORDS,
        "schema": WORDS,
        "client": WORDS,
        "measured_at": TIMES,
        "extra": st.sampled_from([None, "", "{", '{"email": 1}', "[]", '{"a": NaN}']),
        "registered": st.sampled_from([None, True, False]),
        "fault": st.sampled_from([None, None, None, "broken"]),
    }
)


@given(st.lists(ROW, min_size=30, max_size=60), st.lists(ROW, min_size=30, max_size=60))
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_scores_are_in_range_or_null_and_no_row_is_made_or_lost(
    spark: SparkSession, first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> None:
    state = series_statistics.empty()
    for rows in (first, second):
        frame = records(spark, rows)
        found = score(frame, EVERY, baselines=series_statistics.frame(spark, state)).collect()
        assert sorted(row.offset for row in found) == list(range(len(rows)))
        for row in found:
            for name in DIMENSIONS:
                one = row.scores[name]
                assert one is None or (row.fault is None and 0.0 <= one <= 1.0), (name, row)
        state = series_statistics.updated(state, series_statistics.observed(frame))
        for column in ("mean", "m2", "weight", "decimals", "last_value"):
            assert all(math.isfinite(value) for value in state[column].to_pylist())
