"""The stage decrypt: decrypts messages that arrived under a topic key, if the node gives the pipeline that key.

A message that cannot be decrypted is not changed. Its `sealed_fault` holds the reason, and it goes to quarantine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from tidegate.pipeline.columns import F, columns, struct, topic_matches
from tidegate.pipeline.protect import bound

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

FAULT: Final = "sealed_fault"
_BEGIN: Final = b'{"keyId":"'
_FORM: Final = r'\{"keyId":"([^"]+)","data":"([A-Za-z0-9+/]+={0,2})"\}'
_PATTERN: Final = rf"\A{_FORM}\z"  # to Java
_SEALED: Final = re.compile(_FORM.encode())
_KEYS: Final = columns("topic string, context binary, opening_id string, under string, secret binary, refused string")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class KeyRequest:
    """A key that messages of a batch are under."""

    topic: str
    context: bytes = field(repr=False)
    key_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The key, or why not. `under` is the topic that the messages were sealed under."""

    asked: KeyRequest
    under: str
    secret: bytes | None = field(default=None, repr=False)
    denied: str | None = None


class KeyRequests:
    """The keys that are needed for messages that pass here."""

    def __init__(self) -> None:
        self.found: set[KeyRequest] = set()

    def passing(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            sealed = batch.filter(pc.fill_null(pc.starts_with(batch["payload"], _BEGIN), False))
            columns = (sealed[name].to_pylist() for name in ("topic", "context", "payload"))
            for topic, context, payload in zip(*columns, strict=True):
                if topic is None or context is None or (match := _SEALED.fullmatch(payload)) is None:
                    continue
                with suppress(UnicodeDecodeError):  # then it is not one
                    self.found.add(KeyRequest(topic=topic, context=context, key_id=match[1].decode()))
            yield batch


def decrypt(spark: SparkSession, frame: DataFrame, answers: Iterable[Answer]) -> DataFrame:
    """The frame with decrypted payloads, and `sealed_fault` where decryption fails."""
    rows = [
        (answer.asked.topic, answer.asked.context, answer.asked.key_id, answer.under, answer.secret, answer.denied)
        for answer in answers
    ]
    keys = F.broadcast(spark.createDataFrame(rows, struct(_KEYS)))
    marked = frame.withColumn("opening_id", F.when(F.col("topic").isNotNull(), _part(1)))
    joined = marked.join(keys, ["topic", "context", "opening_id"], "left")
    under = bound(F.col("opening_id"), F.col("under"))
    clear = F.try_aes_decrypt(F.unbase64(_part(2)), F.col("secret"), F.lit("GCM"), F.lit("DEFAULT"), under)
    asked = F.col("under").isNotNull()
    fault = (
        F.when(asked & F.col("refused").isNotNull(), F.concat(F.lit("sealed, and "), F.col("refused")))
        .when(asked & F.col("clear").isNull(), F.lit("sealed, and its key does not open it"))
        .alias(FAULT)
    )
    opened = joined.withColumn("clear", F.when(F.col("secret").isNotNull(), clear)).select("*", fault)
    payload = F.when(asked & F.col("clear").isNotNull(), F.col("clear")).otherwise(F.col("payload"))
    return opened.withColumn("payload", payload).select(*frame.columns, FAULT)


def redact(frame: DataFrame, protected: Sequence[str]) -> DataFrame:
    """Records as they may be kept: what came or goes under a protected topic is in clear nowhere.

    What could not be published is kept without its content; so is what came sealed and goes nowhere, and what came
    sealed and is faulty. The message itself is kept sealed, in the table of what came. `protected` are the filters.
    """
    return frame.withColumns(_hidden(tuple(protected))) if protected else frame


@lru_cache(maxsize=4)
def _hidden(protected: tuple[str, ...]) -> dict[str, Column]:
    came, goes = (_any(F.col(name), protected) for name in ("topic", "target"))
    hidden = F.col("key_id").isNull() & (goes | (came & F.col("target").isNull()))
    content = {name: F.when(~hidden, F.col(name)) for name in ("value", "text", "extra")}
    return {**content, "payload": F.when(~came, F.col("payload"))}


def _any(topic: Column, filters: Sequence[str]) -> Column:
    matched = F.lit(False)
    for filter in filters:
        matched = matched | F.coalesce(topic_matches(topic, filter), F.lit(False))
    return matched


def _part(group: int) -> Column:
    # only what can be one is looked at: payloads are any bytes
    sealed = F.substring(F.col("payload"), 1, len(_BEGIN)) == F.lit(_BEGIN)
    return F.when(sealed, F.regexp_extract(F.try_validate_utf8(F.col("payload").cast("string")), _PATTERN, group))
