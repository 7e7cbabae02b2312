"""The stage publish: records go to the node in the order of the journal, and the ledger knows how far that came.

At least once: what the node took and could not tell is sent again, with the same id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.columns import DIMENSIONS, KEY, F
from tidegate.pipeline.ledger import Batch, Ledger, Place
from tidegate.pipeline.node_client import NodeClient, Outcome, Outgoing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOLD: Final = ("id", "target", "message", "context", "topic", "scores")


def publish(records: DataFrame | pa.Table, node: NodeClient, ledger: Ledger, batch: Batch) -> Outcome:
    """Publishes what has a message and was not published before; the outcome has what was, too."""
    outcome = Outcome(published=batch.passed, denied=Counter(batch.denied))
    for piece, result in node.publish(map(_outgoing, _missing(records, batch.published))):
        outcome.published += result.published
        outcome.denied.update(result.denied)
        ledger.sent(batch, piece[-1].place, passed=outcome.published, denied=outcome.denied)
    return outcome


def _missing(records: DataFrame | pa.Table, after: Place | None) -> Iterable[Sequence[Any]]:
    return _few(records, after) if isinstance(records, pa.Table) else _many(records, after).toLocalIterator()


def _few(records: pa.Table, after: Place | None) -> Iterable[Sequence[Any]]:
    wanted = records.filter(pc.is_valid(records["message"])).sort_by([(name, "ascending") for name in KEY])
    *columns, scores = [wanted[name].to_pylist() for name in (*KEY, *_TOLD)]
    at = wanted["received_at"].cast(pa.int64()).to_pylist()
    rows = zip(*columns, (row_scores.values() for row_scores in scores), at, strict=True)
    return (row for row in rows if after is None or row[: len(KEY)] > after)


def _many(frame: DataFrame, after: Place | None) -> DataFrame:
    wanted = frame.where(F.col("message").isNotNull())
    if after is not None:
        place = F.struct(*(F.col(name).cast("long") for name in KEY))
        wanted = wanted.where(place > F.struct(*(F.lit(value).cast("long") for value in after)))
    columns = (*KEY, *_TOLD, F.unix_micros("received_at").alias("at"))
    # one piece: what is published is little beside what is computed, and the frame is kept by the job
    return wanted.select(*columns).coalesce(1).sortWithinPartitions(*KEY)


def _outgoing(row: Sequence[Any]) -> Outgoing:
    shard, offset, part, id, target, message, context, topic, scores, at = row  # by place: names are looked for
    return Outgoing(
        place=(shard, offset, part),
        id=id,
        topic=target,
        payload=bytes(message),
        context=bytes(context),
        origin=topic,
        at=at / 1_000_000,  # as a number: Spark hands times out in the zone of this process
        scores={name: score for name, score in zip(DIMENSIONS, scores, strict=True) if score is not None},
    )
