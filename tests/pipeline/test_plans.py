"""A plan that is run again reads what it is told, and makes of it what a new one would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from store.journal.trial import NOON, Trial
from tidegate.pipeline import plans, series_statistics, stages
from tidegate.pipeline.lake import Place
from tidegate.pipeline.lake.erase import Tombstone, bury
from tidegate.pipeline.lake.swap import swapping
from tidegate.pipeline.plans import Plan, Plans
from tidegate.pipeline.rules import Rules, parse
from tidegate.pipeline.source.shards import Range, Shards
from tidegate.store.journal import INGEST, ingest_row

RULES = """\
version: 1
sources: [{id: thermo, topic: raw/+, source: /s, time: {at: /ts, form: s}, values: [{name: temperature, at: /t}]}]
scores:
  - {id: usual, dimension: accuracy, check: deviates_from_history, args: {good: 2, bad: 6, count: 3, floor: 0.5}}
  - {id: others, dimension: accuracy, check: deviates_from_neighbours, args: {good: 2, bad: 6, count: 2}}
  - {id: alive, dimension: accuracy, check: not_stuck, args: {good: 2, bad: 5}}
  - {id: fine, dimension: precision, check: resolution, args: {good: 0.1, bad: 1, count: 2}}
  - {id: steady, dimension: completeness, check: no_gaps, args: {good: 2s, bad: 9s}}
topics: [{id: all, topic: "scored/{source}"}]
"""
SIMPLE = "\n".join(line for line in RULES.splitlines() if "dimension:" not in line)
"""Nothing is asked of a record."""


class Yard:
    """A journal of 60 messages of four sources, and an empty lake."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.spark = spark
        self.data = folder / "data"
        self.lake = folder / "lake"
        Place.open(self.lake, create=True)
        journal = Trial(self.data, INGEST)
        journal.write(*(ingest_row(NOON + number, **self._message(number)) for number in range(60)))
        journal.close()
        self.plans = Plans(spark, [])
        self.planned = 0
        self.known = series_statistics.empty()

    @staticmethod
    def _message(number: int) -> dict[str, Any]:
        said = {"s": f"s{number % 4}", "ts": NOON + number, "t": 20 + (number * 7) % 5 / 2}
        payload = json.dumps(said).encode() if number % 10 else b"{"
        return {
            "id": f"{number}",
            "topic": "raw/t",
            "payload": payload,
            "user": f"user{number % 2}",
            "context": b"\x01",
        }

    def messages(self, tasks: int = 1) -> DataFrame:
        self.planned += 1
        return plans.messages(self.spark, Shards(path=self.data, stream="ingest"), self.lake, tasks=tasks)

    def tell(self, start: int, stop: int, history: Path | None = None) -> None:
        self.known = series_statistics.empty() if history is None else series_statistics.read(history)
        plans.set_input(self.spark, [Range(0, start, stop)], history)

    def again(self, rules: str = RULES) -> tuple[list[Any], pa.Table | None]:
        with self.plans.again(self.messages, _parsed(rules), self.known) as plan:
            return _run(plan)

    def once(self, rules: str = RULES) -> tuple[list[Any], pa.Table | None]:
        with self.plans.once(self.messages(3), _parsed(rules), self.known if "history" in rules else None) as plan:
            return _run(plan)


def _parsed(text: str) -> Rules:
    return parse(text, "rules.yaml")


def _run(plan: Plan) -> tuple[list[Any], pa.Table | None]:
    rows = plan.made.localCheckpoint().orderBy("offset", "part").collect()
    return rows, None if plan.observed is None else plan.observed.toArrow().sort_by([("source", "ascending")])


@pytest.fixture
def yard(tmp_path: Path, spark: SparkSession) -> Iterator[Yard]:
    made = Yard(tmp_path, spark)
    yield made
    made.plans.forget()
    spark.sparkContext.setLocalProperty("tidegate.reading", None)


def test_each_run_reads_what_it_is_told_and_is_planned_once(yard: Yard, tmp_path: Path) -> None:
    for rules in (RULES, SIMPLE):
        yard.planned = 0
        history = None
        for start, stop in ((0, 21), (21, 22), (30, 60), (0, 21)):
            yard.tell(start, stop, history)
            rows, observed = yard.again(rules)
            assert [row.offset for row in rows] == list(range(start, stop))
            assert [row.fault is None for row in rows] == [offset % 10 != 0 for offset in range(start, stop)]
            planned = yard.planned
            assert (rows, observed) == yard.once(rules)
            yard.planned = planned
            if observed is not None and history is None:
                assert sum(observed["count"].to_pylist()) == 18
                history = tmp_path / "history.parquet"
                series_statistics._write(observed.cast(series_statistics.schema()), history)
        assert yard.planned == 1


def test_the_history_counts(yard: Yard, tmp_path: Path) -> None:
    yard.tell(0, 20)
    first, observed = yard.again()
    assert observed is not None
    series_statistics._write(observed.cast(series_statistics.schema()), tmp_path / "history.parquet")
    yard.tell(0, 20, tmp_path / "history.parquet")
    second, _ = yard.again()
    assert [row.value for row in first] == [row.value for row in second]
    assert [row.scores for row in first] != [row.scores for row in second]


def test_other_rules_have_a_plan_of_their_own(yard: Yard) -> None:
    yard.tell(0, 9)
    before, _ = yard.again()
    after, _ = yard.again(RULES.replace("scored/", "other/"))
    assert {row.target for row in before if row.target} == {f"scored/s{number}" for number in range(4)}
    assert {row.target for row in after if row.target} == {f"other/s{number}" for number in range(4)}
    assert yard.planned == 2


def test_what_fails_ends_the_plan(yard: Yard) -> None:
    yard.tell(0, 9)
    with pytest.raises(AssertionError), yard.plans.again(yard.messages, _parsed(RULES), yard.known) as plan:
        assert _run(plan) is None
    yard.tell(9, 20)
    assert [row.offset for row in yard.again()[0]] == list(range(9, 20))
    assert yard.planned == 2


@pytest.mark.parametrize("rules", [RULES, SIMPLE], ids=["evidence", "simple"])
def test_a_plan_that_moves_rows_is_not_run_twice(yard: Yard, rules: str) -> None:
    def messages() -> DataFrame:
        return yard.messages().repartition(2)

    for start in (0, 9, 18):
        yard.tell(start, start + 9)
        with yard.plans.again(messages, _parsed(rules), yard.known if rules is RULES else None) as plan:
            assert [row.offset for row in _run(plan)[0]] == list(range(start, start + 9))
    assert yard.planned == 4  # the first was looked at, and not kept


def test_nor_is_one_that_spark_may_change(yard: Yard, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        for start in (0, 9):
            yard.tell(start, start + 9)
            assert [row.offset for row in yard.again()[0]] == list(range(start, start + 9))
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    assert yard.planned == 3


def test_a_task_that_is_told_nothing_fails(yard: Yard, spark: SparkSession) -> None:
    spark.sparkContext.setLocalProperty("tidegate.reading", None)
    with pytest.raises(Exception, match="not told what to read"):
        yard.messages().collect()


def test_what_is_lost_is_not_passed_over(yard: Yard) -> None:
    yard.tell(50, 70)
    with pytest.raises(Exception, match="10 of the rows from offset 50 to before 70 are gone"):
        yard.messages().collect()


def test_who_was_erased_is_not_read(yard: Yard) -> None:
    place = Place.open(yard.lake)
    with swapping(place):
        bury(place, Tombstone(user="user1", before=datetime.fromtimestamp(NOON + 10, UTC)))
    yard.tell(0, 20)
    rows, _ = yard.again()
    assert [row.offset for row in rows] == [number for number in range(20) if number % 2 == 0 or number >= 10]


def test_rows_of_another_batch_are_noticed(yard: Yard) -> None:
    yard.tell(0, 9)
    with yard.plans.again(yard.messages, _parsed(SIMPLE), None) as plan:
        assert stages._addressed(plan.made, [Range(0, 0, 9)]).records == 9
        for wrong in (Range(0, 9, 20), Range(0, 0, 8), Range(0, 1, 9), Range(1, 0, 9)):
            with pytest.raises(RuntimeError, match="are not of this batch"):
                stages._addressed(plan.made, [wrong])


def test_pieces_are_shared_out_among_tasks(yard: Yard) -> None:
    yard.tell(0, 60)
    assert sorted(row.offset for row in yard.messages(7).collect()) == list(range(60))
