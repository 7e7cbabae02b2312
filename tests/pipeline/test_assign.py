"""The stage assign: which topic, and when none."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.frames import records
from tidegate.errors import PipelineError
from tidegate.pipeline.assign import assign
from tidegate.pipeline.columns import ASSIGNED, RECORD, struct
from tidegate.pipeline.rules import Rules, Target

RULES = Rules(
    version_text="0" * 12,
    topics=(
        Target(id="hot", types=("temperature",), filter="value > 30", topic="alarm/{source}"),
        Target(id="weather", types=("temperature", "wind"), topic="weather/{type}/{source}/{name}"),
        Target(id="own", types=("own",), topic="{mode}"),
        Target(id="rest", filter="registered", topic="rest/{schema}/x"),
    ),
)

CASES: list[tuple[dict[str, Any], str | None]] = [
    ({}, "weather/temperature/t1/temperature"),
    ({"value": 31.0}, "alarm/t1"),
    ({"value": None}, "weather/temperature/t1/temperature"),
    ({"type": "wind", "value": 31.0}, "weather/wind/t1/temperature"),
    ({"type": "x"}, "rest/thermo/x"),
    ({"type": None}, "rest/thermo/x"),
    ({"type": "x", "registered": False}, None),
    ({"type": "x", "registered": None}, None),
    ({"type": "x", "schema": "thermo/1"}, None),
    ({"source": "a/b"}, None),
    ({"source": "a+"}, None),
    ({"source": "#"}, None),
    ({"source": "a\0b"}, None),
    ({"source": ""}, None),
    ({"source": None}, None),
    ({"source": None, "value": 31.0}, None),  # the first that fits counts, also when it makes no topic
    ({"source": "$t 🌊\n{type}"}, "weather/temperature/$t 🌊\n{type}/temperature"),
    ({"type": "own", "mode": "wired"}, "wired"),
    ({"type": "own", "mode": "$SYS"}, None),
    ({"value": 31.0, "source": "s" * 65_529}, "alarm/" + "s" * 65_529),
    ({"value": 31.0, "source": "s" * 65_528 + "ü"}, None),  # counted in bytes
    ({"fault": "broken"}, None),
]


def test_the_first_that_fits(spark: SparkSession) -> None:
    frame = assign(records(spark, [row for row, _ in CASES]), RULES)
    assert frame.schema.fieldNames() == struct((*RECORD, *ASSIGNED)).fieldNames()
    found = {row.offset: row.target for row in frame.select("offset", "target").collect()}
    assert [found[offset] for offset in range(len(CASES))] == [target for _, target in CASES]


def test_without_templates_nothing_is_published(spark: SparkSession) -> None:
    (row,) = assign(records(spark, [{}]), Rules(version_text="0" * 12)).collect()
    assert row.target is None


def test_a_wrong_filter_is_told(spark: SparkSession) -> None:
    wrong = Rules(version_text="0" * 12, topics=(Target(id="x", filter="valeu > 3", topic="x"),))
    with pytest.raises(PipelineError, match="did you mean `value`"):
        assign(records(spark, [{}]), wrong)
