"""The stage protect: what is published, under the topic key where the topic is protected (AUPS, equation 2).

The message is JSON. For a protected topic it is sealed as in `keys.sealing`, by Spark's own AES-256-GCM, so that
whoever is given the key opens it like any other message.

Invariants
- A record without an answer about its key has no message: nothing leaves undecided.
- Secrets come as columns of a frame that is joined: what stands in a plan, a log or the user interface are names.
- The nonce is derived from the record (HMAC-SHA-256 under a key of its own, made of the topic key, over topic,
  place and payload): the same when Spark computes a row again, another when anything in it differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tidegate.pipeline.columns import KEY, PROTECTED, F, columns, struct

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BOUND: Final = b"tidegate/seal/1\0"
UNDECIDED: Final = "undecided"
NONCE: Final = 12
_BLOCK: Final = 64  # bytes of a block of SHA-256
_KEYS: Final = columns(
    "target string, context binary, origin string, sealing_id string, secret binary, inner binary, outer binary, "
    "refused string"
)
_SETTINGS: Final = {"spark.sql.chunkBase64String.enabled": "false"}  # it breaks long ones into lines
_TIME: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be published: under which topic, and the context and topic of what it was made of."""

    target: str
    context: bytes = field(repr=False)
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the node said about it: the key, or none, or why not."""

    wanted: Wanted
    key_id: str | None = None
    secret: bytes | None = field(default=None, repr=False)
    denied: str | None = None


def keys(spark: SparkSession, answers: Iterable[Answer]) -> DataFrame:
    rows = []
    for answer in answers:
        inner = outer = None
        if answer.secret is not None:
            inner, outer = _pads(answer.secret)
        asked = answer.wanted
        place = (asked.target, asked.context, asked.origin)
        rows.append((*place, answer.key_id, answer.secret, inner, outer, answer.denied))
    return spark.createDataFrame(rows, struct(_KEYS))


def protect(frame: DataFrame, keys: DataFrame) -> DataFrame:
    """Adds `message`, `key_id` and `denied`."""
    for name, value in _SETTINGS.items():
        frame.sparkSession.conf.set(name, value)
    known = F.broadcast(keys.withColumn("known", F.lit(True)))
    steps, last = _columns()
    sealed = frame.withColumn("origin", origin()).join(known, ["target", "context", "origin"], "left")
    for name, column in steps.items():
        sealed = sealed.withColumn(name, column)
    return sealed.select(*frame.columns, *last)


@cache
def _columns() -> tuple[dict[str, Column], tuple[Column, ...]]:
    """One column after the other: what is used twice, or within a condition, would be made twice; and the last ones.

    What has no key is null from `nonce` on.
    """
    addressed = F.col("target").isNotNull()
    undecided = addressed & F.col("known").isNull()
    steps = {
        "passes": F.coalesce(addressed & F.col("known") & F.col("refused").isNull(), F.lit(False)),
        "json": F.when(F.col("passes"), _json()),
        "clear": _clear(),
        "nonce": _nonce(),
        "sealed": _sealed(),
    }
    return steps, (
        F.coalesce("sealed", F.when(F.col("sealing_id").isNull(), F.col("clear"))).alias("message"),
        F.when(F.col("passes"), F.col("sealing_id")).alias("key_id"),
        F.when(undecided, F.lit(UNDECIDED)).when(addressed, F.col("refused")).alias("denied"),
    )


def origin() -> Column:
    """The topic that a message came under; empty if it had none."""
    return F.coalesce(F.col("topic"), F.lit(""))


def unprotected(frame: DataFrame) -> DataFrame:
    """The same where nothing is published at all."""
    return frame.select("*", *(F.lit(None).cast(type).alias(name) for name, type in PROTECTED))


def _json() -> Column:
    names = ("id", "source", "type", "name", "value", "text", "unit", "measured_at")
    return F.to_json(F.struct(*(F.col(name) for name in names)), {"timestampFormat": _TIME, "timeZone": "UTC"})


def _clear() -> Column:
    """With what it has besides, as bytes."""
    json = F.col("json").cast("binary")
    open = F.substring(json, F.lit(1), F.octet_length(json) - 1)
    more = F.concat(open, F.lit(b',"extra":'), F.col("extra").cast("binary"), F.lit(b"}"))
    return F.when(F.col("extra").isNull(), json).otherwise(more)


def _nonce() -> Column:
    record = F.concat_ws("/", *(F.col(name).cast("string") for name in KEY))
    place = F.concat(F.col("target"), F.lit("\0"), record, F.lit("\0"))
    inner = F.sha2(F.concat(F.col("inner"), place.cast("binary"), F.col("clear")), 256)
    return F.substring(F.unhex(F.sha2(F.concat(F.col("outer"), F.unhex(inner)), 256)), 1, NONCE)


def _sealed() -> Column:
    under = bound(F.col("sealing_id"), F.col("target"))
    data = F.aes_encrypt("clear", F.col("secret"), F.lit("GCM"), F.lit("DEFAULT"), F.col("nonce"), under)
    text = F.concat(F.lit('{"keyId":"'), F.col("sealing_id"), F.lit('","data":"'), F.base64(data), F.lit('"}'))
    return text.cast("binary")


def bound(key_id: Column, topic: Column) -> Column:
    return F.concat(F.lit(BOUND), key_id.cast("binary"), F.lit(b"\0"), topic.cast("binary"))


def _pads(secret: bytes) -> tuple[bytes, bytes]:
    """What HMAC-SHA-256 puts before the text, inside and outside (RFC 2104): Spark has SHA-256 only."""
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"tidegate/pipeline/nonce/1").derive(secret)
    block = key.ljust(_BLOCK, b"\0")
    return bytes(byte ^ 0x36 for byte in block), bytes(byte ^ 0x5C for byte in block)
