"""Parquet files read and rewritten without Spark: for upkeep, which must not need a cluster, nor five seconds to start.

Memory is bounded by a group of rows, whatever the size of the files. Files of different age are written together with
the columns of all of them and the wider of their types; what a file lacks is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.errors import PipelineError
from tidegate.pipeline.lake.swap import Claim, Step, swap, swapping
from tidegate.pipeline.lake.tables import COMPACTED, RAW, Part, Place

_GROUP: Final = 64 << 20  # bytes of rows, before compression, that are written together
_CHUNK: Final = 32_768  # rows that are read at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """Rows of an owner that were received before a time and since another, or whenever."""

    owner: str
    time: str | None = None
    before: datetime | None = None
    since: datetime | None = None

    def matches(self, table: pa.Table) -> Any:
        """For each row, whether it is one; never null."""
        owned = pc.fill_null(pc.equal(table["owner"], self.owner), False)
        if self.time is None or self.before is None:
            return owned
        times = _plain(table[self.time])
        early = pc.fill_null(pc.less(times, _instant(self.before)), True)
        if self.since is not None:
            early = pc.and_(early, pc.fill_null(pc.greater_equal(times, _instant(self.since)), False))
        return pc.and_(owned, early)


def _instant(time: datetime) -> pa.Scalar:
    return pa.scalar(time, pa.timestamp("us", tz="UTC"))


def held(path: Path, owned: Owned) -> int:
    return sum(int(rows.num_rows) for rows in _owned_rows(path, owned))


def sources_of(path: Path, owned: Owned) -> set[str]:
    columns = [rows["source"].drop_null() for rows in _owned_rows(path, owned, "source")]
    return {source for column in columns for source in pc.unique(column).to_pylist()}


def _owned_rows(path: Path, owned: Owned, *columns: str) -> Iterator[pa.Table]:
    """Such rows with these columns; reads no more than it must."""
    wanted = ["owner", *columns]
    with _legible(path), _open(path) as file:
        if not set(wanted) <= set(file.schema_arrow.names):
            return
        for group in range(file.num_row_groups):
            if _may_hold(file, group, owned.owner):
                rows = file.read_row_group(group, columns=wanted if owned.time is None else [*wanted, owned.time])
                yield rows.filter(owned.matches(rows))


class GroupWriter:
    """A Parquet file whose rows are written in groups of about `size` bytes, before compression."""

    def __init__(self, path: Path, schema: pa.Schema, size: int, **options: Any) -> None:
        self.path = path
        self.rows = 0
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", **options)
        self._size = size
        self._waiting: list[pa.Table] = []
        self._waiting_size = 0

    def put(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._waiting_size += rows.nbytes
        if self._waiting_size >= self._size:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            group = pa.concat_tables(self._waiting)
            self._waiting, self._waiting_size = [], 0
            if group.num_rows:
                self._writer.write_table(group, row_group_size=group.num_rows)
            self.rows += int(group.num_rows)

    def __enter__(self) -> GroupWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._write()
        finally:
            self._writer.close()


def rewrite(sources: Sequence[Path], target: Path, *, but: Owned | None = None) -> int:
    """The rows of some files in one, but those; how many. Nothing is written if there are none."""
    schema = together(sources)
    with GroupWriter(target, schema, _GROUP, compression_level=3) as writer:
        for path in sources:
            for chunk in _chunks(path):
                rows = chunk if but is None else chunk.filter(pc.invert(but.matches(chunk)))
                writer.put(conformed(rows, schema))
    if not writer.rows:
        target.unlink()
    return writer.rows


class Replaced(NamedTuple):
    """Files that others have taken the place of: what is left of them."""

    rows: int
    size_before: int
    size_after: int


def replace_files(
    claim: Claim, sources: Sequence[Path], folder: Path, step: Step, *, but: Owned | None = None
) -> Replaced | None:
    """Puts one file in a folder in the place of some, without those rows, or none if no row is left.

    None if the job has replaced one of them meanwhile.
    """
    with claim.stage() as staging:
        new = staging / f"part-{staging.name}.parquet"
        try:
            rows = rewrite(sources, new, but=but)
            before = sum(path.stat().st_size for path in sources)
        except FileNotFoundError:
            return None
        step("rewritten")
        with swapping(claim.lake):
            if not all(path.exists() for path in sources):
                return None
            after = new.stat().st_size if rows else 0
            swap(claim.lake, add=[(new, folder / new.name)] if rows else [], remove=sources, step=step)
    return Replaced(rows, before, after)


def together(paths: Iterable[Path]) -> pa.Schema:
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
    columns = [
        _plain(table[field.name]).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def last_start(lake: Place, journal: str) -> dict[int, int]:
    """By shard of a journal, where the batch of `raw` that has the highest offset begins.

    What is compacted has long been done.
    """
    adopted = lake.mark().adopted
    spans: dict[int, dict[str, tuple[int, int]]] = {}
    for part in lake.parts(RAW.name):
        with _legible(part.path), _open(part.path) as file:
            named = "journal" in file.schema_arrow.names
            table = file.read(columns=["shard", "offset", *(["journal"] if named else [])])
        if named:
            journals = pc.fill_null(table["journal"], adopted or "")
            table = table.filter(pc.equal(journals, journal))
        elif adopted != journal:
            continue
        for ends in table.group_by("shard").aggregate([("offset", "min"), ("offset", "max")]).to_pylist():
            first, last = ends["offset_min"], ends["offset_max"]
            low, high = spans.setdefault(ends["shard"], {}).get(part.batch, (first, last))
            spans[ends["shard"]][part.batch] = min(low, first), max(high, last)
    starts = {}
    for shard, batches in spans.items():
        batch, (low, high) = max(batches.items(), key=lambda item: item[1][1])
        starts[shard] = high + 1 if batch == COMPACTED else low
    return starts


def legible(part: Part) -> bool:
    """Whether a file is what its name says."""
    try:
        with _legible(part.path):
            pq.read_metadata(part.path)
    except PipelineError:
        return False
    except FileNotFoundError:
        return True  # it was, until the job replaced it
    return True


def _chunks(path: Path) -> Iterator[pa.Table]:
    with _legible(path), _open(path) as file:
        for batch in file.iter_batches(batch_size=_CHUNK):
            yield pa.Table.from_batches([batch])


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


@contextmanager
def _legible(path: Path) -> Iterator[None]:
    """What is no Parquet becomes a PipelineError that names the file."""
    try:
        yield
    except pa.ArrowException as error:
        raise PipelineError(f"{path} cannot be read: {error}; if it is damaged, move it away") from error
