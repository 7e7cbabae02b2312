"""The rows of an owner, for themselves: read without Spark, from every table, within a bound."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.pipeline.lake.files import Owned, legible
from tidegate.pipeline.lake.tables import AUDIT, TABLES, Part, Place

HIDDEN = ("context",)
"""Columns that are of use to nobody else than the pipeline."""


def owned_rows(
    path: Path, since: Mapping[str, float], *, rows: int, size: int
) -> tuple[dict[str, list[dict[str, Any]]], bool]:
    """By table, what these users own that was received since a time of theirs; the newest days first. And whether that
    is all. What others have done, in the audit, is not among it."""
    found: dict[str, list[dict[str, Any]]] = {}
    count = taken = 0
    if not path.is_dir():
        return found, True
    lake = Place.open(path)
    for name, table in TABLES.items():
        if table is AUDIT:
            continue
        for part in sorted(lake.parts(name), key=lambda each: each.date, reverse=True):
            for user, began in since.items():
                owned = _owned(part, table.time, user, began)
                if owned is None or not legible(part):
                    continue
                for batch in _rows(part.path, owned, user):
                    count, taken = count + batch.num_rows, taken + batch.nbytes
                    if count > rows or taken > size:
                        return found, False
                    found.setdefault(name, []).extend(_plain(row) for row in batch.to_pylist())
    return found, True


def _owned(part: Part, time: str | None, user: str, began: float) -> Owned | None:
    since = datetime.fromtimestamp(began, UTC)
    if part.date < since.date():
        return None
    latest = datetime(9999, 1, 1, tzinfo=UTC)
    return Owned(owner=user, time=time, before=latest, since=since)


def _rows(path: Path, owned: Owned, user: str) -> list[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path) as file:
            if "owner" not in file.schema_arrow.names:
                return []
            names = [name for name in file.schema_arrow.names if name not in HIDDEN]
            found = []
            for group in range(file.num_row_groups):
                owners = file.read_row_group(group, columns=["owner"])["owner"]
                if pc.any(pc.equal(owners, user)).as_py():
                    rows = file.read_row_group(group, columns=names)
                    found += rows.filter(owned.matches(rows)).to_batches()
            return found
    except FileNotFoundError:  # the job has replaced it
        return []


def _plain(row: Any) -> Any:
    match row:
        case dict():
            return {name: _plain(each) for name, each in row.items() if each is not None}
        case list():
            return [_plain(each) for each in row]
        case bytes():
            return b64encode(row).decode()
        case datetime() | date():
            return row.isoformat()
        case float():
            return row if math.isfinite(row) else str(row)
        case _:
            return row
