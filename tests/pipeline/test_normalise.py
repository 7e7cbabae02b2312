"""The stage normalise, on small frames written out: what becomes a record, and what is quarantined and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tidegate.pipeline.columns import INGEST, RECORD, ddl, struct
from tidegate.pipeline.map_elements import EXTRA, RECORDS
from tidegate.pipeline.normalise import normalise
from tidegate.pipeline.rules import Rules, parse

RECEIVED = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)

RULES = """\
version: 1
sources:
  - id: thermo
    type: temperature
    topic: "raw/temperature/+"
    schema: thermo/1
    as: heat
    time: {at: /ts}
    values: [{name: temperature, at: /t, unit: F, to: C}]
    keep: [/battery, /net/rssi]
  - id: station
    topic: "raw/station/#"
    records: /readings
    source: /sensor
    time: {at: /ts, form: s}
    values:
      - {name: t, at: /t, unit: C}
      - {name: state, at: /state, kind: text, required: false}
      - {name: "on", at: /on, kind: boolean, required: false}
    keep: [/battery]
  - id: maybe
    topic: "raw/maybe"
    values: [{name: a, at: /a, required: false}, {name: b, at: /b, required: false}]
  - {id: bare, topic: "raw/bare", values: [{name: v, at: ""}]}
  - {id: pairs, topic: "raw/pairs", time: {at: /0, form: ms}, values: [{name: v, at: /1}]}
  - id: odd
    topic: "raw/odd"
    values:
      - {name: slash, at: /a~1b}
      - {name: tilde, at: /m~0n}
      - {name: empty, at: /}
      - {name: index, at: /list/1/x}
      - {name: digit, at: /object/1}
      - {name: strange, at: "/wh?t.[x]'s \\"this\\"/y"}
  - {id: kinds, type: [hygro, baro], values: [{name: v, at: /v}]}
"""


@pytest.fixture(scope="module")
def rules() -> Rules:
    return parse(RULES, "rules.yaml")


def message(payload: Any, **known: Any) -> dict[str, Any]:
    """A row of the journal; what is no bytes is sent as JSON."""
    sent = payload if isinstance(payload, bytes) or payload is None else json.dumps(payload).encode()
    row = {
        "shard": 0,
        "received_at": RECEIVED,
        "id": "6f3c-1a-7",
        "topic": "raw/bare",
        "payload": sent,
        "registered": False,
        "client": "c1",
        "user": "mary",
        "level": "tls",
        "floor": "plain",
        "context": b"\x01ctx",
        "policy_version": "17-3fa9c1d2e4b5",
    }
    return row | known


def frame(spark: SparkSession, *messages: dict[str, Any]) -> DataFrame:
    names = [name for name, _ in INGEST]
    rows = [tuple({"offset": offset, **each}.get(name) for name in names) for offset, each in enumerate(messages)]
    return spark.createDataFrame(rows, struct(INGEST))


def records(spark: SparkSession, rules: Rules, *messages: dict[str, Any]) -> list[Row]:
    made = normalise(frame(spark, *messages), rules)
    return sorted(made.collect(), key=lambda row: (row.offset, row.part))


def faults(spark: SparkSession, rules: Rules, *messages: dict[str, Any]) -> list[str | None]:
    return [row.fault for row in records(spark, rules, *messages)]


def test_a_record_has_every_column(spark: SparkSession, rules: Rules) -> None:
    sent = {"t": 212, "ts": "2026-03-02T10:29:58.5+01:00", "battery": 3.1, "net": {"rssi": -70, "x": 1}, "junk": "x"}
    known = {"topic": "raw/temperature/7", "source": "s7", "source_kind": "temperature", "registered": True}
    made = normalise(
        frame(spark, message(sent, **known, mode="push")),
        rules,
        categories=[("raw/humidity/#", "generic"), ("raw/+/7", "personal"), ("#", "other")],
    )
    assert [(field.name, field.dataType) for field in made.schema] == [
        (field.name, field.dataType) for field in struct(RECORD)
    ]
    [row] = made.collect()
    found = row.asDict()
    assert found.pop("value") == pytest.approx(100.0)
    assert _utc(found.pop("measured_at")) == RECEIVED - timedelta(seconds=1.5)
    assert _utc(found.pop("received_at")) == RECEIVED
    assert json.loads(found.pop("extra")) == {"battery": 3.1, "net/rssi": -70}
    assert found == {
        "shard": 0,
        "offset": 0,
        "part": 0,
        "id": "6f3c-1a-7.1",
        "source": "s7",
        "type": "heat",
        "mode": "push",
        "schema": "thermo/1",
        "name": "temperature",
        "text": None,
        "unit": "C",
        "topic": "raw/temperature/7",
        "registered": True,
        "client": "c1",
        "owner": "mary",
        "category": "personal",
        "level": "tls",
        "floor": "plain",
        "context": b"\x01ctx",
        "policy_version": "17-3fa9c1d2e4b5",
        "payload": None,
        "fault": None,
    }


def test_the_first_mapping_that_fits_type_and_topic(spark: SparkSession, rules: Rules) -> None:
    made = records(
        spark,
        rules,
        message({"v": 1}, topic="x", source_kind="baro"),
        message({"v": 1}, topic=None, source_kind="hygro", source="h", id=None),
        message({"t": 1}, topic="raw/temperature/1"),  # the topic alone does not do
        message({"t": 1}, topic="raw/temperature/1/2", source_kind="temperature"),  # nor the type
        message(b"\xff", topic="x"),
    )
    assert [(row.schema, row.type, row.source, row.id) for row in made] == [
        ("kinds", "baro", "c1", "6f3c-1a-7.1"),
        ("kinds", "hygro", "h", "0-1.1"),
        (None, None, "c1", "6f3c-1a-7.1"),
        (None, "temperature", "c1", "6f3c-1a-7.1"),
        (None, None, "c1", "6f3c-1a-7.1"),
    ]
    nothing = "fits no source of the rules; add one for its type or topic"
    assert [row.fault for row in made] == [None, None, nothing, nothing, nothing]
    assert [row.payload for row in made] == [None, None, b'{"t": 1}', b'{"t": 1}', b"\xff"]


def test_arrays_values_and_bad_elements(spark: SparkSession, rules: Rules) -> None:
    at = RECEIVED.timestamp()
    sent = {
        "sensor": "a",
        "battery": "low",
        "readings": [
            {"t": 1, "ts": at - 2.25, "state": "ok", "on": True},
            {"t": "2", "ts": at},
            {"t": 3, "ts": at, "sensor": 17, "on": False, "state": None, "battery": {"v": 3}},
            {"ts": at},
            7,
        ],
    }
    made = records(spark, rules, message(sent, topic="raw/station/1"))
    assert [(row.part, row.id, row.source, row.name, row.value, row.text, row.unit, row.extra) for row in made] == [
        (0, "6f3c-1a-7.1", "a", "t", 1.0, None, "C", '{"battery":"low"}'),
        (1, "6f3c-1a-7.2", "a", "state", None, "ok", None, '{"battery":"low"}'),
        (2, "6f3c-1a-7.3", "a", "on", 1.0, "true", None, '{"battery":"low"}'),
        (3, "6f3c-1a-7.4", "c1", None, None, None, None, None),
        (4, "6f3c-1a-7.5", "17", "t", 3.0, None, "C", '{"battery":{"v":3}}'),
        (5, "6f3c-1a-7.6", "17", "on", 0.0, "false", None, '{"battery":{"v":3}}'),
        (6, "6f3c-1a-7.7", "c1", None, None, None, None, None),
        (7, "6f3c-1a-7.8", "c1", None, None, None, None, None),
    ]
    assert [row.fault for row in made if row.fault] == [
        "element 1: `t` at `/t` is a text, not a number",
        "element 3: `t` at `/t` is missing",
        "element 4: the time at `/ts` is missing",
    ]
    assert _utc(made[0].measured_at) == RECEIVED - timedelta(seconds=2.25)
    # The whole message, once.
    assert [row.part for row in made if row.payload is not None] == [3]
    assert json.loads(made[3].payload) == sent
    assert {row.schema for row in made} == {"station"}


def test_records_may_be_one_object_or_missing(spark: SparkSession, rules: Rules) -> None:
    at = RECEIVED.timestamp()
    made = records(
        spark,
        rules,
        message({"sensor": "a", "readings": {"t": 1, "ts": at}}, topic="raw/station"),
        message({"sensor": "a"}, topic="raw/station"),
        message({"sensor": "a", "readings": []}, topic="raw/station"),
        message({"sensor": "", "readings": {"t": 1, "ts": at}}, topic="raw/station"),
        message({"sensor": ["a"], "readings": {"t": 1, "ts": at}}, topic="raw/station"),
        message({"sensor": "a", "readings": {"t": 1, "ts": at, "state": 5}}, topic="raw/station"),
        message({"sensor": "a", "battery": "x" * EXTRA, "readings": {"t": 1, "ts": at}}, topic="raw/station"),
        message({"sensor": "a", "readings": {"t": [1], "ts": at}}, topic="raw/station"),
    )
    assert [row.fault for row in made] == [
        None,
        "`/readings` is missing, where the records of `station` should be",
        "no value: none of those that the source may have is there",
        "the source at `/sensor` must have 1 to 256 characters",
        "the source at `/sensor` is an array, not a text",
        "`state` at `/state` is a number, not a text",
        f"what is kept has more than {EXTRA} characters; keep less",
        "`t` at `/t` is an array, not a number",
    ]


def test_optional_values(spark: SparkSession, rules: Rules) -> None:
    made = records(
        spark,
        rules,
        message({"b": 2}, topic="raw/maybe"),
        message({"a": None}, topic="raw/maybe"),
        message([{"a": 1}, {}, {"b": 3}], topic="raw/maybe"),
        message([{}, {}], topic="raw/maybe"),
    )
    nothing = "no value: none of those that the source may have is there"
    assert [(row.offset, row.part, row.name, row.value, row.fault) for row in made] == [
        (0, 0, "b", 2.0, None),
        (1, 0, None, None, nothing),
        (2, 0, "a", 1.0, None),
        (2, 1, "b", 3.0, None),
        (3, 0, None, None, nothing),
    ]
    assert [row.payload is not None for row in made] == [False, True, False, False, True]


def test_pointers(spark: SparkSession, rules: Rules) -> None:
    sent = {
        "a/b": 1,
        "m~n": 2,
        "": 3,
        "list": [{"x": 0}, {"x": 4}],
        "object": {"1": 5},
        'wh?t.[x]\'s "this"': {"y": 6},
    }
    made = records(spark, rules, message(sent, topic="raw/odd"))
    assert [(row.name, row.value, row.fault) for row in made] == [
        (name, float(value), None)
        for value, name in enumerate(["slash", "tilde", "empty", "index", "digit", "strange"], start=1)
    ]
    at = int(RECEIVED.timestamp() * 1000)
    made = records(spark, rules, message([[at, 1.5], [at + 1, 2.5]], topic="raw/pairs"))
    assert [(row.value, _utc(row.measured_at)) for row in made] == [
        (1.5, RECEIVED),
        (2.5, RECEIVED + timedelta(milliseconds=1)),
    ]


EMPTY = "the payload is empty; send JSON"
NOT_JSON = "the payload is not JSON, or nested too deep; send JSON, which has no NaN and no Infinity"
NEARLY = "the payload is not one strict JSON value: "
HOSTILE: list[tuple[bytes | None, float | str]] = [
    (b"21.5", 21.5),
    (b" \n-0.0\t", 0.0),
    (b"1e300", 1e300),
    (b"123456789012345678901234567890123456789012345", 1.2345678901234567e44),
    (b"0.1", 0.1),
    (b"9007199254740993", 9007199254740992.0),
    (b"1e400", "`v` at the top is too large for a number"),
    (b"-1e400", "`v` at the top is too large for a number"),
    (b"null", "`v` at the top is null"),
    (b'"21.5"', "`v` at the top is a text, not a number"),
    (b"true", "`v` at the top is a boolean, not a number"),
    (b"{}", "`v` at the top is an object, not a number"),
    (b"", EMPTY),
    (None, EMPTY),
    (b"  ", NOT_JSON),
    (b"NaN", NOT_JSON),
    (b"Infinity", NOT_JSON),
    (b"-Infinity", NOT_JSON),
    (b"01", NOT_JSON),
    (b"1,", "the payload is not "),
    (b"\xef\xbb\xbf1", NOT_JSON),
    (b'{"a":', NOT_JSON),
    (b"[" * 1500 + b"]" * 1500, NOT_JSON),
    (b'{"a": 1, "a": 2}', NEARLY),
    (b'{"a": 1}\n{"a": 2}', NEARLY),
    (b"1 2", NEARLY),
    (b"1,2", "the payload is not "),
    (b"1]", "the payload is not "),
    (b"1,0]", "the payload is not "),
    (b"1,0],x", "the payload is not "),
    (b'{"v": 1}, 0] "', "the payload is not "),
    (b"{'a': 1}", NEARLY),
    (b'"\\ud800"', "the payload is not "),
    (b'"\xff"', "the payload is not UTF-8; send JSON in UTF-8"),
    (b"\xed\xa0\x80", "the payload is not UTF-8; send JSON in UTF-8"),
    (b"[" * 900 + b"]" * 900, "element 0: `v` at the top is an array, not a number"),
    (b'"' + b"x" * (1 << 20) + b'"', "`v` at the top is a text, not a number"),
    (b"[" + b"1," * (RECORDS - 1) + b"1,1]", f"more than {RECORDS} elements; send fewer at once"),
]


def test_hostile_payloads(spark: SparkSession, rules: Rules) -> None:
    made = records(spark, rules, *(message(payload) for payload, _ in HOSTILE))
    assert [row.offset for row in made] == list(range(len(HOSTILE)))
    for row, (payload, expected) in zip(made, HOSTILE, strict=True):
        about = (payload or b"")[:40]
        if isinstance(expected, float):
            assert (row.value, row.fault, row.payload) == (expected, None, None), about
        else:
            assert (row.fault or "").startswith(expected), (about, row.fault)
            assert (row.value, row.text, row.part) == (None, None, 0), about
            assert row.payload == payload, about


def test_as_many_records_as_are_allowed(spark: SparkSession, rules: Rules) -> None:
    assert RECORDS == 4095, "the docs say so"
    bad = [1] * (RECORDS - 2) + ["x", "x"]
    made = records(spark, rules, message(bad))
    assert [row.part for row in made] == list(range(RECORDS))
    assert [row.part for row in made if row.fault] == [RECORDS - 2, RECORDS - 1]
    assert [row.part for row in made if row.payload] == [RECORDS - 2]


TIMES: list[tuple[str, Any, datetime | str]] = [
    ("iso", "2026-03-02T09:30:00Z", RECEIVED),
    ("iso", "2026-03-02 09:30:00", RECEIVED),
    ("iso", "2026-03-02T10:30:00+0100", RECEIVED),
    ("iso", "2026-03-02T04:30:00-05:00", RECEIVED),
    ("iso", "2026-03-02T09:29:59.999999999Z", RECEIVED - timedelta(microseconds=1)),
    ("iso", "2026-03-03T09:30:00Z", RECEIVED + timedelta(days=1)),
    ("s", RECEIVED.timestamp(), RECEIVED),
    ("s", RECEIVED.timestamp() - 0.123456, RECEIVED - timedelta(microseconds=123456)),
    ("ms", int(RECEIVED.timestamp()) * 1000, RECEIVED),
    ("us", int(RECEIVED.timestamp()) * 1_000_000, RECEIVED),
    ("iso", "2026-02-30T09:30:00Z", "is not in ISO 8601"),
    ("iso", "09:30", "is not in ISO 8601"),
    ("iso", "2026-03-02T09:30Z", "is not in ISO 8601"),
    ("iso", "2026", "is not in ISO 8601"),
    ("iso", "2026-03-02", "is not in ISO 8601"),
    ("iso", "2026-03-02T09:30:00+99:00", "is not in ISO 8601"),
    ("iso", "2026-03-02T09:30:00 Europe/Berlin", "is not in ISO 8601"),
    ("iso", "", "is not in ISO 8601"),
    ("iso", 1772443800, "is not in ISO 8601"),
    ("iso", None, "is not in ISO 8601"),
    ("s", "1772443800", "is not a number of s"),
    ("s", 1e300, "is out of range; is `form` right?"),
    ("s", True, "is not a number of s"),
    ("s", int(RECEIVED.timestamp()) * 1000, "is out of range; is `form` right?"),
    ("ms", int(RECEIVED.timestamp()) * 100_000, "is more than a day after its arrival; is `form` right?"),
    ("ms", int(RECEIVED.timestamp()), "is before 2000"),
    ("s", -1, "is before 2000"),
    ("iso", "1999-12-31T23:59:59Z", "is before 2000"),
    ("iso", "2026-03-03T09:30:00.000001Z", "is more than a day after its arrival"),
    ("iso", "9999-12-31T23:59:59Z", "is more than a day after its arrival"),
]


def test_times(spark: SparkSession) -> None:
    documents = []
    for form in ("iso", "s", "ms", "us"):
        time = {"at": "/ts", "form": form}
        documents.append((form, {"source": {"topic": form, "time": time, "values": [{"name": "v", "at": "/v"}]}}))
    rules = parse("version: 1\n", "rules.yaml", documents)
    made = records(spark, rules, *(message({"ts": written, "v": 1}, topic=form) for form, written, _ in TIMES))
    for row, (form, written, expected) in zip(made, TIMES, strict=True):
        if isinstance(expected, str):
            assert (row.fault or "").startswith(f"the time at `/ts` {expected}"), (form, written, row.fault)
            assert row.measured_at is None
        else:
            assert row.fault is None, (form, written, row.fault)
            assert _utc(row.measured_at) == expected, (form, written)


def test_conversion_may_not_leave_the_numbers(spark: SparkSession) -> None:
    body = {"source": {"values": [{"name": "v", "at": "", "unit": "kWh", "to": "J"}]}}
    rules = parse("version: 1\n", "rules.yaml", [("d", body)])
    made = records(spark, rules, message(b"1e305"), message(b"2"))
    assert [(row.value, row.fault) for row in made] == [
        (None, "`v` at the top is too large for a number"),
        (7_200_000.0, None),
    ]


def test_what_could_not_be_opened_says_so(spark: SparkSession, rules: Rules) -> None:
    schema = f"{ddl(*INGEST)}, sealed_fault string"
    row = frame(spark, message({"keyId": "k", "data": "x"}), message(3)).collect()
    told = spark.createDataFrame([(*row[0], "the key `k` is not ours"), (*row[1], None)], schema)
    made = sorted(normalise(told, rules).collect(), key=lambda each: each.offset)
    assert [(each.fault, each.value) for each in made] == [("the key `k` is not ours", None), (None, 3.0)]
    assert made[0].payload == b'{"keyId": "k", "data": "x"}'


def test_no_rules_quarantine_everything(spark: SparkSession) -> None:
    none = parse("version: 1\n", "rules.yaml")
    assert faults(spark, none, message(1)) == ["fits no source of the rules; add one for its type or topic"]


def test_a_payload_is_parsed_once(spark: SparkSession, rules: Rules) -> None:
    plan = normalise(frame(spark, message(1)), rules)._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("try_parse_json") + plan.count("parseJson") == 1


def _utc(naive: datetime) -> datetime:
    """Spark hands out local times."""
    return naive.astimezone(UTC)
