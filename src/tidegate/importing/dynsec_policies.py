"""The rules of Mosquitto's dynamic security, as one ordered list of policies.

The plugin has an order of roles for each client, policies have one for everybody (`combining: first-applicable`). So
the roles are put into an order that agrees with as many clients as possible, and each role is written once. A client
that has them in another order, and clients without a user name, get their rules written out for them.

A message may be read if `publishClientReceive` allows its topic AND the client could have subscribed to it. The first
rule that fits decides each of the two; in one list that is: for each receiving rule that allows, the subscribing rules
within its topics, and then the end of these topics.

Invariants
- A topic may be read here only if there is a filter, be it the topic itself, that the plugin lets the client subscribe
  to, and receiving the topic is allowed.
- Rules on single filters (`subscribeLiteral` with wildcards) that deny protect no topic there: it can be had by
  another filter. They are left out, but the same filter is not allowed by a rule behind them.

Subscribing `#` and `+` include topics that begin with `$` in this plugin, where receiving and publishing do not. So
they are written once more for `$SYS` and for every first level with `$` that the file names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Final

from tidegate import topics
from tidegate.errors import ConfigError
from tidegate.importing import dollar_topics
from tidegate.importing.imported_policies import ImportedPolicy, ImportReport, plain_topic, quoted
from tidegate.importing.mosquitto_acl import ANONYMOUS

MAX_POLICIES: Final = 200_000

SEND: Final = "publishClientSend"
RECEIVE: Final = "publishClientReceive"
SUBSCRIBE_LITERAL: Final = "subscribeLiteral"
SUBSCRIBE_PATTERN: Final = "subscribePattern"

_PLACEHOLDER: Final = re.compile("%[cu]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One rule of a role."""

    kind: str
    topic: str
    priority: int
    allow: bool
    line: int

    def __str__(self) -> str:
        return f"{self.kind} {self.topic} {_effect(self.allow)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role and its rules, by priority. `shown` is its name in policies."""

    name: str
    shown: str
    acls: tuple[Acl, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A client of the plugin, with all its roles in the order in which they are asked."""

    name: str
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    client: str | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What holds where no rule fits."""

    send: bool
    receive: bool
    subscribe: bool
    line: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """A rule as policies need it: what it matches as topics."""

    role: Role
    acl: Acl
    filters: tuple[str, ...]
    unless: tuple[Role, ...] = ()
    """Roles before it that deny the same literal filter."""

    @property
    def origin(self) -> str:
        return f"line {self.acl.line}: role {self.role.name}: {self.acl}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holder:
    """Whom a list of rules is for. Without a subject: for whoever has the role of each rule."""

    subject: str | None = None
    when: str | None = None

    def of(self, role: Role) -> str:
        return self.subject or f"role:{role.shown}"

    def has(self, role: Role) -> list[str]:
        """The condition that somebody has the role, besides the one that a policy is for."""
        return [] if self.subject else [f"{quoted(role.shown)} in s.roles"]

    def whenever(self, conditions: Iterable[str]) -> str | None:
        return " && ".join([*([self.when] if self.when else []), *conditions]) or None


class Writer(ImportReport):
    """Makes the policies, and notes what has no equivalent."""

    def __init__(self, roles: dict[str, Role], defaults: Defaults, source: str) -> None:
        super().__init__(source, "dynsec")
        self._roles = roles
        self._defaults = defaults
        self._apart: set[str] = set()
        acls = [acl for role in roles.values() for acl in role.acls]
        roots = {level for acl in acls if (level := dollar_topics.root(acl.topic)) is not None}
        self._roots = frozenset(
            level
            for level in {dollar_topics.SYS, *roots}
            if topics.valid_topic(level) and _possible(level, dollar_topics.READ)
        )
        self._usable = {
            role.name: tuple((acl, topic) for acl in role.acls if (topic := self._topic(role, acl)) is not None)
            for role in roles.values()
        }
        self._list_stricter(acls)

    # -- who -----------------------------------------------------------------------------------------------------

    def entry(self, person: Person) -> dict[str, Any]:
        """The person's entry of `directory.users`, once the policies are made."""
        roles = [] if person.name in self._apart else [self._roles[name].shown for name in person.roles]
        return {name: value for name, value in (("roles", roles), ("groups", list(person.groups))) if value}

    def policies(self, people: Iterable[Person], anonymous: Sequence[str]) -> Iterator[ImportedPolicy]:
        """All of them, in order. `anonymous` are the roles of clients without a user name."""
        for count, policy in enumerate(self._in_order(list(people), anonymous), 1):
            if count > MAX_POLICIES:
                raise ConfigError(f"makes more than {MAX_POLICIES:,} policies; use fewer rules", file=self.source)
            yield policy

    def _in_order(self, people: list[Person], anonymous: Sequence[str]) -> Iterator[ImportedPolicy]:
        order = self._order(people)
        for person in people:
            yield from self._bound_to_client(person)
        for person in people:
            if person.name in self._apart:
                yield from self._list(person.roles, _Holder(subject=f"user:{person.name}"))
        if anonymous:
            yield from self._list(anonymous, _Holder(subject="*", when=ANONYMOUS))
        yield from self._list(order, _Holder())
        yield from self._by_default()

    def _order(self, people: list[Person]) -> list[str]:
        """One order of all roles; people who have theirs in another are set apart."""
        wanted: dict[tuple[str, ...], list[str]] = {}
        for person in people:
            wanted.setdefault(person.roles, []).append(person.name)
        before: dict[str, set[str]] = {}
        order: list[str] = []
        for roles, names in sorted(wanted.items(), key=lambda entry: -len(entry[1])):
            more = {role: set(above) for role, above in before.items()}
            for role in roles:
                more.setdefault(role, set())
            for above, role in pairwise(roles):
                more[role].add(above)
            try:
                order = list(TopologicalSorter(more).static_order())
            except CycleError:
                self._apart.update(names)
            else:
                before = more
        return list(dict.fromkeys((*order, *self._roles)))  # behind them those that nobody has

    def _bound_to_client(self, person: Person) -> Iterator[ImportedPolicy]:
        if person.client is None:
            return
        text = f"client {person.name} only as clientid {person.client}"
        for topic in dollar_topics.everything(self._roots):
            yield ImportedPolicy(
                id=self.next_id(person.line),
                subject=f"user:{person.name}",
                topic=plain_topic(topic),
                action=dollar_topics.BOTH,
                effect="deny",
                when=f"!has(s.client) || s.client != {quoted(person.client)}",
                origin=f"line {person.line}: {text}",
            )
        self.leave(person.line, text, "with another one it may connect here, and is denied everything")

    # -- what ----------------------------------------------------------------------------------------------------

    def _topic(self, role: Role, acl: Acl) -> str | None:
        """The filter of a rule as policies have it; None if it is left out."""
        name = f"role {role.name}: {acl}"
        topic = acl.topic
        if dollar_topics.first(topic).startswith("$share"):
            self.leave(acl.line, name, "a shared subscription is judged by its filter here")
            return None
        if not topics.valid_filter(topic):
            self.leave(acl.line, name, "no topic filter; it never matches")
            return None
        if not _possible(topic, dollar_topics.WRITE if acl.kind == SEND else dollar_topics.READ):
            if acl.allow:
                self.leave(acl.line, name, dollar_topics.possible(topic, dollar_topics.BOTH)[1])
            return None
        if _PLACEHOLDER.search(topic):
            if acl.allow:
                why = "Mosquitto 2.0 takes `%c` and `%u` as they are; write `{s.client}`, `{s.user}`"
                self.leave(acl.line, name, why)
                return None
            topic = "/".join("+" if _PLACEHOLDER.search(level) else level for level in topic.split("/"))
            self.leave(acl.line, name, f"denies `{topic}`: every name, not only the client's own")
        return topic

    def _lists(self, names: Iterable[str], holder: _Holder) -> tuple[list[_Rule], list[_Rule], list[_Rule]]:
        """The rules of some roles for sending, receiving and subscribing, each in their order."""
        send: list[_Rule] = []
        receive: list[_Rule] = []
        subscribe: list[_Rule] = []
        of_kind = {SEND: send, RECEIVE: receive, SUBSCRIBE_PATTERN: subscribe}
        closed: dict[str, list[Role]] = {}
        for role in (self._roles[name] for name in names):
            literal = [usable for usable in self._usable[role.name] if usable[0].kind == SUBSCRIBE_LITERAL]
            refused = {topic for acl, topic in literal if not acl.allow}
            for acl, topic in literal:
                wild = _wild(acl)
                if acl.allow and topic in refused:
                    continue  # both in one role; the plugin takes either
                if not acl.allow and wild:
                    continue  # see the invariants above
                unless = closed.get(topic, []) if wild else []
                if not (unless and holder.subject):
                    subscribe.append(_Rule(role=role, acl=acl, filters=(topic,), unless=tuple(unless)))
            for topic in refused:
                closed.setdefault(topic, []).append(role)
            for acl, topic in self._usable[role.name]:
                if acl.kind in of_kind:
                    filters = self._with_dollar(topic) if acl.kind == SUBSCRIBE_PATTERN else (topic,)
                    of_kind[acl.kind].append(_Rule(role=role, acl=acl, filters=filters))
        return send, receive, subscribe

    def _with_dollar(self, filter: str) -> tuple[str, ...]:
        """A subscribing pattern, as filters that do not match a leading `$` by a wildcard."""
        if filter == dollar_topics.ANYTHING:
            return dollar_topics.everything(self._roots)
        if filter[:1] == "+":
            return (filter, *(level + filter[1:] for level in sorted(self._roots)))
        return (filter,)

    def _list(self, names: Iterable[str], holder: _Holder) -> Iterator[ImportedPolicy]:
        send, receive, subscribe = self._lists(names, holder)
        for rule in send:
            yield self._policy(rule, holder, rule.filters[0], dollar_topics.WRITE)
        for rule in receive:
            [filter] = rule.filters
            if not rule.acl.allow:
                yield self._policy(rule, holder, filter, dollar_topics.READ)
            else:
                yield from self._within(rule, filter, subscribe, holder)
        if self._defaults.receive:
            for rule in subscribe:
                for filter in rule.filters:
                    yield self._policy(rule, holder, filter, dollar_topics.READ)

    def _within(
        self, received: _Rule, filter: str, subscribe: list[_Rule], holder: _Holder
    ) -> Iterator[ImportedPolicy]:
        """The subscribing rules for topics that may be received; then what is left of these topics."""
        for rule in subscribe:
            others = [] if rule.role is received.role else holder.has(received.role)
            for each in rule.filters:
                if not topics.overlaps(filter, each):
                    continue
                if topics.covers(each, filter):
                    yield self._policy(rule, holder, filter, dollar_topics.READ, others, received)
                    if not (others or rule.unless):
                        return
                    continue
                matched = f"matchesFilter(o.topic, {quoted(filter)})"
                conditions = others if topics.covers(filter, each) else [*others, matched]
                yield self._policy(rule, holder, each, dollar_topics.READ, conditions, received)
        by_default = _effect(self._defaults.subscribe)
        yield ImportedPolicy(
            id=self.next_id(received.acl.line),
            subject=holder.of(received.role),
            topic=plain_topic(filter),
            action=(dollar_topics.READ,),
            effect=by_default,
            when=holder.whenever(()),
            origin=f"{received.origin}; subscribe by default {by_default}",
        )

    def _by_default(self) -> Iterator[ImportedPolicy]:
        if self._defaults.send:
            named = [f"`{level}`" for level in sorted(self._roots) if _possible(level, dollar_topics.WRITE)]
            why = f"no wildcard matches them here; denied{', but for ' if named else ''}{', '.join(named)}"
            self.leave(self._defaults.line, f"{SEND} by default, on topics that begin with `$`", why)
        reads = self._defaults.receive and self._defaults.subscribe
        action = (*([dollar_topics.READ] if reads else []), *([dollar_topics.WRITE] if self._defaults.send else []))
        for topic in dollar_topics.everything(self._roots):
            if action and (possible := dollar_topics.possible(topic, action)[0]):
                yield ImportedPolicy(
                    id=self.next_id(self._defaults.line),
                    subject="*",
                    topic=plain_topic(topic),
                    action=possible,
                    origin=f"line {self._defaults.line}: defaultACLAccess",
                )

    # -- how -----------------------------------------------------------------------------------------------------

    def _policy(
        self,
        rule: _Rule,
        holder: _Holder,
        topic: str,
        action: str,
        conditions: Iterable[str] = (),
        received: _Rule | None = None,
    ) -> ImportedPolicy:
        unless = [f"!({quoted(role.shown)} in s.roles)" for role in rule.unless]
        return ImportedPolicy(
            id=self.next_id(rule.acl.line),
            subject=holder.of(rule.role),
            topic=plain_topic(topic),
            action=(action,),
            effect=_effect(rule.acl.allow),
            when=holder.whenever([*conditions, *unless]),
            origin=rule.origin if received is None else f"{rule.origin}; {received.origin}",
        )

    def _list_stricter(self, acls: list[Acl]) -> None:
        """Lists the rules against subscribing that bind more here than there."""
        allowed = [acl.topic for acl in acls if acl.allow and acl.kind in (SUBSCRIBE_LITERAL, SUBSCRIBE_PATTERN)]
        if self._defaults.subscribe:
            allowed.append(dollar_topics.ANYTHING)
        for role in self._roles.values():
            for acl, topic in self._usable[role.name]:
                if acl.allow or acl.kind not in (SUBSCRIBE_LITERAL, SUBSCRIBE_PATTERN):
                    continue
                name = f"role {role.name}: {acl}"
                if acl.kind == SUBSCRIBE_LITERAL and _wild(acl):
                    self.leave(acl.line, name, "left out: it refuses this one filter, and others reach the same topics")
                elif any(topics.overlaps(topic, other) and not topics.covers(topic, other) for other in allowed):
                    self.leave(acl.line, name, "denies these topics also where a wider subscription would deliver them")


def _possible(filter: str, action: str) -> bool:
    return bool(dollar_topics.possible(filter, (action,))[0])


def _effect(allow: bool) -> str:
    return "allow" if allow else "deny"


def _wild(acl: Acl) -> bool:
    """Whether its filter is more than one topic."""
    return acl.topic.endswith("#") or "+" in acl.topic.split("/")
