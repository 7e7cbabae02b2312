"""What a replay found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tidegate.pipeline.replay import tally
from tidegate.pipeline.replay.tally import Decision

NOT_COVERED: Final = (
    "monitors: messages are taken as they came out of those on their way in, and those on the way out are left out",
    "who people are: roles, groups, attributes and levels of connections are taken as they were recorded",
    "subscriptions and connections that were refused: what they would have received is not known",
    "rules that publishers sent to `$tidegate/rules`, capabilities, and quotas",
    "who of a shared subscription is chosen: each member is asked whether it may have the message",
    "what a refused message asked for itself (`require`, `view`): it is taken to have asked for nothing",
    "retained messages, and what waited for somebody, when they are sent: only where that was recorded",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Decisions that are other ones, and alike."""

    who: str
    action: str
    topic: str
    publisher: str
    before: Decision
    after: Decision
    count: int
    first: float
    last: float

    def plain(self) -> dict[str, Any]:
        return {
            "who": self.who,
            "action": self.action,
            "topic": self.topic,
            "from": self.publisher or None,
            "before": self.before._asdict(),
            "after": self.after._asdict(),
            "count": self.count,
            "first": iso(self.first),
            "last": iso(self.last),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """How many changed in each bucket of time, by one name."""

    name: str
    counts: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All of it."""

    since: float
    until: float
    width: float
    """Seconds of a bucket of time."""
    totals: Mapping[str, int]
    groups: tuple[Group, ...]
    """The largest first."""
    grouped: int
    """How many groups there are; more than are told, if there are very many."""
    undecided: Mapping[str, int]
    """How often, by the reason."""
    by_rule: tuple[Series, ...]
    by_subject: tuple[Series, ...]
    notes: tuple[str, ...]
    """What should be known about the record itself."""
    seconds: float
    rows: int

    @property
    def changed(self) -> int:
        return self.totals[tally.CHANGED]

    def plain(self) -> dict[str, Any]:
        """For programs."""
        headline = {name: self.totals[name] for name in (tally.MESSAGES, tally.DELIVERIES, tally.CHANGED, tally.OPEN)}
        return {
            "since": iso(self.since),
            "until": iso(self.until),
            **headline,
            "groups": self.grouped,
            "changes": [group.plain() for group in self.groups],
            "undecided_because": dict(self.undecided),
            "record": {name: self.totals[name] for name in tally.TOTALS if name not in headline},
            "notes": list(self.notes),
            "not_covered": list(NOT_COVERED),
            "rows": self.rows,
            "seconds": round(self.seconds, 3),
        }


def notes(totals: Mapping[str, int], *, cut: bool) -> Iterable[str]:
    """What should be known about the record."""
    if count := totals[tally.OTHER_RULES]:
        yield f"{count:,} messages were recorded under other rules than those given with -c, or with rules over HTTP"
    if count := totals[tally.BARE]:
        yield f"{count:,} messages were recorded without their payload; set `traffic: {{payloads: true}}`"
    if count := totals[tally.PASSED_OVER]:
        yield f"{count:,} rows are not decided here: what was said to the node itself, or denied to links and monitors"
    if count := totals[tally.LOST]:
        yield f"{count:,} rows are missing because the disk was too slow: who was there may be wrong for a while after"
    if count := totals[tally.MISSED]:
        yield f"{count:,} rows cannot be read: they were deleted meanwhile, or are damaged"
    if count := totals[tally.UNKNOWN]:
        yield (
            f"{count:,} rows are about sessions, or from publishers, that nothing was recorded of before: who else was "
            "there is not fully known, and deliveries are missing"
        )
    if count := totals[tally.CONFUSED]:
        yield f"{count:,} sessions of the same user and client identifier in several scopes cannot be told apart"
    if count := totals[tally.ASSUMED]:
        yield (
            f"{count:,} messages are taken to have demanded nothing themselves: with `levels.implied` as it was, that "
            "looks the same in the record as a message that said `require` to the same effect"
        )
    if cut:
        yield "the record before this is gone: whoever had not been written down again is missing at the beginning"


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
