"""Columns that all stages use."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tidegate.errors import PipelineError
from tidegate.pipeline.columns import remembered, topic_matches
from tidegate.topics import matches

TOPICS = [
    "a",
    "a/",
    "/a",
    "a/b",
    "a/b/",
    "a/b/c",
    "ab",
    "ab/c",
    "$a",
    "$a/b",
    "/",
    "//",
    "ä/b",
    "ä/b/ö",
    "a/b\nc",
    "a.b/c",
]
FILTERS = [
    "#", "+/#", "+", "a", "a/#", "a/+", "a/b/#", "a/b/+", "a/+/c", "+/b", "+/b/#", "/+", "/#", "//", "$a/#", "$a/+",
    "ä/b/+", "ä/b/#", "a.b/+", "a/b", "+/+/+", "ä/+/ö",
]  # fmt: skip


def test_filters_match_as_in_the_broker(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(topic,) for topic in [*TOPICS, None]], "topic string")
    columns = [topic_matches(frame.topic, filter).alias(str(number)) for number, filter in enumerate(FILTERS)]
    for row in frame.select("topic", *columns).collect():
        for number, filter in enumerate(FILTERS):
            expected = None if row.topic is None else matches(filter, row.topic)
            assert row[str(number)] == expected, (filter, row.topic)


def test_a_filter_that_java_would_not_understand(spark: SparkSession) -> None:
    with pytest.raises(PipelineError, match="has a zero character"):
        topic_matches(spark.range(1).id.cast("string"), "a/\0/+")


def test_what_was_made_is_found_by_the_object_itself() -> None:
    made: list[tuple[int, ...]] = []

    @remembered
    def make(of: tuple[int, ...]) -> int:
        made.append(of)
        return len(made)

    first, alike = tuple([1, 2]), tuple([1, 2])  # noqa: C409 - not the same object
    assert (make(first), make(first), make(alike), make(first)) == (1, 1, 2, 1)
    for number in range(10):
        make((number,))
    assert make(first) == 13
