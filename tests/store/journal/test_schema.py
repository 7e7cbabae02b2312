"""The columns are those of the published format, and older versions are read."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from store.journal.trial import NOON, Trial, one_line, segments
from tidegate.errors import StoreError
from tidegate.store.journal import (
    AUDIT,
    INGEST,
    STREAMS,
    TRAFFIC,
    Stream,
    ingest_row,
    schema,
    stream_named,
    traffic_row,
)
from tidegate.store.journal.rows import ROW
from tidegate.store.journal.schema import conform, read_schema

COLUMNS = {
    "ingest": "shard, offset, received_at, id, topic, payload, qos, retain, content_type, properties, source, "
    "source_kind, registered, mode, client, user, level, floor, context, policy_version",
    "audit": "shard, offset, at, node, kind, link, user, client, action, topic, stage, rule, policy_version, count, "
    "detail, publisher",
}
COLUMNS["traffic"] = COLUMNS["ingest"] + ", event, filter, options, attributes, target"


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_columns(stream: Stream) -> None:
    layout = schema(stream)
    assert layout.names == COLUMNS[stream.name].split(", ")
    assert layout.metadata == {b"tidegate": b"1", b"stream": stream.name.encode()}
    assert layout.field(stream.time).type == pa.timestamp("us", tz="UTC")
    assert not layout.field("offset").nullable


MESSAGE: dict[str, Any] = {
    "received_at": NOON,
    "id": "6f3c-1a-2b7f",
    "topic": "raw/ä",
    "payload": b"\x00\xff",
    "qos": 1,
    "retain": False,
    "content_type": "application/json",
    "properties": [("b", "2"), ("a", "1"), ("b", "")],
    "source": "sensor-1",
    "source_kind": "http",
    "registered": True,
    "mode": "push",
    "client": "c",
    "user": "u",
    "level": "tls",
    "floor": "plain",
    "context": b"\x01ctx",
    "policy_version": "17-3fa9c1d2e4b5",
}
MORE = {"event": "subscribe", "filter": "a/#", "options": 0x2E, "attributes": '{"role":"x"}', "target": "t"}


@pytest.mark.parametrize(
    ("stream", "values"), [(INGEST, MESSAGE), (TRAFFIC, MESSAGE | MORE)], ids=["ingest", "traffic"]
)
def test_every_column_of_a_message(tmp_path: Path, stream: Stream, values: dict[str, Any]) -> None:
    assert stream.columns == tuple(values)
    trial = Trial(tmp_path, stream)
    trial.write(stream.row(**values))
    trial.close()
    (found,) = one_line(segments(trial.data, stream)[0]).to_pylist()
    assert (found.pop("shard"), found.pop("offset")) == (0, 0)
    found["received_at"] = found["received_at"].timestamp()
    found["properties"] = [tuple(pair.values()) for pair in found["properties"]]
    assert found == values


def test_what_is_absent_is_null(tmp_path: Path) -> None:
    trial = Trial(tmp_path, TRAFFIC)
    trial.write(traffic_row(NOON, event="disconnect", client="c"))
    trial.close()
    (found,) = one_line(segments(tmp_path, TRAFFIC)[0]).to_pylist()
    assert {name for name, value in found.items() if value is not None} == {
        "shard",
        "offset",
        "received_at",
        "event",
        "client",
    }


def test_weight_counts_what_may_be_long() -> None:
    for stream, fields in (
        (AUDIT, ("topic", "detail")),
        (INGEST, ("topic", "payload")),
        (TRAFFIC, ("topic", "payload", "filter", "attributes")),
    ):
        assert stream.weigh(stream.row(NOON)) == ROW
        for field in fields:
            assert stream.weigh(stream.row(NOON, **{field: "x" * 1000})) == ROW + 1000, field
    assert INGEST.weigh(ingest_row(NOON, properties=[("ab", "cde")] * 10)) == ROW + 50


def test_the_collector_forgets_rows() -> None:
    rows = [stream.row(NOON) for stream in STREAMS.values()]
    gc.collect()
    assert not any(map(gc.is_tracked, rows))


def test_an_older_version_has_the_current_columns() -> None:
    layout = schema(AUDIT)
    older = pa.schema(
        [("shard", pa.int32()), ("offset", pa.int64()), ("at", layout.field("at").type), ("count", pa.int32())],
        metadata={"tidegate": "0", "stream": "audit"},
    )
    found = read_schema(older.serialize().to_pybytes(), AUDIT)
    batch = pa.RecordBatch.from_pylist([{"shard": 0, "offset": 7, "at": 1, "count": 3}], schema=found)
    conformed = conform(batch, AUDIT)
    assert conformed.schema == layout
    (row,) = conformed.to_pylist()
    assert (row["offset"], row["count"], row["detail"]) == (7, 3, None)
    assert conform(conformed, AUDIT) is conformed


def test_what_is_not_for_us_is_said() -> None:
    layout = schema(AUDIT)
    newer = layout.with_metadata({"tidegate": "2", "stream": "audit"}).serialize().to_pybytes()
    with pytest.raises(StoreError, match="version 2"):
        read_schema(newer, AUDIT)
    with pytest.raises(StoreError, match="stream 'audit'"):
        read_schema(layout.serialize().to_pybytes(), TRAFFIC)
    assert read_schema(layout.with_metadata(None).serialize().to_pybytes(), AUDIT) is None
    assert read_schema(b"\xff" * 100, AUDIT) is None
    with pytest.raises(StoreError, match="audit, traffic, ingest"):
        stream_named("audits")
    assert stream_named("audit") is AUDIT
