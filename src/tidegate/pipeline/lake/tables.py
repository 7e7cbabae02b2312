"""The tables of the lake: their columns, what names a row, and a frame of one for whoever wants to read it.

`raw` is what arrived, `normalised` what the stages made of it, `quarantine` what they could not, with the reason;
`audit` is the journal of that name, `quality_daily` what `quality` computes. Every row tells its owner and category. In
`normalised` a row that was sealed for its topic has no value, text and extra: they are in `message`, and whoever may
have the key can open it.

The columns here are the newest. Older files lack some (null) or have narrower types (widened); a column that is no
longer here is left out. Nothing is rewritten for that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.errors import PipelineError
from tidegate.pipeline.columns import ASSIGNED, INGEST, KEY, PROTECTED, RECORD, SCORED, struct
from tidegate.pipeline.lake.place import NAMES, Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    """What names a row."""
    time: str | None = None
    """When it was received: says its date. None: it is about a whole day."""


_AUDIT: Final = (
    ("shard", "int"),
    ("offset", "bigint"),
    ("at", "timestamp"),
    ("node", "string"),
    ("kind", "string"),
    ("link", "string"),
    ("user", "string"),
    ("client", "string"),
    ("action", "string"),
    ("topic", "string"),
    ("stage", "string"),
    ("rule", "string"),
    ("policy_version", "string"),
    ("count", "bigint"),
    ("detail", "string"),
)
_WHOSE: Final = (("owner", "string"), ("category", "string"))
_GROUP: Final = ("source", "type", "name", "owner", "category", "dimension")
_FIGURES: Final = (
    ("count", "bigint"),
    ("assessed", "bigint"),
    ("mean", "double"),
    ("min", "double"),
    ("p05", "double"),
    ("p50", "double"),
)
_NOT_KEPT: Final = ("payload", "fault", "context")

RAW: Final = Table(name="raw", columns=INGEST + _WHOSE, key=("shard", "offset"), time="received_at")
NORMALISED: Final = Table(
    name="normalised",
    columns=tuple(one for one in RECORD if one[0] not in _NOT_KEPT) + SCORED + ASSIGNED + PROTECTED,
    key=KEY,
    time="received_at",
)
QUARANTINE: Final = Table(name="quarantine", columns=RECORD, key=KEY, time="received_at")
AUDIT: Final = Table(name="audit", columns=_AUDIT + _WHOSE, key=("shard", "offset"), time="at")
QUALITY_DAILY: Final = Table(
    name="quality_daily", columns=tuple((name, "string") for name in _GROUP) + _FIGURES, key=("date", *_GROUP)
)
TABLES: Final = {table.name: table for table in (RAW, NORMALISED, QUARANTINE, AUDIT, QUALITY_DAILY)}
PLACE: Final = (("date", "date"), ("batch", "string"))
"""Columns that the folders tell."""

assert tuple(TABLES) == NAMES


def table_named(name: str) -> Table:
    """PipelineError lists those that exist."""
    if name not in TABLES:
        raise PipelineError(f"the lake has no table {name!r}; take one of {', '.join(TABLES)}")
    return TABLES[name]


def read(spark: SparkSession, path: Path, table: str, *, dates: Collection[date] | None = None) -> DataFrame:
    """A table of the lake, each row once: the files that are there now, of these days or of all.

    Rows can lie in two files: for a moment during compaction, and for longer where a journal was read again from its
    start. A query that is still running when compaction removes its files fails and can be repeated.
    """
    kind = table_named(table)
    lake = Place.open(path)
    files = [str(part.path) for part in lake.parts(table, dates=dates)]
    schema = struct(kind.columns + PLACE)
    if not files:
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).option("basePath", str(lake.path / table)).parquet(*files)
    return rows.dropDuplicates(list(kind.key))
