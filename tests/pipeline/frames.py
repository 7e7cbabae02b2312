"""Small frames for the stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate.pipeline.columns import ASSIGNED, INGEST, RECORD, SCORED, struct

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def messages(spark: SparkSession, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """As the journal gives them; what is not said is what a registered thermometer would say."""
    usual: dict[str, Any] = {
        "shard": 0,
        "received_at": NOON,
        "topic": "raw/temperature/t1",
        "payload": b'{"t": 21.5}',
        "qos": 1,
        "retain": False,
        "source": "t1",
        "source_kind": "temperature",
        "registered": True,
        "mode": "wireless",
        "client": "t1",
        "user": "t1",
        "level": "plain",
        "floor": "plain",
        "context": b"\x01\xa0",
        "policy_version": "1-000000000000",
    }
    made = []
    for offset, row in enumerate(rows):
        one = {**usual, "offset": offset, "id": f"node-1-{offset:x}", **row}
        made.append(tuple(one.get(name) for name, _ in INGEST))
    return spark.createDataFrame(made, struct(INGEST))


def records(spark: SparkSession, rows: Iterable[Mapping[str, Any]], *, scored: bool = False) -> DataFrame:
    """As `normalise` gives them; with `scored`, as `assign` does."""
    usual: dict[str, Any] = {
        "shard": 0,
        "part": 0,
        "source": "t1",
        "type": "temperature",
        "mode": "wireless",
        "schema": "thermo",
        "name": "temperature",
        "value": 21.5,
        "unit": "C",
        "measured_at": NOON,
        "received_at": NOON,
        "topic": "raw/temperature/t1",
        "registered": True,
        "client": "t1",
        "owner": "t1",
        "level": "plain",
        "floor": "plain",
        "context": b"\x01\xa0",
        "policy_version": "1-000000000000",
        "scores": (None,) * 8,
        "rules_version": "0" * 12,
    }
    columns = (*RECORD, *SCORED, *ASSIGNED) if scored else RECORD
    made = []
    for offset, row in enumerate(rows):
        one = {**usual, "offset": offset, "id": f"node-1-{offset:x}.1", **row}
        made.append(tuple(one.get(name) for name, _ in columns))
    return spark.createDataFrame(made, struct(columns))
