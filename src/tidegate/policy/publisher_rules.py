"""Rules of publishers: who may read their own messages (SEC-REDS, 2.5; semantics, *Publisher rules*).

A publisher sends a *publication*: a JSON list of `{id, topic, subject, effect, when, expires}`, or an object with the
list under `rules` and a `sequence`. A rule replaces the one with its id, `{id, remove: true}` takes one back, the
others stay. A publication is taken whole or refused whole, with a text that says which rule and why.

Of the rules that are about a message and its reader, those whose condition is true speak: one that denies denies, else
one that allows allows, else they say nothing. A condition that fails counts as false. Administrators' policies are
combined first, and their deny is final: `gate/stages/read_publisher_rules.py` asks about rules only what policies
leave open.

Invariants
- What a publisher can ask of the node is bounded, that is its rules, their subjects, conditions and work. All
  conditions of one publisher together may cost as much as one of an administrator's policies.
- `decide_rules` with part of the environment, then its residual with all of it, has the same effect as `decide_rules`
  with all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

import orjson

from tidegate import topics
from tidegate.errors import ConfigError, StoreError
from tidegate.policy.access_policies import Effect
from tidegate.policy.domains import Domains, shown
from tidegate.policy.outcome import Outcome, Undecided, outcome, partial_outcome
from tidegate.policy.selector import Selector, Terms
from tidegate.policy.subject import Paths, Subject, paths_below
from tidegate.policy.template import plain_filter
from tidegate.predicate import Env, Function, Predicate, PredicateError, PredicateFailed, Ranking, compile

CONTROL: Final = "$tidegate/rules"
"""The topic that publishers send their rules to."""

MAX_PUBLICATION: Final = 64 * 1024  # bytes
MAX_RULES: Final = 100  # of one publisher, as what follows
MAX_SUBJECTS: Final = 500
MAX_CONDITIONS: Final = 20
BUDGET: Final = 500  # operations of one evaluation; 20 of them are the budget of one policy
LIMIT: Final = 512  # bytes of one condition
MAX_TEXT: Final = 1024  # bytes of all conditions in one publication: parsing them takes some 6 ms at most
MAX_TOPIC: Final = 512
MAX_LIFE: Final = 100 * 366 * 86400.0
MAX_SEQUENCE: Final = (1 << 63) - 1

RULE_ID: Final = re.compile(r"[\w.:-]{1,64}")  # no slash: the last one in `rule:<publisher>/<id>` stands before the id
_BEHIND: Final = "\n"  # stands between a publisher and its id; names have no line breaks
_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(ms|s|m|h|d)")
_UNITS: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_KEYS: Final = frozenset(("id", "topic", "subject", "effect", "when", "expires"))
_STORED: Final = b"\x01"


def publisher_of(actor: Subject, here: str) -> str | None:
    """Whose messages are one's own: `user:mary`, or what it authenticated as; None if there is nobody to speak of.

    People of the domain `here` are named without it, so that they stay who they are when it is called otherwise.
    """
    if actor.kind != "client":
        return None
    if actor.user is not None:
        return f"user:{shown(actor.user, actor.domain, here)}"
    return actor.principal or None


def owner_of(actor: Subject, here: str) -> str | None:
    """Whose rules speak of the messages of an actor: `publisher_of`, and behind it the id of that identity.

    A name can be somebody else's later; the rules of whoever had it stay theirs.
    """
    publisher = publisher_of(actor, here)
    return with_identity(publisher, actor.identity) if publisher is not None and actor.identity else publisher


def with_identity(publisher: str, id: str) -> str:
    return f"{publisher}{_BEHIND}{id}"


def owner_name(owner: str) -> str:
    """The name in what `owner_of` returns."""
    return owner.partition(_BEHIND)[0]


def owner_identity(owner: str) -> str:
    """The id in what `owner_of` returns; empty if there is none."""
    return owner.partition(_BEHIND)[2]


class Fault(Enum):
    """What is wrong with a publication that is refused."""

    UNREADABLE = "it is no JSON"
    FORBIDDEN = "it may not be"
    EXCESSIVE = "it is too much"


@dataclass(frozen=True, slots=True)
class Unfit:
    fault: Fault
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of a publisher, on its own messages. `expires` is by the wall clock, `life` what it was given in all."""

    id: str
    topic: str
    subject: Selector
    effect: Effect = Effect.ALLOW
    when: str | None = None
    expires: float | None = None
    life: float = 0.0

    @property
    def allows(self) -> bool:
        return self.effect is Effect.ALLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What a publisher said at once. `conditions` are those of its rules, by their text."""

    sequence: int | None = None
    rules: tuple[Rule, ...] = ()
    removed: tuple[str, ...] = ()
    conditions: Mapping[str, Predicate] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[str, ...]:
        return (*(rule.id for rule in self.rules), *self.removed)


class _Unfit(Exception):
    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.unfit = Unfit(fault, text)


# -- reading -----------------------------------------------------------------------------------------------------------


def read(
    payload: bytes,
    now: float,
    functions: Mapping[str, Function] | None = None,
    known: Mapping[str, Predicate | str] | None = None,
    ranking: Ranking | None = None,
) -> Publication | Unfit:
    """A publication, or why it is none. `now` is what `expires` counts from, if it is a duration.

    `known` are conditions that are understood already, by their text: publishers say the same again and again.
    """
    if len(payload) > MAX_PUBLICATION:
        return Unfit(Fault.EXCESSIVE, f"it has more than {MAX_PUBLICATION >> 10} KiB: send it in parts")
    try:
        content = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        return Unfit(Fault.UNREADABLE, f"it is no JSON: {error}")
    try:
        return _publication(content, now, functions, known or {}, ranking)
    except _Unfit as refused:
        return refused.unfit


def _publication(
    content: Any,
    now: float,
    functions: Mapping[str, Function] | None,
    known: Mapping[str, Predicate | str],
    ranking: Ranking | None,
) -> Publication:
    sequence = None
    if isinstance(content, dict):
        if content.keys() - {"sequence", "rules"} or "rules" not in content:
            raise _forbidden("it is a list of rules, or `{sequence, rules}`")
        sequence, content = content.get("sequence"), content["rules"]
        if sequence is not None and not (_whole(sequence) and 0 <= sequence <= MAX_SEQUENCE):
            raise _forbidden("`sequence` is a whole number from 0 on")
    if not isinstance(content, list):
        raise _forbidden("it is a list of rules, or `{sequence, rules}`")
    if len(content) > 2 * MAX_RULES:
        raise _Unfit(Fault.EXCESSIVE, f"it speaks of more than {2 * MAX_RULES} rules: send it in parts")
    rules: dict[str, Rule] = {}
    removed: dict[str, None] = {}
    for position, entry in enumerate(content):
        id = _id(entry, position)
        if id in rules or id in removed:
            raise _forbidden(f"`{id}` stands there twice: give each rule an id of its own")
        try:
            if "remove" in entry:
                if entry != {"id": id, "remove": True}:
                    raise ConfigError("write `{id, remove: true}` to take it back")
                removed[id] = None
            else:
                rules[id] = _rule(id, entry, now)
        except ConfigError as error:
            raise _forbidden(f"`{id}`: {error.args[0]}") from None
    return Publication(
        sequence=sequence,
        rules=tuple(rules.values()),
        removed=tuple(removed),
        conditions=_conditions(rules.values(), functions, known, ranking),
    )


def _forbidden(text: str) -> _Unfit:
    return _Unfit(Fault.FORBIDDEN, text)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _id(entry: object, position: int) -> str:
    id = entry.get("id") if isinstance(entry, dict) else None
    if not isinstance(id, str) or not RULE_ID.fullmatch(id):
        raise _forbidden(
            f"rule {position + 1} has no `id` that can be used: write 1 to 64 letters, digits, `_`, `.`, `:` or `-`"
        )
    return id


def _rule(id: str, entry: dict[str, Any], now: float) -> Rule:
    if unknown := entry.keys() - _KEYS:
        raise ConfigError(f"`{min(unknown)[:50]}` is not known: write {', '.join(sorted(_KEYS))} or `remove`")
    topic, subject, when = entry.get("topic"), entry.get("subject"), entry.get("when")
    if not isinstance(topic, str):
        raise ConfigError("`topic` is missing: write a topic filter")
    if len(topic) > MAX_TOPIC:
        raise ConfigError(f"`topic` has more than {MAX_TOPIC} characters: write a shorter one")
    if not isinstance(subject, str | list):
        raise ConfigError("`subject` is missing: write whom it is about, such as `group:cardiologists`")
    if when is not None and not isinstance(when, str):
        raise ConfigError("`when` is a text with a condition")
    try:
        effect = Effect(entry.get("effect", Effect.ALLOW.value))
    except ValueError:
        raise ConfigError("`effect` is `allow` or `deny`") from None
    expires = _expires(entry.get("expires"), now)
    return Rule(
        id=id,
        topic=plain_filter(topic),
        subject=Selector.parse(subject),
        effect=effect,
        when=when,
        expires=expires,
        life=0.0 if expires is None else expires - now,
    )


def _expires(written: object, now: float) -> float | None:
    """By the wall clock: a time as RFC 3339 has it, or how long from now."""
    if written is None:
        return None
    if isinstance(written, int | float) and not isinstance(written, bool):
        left = float(written)
    elif isinstance(written, str) and (duration := _DURATION.fullmatch(written)):
        left = float(duration[1]) * _UNITS[duration[2]]
    else:
        left = _moment(written) - now
    if left <= 0:
        raise ConfigError("`expires` is past: write a later time")
    if left > MAX_LIFE:
        raise ConfigError("`expires` is more than 100 years ahead: leave it out")
    return now + left


def _moment(written: object) -> float:
    try:
        moment = datetime.fromisoformat(written) if isinstance(written, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(
            "`expires` is a time such as `2026-03-02T09:30:00Z`, a number of seconds, or a duration such as `30m`"
        )
    return moment.timestamp()


def _conditions(
    rules: Iterable[Rule],
    functions: Mapping[str, Function] | None,
    known: Mapping[str, Predicate | str],
    ranking: Ranking | None,
) -> dict[str, Predicate]:
    conditions: dict[str, Predicate] = {}
    total = 0
    for rule in rules:
        if rule.when is None or rule.when in conditions:
            continue
        if isinstance(understood := known.get(rule.when), Predicate):
            conditions[rule.when] = understood
            continue
        total += len(rule.when.encode(errors="replace"))
        if total > MAX_TEXT:
            raise _Unfit(Fault.EXCESSIVE, f"its conditions have more than {MAX_TEXT} bytes: send it in parts")
        try:
            conditions[rule.when] = condition(rule.when, functions, ranking)
        except PredicateError as error:
            raise _forbidden(f"`{rule.id}`: `when` is no condition: {error}") from None
    return conditions


def condition(text: str, functions: Mapping[str, Function] | None = None, ranking: Ranking | None = None) -> Predicate:
    """A publisher's condition, on `s`, `o`, `e` and `p`; PredicateError if it is none."""
    return compile(text, functions=functions, budget=BUDGET, limit=LIMIT, ranking=ranking)


# -- keeping -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """All rules of one publisher, by id, and the sequence of its last publication."""

    sequence: int = 0
    rules: Mapping[str, Rule] = field(default_factory=dict)

    def after(self, publication: Publication, ceiling: Sequence[str]) -> Book | Unfit:
        """The book with what a publication says, or why it is not taken."""
        sequence = self.sequence + 1 if publication.sequence is None else publication.sequence
        if sequence <= self.sequence:
            return Unfit(
                Fault.FORBIDDEN, f"sequence {sequence} is stale: {self.sequence} has been seen, send a higher one"
            )
        for rule in publication.rules:
            if not covered(rule.topic, ceiling):
                return Unfit(
                    Fault.FORBIDDEN, f"`{rule.id}`: publishers may not grant or deny `{rule.topic}` here: narrow it"
                )
        rules = {id: rule for id, rule in self.rules.items() if id not in publication.removed}
        rules |= {rule.id: rule for rule in publication.rules}
        book = Book(sequence=sequence, rules=rules)
        return book.excess() or book

    def excess(self) -> Unfit | None:
        """Of what there is more in it than one publisher may have."""
        rules = self.rules.values()
        conditions = sum(rule.when is not None for rule in rules)
        subjects = sum(len(rule.subject.terms) for rule in rules)
        for count, most, what in (
            (len(rules), MAX_RULES, "rules"),
            (conditions, MAX_CONDITIONS, "rules with a condition"),
            (subjects, MAX_SUBJECTS, "subjects"),
        ):
            if count > most:
                return Unfit(Fault.EXCESSIVE, f"you would have {count} {what}, and {most} are allowed: remove some")
        return None

    def without(self, ids: frozenset[str]) -> Book:
        return Book(sequence=self.sequence, rules={id: rule for id, rule in self.rules.items() if id not in ids})

    def encode(self, beside: Mapping[str, Any] = MappingProxyType({})) -> bytes:
        """For the store, with what is kept `beside` it."""
        rules = [_plain(rule) for rule in self.rules.values()]
        return _STORED + orjson.dumps({"sequence": self.sequence, "rules": rules, **beside})

    @classmethod
    def decode(cls, data: bytes, now: float) -> Book:
        """From the store. A rule does not live longer than it was given, should the clock have been put back."""
        content = stored_content(data)
        rules = [_restored(each, now) for each in content["rules"]]
        return cls(sequence=content["sequence"], rules={rule.id: rule for rule in rules})


def stored_content(data: bytes) -> dict[str, Any]:
    """What the store has of a book, and of what stands beside it."""
    if data[:1] != _STORED:
        raise StoreError("rules of publishers in a form that this version does not know: run the newer Tidegate")
    content: dict[str, Any] = orjson.loads(data[1:])
    return content


def covered(topic: str, ceiling: Sequence[str]) -> bool:
    """Whether publishers may speak of a filter at all."""
    return any(topics.covers(each, topic) for each in ceiling)


def _plain(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "topic": rule.topic,
        "subject": sorted(map(str, rule.subject.terms)),
        "effect": rule.effect.value,
        "when": rule.when,
        "expires": rule.expires,
        "life": rule.life,
    }


def _restored(stored: dict[str, Any], now: float) -> Rule:
    expires = stored["expires"]
    return Rule(
        id=stored["id"],
        topic=stored["topic"],
        subject=Selector.parse(stored["subject"]),
        effect=Effect(stored["effect"]),
        when=stored["when"],
        expires=None if expires is None else min(expires, now + stored["life"]),
        life=stored["life"],
    )


# -- deciding ----------------------------------------------------------------------------------------------------------


Home = tuple[str, Domains]
"""The domain of a publisher, and what that believes of others."""


class ActiveRule:
    """One rule that counts, with its condition understood; `broken` says why that is not."""

    __slots__ = ("allows", "broken", "expires", "home", "id", "over", "owner", "rule", "terms", "topic", "when")

    def __init__(
        self, rule: Rule, owner: str, terms: Terms, when: Predicate | str | None, home: Home | None = None
    ) -> None:
        """`home`: the domain of the publisher, if that is another one than this node's."""
        self.rule = rule
        self.owner = owner
        self.home = home
        self.id = f"rule:{owner_name(owner)}/{rule.id}"
        self.topic = rule.topic
        self.terms = terms
        self.allows = rule.allows
        self.expires = rule.expires
        self.over = False  # it has been seen to expire, and does not speak again whatever the clock does
        self.when = when if isinstance(when, Predicate) else None
        self.broken = when if isinstance(when, str) else None

    def asked(self, known: Env) -> Outcome:
        """How its condition turns out, as far as `known` decides it."""
        return partial_outcome(self.when if self.broken is None else PredicateFailed(self.broken), known)


class ActiveRules:
    """The rules of one publisher that count. `revision` is another number whenever they are others."""

    __slots__ = ("paths", "revision", "rules")

    def __init__(self, active_rules: Sequence[ActiveRule], revision: int) -> None:
        self.rules = tuple(active_rules)
        self.revision = revision
        reads: frozenset[str] = frozenset().union(*(each.when.reads for each in active_rules if each.when is not None))
        self.paths: Paths = paths_below("p", reads)

    def about(self, published: str) -> list[ActiveRule]:
        """Those that speak of a message that was published under `published`.

        A link or a monitor may have changed the topic: a rule is about the one that its publisher chose.
        """
        return [each for each in self.rules if topics.matches(each.topic, published)]


@dataclass(frozen=True, slots=True)
class PublisherDecision:
    """What rules say of one delivery: `effect` is None if nothing."""

    effect: Effect | None = None
    rule: str = ""
    errors: tuple[tuple[str, str], ...] = ()
    """Conditions that counted as false because they failed, with what went wrong."""


_Hit = tuple[ActiveRule, Outcome]


def decide_rules(active_rules: Sequence[ActiveRule], known: Env) -> PublisherDecision | Undecided[PublisherDecision]:
    """What rules that are about a message and its reader say, as far as `known` decides it."""
    hits: list[_Hit] = []
    for rule in active_rules:
        left = rule.asked(known)
        if left is True and not rule.allows:
            return PublisherDecision(Effect.DENY, rule.id)
        if left is not False:
            hits.append((rule, left))
    asked = [(rule, left) for rule, left in hits if isinstance(left, Predicate)]
    allowed = any(left is True for _, left in hits)
    if not asked or (allowed and all(rule.allows for rule, _ in asked)):
        return _Residual(tuple((rule, False if isinstance(left, Predicate) else left) for rule, left in hits))({})
    return Undecided.of(_Residual(tuple(hits)), [left for _, left in asked])


class _Residual:
    """What is left to ask for each message."""

    __slots__ = ("_hits",)

    def __init__(self, hits: tuple[_Hit, ...]) -> None:
        self._hits = tuple(sorted(hits, key=lambda hit: hit[0].allows))  # those that deny first

    def __call__(self, env: Env) -> PublisherDecision:
        errors: tuple[tuple[str, str], ...] = ()
        for rule, left in self._hits:
            answer = outcome(left, env)
            if isinstance(answer, PredicateFailed):
                errors += ((rule.id, answer.reason),)
            elif answer:
                return PublisherDecision(Effect.ALLOW if rule.allows else Effect.DENY, rule.id, errors)
        return PublisherDecision(errors=errors)
