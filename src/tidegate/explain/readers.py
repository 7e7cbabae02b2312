"""Who can read a topic of somebody's: each user of the directory, asked of the rules in force.

Users that the rules for this topic cannot tell apart are one class, and each class is asked once. What is not known
before somebody connects or publishes (the connection, the payload, the clock) stays open, so the answer is yes, no, or
*if*, with the condition that is left.

- Asked are steps 6 to 9 of the path, wherever the message comes over links (`ways`): brokering, levels where they are
  implied, policies, the rules of the publisher, the owner's preferences, views. What a message or a subscription
  demands for itself, and monitors of clients, decide besides: they can only take away.
- A user may connect with any client identifier, and to any scope that has a listener. What the rules say of some of
  them makes a condition.
- People of other domains and of identity providers are asked by role and group, and by the names that rules say.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from tidegate import topics
from tidegate.config import ClientCert, Config, Listener
from tidegate.explain.readable import ASKED, Can, Readable, both
from tidegate.explain.step_answers import OPEN, StepAnswers
from tidegate.explain.ways import Way, best, by_brokering, leaving, ways
from tidegate.gate import RuleSet
from tidegate.gate.attributes import CONNECTION
from tidegate.policy import Action, Directory, facets, paths_below
from tidegate.policy.publisher_rules import ActiveRule
from tidegate.policy.selector import Term, Terms, terms_of
from tidegate.policy.subject import attributes_of
from tidegate.predicate import UNKNOWN, Predicate
from tidegate.predicate.written import constant
from tidegate.session import Subject

__all__ = ["Can", "Readable", "ReaderClass", "Readers"]

CLIENT: Final = "s.client"
CAPABILITY: Final = Readable(can=Can.IF, rules=("capabilities",), when="capability(read)")
"""A capability is needed; what those that people have allow, only they show."""
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderClass:
    """Those who can read alike. `users`: None stands for whoever has no name; `clients`: those that are of no user;
    `others`: people of other domains, such as `role:coach@remotegym`, and links to other nodes."""

    readable: Readable
    users: tuple[str | None, ...] = ()
    clients: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


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
        fronts: Sequence[str] = (),
        levels: int = 2,
        capability: bool = False,
    ) -> None:
        """`owner`: as it publishes, and to which scope; `publisher_rules`: those of its own that are in force;
        `identities`: ids of users; `anonymous`: whether somebody without a name is let in; `fronts`: the scopes that
        clients connect to; `levels`: how many levels their connections may have; `capability`: whether each of them
        needs one."""
        self._rules = rules
        self._directory = directory
        self._anonymous = anonymous
        self._fronts = tuple(dict.fromkeys(fronts)) or (owner.scope,)
        self._asking = StepAnswers(rules, owner, topic, now, publisher_rules)
        self._ways = ways(self._asking, owner, topic)
        level = Readable(can=Can.IF, rules=("levels",), when="s.level == p.level")
        needed = [level] if rules.levels.implied and levels > 1 else []
        needed += [CAPABILITY] if capability else []
        self._places: dict[tuple[str, str], list[_Place]] = {}
        for front in self._fronts:
            for way in self._ways:
                place = _Place(self._asking, directory, identities or {}, front, way, needed)
                self._places.setdefault((front, way.scope), []).append(place)
        self._combined: dict[tuple[Readable, ...], Readable] = {}

    @classmethod
    def of_config(cls, config: Config, owner: Subject, topic: str, now: float, **more: Any) -> Readers:
        """By a configuration, whose listeners say who comes where, and how."""
        listeners, first = config.listeners, next(iter(config.scopes))
        levels = {level for each in listeners for level in _levels(each)}
        return cls(
            config.built.rules,
            config.built.directory,
            owner,
            topic,
            now,
            anonymous=any(each.anonymous for each in listeners),
            fronts=[each.scope or first for each in listeners],
            levels=len(levels) if config.levels is None or not config.levels.define else 2,
            capability=config.capabilities is not None and config.capabilities.required,
            **more,
        )

    @property
    def asked(self) -> int:
        """How many were asked; the others are of the same class as one of these."""
        return sum(place.asked for places in self._places.values() for place in places)

    # -- asking --------------------------------------------------------------------------------------------------------

    def classes(self) -> list[ReaderClass]:
        """All users of the directory by what becomes of them, in the order of the directory; then others."""
        found: dict[Readable, tuple[list[str | None], list[str], list[str]]] = {}

        def of(readable: Readable) -> tuple[list[str | None], list[str], list[str]]:
            return found.setdefault(readable, ([], [], []))

        for user in (*self._directory.users, *((None,) if self._anonymous else ())):
            of(self.of(user))[0].append(user)
        for name, entry in self._directory.clients.items():
            if entry.user is None:
                of(self._everywhere(entry.roles, entry.scopes, partial(_Place.client, name=name)))[1].append(name)
        for name, subject in self._strangers():
            of(self._everywhere(subject.roles, (), partial(_Place.stranger, subject=subject)))[2].append(name)
        for name, readable in leaving(self._asking, self._ways):
            of(readable)[2].append(f"link:{name}")
        return [
            ReaderClass(readable=readable, users=tuple(users), clients=tuple(clients), others=tuple(others))
            for readable, (users, clients, others) in found.items()
        ]

    def of(self, user: str | None) -> Readable:
        """Whether one user can read, whichever client they use, and wherever they connect."""
        entry = None if user is None else self._directory.users.get(user)
        return self._everywhere(() if entry is None else entry.roles, (), lambda place: place.of(user))

    def _everywhere(self, roles: Sequence[str], scopes: Sequence[str], ask: Callable[[_Place], Readable]) -> Readable:
        """At every scope that somebody may connect to; `scopes`: only these; none: all."""
        answers: dict[str, Readable] = {}
        for front in self._fronts:
            if scopes and front not in scopes:
                continue
            place = self._rules.space.place(front, roles)
            if isinstance(place, str):
                answers[front] = Readable(can=Can.NO, rules=("brokering",))
                continue
            there = self._places.get((front, place.receiving), ())
            said = tuple(map(ask, there))
            answers[front] = said[0] if len(said) == 1 else self._best(said)
        if len(answers) == 1:
            return next(iter(answers.values()))
        return _wherever(answers)

    def _best(self, answers: tuple[Readable, ...]) -> Readable:
        if not answers:
            return Readable(can=Can.NO, rules=("links",))
        known = self._combined.get(answers)
        if known is None:
            known = self._combined[answers] = best(list(answers))
        return known

    def _strangers(self) -> Iterator[tuple[str, Subject]]:
        """People of other domains: somebody of whom nothing is said, each role and group, and whom rules name."""
        rules, owner = self._rules, self._asking.owner
        spoken = {term for places in self._places.values() for place in places for term in place.spoken}
        domains = dict.fromkeys(sorted({*rules.domains, *(term.domain for term in spoken)} - {"", rules.domain}))
        for domain in domains:
            anybody = Subject(
                kind="client",
                client="",
                user="",
                scope=owner.scope,
                node=owner.node,
                domain=domain,
                impostor=True,
            )
            yield f"anybody@{domain}", anybody
            known = rules.domains.get(domain)
            named = {term for term in spoken if term.domain == domain}
            if known is not None:
                named |= {Term("role", name, domain) for name in known.roles}
                named |= {Term("group", name, domain) for name in known.groups}
                named |= {Term("user", name, domain) for name in known.users}
            for term in sorted(named):
                match term.sort:
                    case "role":
                        yield f"role:{term.name}@{domain}", replace(anybody, roles=(term.name,))
                    case "group":
                        yield f"group:{term.name}@{domain}", replace(anybody, groups=(term.name,))
                    case "user":
                        yield f"user:{term.name}@{domain}", replace(anybody, user=term.name)


class _Place:
    """One way of the message to one scope, and who can read it there."""

    def __init__(
        self,
        asking: StepAnswers,
        directory: Directory,
        identities: Mapping[str, str],
        front: str,
        way: Way,
        needed: Sequence[Readable],
    ) -> None:
        rules = asking.rules
        self._asking = asking
        self._rules = rules
        self._directory = directory
        self._identities = identities
        self._front = front
        self._way = way
        self._before = [way.readable, *needed]
        self._owner = asking.owner
        self._topic = way.topic
        self._policies = [] if rules.policies is None else rules.policies.concerning(Action.READ, way.topic)
        self._templates = [each for each in self._policies if each.topic.fixed is None]
        self._preferences = asking.receiving()
        self._constants = _constants(self._all_conditions())
        self.spoken = self._all_terms()
        self._names = {term.name for term in self.spoken if term.sort == "client"} | self._placeholders()
        self._told_apart: dict[Hashable, Readable] = {}
        self._types: dict[Hashable, Readable] = {}
        self._clients_by_user: dict[str, list[str]] = {}
        for name, entry in directory.clients.items():
            if entry.user is not None and (entry.roles or entry.groups or entry.attributes or entry.scopes):
                self._clients_by_user.setdefault(entry.user, []).append(name)
        self.asked = 0

    # -- what the rules can tell users apart by ------------------------------------------------------------------------

    def _all_conditions(self) -> Iterator[Predicate]:
        conditions = [each.when for each in self._policies]
        conditions += [each.when for each in self._preferences.preferences]
        conditions += [each.when for each in self._asking.speaking]
        yield from (each for each in conditions if each is not None)

    def _all_terms(self) -> Terms:
        domain, views = self._rules.domain, self._rules.views.rows
        terms = [policy.subject.within(domain).terms for policy in self._policies]
        terms += [rule.terms for rule in self._asking.speaking]
        terms += [row.subject.within(domain).terms for row in views if topics.matches(row.topic, self._topic)]
        return frozenset[Term]().union(*terms, self._rules.brokering.terms)

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
        terms = terms_of(subject, self._rules.domain, self._rules.domains) & self.spoken
        fits = tuple(policy.topic.matches(s, self._topic) for policy in self._templates)
        read = tuple(_facet(s, path, values) for path, values in self._constants)
        return terms, fits, self._preferences.is_own(subject), read

    # -- asking --------------------------------------------------------------------------------------------------------

    def of(self, user: str | None) -> Readable:
        """Whether one user can read here, whichever client they use."""
        usual = self._one(user, None)
        special = {client: self._one(user, client) for client in self._clients(user)}
        return _whichever(usual, {client: each for client, each in special.items() if each != usual})

    def _clients(self, user: str | None) -> Iterator[str]:
        """The client identifiers with which a user may be somebody else to the rules."""
        yield from sorted(self._names)
        if user is not None:
            for name in self._clients_by_user.get(user, ()):
                if name not in self._names:
                    yield name

    def client(self, name: str) -> Readable:
        """A client of the directory that has proven who it is."""
        return self._one(None, name, itself=True)

    def stranger(self, subject: Subject) -> Readable:
        """Somebody of another domain."""
        s = self._seen(subject, None)
        return self._told(self._class(subject, s), subject, s, None)

    def _one(self, user: str | None, client: str | None, *, itself: bool = False) -> Readable:
        """Somebody with one client; `itself`: a client of the directory that has proven who it is."""
        known = self._directory.known(user=user, client=client, as_client=itself)
        if known.scopes and self._front not in known.scopes:
            return Readable(can=Can.NO, rules=("scopes",))
        subject = Subject(
            kind="client",
            client=client or "",
            user=known.user,
            scope=self._way.scope,
            node=self._owner.node,
            domain=self._rules.domain,
            roles=known.roles,
            groups=known.groups,
            attributes=known.attributes,
            impostor=known.impostor or client is None,  # nothing is said of a client that is not known yet
            identity=self._identities.get(known.user or "", ""),
        )
        s = self._seen(subject, client)
        return self._told(self._class(subject, s), subject, s, client)

    def _told(self, key: Hashable, subject: Subject, s: dict[str, Any], client: str | None) -> Readable:
        answer = self._told_apart.get(key)
        if answer is None:
            self.asked += 1
            answer = self._told_apart[key] = self._ask(subject, s, client)
        return answer

    def _seen(self, subject: Subject, client: str | None) -> dict[str, Any]:
        unknown = CONNECTION if client is not None else OPEN
        return {
            **attributes_of(subject, self._rules.domain, self._rules.domains),
            **dict.fromkeys(unknown, UNKNOWN),
        }

    def _ask(self, subject: Subject, s: dict[str, Any], client: str | None) -> Readable:
        """One class, asked by the steps of the path."""
        asking, topic = self._asking, self._topic
        steps = [
            *self._before,
            self._by_brokering(subject),
            asking.by_policies(subject, topic, s=s),
            asking.by_preferences(self._preferences, subject, topic, CONNECTION if client is not None else OPEN),
            asking.by_views(subject, topic),
        ]
        return both(steps)

    def _by_brokering(self, subject: Subject) -> Readable:
        brokering = self._rules.brokering
        if brokering.open:
            return ASKED
        if brokering.objection(subject):
            return Readable(can=Can.NO, rules=("brokering",))
        return by_brokering(self._rules, self._way.type, brokering.types(subject).outward)


def _levels(listener: Listener) -> tuple[str, ...]:
    """Of the connections to it."""
    if not listener.url.tls:
        return ("plain",)
    match listener.client_cert:
        case ClientCert.REQUIRED:
            return "mtls", "trusted"
        case ClientCert.OPTIONAL:
            return "tls", "mtls", "trusted"
        case _:
            return ("tls",)


def _wherever(answers: Mapping[str, Readable]) -> Readable:
    """One answer for all scopes that somebody may connect to."""
    if not answers:
        return Readable(can=Can.NO, rules=("scopes",))
    said = tuple(dict.fromkeys(answers.values()))
    if len(said) == 1:
        return said[0]
    open = {front: each for front, each in answers.items() if each.can is not Can.NO}
    rules = tuple(dict.fromkeys(rule for each in (open or answers).values() for rule in each.rules))
    if not open:
        return Readable(can=Can.NO, rules=rules)
    if len(open) == len(answers) and all(each.can is Can.YES for each in open.values()):
        return Readable(can=Can.YES, rules=rules, parts=best(list(open.values())).parts)
    texts = []
    for front, each in open.items():
        same = f"s.scope == {constant(front)}"
        texts.append(same if each.when is None else f"{same} && ({each.when})")
    return Readable(can=Can.IF, rules=rules, when=" || ".join(texts), parts=best(list(open.values())).parts)


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
