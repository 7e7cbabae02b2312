"""Messages that came in under a topic key are opened for the stages, and kept in clear nowhere."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.frames import messages, records
from tidegate.keys import Group, TopicKey, seal
from tidegate.pipeline.decrypt import FAULT, Answer, KeyRequest, KeyRequests, decrypt, redact

TOPIC = "raw/temperature/t1"
SECRET = bytes(range(32))
CLEAR = b'{"t": 21.5}'


def sealed(topic: str = TOPIC, id: str = "k1", secret: bytes = SECRET) -> bytes:
    group = Group.of(filter="raw/#", conditions=())
    key = TopicKey(id=id, group=group, secret=secret, made=0.0, valid_until=1.0, readable_until=2.0)
    return seal(key, CLEAR, topic=topic, nonce=bytes(12))


def answer(id: str = "k1", **said: object) -> Answer:
    return Answer(asked=KeyRequest(topic=TOPIC, context=b"\x01\xa0", key_id=id), under=TOPIC, **said)  # type: ignore[arg-type]


def test_keys_are_asked_for_once() -> None:
    rows: list[dict[str, Any]] = [
        {"payload": sealed()},
        {"payload": sealed()},
        {"payload": sealed(id="k2")},
        {"payload": CLEAR},
        {"payload": b"\xff\xfe"},
        {"payload": None},
        {"payload": b'{"keyId":"k3","data":"?"}'},
        {"payload": b'{"keyId":"\xff","data":"AAAA"}'},
        {"payload": sealed(id="k4") + b"\n"},
        {"payload": sealed(id="k5"), "topic": None},
        {"payload": sealed(id="k6"), "context": None},
    ]
    layout = pa.schema({"topic": pa.string(), "context": pa.binary(), "payload": pa.binary()})
    made = [pa.RecordBatch.from_pylist([{"topic": "t", "context": b"c", **row} for row in rows], layout)]
    questions = KeyRequests()
    assert list(questions.passing(made)) == made
    assert sorted(one.key_id for one in questions.found) == ["k1", "k2"]


def test_what_can_be_opened_is_and_the_rest_says_why(spark: SparkSession) -> None:
    frame = messages(
        spark,
        [
            {"payload": sealed()},
            {"payload": sealed(id="k2")},
            {"payload": sealed(id="k3")},
            {"payload": CLEAR},
            {"payload": b"\xff"},
        ],
    )
    answers = [answer(secret=SECRET), answer("k2", denied="not for you (p1)"), answer("k3", secret=bytes(32))]
    rows = decrypt(spark, frame, answers).orderBy("offset").collect()
    assert [bytes(row.payload) for row in rows] == [CLEAR, sealed(id="k2"), sealed(id="k3"), CLEAR, b"\xff"]
    assert [row[FAULT] for row in rows] == [
        None,
        "sealed, and not for you (p1)",
        "sealed, and its key does not open it",
        None,
        None,
    ]


def test_what_is_protected_is_kept_in_clear_nowhere(spark: SparkSession) -> None:
    rows = [
        {"target": "open/x"},
        {"target": "secret/x"},
        {"target": None, "topic": "secret/in"},
        {"target": None, "topic": "secret/in", "fault": "no", "payload": CLEAR, "value": None},
        {"target": None, "topic": "raw/in", "fault": "no", "payload": CLEAR, "value": None},
        {"target": "open/x", "topic": "secret/in"},
    ]
    frame = records(spark, rows, scored=True).withColumn("key_id", F.lit(None).cast("string"))
    found = redact(frame, ["secret/#"]).orderBy("offset").collect()
    assert [row.value for row in found] == [21.5, None, None, None, None, 21.5]
    assert [row.payload and bytes(row.payload) for row in found] == [None, None, None, None, CLEAR, None]
