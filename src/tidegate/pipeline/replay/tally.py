"""What was found, added up: a bounded number of sums, handed on when there are too many of them.

Rows of one task are partial: whoever collects them adds up those of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

MOST: Final = 20_000  # sums that are kept before they are handed on

TOTAL, CHANGE, UNDECIDED = "total", "change", "undecided"

MESSAGES: Final = "messages"
DELIVERIES: Final = "deliveries"
CHANGED: Final = "changed"
OPEN: Final = "undecided"
BARE: Final = "without_payload"
OTHER_RULES: Final = "other_rules"
PASSED_OVER: Final = "passed_over"
UNKNOWN: Final = "unknown_sessions"
CONFUSED: Final = "confused_sessions"
LOST: Final = "lost"
MISSED: Final = "missed"
ASSUMED: Final = "assumed"
TOTALS: Final = (
    MESSAGES,
    DELIVERIES,
    CHANGED,
    OPEN,
    BARE,
    OTHER_RULES,
    PASSED_OVER,
    UNKNOWN,
    CONFUSED,
    LOST,
    MISSED,
    ASSUMED,
)


class Decision(NamedTuple):
    """A decision: whether, by which rule, and what of it is seen."""

    allowed: bool
    rule: str
    sees: str | None = None
    """JSON pointers; None: everything, or nothing is allowed."""


class Change(NamedTuple):
    """A decision that is another one, whatever message it was made for."""

    who: str
    action: str
    topic: str
    publisher: str
    before: Decision
    after: Decision


SPARK: Final = (
    "kind string, name string, who string, action string, topic string, publisher string, "
    "before_allowed boolean, before_rule string, before_sees string, "
    "after_allowed boolean, after_rule string, after_sees string, "
    "bucket int, count bigint, first double, last double"
)
"""The columns of a sum, as Spark writes a schema."""
COLUMNS: Final = tuple(column.split()[0] for column in SPARK.split(", "))
_ARROW: Final = {"boolean": "bool", "int": "int32", "bigint": "int64"}
_SCHEMA: Final = pa.schema(
    [(name, pa.type_for_alias(_ARROW.get(kind, kind))) for name, kind in map(str.split, SPARK.split(", "))]
)


class Tally:
    """The sums of one task. `since` and `width` say into which bucket of time a change falls."""

    def __init__(self, since: float, width: float) -> None:
        self.totals = dict.fromkeys(TOTALS, 0)
        self._since = since
        self._width = width
        self._changes: dict[tuple[Change, int], tuple[int, float, float]] = {}  # how often, from when to when
        self._open: dict[str, int] = {}

    @property
    def full(self) -> bool:
        return len(self._changes) >= MOST

    def changed(self, change: Change, at: float) -> None:
        key = (change, int((at - self._since) / self._width))
        known = self._changes.get(key)
        self._changes[key] = (1, at, at) if known is None else (known[0] + 1, min(known[1], at), max(known[2], at))
        self.totals[CHANGED] += 1

    def undecided(self, why: str, times: int = 1) -> None:
        self._open[why] = self._open.get(why, 0) + times
        self.totals[OPEN] += times

    def take(self) -> pa.RecordBatch:
        """What there is, which begins anew."""
        columns = list(zip(*self._rows(), strict=True)) or [()] * len(COLUMNS)
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        self._changes, self._open = {}, {}
        self.totals = dict.fromkeys(TOTALS, 0)
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)

    def _rows(self) -> Iterator[tuple[object, ...]]:
        nothing = (None,) * 11
        for name, count in self.totals.items():
            if count:
                yield (TOTAL, name, *nothing, count, None, None)
        for why, count in self._open.items():
            yield (UNDECIDED, why, *nothing, count, None, None)
        for (change, bucket), (count, first, last) in self._changes.items():
            who, action, topic, publisher, before, after = change
            yield (CHANGE, None, who, action, topic, publisher, *before, *after, bucket, count, first, last)
