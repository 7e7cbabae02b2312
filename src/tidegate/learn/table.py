"""What was seen, added up: the table that proposals are learned from.

A use is one person doing one thing with one topic in one hour of the day; the table has how often, first and last.
Rows of the same use from different parts of a journal are added up, in whatever order.

- `write` and `read` are messages that were published and received. `subscribe` is a subscription: its topic is the
  filter, without `$share/group/`.
- A use with a `rule` was denied by that rule. It is no reason to allow anything.
- The table is bounded: what does not fit is counted in `left_out`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tidegate.policy.subject import BUILT_IN

READ: Final = "read"
WRITE: Final = "write"
SUBSCRIBE: Final = "subscribe"
PERSON: Final = "person"
"""Not a use: `detail` has the attributes of a person, as JSON."""
MOST: Final = 300_000
"""Uses that a table keeps."""

Who = tuple[str | None, str]
"""A user, and a client identifier."""


class Use(NamedTuple):
    """What rows have in common that are added up."""

    user: str | None
    client: str
    action: str
    topic: str
    hour: int
    """Of the day, in the time zone of the node."""
    rule: str
    """Which denied it; empty if it was allowed."""
    detail: str = ""

    @property
    def who(self) -> Who:
        return self.user, self.client


@dataclass(slots=True)
class Times:
    count: int
    first: float
    last: float

    def add(self, count: int, first: float, last: float) -> None:
        self.count += count
        self.first = min(self.first, first)
        self.last = max(self.last, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who acts: what policies can say of a client."""

    user: str | None = None
    client: str = ""
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    domain: str = ""
    """Whose person it is; empty: this node's."""
    proven: bool = True
    """Whether policies may call it by its client identifier."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Attributes that can stand in a topic, by their path below `s`."""
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Attributes that are lists of texts."""

    @classmethod
    def of(cls, user: str | None, client: str, attributes: Mapping[str, Any], home: str = "") -> Person:
        """From the root `s` of conditions. `home` is the domain of the node; without it everybody is of this one."""
        domain = attributes.get("domain", "")
        domain = "" if not home or domain == home else domain
        at = f"@{domain}" if domain else ""
        texts: dict[str, str] = {}
        lists: dict[str, tuple[str, ...]] = {}
        if "client" in attributes:
            texts["client"] = client + at
        if user is not None and "@" not in user:  # it would not be written so
            texts["user"] = user + at
        for name, value in sorted(attributes.items()):
            if name in _NOT_LEARNED or not name.isidentifier():
                continue
            if isinstance(value, str):
                texts[name] = value
            elif isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
                lists[name] = tuple(value)
        return cls(
            user=user,
            client=client,
            roles=tuple(attributes.get("roles", ())),
            groups=tuple(attributes.get("groups", ())),
            domain=domain,
            proven="client" in attributes and not domain,
            texts=texts,
            lists=lists,
        )

    @property
    def who(self) -> Who:
        return self.user, self.client

    @property
    def name(self) -> str:
        """As on the command line."""
        at = f"@{self.domain}" if self.domain else ""
        return f"client:{self.client}" if self.user is None else f"user:{self.user}{at}/client:{self.client}"


_NOT_LEARNED: Final = frozenset((*BUILT_IN, "facts"))
"""Attributes of the connection, or that say no more than others."""


@dataclass(slots=True)
class Table:
    uses: dict[Use, Times] = field(default_factory=dict)
    people: dict[Who, Person] = field(default_factory=dict)
    """Those who were there."""
    others: tuple[Person, ...] = ()
    """Those whom the directory knows, and who were not."""
    registered: frozenset[str] = frozenset()
    """Client identifiers that the directory gives to somebody: nobody else can have them."""
    left_out: int = 0
    notes: list[str] = field(default_factory=list)
    """What whoever reads the proposals has to know about the record."""

    def add(self, use: Use, count: int, first: float, last: float) -> None:
        times = self.uses.get(use)
        if times is not None:
            times.add(count, first, last)
        elif len(self.uses) < MOST:
            self.uses[use] = Times(count, first, last)
        else:
            self.left_out += count

    def person(self, who: Who) -> Person:
        """Of whom nothing was recorded, nothing but the names is known."""
        person = self.people.get(who)
        if person is None:
            person = self.people[who] = Person.of(*who, {"client": who[1]})
        return person

    @property
    def first(self) -> float | None:
        return min((times.first for times in self.uses.values() if times.first), default=None)

    @property
    def last(self) -> float | None:
        return max((times.last for times in self.uses.values() if times.last), default=None)


@dataclass(frozen=True, slots=True)
class Seen:
    """One person, one action, one topic: all hours together."""

    person: Person
    action: str
    topic: str
    count: int
    first: float
    last: float
    hours: frozenset[int]


def seen(table: Table, *, denied: bool = False, include: bool = False) -> list[Seen]:
    """What was allowed, or what was `denied`; with `include`, both. Sorted, so that order of arrival means nothing."""
    groups: dict[tuple[str, str, str, str], list[tuple[Use, Times]]] = {}
    for use, times in table.uses.items():
        if include or bool(use.rule) is denied:
            groups.setdefault((use.user or "", use.client, use.action, use.topic), []).append((use, times))
    return [_together(table, rows) for _, rows in sorted(groups.items())]


def _together(table: Table, rows: Iterable[tuple[Use, Times]]) -> Seen:
    rows = list(rows)
    use = rows[0][0]
    return Seen(
        person=table.person(use.who),
        action=use.action,
        topic=use.topic,
        count=sum(times.count for _, times in rows),
        first=min(times.first for _, times in rows),
        last=max(times.last for _, times in rows),
        hours=frozenset(use.hour for use, _ in rows),
    )


Row = tuple[str | None, str, str, str, int, str, str, int, float, float]
"""The columns of a use, then how often, first and last: what parts of a journal hand on."""


def rows(uses: Mapping[Use, Times]) -> Iterator[Row]:
    for use, times in uses.items():
        yield (*use, times.count, times.first, times.last)


def tabulate(
    found: Iterable[Row], others: Iterable[Person] = (), home: str = "", registered: Iterable[str] = ()
) -> Table:
    """The table of these rows, which come in any order. `home` is the domain of the node."""
    table = Table(registered=frozenset(registered))
    said: dict[Who, tuple[float, str]] = {}
    for user, client, action, topic, hour, rule, detail, count, first, last in found:
        use = Use(user, client, action, topic, hour, rule, detail)
        if use.action == PERSON:
            said[use.who] = max(said.get(use.who, (0.0, "")), (last, use.detail))
        else:
            table.add(use, count, first, last)
    for who, (_, detail) in said.items():
        table.people[who] = Person.of(*who, json.loads(detail), home)
    there = {person.user for person in table.people.values() if person.user is not None and not person.domain}
    table.others = tuple(person for person in others if person.user not in there)
    return table
