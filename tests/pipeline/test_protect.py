"""What the pipeline encrypts is what the SDK, and anybody with the key and a library, opens."""

from __future__ import annotations

import json
from base64 import b64decode
from hashlib import sha256

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyspark.sql import SparkSession

from pipeline.frames import records
from tidegate.keys import unseal
from tidegate.pipeline import protect
from tidegate.pipeline.protect import UNDECIDED, Answer, Wanted

CONTEXT = b"\x01\xa0"
SECRET = bytes(range(32))
TARGET = "weather/temperature/t1"


def nonce(secret: bytes, *, target: str, shard: int, offset: int, part: int, payload: bytes) -> bytes:
    """The nonce of one record, as the columns compute it."""
    inner, outer = protect._pads(secret)
    place = f"{target}\0{shard}/{offset}/{part}\0".encode()
    return sha256(outer + sha256(inner + place + payload).digest()).digest()[: protect.NONCE]


def answer(target: str = TARGET, **said: object) -> Answer:
    return Answer(wanted=Wanted(target=target, context=CONTEXT, origin="raw/temperature/t1"), **said)  # type: ignore[arg-type]


def test_a_clear_message_is_json(spark: SparkSession) -> None:
    frame = records(
        spark,
        [
            {"target": TARGET, "extra": '{"battery":3}'},
            {"target": TARGET, "value": None, "text": 'a "b"\n', "unit": None},
        ],
        scored=True,
    )
    first, second = protect.protect(frame, protect.keys(spark, [answer()])).orderBy("offset").collect()
    assert json.loads(bytes(first.message)) == {
        "id": "node-1-0.1",
        "source": "t1",
        "type": "temperature",
        "name": "temperature",
        "value": 21.5,
        "unit": "C",
        "measured_at": "2026-03-02T12:00:00.000000Z",
        "extra": {"battery": 3},
    }
    assert json.loads(bytes(second.message))["text"] == 'a "b"\n'
    assert "unit" not in json.loads(bytes(second.message))
    assert (first.key_id, first.denied) == (None, None)


def test_a_sealed_message_opens_with_the_sdk_and_without_it(spark: SparkSession) -> None:
    rows = [{"target": TARGET}, {"target": TARGET, "text": "x" * 5000, "extra": '{"é":"ü"}'}]
    frame = records(spark, rows, scored=True)
    keys = protect.keys(spark, [answer(key_id="k1", secret=SECRET)])
    sealed = protect.protect(frame, keys).orderBy("offset").collect()
    clear = protect.protect(frame, protect.keys(spark, [answer()])).orderBy("offset").collect()
    for place, (one, plain) in enumerate(zip(sealed, clear, strict=True)):
        message, payload = bytes(one.message), bytes(plain.message)
        assert one.key_id == "k1"
        assert unseal(SECRET, message, topic=TARGET) == payload
        data = b64decode(json.loads(message)["data"], validate=True)
        bound = b"tidegate/seal/1\0k1\0" + TARGET.encode()
        assert AESGCM(SECRET).decrypt(data[:12], data[12:], bound) == payload
        assert data[:12] == nonce(SECRET, target=TARGET, shard=0, offset=place, part=0, payload=payload)


def test_the_same_row_is_sealed_alike_and_another_is_not(spark: SparkSession) -> None:
    keys = protect.keys(spark, [answer(key_id="k1", secret=SECRET)])
    rows = [{"target": TARGET}, {"target": TARGET}, {"target": TARGET, "value": 21.6}]
    frame = records(spark, rows, scored=True)
    once, twice = (
        [bytes(row.message) for row in protect.protect(frame, keys).orderBy("offset").collect()] for _ in range(2)
    )
    assert once == twice
    nonces = {b64decode(json.loads(message)["data"])[:12] for message in once}
    assert len(nonces) == 3


def test_what_is_denied_or_undecided_has_no_message(spark: SparkSession) -> None:
    rows = [
        {"target": TARGET},
        {"target": "weather/other"},
        {"target": None},
        {"target": TARGET, "context": b"other"},
        {"target": TARGET, "topic": "raw/other"},
        {"target": TARGET, "topic": None},
    ]
    frame = records(spark, rows, scored=True)
    found = protect.protect(frame, protect.keys(spark, [answer(denied="p1")])).orderBy("offset").collect()
    assert [row.message for row in found] == [None] * 6
    assert [row.denied for row in found] == ["p1", UNDECIDED, None, UNDECIDED, UNDECIDED, UNDECIDED]


def test_no_secret_stands_in_a_plan(spark: SparkSession) -> None:
    secret = b"a secret that can be looked for!"
    frame = records(spark, [{"target": TARGET}], scored=True)
    made = protect.protect(frame, protect.keys(spark, [answer(key_id="k1", secret=secret)]))
    plan = made._jdf.queryExecution().toString()
    assert made.first().message is not None
    for shape in (secret.decode(), secret.hex(), secret.hex().upper(), str(list(secret))[1:-1]):
        assert shape not in plan
    assert secret.decode() not in repr(answer(key_id="k1", secret=secret))
