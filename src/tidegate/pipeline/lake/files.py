"""Parquet files read and rewritten without Spark: for upkeep, which must not need a cluster, nor five seconds to start.

Memory is bounded by a group of rows, whatever the size of the files. Files of different age are written together with
the columns of all of them and the wider of their types; what a file lacks is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.errors import PipelineError
from tidegate.pipeline.lake.place import COMPACTED, Part, Place
from tidegate.pipeline.lake.tables import RAW

_GROUP: Final = 64 << 20  # bytes of rows, before compression, that are written together
_CHUNK: Final = 32_768  # rows that are read at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """Rows of an owner that were received before a time, or whenever."""

    owner: str
    time: str | None = None
    before: datetime | None = None

    def matches(self, table: pa.Table) -> Any:
        """For each row, whether it is one; never null."""
        owned = pc.fill_null(pc.equal(table["owner"], self.owner), False)
        if self.time is None or self.before is None:
            return owned
        limit = pa.scalar(self.before, pa.timestamp("us", tz="UTC"))
        early = pc.fill_null(pc.less(_plain(table[self.time]), limit), True)
        return pc.and_(owned, early)


def count(path: Path) -> int:
    """The rows in a file."""
    with _legible(path):
        return int(pq.read_metadata(path).num_rows)


def held(path: Path, owned: Owned) -> int:
    """How many such rows a file has; reads no more than it must."""
    columns = ["owner"] if owned.time is None else ["owner", owned.time]
    rows = 0
    with _legible(path), _open(path) as file:
        if "owner" not in file.schema_arrow.names:
            return 0
        for group in range(file.num_row_groups):
            if _may_hold(file, group, owned.owner):
                rows += int(pc.sum(owned.matches(file.read_row_group(group, columns=columns))).as_py() or 0)
    return rows


def sources_of(path: Path, owned: Owned) -> set[str]:
    """The sources of such rows."""
    columns = ["owner", "source"] if owned.time is None else ["owner", "source", owned.time]
    sources: set[str] = set()
    with _legible(path), _open(path) as file:
        if not {"owner", "source"} <= set(file.schema_arrow.names):
            return sources
        for group in range(file.num_row_groups):
            if _may_hold(file, group, owned.owner):
                table = file.read_row_group(group, columns=columns)
                sources.update(pc.unique(table.filter(owned.matches(table))["source"].drop_null()).to_pylist())
    return sources


def rewrite(sources: Sequence[Path], target: Path, *, but: Owned | None = None) -> int:
    """The rows of some files in one, but those; how many. Nothing is written if there are none."""
    schema = together(sources)
    rows = 0
    with pq.ParquetWriter(target, schema, compression="zstd", compression_level=3) as writer:
        waiting: list[pa.Table] = []
        for path in sources:
            for chunk in _chunks(path):
                table = chunk if but is None else chunk.filter(pc.invert(but.matches(chunk)))
                waiting.append(conformed(table, schema))
                if sum(each.nbytes for each in waiting) >= _GROUP:
                    rows += _put(writer, waiting)
        rows += _put(writer, waiting)
    if not rows:
        target.unlink()
    return rows


def together(paths: Iterable[Path]) -> pa.Schema:
    """A schema with the columns of all files."""
    schemas = []
    for path in paths:
        with _legible(path), _open(path) as file:
            schemas.append(pa.schema([_plain_field(field) for field in file.schema_arrow]))
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise PipelineError(
            f"files of one table have columns that do not go together: {error}; move one away"
        ) from error


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly these columns."""
    columns = [
        _plain(table[field.name]).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def last_start(lake: Place) -> dict[int, int]:
    """By shard, where the batch of `raw` that has the highest offset begins; what is compacted has long been done."""
    spans: dict[int, dict[str, tuple[int, int]]] = {}
    for part in lake.parts(RAW.name):
        with _legible(part.path), _open(part.path) as file:
            table = file.read(columns=["shard", "offset"])
        for shard in pc.unique(table["shard"]).to_pylist():
            ends = pc.min_max(table.filter(pc.equal(table["shard"], shard))["offset"]).as_py()
            low, high = spans.setdefault(shard, {}).get(part.batch, (ends["min"], ends["max"]))
            spans[shard][part.batch] = min(low, ends["min"]), max(high, ends["max"])
    starts = {}
    for shard, batches in spans.items():
        batch, (low, high) = max(batches.items(), key=lambda item: item[1][1])
        starts[shard] = high + 1 if batch == COMPACTED else low
    return starts


def legible(part: Part) -> bool:
    """Whether a file is what its name says."""
    try:
        count(part.path)
    except PipelineError:
        return False
    except FileNotFoundError:
        return True  # it was, until the job replaced it
    return True


def _chunks(path: Path) -> Iterator[pa.Table]:
    with _legible(path), _open(path) as file:
        for batch in file.iter_batches(batch_size=_CHUNK):
            yield pa.Table.from_batches([batch])


def _put(writer: Any, waiting: list[pa.Table]) -> int:
    """Write what waits as one group of rows."""
    if not waiting:
        return 0
    table = pa.concat_tables(waiting)
    waiting.clear()
    if table.num_rows:
        writer.write_table(table, row_group_size=table.num_rows)
    return int(table.num_rows)


def _open(path: Path) -> Any:
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _may_hold(file: Any, group: int, owner: str) -> bool:
    """Whether a group of rows may have one of this owner, by what the file says of its columns."""
    described = file.metadata.row_group(group)
    for index in range(described.num_columns):
        column = described.column(index)
        if column.path_in_schema == "owner":
            known = column.statistics
            if known is None or not known.has_min_max:
                return True
            return bool(known.min <= owner <= known.max)
    return True


def _plain_field(field: pa.Field) -> pa.Field:
    """Times are UTC in microseconds, however old the file is; every column may be null."""
    kind = pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(field.type) else field.type
    return pa.field(field.name, kind)


def _plain(column: Any) -> Any:
    return column.cast(pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(column.type) else column


class _legible:
    """What is no Parquet becomes a PipelineError that names the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, pa.ArrowException):
            raise PipelineError(f"{self._path} cannot be read: {error}; if it is damaged, move it away") from error
