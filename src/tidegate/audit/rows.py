"""Rows of the audit, which of them somebody wants, and what they add up to: for the node and the command line alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tidegate.errors import TidegateError
from tidegate.store.journal.rows import Kind
from tidegate.store.journal.selection import Selection
from tidegate.topics import matches, share, valid_filter

LEFT_OUT = "left out"
"""The detail of a row that stands for those there was no room for."""
_KINDS = frozenset(kind.value for kind in Kind)


class AuditRow(NamedTuple):
    """A row of the stream `audit`, with the columns of `store.journal.rows.audit_row` in their order."""

    at: float
    node: str | None = None
    kind: str = Kind.DENY.value
    link: str | None = None
    user: str | None = None
    client: str | None = None
    action: str | None = None
    topic: str | None = None
    stage: str | None = None
    rule: str | None = None
    policy_version: str | None = None
    count: int = 1  # type: ignore[assignment]  # the column's name; nobody counts in a row
    detail: str | None = None


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
    def of(cls, said: Mapping[str, Any]) -> Query:
        """From what came over the control socket."""
        known = {one.name for one in fields(cls)}
        if strange := sorted(said.keys() - known):
            raise TidegateError(f"records have no {strange[0]!r}; ask by {', '.join(sorted(known))}")
        try:
            kinds = frozenset(said.get("kinds", ()))
            since, until = (None if said.get(name) is None else float(said[name]) for name in ("since", "until"))
        except (TypeError, ValueError):
            raise TidegateError("`kinds` is a list, `since` and `until` are seconds since 1970") from None
        rest = {name: said[name] for name in ("user", "client", "topic", "rule", "stage") if said.get(name) is not None}
        if not all(isinstance(value, str) for value in rest.values()):
            raise TidegateError(f"{', '.join(rest)} are texts")
        return cls(since=since, until=until, kinds=kinds, **rest)

    def said(self) -> dict[str, Any]:
        """As it goes over the control socket."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: list(value) if name == "kinds" else value for name, value in found.items() if value}

    def takes(self, row: AuditRow) -> bool:
        return (
            (self.since is None or row.at >= self.since)
            and (self.until is None or row.at < self.until)
            and (not self.kinds or row.kind in self.kinds)
            and (self.user is None or row.user == self.user)
            and (self.client is None or row.client == self.client)
            and (self.stage is None or row.stage == self.stage)
            and (self.rule is None or _names(row.rule, self.rule))
            and (self.topic is None or _below(row.topic, self.topic))
        )

    def selection(self) -> Selection:
        """The same, for a reader of the journal."""
        where: dict[str, object] = {
            name: getattr(self, name) for name in ("user", "client", "stage") if getattr(self, name) is not None
        }
        if self.kinds:
            where["kind"] = sorted(self.kinds)
        accept: Callable[[dict[str, Any]], bool] | None = None
        if self.rule is not None or self.topic is not None:

            def accept(row: dict[str, Any]) -> bool:
                return (self.rule is None or _names(row["rule"], self.rule)) and (
                    self.topic is None or _below(row["topic"], self.topic)
                )

        return Selection(since=self.since, until=self.until, where=where, accept=accept)


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
    found: dict[tuple[str, str | None, str | None], Sum] = {}
    for row in rows:
        key = (row.kind, row.rule, row.stage)
        total = found.get(key)
        if total is None:
            total = found[key] = Sum(*key)
        total.count += row.count
        who = row.user or row.client
        if who is not None:
            total.people.add(who)
        if row.at >= total.last:
            total.last = row.at
            if row.detail != LEFT_OUT:
                total.detail = row.detail
    return sorted(found.values(), key=lambda total: (-total.count, total.kind, total.rule or "", total.stage or ""))
