"""Laws of the stage normalise, for many generated messages at once: nothing is dropped, every row is well formed."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.frames import messages
from tidegate.pipeline.normalise import normalise
from tidegate.pipeline.rules import parse

RULES = parse(
    """\
version: 1
sources:
  - id: strict
    topic: a
    records: /r
    time: {at: /ts, form: s}
    source: /s
    values: [{name: t, at: /t, unit: C, to: F}, {name: w, at: /w, kind: text}]
    keep: [/k]
  - id: lenient
    topic: b
    values:
      - {name: t, at: /t, required: false}
      - {name: w, at: /w, kind: text, required: false}
      - {name: o, at: /o/0, kind: boolean, required: false}
  - {id: bare, topic: c, values: [{name: v, at: ""}]}
""",
    "rules.yaml",
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([1772443800, "21.5", "2026-03-02T09:30:00Z"])
)
KEYS = st.sampled_from(["t", "w", "o", "r", "s", "k", "ts", "0", ""])
DOCUMENTS = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=4) | st.dictionaries(KEYS, below, max_size=6), max_leaves=20
)
GOOD = st.fixed_dictionaries(
    {"t": st.floats(-50, 50) | SCALARS, "w": st.text(max_size=3) | SCALARS, "ts": st.just(1772443800), "k": SCALARS}
)
NEARLY = st.fixed_dictionaries({"s": st.just("s1") | SCALARS, "r": GOOD | st.lists(GOOD | DOCUMENTS, max_size=5)})
PAYLOADS = (
    st.one_of(DOCUMENTS, NEARLY, GOOD, st.lists(GOOD, max_size=4)).map(lambda each: json.dumps(each).encode())
    | st.binary(max_size=12)
    | st.none()
)
MESSAGES = st.fixed_dictionaries({"topic": st.sampled_from(["a", "b", "c", "d"]) | st.none(), "payload": PAYLOADS})


@settings(max_examples=3, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(sent=st.lists(MESSAGES, min_size=150, max_size=200))
def test_laws(spark: SparkSession, sent: list[dict[str, Any]]) -> None:
    rows = normalise(messages(spark, sent), RULES).collect()
    rows.sort(key=lambda row: (row.shard, row.offset, row.part))
    by_message = {offset: list(group) for offset, group in groupby(rows, key=lambda row: row.offset)}
    assert list(by_message) == list(range(len(sent)))
    for offset, made in by_message.items():
        assert [row.part for row in made] == list(range(len(made)))
        assert [row.id for row in made] == [f"node-1-{offset:x}.{part + 1}" for part in range(len(made))]
        assert {row.topic for row in made} == {sent[offset]["topic"]}
        faulty = [row for row in made if row.fault is not None]
        assert [row.payload for row in faulty[:1]] == [sent[offset]["payload"]] * len(faulty[:1])
        assert all(row.payload is None for row in made if row not in faulty[:1])
        for row in made:
            nothing = row.value is None and row.text is None
            assert (row.fault is not None) == nothing
            assert (row.name is None) == nothing
            assert (row.measured_at is None) == nothing
            assert row.value is None or abs(row.value) < float("inf")
            assert row.extra is None or isinstance(json.loads(row.extra), dict)
            assert row.owner == "t1"
