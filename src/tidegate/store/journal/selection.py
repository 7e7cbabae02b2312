"""Which rows a reader wants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from tidegate.errors import StoreError
from tidegate.store.journal.frame import Place
from tidegate.store.journal.rows import Stream
from tidegate.store.journal.schema import arrow, schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Rows from `since` up to, not including, `until` (seconds, UTC) whose columns have these values.

    `where` gives for a column one value, several of which one has to be there, or None for an absent one. `accept`
    decides on what is left, row by row; it is slow and for what cannot be said otherwise.
    """

    since: float | None = None
    until: float | None = None
    where: Mapping[str, object] = field(default_factory=dict)
    accept: Callable[[dict[str, Any]], bool] | None = None

    def check(self, stream: Stream) -> None:
        """StoreError if a column does not exist or cannot have that value."""
        pa = arrow()

        layout = schema(stream)
        for name, value in self.where.items():
            if layout.get_field_index(name) < 0:
                raise StoreError(f"{stream.name} has no column {name!r}. Remedy: one of {', '.join(layout.names)}")
            kind = layout.field(name).type
            if pa.types.is_nested(kind):
                raise StoreError(f"the column {name!r} cannot be compared. Remedy: another one, or `accept`")
            try:
                pa.array(_several(value), kind)
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise StoreError(f"the column {name!r} is never {value!r}: {error}") from error

    def may_hold(self, low: int, high: int) -> bool:
        """Whether rows between these times (µs) can be wanted."""
        if self.since is not None and high < _micros(self.since):
            return False
        return self.until is None or low < _micros(self.until)

    def of(self, batch: pa.RecordBatch, place: Place, stream: Stream) -> pa.RecordBatch:
        pa = arrow()
        import pyarrow.compute as pc

        conditions: list[Any] = []
        time = batch.column(stream.time)
        if self.since is not None and place.low < _micros(self.since):
            conditions.append(pc.greater_equal(time, pa.scalar(_micros(self.since), time.type)))
        if self.until is not None and place.high >= _micros(self.until):
            conditions.append(pc.less(time, pa.scalar(_micros(self.until), time.type)))
        for name, value in self.where.items():
            column = batch.column(name)
            conditions.append(pc.is_in(column, value_set=pa.array(_several(value), column.type)))
        if conditions:
            batch = batch.filter(reduce(pc.and_, conditions))
        if self.accept is not None and batch.num_rows:
            batch = batch.filter(pa.array([self.accept(row) for row in batch.to_pylist()], pa.bool_()))
        return batch


def _several(value: object) -> list[object]:
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        return list(value)
    return [value]


def _micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
