"""Who can read a topic of somebody's: each user of the directory, asked of the rules in force.

Users that the rules for this topic cannot tell apart are one class, and each class is asked once. What is not known
before somebody connects or publishes (the connection, the payload, the clock) stays open, so the answer is yes, no, or
*if*, with the condition that is left.

- Asked are steps 8 and 9 of the path: policies, the rules of the publisher, the owner's preferences, views. Brokering,
  links and demands for a level decide besides: they can only take away.
- A user may connect with any client identifier. The rules may say something of some of them: those are asked, too.

It decides nothing by itself: policies, rules, preferences and views are asked as the gate asks them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from tidegate import topics
from tidegate.gate import RuleSet
from tidegate.gate.attributes import CONNECTION, Attributes
from tidegate.gate.verdict import Known
from tidegate.policy import (
    DEFAULT,
    Action,
    Combining,
    Directory,
    Effect,
    Policy,
    Refuse,
    Undecided,
    facets,
    paths_below,
)
from tidegate.policy.outcome import Outcome
from tidegate.policy.preferences import Applicable
from tidegate.policy.publisher_rules import ActiveRule, decide_rules
from tidegate.policy.selector import Term, Terms, terms_of
from tidegate.policy.subject import attributes_of
from tidegate.predicate import UNKNOWN, Predicate
from tidegate.predicate.written import constant
from tidegate.session import Context, Subject

CLIENT: Final = "s.client"
OPEN: Final = ("client", *CONNECTION)
"""Attributes of `s` that are not known before somebody connects."""
_ABSENT: Final = object()


class Can(StrEnum):
    """Whether somebody can read."""

    YES = "yes"
    NO = "no"
    IF = "if"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """Whether somebody can read, and by which rules. `when`: what is left to be true; `parts`: if it is not all."""

    can: Can
    rules: tuple[str, ...] = ()
    when: str | None = None
    parts: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderClass:
    """Those who can read alike. `users`: None stands for whoever has no name; `clients`: those that are of no user."""

    readable: Readable
    users: tuple[str | None, ...] = ()
    clients: tuple[str, ...] = ()


@dataclass(slots=True)
class _Clock:
    wall: float
    steady: float = 0.0


class Readers:
    """Answers for one topic of one owner, under one version of the rules."""

    def __init__(
        self,
        rules: RuleSet,
        directory: Directory,
        owner: Subject,
        topic: str,
        now: float,
        *,
        publisher_rules: Sequence[ActiveRule] = (),
        identities: Mapping[str, str] | None = None,
        anonymous: bool = False,
    ) -> None:
        """`owner`: as it publishes; `publisher_rules`: those of its own that are in force; `identities`: ids of users;
        `anonymous`: whether somebody without a name is let in."""
        self._rules = rules
        self._directory = directory
        self._topic = topic
        self._identities = identities or {}
        self._anonymous = anonymous
        self._owner = owner
        self._attributes = Attributes(rules, _Clock(now))
        context = Context(subject=owner)
        self._known = Known(topic=topic, context=context, link="in", now=now)
        published = {**self._attributes.publication(self._known), **dict.fromkeys((*OPEN, "floor"), UNKNOWN)}
        self._env = {
            "o": {**self._attributes.coming(self._known), "retain": UNKNOWN, "qos": UNKNOWN},
            "e": self._attributes.around(owner, away=True),
            "p": published,
        }
        self._policies = [] if rules.policies is None else rules.policies.concerning(Action.READ, topic)
        self._templates = [each for each in self._policies if each.topic.fixed is None]
        self._speaking = [each for each in publisher_rules if topics.matches(each.topic, topic)]
        self._preferences = rules.preferences.receiving(owner.user, owner.domain, topic, owner.identity, now)
        self._conditions = [*self._all_conditions()]
        self._constants = _constants(self._conditions)
        self._spoken = self._all_terms()
        self._names = {term.name for term in self._spoken if term.sort == "client"} | self._placeholders()
        self._told_apart: dict[Hashable, Readable] = {}
        self.asked = 0
        """How many were asked; the others are of the same class as one of these."""

    # -- what the rules can tell users apart by ------------------------------------------------------------------------

    def _all_conditions(self) -> Iterator[Predicate]:
        conditions = [each.when for each in self._policies]
        conditions += [each.when for each in self._preferences.preferences]
        conditions += [each.when for each in self._speaking]
        yield from (each for each in conditions if each is not None)

    def _all_terms(self) -> Terms:
        domain, views = self._rules.domain, self._rules.views.rows
        terms = [policy.subject.within(domain).terms for policy in self._policies]
        terms += [rule.terms for rule in self._speaking]
        terms += [row.subject.within(domain).terms for row in views if topics.matches(row.topic, self._topic)]
        return frozenset[Term]().union(*terms)

    def _placeholders(self) -> set[str]:
        """Client identifiers with which a policy with a placeholder would speak of this topic."""
        names = set()
        levels = self._topic.split("/")
        for policy in self._policies:
            for level, template in zip(levels, policy.topic.text.split("/"), strict=False):
                before, marked, after = template.partition("{s.client}")
                if marked and level.startswith(before) and level.endswith(after):
                    names.add(level[len(before) : len(level) - len(after)])
        return names - {""}

    def _class(self, subject: Subject, s: Mapping[str, Any]) -> Hashable:
        terms = terms_of(subject, self._rules.domain, self._rules.domains) & self._spoken
        fits = tuple(policy.topic.matches(s, self._topic) for policy in self._templates)
        read = tuple(_facet(s, path, values) for path, values in self._constants)
        return terms, fits, self._preferences.is_own(subject), read

    # -- asking --------------------------------------------------------------------------------------------------------

    def classes(self) -> list[ReaderClass]:
        """All users of the directory by what becomes of them, in the order of the directory."""
        found: dict[Readable, tuple[list[str | None], list[str]]] = {}
        for user in (*self._directory.users, *((None,) if self._anonymous else ())):
            found.setdefault(self.of(user), ([], []))[0].append(user)
        for name, entry in self._directory.clients.items():
            if entry.user is None:
                found.setdefault(self._one(None, name, itself=True), ([], []))[1].append(name)
        return [
            ReaderClass(readable=readable, users=tuple(users), clients=tuple(clients))
            for readable, (users, clients) in found.items()
        ]

    def of(self, user: str | None) -> Readable:
        """Whether one user can read, whichever client they use."""
        usual = self._one(user, None)
        special = {client: self._one(user, client) for client in self._clients(user)}
        return _whichever(usual, {client: each for client, each in special.items() if each != usual})

    def _clients(self, user: str | None) -> Iterator[str]:
        """The client identifiers with which a user may be somebody else to the rules."""
        yield from sorted(self._names)
        if user is not None:
            for name in self._own_clients.get(user, ()):
                if name not in self._names:
                    yield name

    @property
    def _own_clients(self) -> dict[str, list[str]]:
        if not hasattr(self, "_clients_by_user"):
            self._clients_by_user: dict[str, list[str]] = {}
            for name, entry in self._directory.clients.items():
                if entry.user is not None and (entry.roles or entry.groups or entry.attributes):
                    self._clients_by_user.setdefault(entry.user, []).append(name)
        return self._clients_by_user

    def _one(self, user: str | None, client: str | None, *, itself: bool = False) -> Readable:
        """Somebody with one client; `itself`: a client of the directory that has proven who it is."""
        known = self._directory.known(user=user, client=client, as_client=itself)
        subject = Subject(
            kind="client",
            client=client or "",
            user=known.user,
            scope=self._owner.scope,
            node=self._owner.node,
            domain=self._rules.domain,
            roles=known.roles,
            groups=known.groups,
            attributes=known.attributes,
            impostor=known.impostor or client is None,  # nothing is said of a client that is not known yet
            identity=self._identities.get(known.user or "", ""),
        )
        s = self._seen(subject, client, self._rules.domain)
        key = self._class(subject, s)
        answer = self._told_apart.get(key)
        if answer is None:
            self.asked += 1
            answer = self._told_apart[key] = self._ask(subject, s, client)
        return answer

    def _seen(self, subject: Subject, client: str | None, domain: str) -> dict[str, Any]:
        unknown = CONNECTION if client is not None else OPEN
        return {**attributes_of(subject, domain, self._rules.domains), **dict.fromkeys(unknown, UNKNOWN)}

    def _ask(self, subject: Subject, s: dict[str, Any], client: str | None) -> Readable:
        """One class, asked by the steps of the path."""
        steps = (
            self._by_policies(subject, s),
            self._by_preferences(self._preferences, subject, client),
            self._by_views(subject),
        )
        rules = tuple(dict.fromkeys(rule for step in steps for rule in step.rules))
        if (refused := next((step for step in steps if step.can is Can.NO), None)) is not None:
            return Readable(can=Can.NO, rules=refused.rules)
        shown = [step.parts for step in steps if step.parts is not None]
        parts = tuple(sorted(set(shown[0]).intersection(*shown[1:]))) if shown else None
        left = [step.when for step in steps if step.when is not None]
        if not left:
            return Readable(can=Can.YES, rules=rules, parts=parts)
        when = " && ".join(f"({each})" if " || " in each and len(left) > 1 else each for each in left)
        return Readable(can=Can.IF, rules=rules, when=when, parts=parts)

    def _by_policies(self, subject: Subject, s: dict[str, Any]) -> Readable:
        policies, env = self._rules.policies, {**self._env, "s": s}
        if policies is None:
            return Readable(can=Can.YES)
        terms = self._attributes.person(subject).terms
        speaking = [rule for rule in self._speaking if not rule.terms.isdisjoint(terms)]
        answer = policies.decide(Action.READ, subject, self._topic, env, others=bool(speaking))
        outcomes = policies.outcomes(Action.READ, subject, self._topic, env)
        spoken = isinstance(answer, Refuse) and (answer.rule != DEFAULT or answer.error is not None)
        if not speaking or spoken:
            if isinstance(answer, Undecided):
                return _open(outcomes, policies.combining)
            return Readable(can=Can.NO if isinstance(answer, Refuse) else Can.YES, rules=(answer.rule,))
        decision = decide_rules(speaking, env)
        ids = tuple(rule.id for rule in speaking)
        if isinstance(decision, Undecided) or isinstance(answer, Undecided):
            asked = [(rule, rule.asked(env)) for rule in speaking]
            texts = [
                left.written if rule.allows else f"!({left.written})"
                for rule, left in asked
                if isinstance(left, Predicate)
            ]
            texts += [left.written for policy, left in outcomes if isinstance(left, Predicate)]
            return Readable(can=Can.IF, rules=ids, when=" || ".join(texts))
        if decision.effect is Effect.DENY:
            return Readable(can=Can.NO, rules=(decision.rule,))
        if decision.effect is Effect.ALLOW or not isinstance(answer, Refuse):
            return Readable(can=Can.YES, rules=(decision.rule or ids[0],))
        return Readable(can=Can.NO, rules=(answer.rule,))

    def _by_preferences(self, applicable: Applicable, subject: Subject, client: str | None) -> Readable:
        unknown = CONNECTION if client is not None else OPEN
        answer = applicable.decide(subject, self._env, unknown)
        outcomes = applicable.outcomes(subject, self._env, unknown)
        if isinstance(answer, Refuse):
            return Readable(can=Can.NO, rules=tuple(answer.rule.split(", ")))
        if not isinstance(answer, Undecided):
            parts = None if answer.view.shows_all else tuple(sorted(map(str, answer.view.plain)))
            return Readable(can=Can.YES, rules=answer.rules, parts=parts)
        allows = [(each, left) for each, left in outcomes if not each.denies]
        texts = [f"!({left.written})" for each, left in outcomes if each.denies and isinstance(left, Predicate)]
        if allows and not any(left is True for _, left in allows):
            texts.insert(0, " || ".join(left.written for _, left in allows if isinstance(left, Predicate)))
        rules = tuple(each.id for each, left in outcomes if left is True or isinstance(left, Predicate))
        return Readable(can=Can.IF, rules=rules, when=_all_of(texts) or "o.payload")

    def _by_views(self, subject: Subject) -> Readable:
        seen = self._rules.views.seen(subject, self._topic)
        if seen.view.shows_nothing:
            return Readable(can=Can.NO, rules=seen.rules)
        parts = None if seen.view.shows_all else tuple(sorted(map(str, seen.view.plain)))
        return Readable(can=Can.YES, rules=seen.rules, parts=parts)


def _constants(conditions: Iterable[Predicate]) -> list[tuple[tuple[str, ...], frozenset[object] | None]]:
    """The attributes of `s` that conditions read, and what they compare each with; None: with anything."""
    found: dict[str, frozenset[object] | None] = {}
    for condition in conditions:
        for name, values in condition.constants.items():
            if name == "s" or name.startswith("s."):
                known = found.get(name, frozenset())
                found[name] = None if known is None or values is None else known | values
    paths = {path: ".".join(("s", *path)) for path in paths_below("s", found)}
    return [(path, found.get(name)) for path, name in sorted(paths.items())]


def _facet(s: Mapping[str, Any], path: tuple[str, ...], values: frozenset[object] | None) -> Hashable:
    """What conditions can tell somebody apart by: the value itself, or whether it is one that they name."""
    if values is None:
        return facets(s, (path,))
    value: Any = s
    for name in path:
        value = value.get(name, _ABSENT) if isinstance(value, Mapping) else _ABSENT
    return (str, value) if isinstance(value, str) and value in values else (type(value), None)


def _open(outcomes: Sequence[tuple[Policy, Outcome]], combining: Combining) -> Readable:
    """What policies leave to ask."""
    left = [(policy, each) for policy, each in outcomes if isinstance(each, Predicate)]
    rules = tuple(policy.id for policy, each in outcomes if each is not False)
    allowed = any(policy.allows and each is True for policy, each in outcomes)
    texts = []
    if not allowed or combining is not Combining.DENY_OVERRIDES:
        texts = [" || ".join(each.written for policy, each in left if policy.allows)]
    texts += [f"!({each.written})" for policy, each in left if not policy.allows]
    if not any(texts):  # it is allowed, unless a condition fails
        texts = [each.written for _, each in left]
    return Readable(can=Can.IF, rules=rules, when=_all_of(texts))


def _all_of(texts: Iterable[str]) -> str:
    given = [text for text in texts if text]
    return " && ".join(f"({text})" if " || " in text and len(given) > 1 else text for text in given)


def _whichever(usual: Readable, special: Mapping[str, Readable]) -> Readable:
    """One answer for all clients that somebody may use."""
    if not special:
        return usual
    rules = tuple(dict.fromkeys((*usual.rules, *(rule for each in special.values() for rule in each.rules))))
    texts = []
    others = " && ".join(f"{CLIENT} != {constant(name)}" for name in special)
    if usual.can is not Can.NO:
        texts.append(others if usual.when is None else f"{others} && ({usual.when})")
    for name, each in special.items():
        if each.can is not Can.NO:
            same = f"{CLIENT} == {constant(name)}"
            texts.append(same if each.when is None else f"{same} && ({each.when})")
    if not texts:
        return replace(usual, rules=rules)
    if usual.can is Can.YES and all(each.can is Can.YES for each in special.values()):
        return replace(usual, rules=rules, parts=usual.parts)
    return Readable(can=Can.IF, rules=rules, when=" || ".join(texts), parts=usual.parts)
