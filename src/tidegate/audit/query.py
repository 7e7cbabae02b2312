"""Rows of the audit, which of them somebody wants, and what they add up to: for the node and the command line alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from tidegate.errors import TidegateError
from tidegate.store.journal.rows import AuditRow, Kind
from tidegate.store.journal.selection import Selection
from tidegate.topics import matches, share, valid_filter

LEFT_OUT = "left out"
"""The detail of a row that stands for those there was no room for."""
_KINDS = frozenset(kind.value for kind in Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is wanted. None: no matter what; no kinds: all."""

    since: float | None = None
    until: float | None = None
    kinds: frozenset[str] = frozenset()
    user: str | None = None
    client: str | None = None
    topic: str | None = None
    rule: str | None = None
    stage: str | None = None

    def __post_init__(self) -> None:
        if strange := sorted(self.kinds - _KINDS):
            raise TidegateError(f"there is no kind {strange[0]!r}; there is {', '.join(sorted(_KINDS))}")
        if self.topic is not None and not valid_filter(self.topic):
            raise TidegateError(f"{self.topic!r} is no topic filter; write for example 'a/b', 'a/+' or 'a/#'")

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Query:
        """The query that the arguments of a control command ask."""
        known = {column.name for column in fields(cls)}
        if strange := sorted(arguments.keys() - known):
            raise TidegateError(f"records have no {strange[0]!r}; ask by {', '.join(sorted(known))}")
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            kinds = frozenset(given.pop("kinds", ()))
            times: dict[str, Any] = {name: float(given.pop(name)) for name in ("since", "until") if name in given}
        except (TypeError, ValueError):
            raise TidegateError("`kinds` is a list, `since` and `until` are seconds since 1970") from None
        if not all(isinstance(value, str) for value in given.values()):
            raise TidegateError(f"{', '.join(given)} are texts")
        return cls(kinds=kinds, **times, **given)

    def arguments(self) -> dict[str, Any]:
        """The arguments of a control command that asks this."""
        values = {column.name: getattr(self, column.name) for column in fields(self)}
        return {name: list(value) if name == "kinds" else value for name, value in values.items() if value}

    def takes(self, row: AuditRow) -> bool:
        return (
            (self.since is None or row.at >= self.since)
            and (self.until is None or row.at < self.until)
            and (not self.kinds or row.kind in self.kinds)
            and (self.user is None or row.user == self.user)
            and (self.client is None or row.client == self.client)
            and (self.stage is None or row.stage == self.stage)
            and self._takes(row.rule, row.topic)
        )

    def _takes(self, rules: str | None, topic: str | None) -> bool:
        return (self.rule is None or _names(rules, self.rule)) and (self.topic is None or _below(topic, self.topic))

    def selection(self) -> Selection:
        """The same, for a reader of the journal."""
        columns = {"user": self.user, "client": self.client, "stage": self.stage, "kind": sorted(self.kinds) or None}
        where: dict[str, object] = {name: value for name, value in columns.items() if value is not None}
        if self.rule is None and self.topic is None:
            return Selection(since=self.since, until=self.until, where=where)
        return Selection(
            since=self.since, until=self.until, where=where, accept=lambda row: self._takes(row["rule"], row["topic"])
        )


def _names(rules: str | None, rule: str) -> bool:
    """What several preferences of one owner decided together bears all their names."""
    return rules is not None and (rules == rule or rule in rules.split(", "))


def _below(topic: str | None, filter: str) -> bool:
    """The topic of a subscription is a filter itself; it is compared by what is written in it."""
    return topic is not None and (topic == filter or matches(filter, share(topic)[1]))


def shown(row: AuditRow) -> dict[str, Any]:
    """A row for scripts: the columns of the journal, the time as ISO 8601 in UTC."""
    return {**row._asdict(), "at": iso(row.at)}


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def from_columns(row: Mapping[str, Any]) -> AuditRow:
    """A row as the journal's reader gives it."""
    return AuditRow(**{**{name: row[name] for name in AuditRow._fields}, "at": row["at"].timestamp()})


@dataclass(slots=True)
class Sum:
    """What one rule did."""

    kind: str
    rule: str | None
    stage: str | None
    count: int = 0
    people: set[str] = field(default_factory=set)
    last: float = 0.0
    detail: str | None = None


def summary(rows: Iterable[AuditRow]) -> list[Sum]:
    """By kind, rule and stage; those that did most come first."""
    sums: dict[tuple[str, str | None, str | None], Sum] = {}
    for row in rows:
        key = (row.kind, row.rule, row.stage)
        total = sums.get(key) or sums.setdefault(key, Sum(*key))
        total.count += row.count
        who = row.user or row.client
        if who is not None:
            total.people.add(who)
        if row.at >= total.last:
            total.last = row.at
            if row.detail != LEFT_OUT:
                total.detail = row.detail
    return sorted(sums.values(), key=lambda total: (-total.count, total.kind, total.rule or "", total.stage or ""))
