"""Journals of `ingest` rows for tests of the sources: row n has the id and the payload n."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from store.journal.trial import NOON, Trial
from tidegate.store.journal import INGEST, ingest_row
from tidegate.store.journal.rows import Row


def message(number: int) -> Row:
    return ingest_row(
        NOON + number, id=str(number), topic=f"raw/{number % 3}", payload=b"%d" % number, qos=1, properties=[("a", "b")]
    )


def write(data: Path, numbers: Iterable[int], *, batch: int = 10, **options: Any) -> None:
    """Appends these rows, so many in a batch."""
    trial = Trial(data, INGEST, **options)
    rows = [message(number) for number in numbers]
    for start in range(0, len(rows), batch):
        trial.write(*rows[start : start + batch])
    trial.close()
