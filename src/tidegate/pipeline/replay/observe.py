"""What clients published, one message after the other as it was recorded: for monitors, which look at the order.

It is read once, here: order cannot be added up. What is kept of it is bounded (`learn.observed`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa

from tidegate.bounded import Bounded
from tidegate.learn.observed import Observed
from tidegate.pipeline.replay.partitions import span
from tidegate.session import Context
from tidegate.store.journal import TRAFFIC, Happening, Reader

_CONTEXTS: Final = 20_000
_COLUMNS: Final = ("event", "context", "target", "id", "topic", "payload")


def observe(data: Path, *, since: float, until: float, progress: Callable[[int, int], None] | None = None) -> Observed:
    observed = Observed()
    whole = span(data, since, until)
    contexts = Bounded(_CONTEXTS, Context.decode)
    with Reader(data, TRAFFIC, start=whole.start, stop=whole.stop) as reader:
        for batch in reader.batches():
            _take(batch, observed, contexts, since, until)
            if progress is not None:
                progress(batch.column("offset")[-1].as_py() + 1 - whole.start, whole.stop - whole.start)
    return observed


def _take(
    batch: pa.RecordBatch, observed: Observed, contexts: Bounded[bytes, Context], since: float, until: float
) -> None:
    times = [at * 1e-6 for at in batch.column("received_at").cast(pa.int64()).to_pylist()]
    columns = [batch.column(name).to_pylist() for name in _COLUMNS]
    for at, event, data, target, id, topic, payload in zip(times, *columns, strict=True):
        if event != Happening.MESSAGE.value or data is None or target is not None or not since <= at < until:
            continue
        subject = contexts[data].subject
        if subject.kind != "client" or topic.startswith("$") or (id is not None and "." in id[id.rfind("-") :]):
            continue
        try:
            value = None if payload is None else orjson.loads(payload)
        except orjson.JSONDecodeError:
            value = payload
        observed.add(subject.scope, (subject.user, subject.client), topic, at, value, payload is not None)
