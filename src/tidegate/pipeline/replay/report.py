"""What a replay found: the sums of its tasks, and the report that is made of them.

A task keeps a bounded number of sums, and hands them on when there are too many of them. Its rows are partial: whoever
collects them adds up those of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tidegate.pipeline.columns import columns

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
    *(MESSAGES, DELIVERIES, CHANGED, OPEN, BARE, OTHER_RULES),
    *(PASSED_OVER, UNKNOWN, CONFUSED, LOST, MISSED, ASSUMED),
)


class Decision(NamedTuple):
    """A decision: whether, by which rule, and what of it is seen."""

    allowed: bool
    rule: str
    sees: str | None = None  # JSON pointers; None: everything, or nothing is allowed


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
COLUMNS: Final = tuple(name for name, _ in columns(SPARK))
_ARROW: Final = {"boolean": "bool", "int": "int32", "bigint": "int64"}
_SCHEMA: Final = pa.schema([(name, pa.type_for_alias(_ARROW.get(kind, kind))) for name, kind in columns(SPARK)])


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


NOT_COVERED: Final = (
    "monitors: messages are taken as they came out of those on their way in, and those on the way out are left out",
    "who people are: roles, groups, attributes and levels of connections are taken as they were recorded",
    "subscriptions and connections that were refused: what they would have received is not known",
    "rules that publishers sent to `$tidegate/rules`, capabilities, and quotas",
    "preferences of people of other domains, whose messages came from other nodes",
    "who of a shared subscription is chosen: each member is asked whether it may have the message",
    "what a refused message asked for itself (`require`, `view`): it is taken to have asked for nothing",
    "retained messages, and what waited for somebody, when they are sent: only where that was recorded",
)
_NOTES: Final = {
    OTHER_RULES: "messages were recorded under other rules than those given with -c, or with rules over HTTP",
    BARE: "messages were recorded without their payload; set `traffic: {payloads: true}`",
    PASSED_OVER: "rows are not decided here: what was said to the node itself, or denied to links and monitors",
    LOST: "rows are missing because the disk was too slow: who was there may be wrong for a while after",
    MISSED: "rows cannot be read: they were deleted meanwhile, or are damaged",
    UNKNOWN: "rows are about sessions, or from publishers, that nothing was recorded of before: who else was "
    "there is not fully known, and deliveries are missing",
    CONFUSED: "sessions of the same user and client identifier in several scopes cannot be told apart",
    ASSUMED: "messages are taken to have demanded nothing themselves: with `levels.implied` as it was, that "
    "looks the same in the record as a message that said `require` to the same effect",
}
"""What should be known about the record if a total is not 0; the total comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A change, how often there was one like it, and from when to when."""

    change: Change
    count: int
    first: float
    last: float

    def plain(self) -> dict[str, Any]:
        who, action, topic, publisher, before, after = self.change
        return {
            "who": who,
            "action": action,
            "topic": topic,
            "from": publisher or None,
            "before": before._asdict(),
            "after": after._asdict(),
            "count": self.count,
            "first": iso(self.first),
            "last": iso(self.last),
        }


Series = Mapping[str, Mapping[int, int]]  # how many changed in each bucket of time, by a name


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    since: float
    until: float
    width: float  # seconds of a bucket of time
    totals: Mapping[str, int]
    groups: tuple[Group, ...]  # the largest first
    grouped: int  # how many groups there are; more than are told, if there are very many
    undecided: Mapping[str, int]  # how often, by the reason
    by_rule: Series
    by_subject: Series
    notes: tuple[str, ...]  # what should be known about the record itself
    seconds: float
    rows: int

    @property
    def changed(self) -> int:
        return self.totals[CHANGED]

    def plain(self) -> dict[str, Any]:
        headline = {name: self.totals[name] for name in (MESSAGES, DELIVERIES, CHANGED, OPEN)}
        return {
            "since": iso(self.since),
            "until": iso(self.until),
            **headline,
            "groups": self.grouped,
            "changes": [group.plain() for group in self.groups],
            "undecided_because": dict(self.undecided),
            "record": {name: self.totals[name] for name in TOTALS if name not in headline},
            "notes": list(self.notes),
            "not_covered": list(NOT_COVERED),
            "rows": self.rows,
            "seconds": round(self.seconds, 3),
        }


def notes(totals: Mapping[str, int], *, cut: bool) -> Iterable[str]:
    for name, text in _NOTES.items():
        if count := totals[name]:
            yield f"{count:,} {text}"
    if cut:
        yield "the record before this is gone: whoever had not been written down again is missing at the beginning"


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
