"""Rules of publishers that go from node to node (SEC-REDS, 2.5; semantics, *Publisher rules*).

All rules of one publisher travel together, with the sequence of its last publication. Of two that differ the one with
the higher sequence counts, and of two with the same sequence everywhere the same one: so all nodes agree in the end, in
whichever order they hear of them. A publisher that has taken back its last rule travels on, without rules.

CBOR, canonical:

    [1, domain, user, identity, sequence, beliefs, [[id, topic, [subject, …], effect, when, left, life], …]]

`left` is how many seconds a rule has left, null if it does not expire; `beliefs` says who elsewhere is somebody of the
publisher's domain, as with preferences.

Invariants
- Names in a rule mean those of the publisher's domain, wherever it is read.
- What comes from another node is held to the same bounds as what publishers send here. A condition that is not
  understood here travels on as it came, and counts as false.

It does not know who may speak for a domain, nor how many rules a neighbour may bring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, TypeGuard

from tidegate.errors import ConfigError, MalformedPacket
from tidegate.policy.access_policies import Effect
from tidegate.policy.domains import Domains, domains_of
from tidegate.policy.publisher_rules import (
    LIMIT,
    MAX_LIFE,
    MAX_SEQUENCE,
    MAX_TOPIC,
    RULE_ID,
    Book,
    Rule,
    Unfit,
    owner_identity,
    owner_name,
    with_identity,
)
from tidegate.policy.selector import Selector, Term, Terms
from tidegate.policy.subject import Subject
from tidegate.policy.template import plain_filter
from tidegate.wire import cbor

VERSION: Final = 1
MAX: Final = 256 * 1024
"""Bytes."""
MAX_NAME: Final = 1024
"""Characters of a name, or of a subject of a rule."""
_USER: Final = "user:"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TravellingRules:
    """What one publisher says of its messages."""

    domain: str
    user: str
    identity: str
    book: Book
    beliefs: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    def encode(self, now: float) -> bytes:
        rules = [
            [
                rule.id,
                rule.topic,
                sorted(map(str, rule.subject.terms)),
                rule.effect.value,
                rule.when,
                None if rule.expires is None else max(0.0, rule.expires - now),
                rule.life,
            ]
            for rule in self.book.rules.values()
        ]
        said = [VERSION, self.domain, self.user, self.identity, self.book.sequence, dict(self.beliefs), rules]
        return cbor.canonical(said)

    @classmethod
    def decode(cls, data: bytes, now: float) -> TravellingRules:
        """From bytes of another node. MalformedPacket if they are none."""
        if len(data) > MAX:
            raise MalformedPacket(f"rules of a publisher of {len(data)} bytes: up to {MAX} are taken")
        match cbor.plain(data):
            case [int(version), str(domain), str(user), str(identity), int(sequence), dict(beliefs), list(entries)] if (
                version == VERSION and 0 <= sequence <= MAX_SEQUENCE
            ):
                pass
            case _:
                raise MalformedPacket("these are no rules of a publisher, or of another version")
        if not (domain and user) or max(map(len, (domain, user, identity))) > MAX_NAME or "\n" in identity:
            raise MalformedPacket("a name in the rules of a publisher is empty or too long")
        rules = [_rule(entry, now) for entry in entries]
        try:
            domains_of(beliefs)
        except ConfigError as error:
            raise MalformedPacket(f"what comes with the rules of a publisher cannot be read: {error}") from None
        book = Book(sequence=sequence, rules={rule.id: rule for rule in rules})
        if len(book.rules) != len(rules):
            raise MalformedPacket("two rules of a publisher have the same id")
        if isinstance(excess := book.excess(), Unfit):
            raise MalformedPacket(f"rules of a publisher: {excess.text}")
        return cls(domain=domain, user=user, identity=identity, book=book, beliefs=beliefs)

    def owner(self, here: str) -> str:
        """Whose rules these are, as a node of the domain `here` calls them (`publisher_rules.owner_of`)."""
        name = self.user if self.domain == here and "@" not in self.user else f"{self.user}@{self.domain}"
        owner = f"{_USER}{name}"
        return with_identity(owner, self.identity) if self.identity else owner


def _rule(entry: object, now: float) -> Rule:
    match entry:
        case [str(id), str(topic), list(subjects), str(effect), str() | None as when, left, life] if RULE_ID.fullmatch(
            id
        ):
            pass
        case _:
            raise MalformedPacket("a rule of a publisher has another form")
    if len(topic) > MAX_TOPIC or (when is not None and len(when.encode(errors="replace")) > LIMIT):
        raise MalformedPacket(f"the rule `{id}` of a publisher is too long")
    if not all(isinstance(each, str) and len(each) <= MAX_NAME for each in subjects):
        raise MalformedPacket(f"the subjects of the rule `{id}` of a publisher are no names")
    seconds = [each for each in (0.0 if left is None else left, life) if _is_seconds(each)]
    if len(seconds) != 2:
        raise MalformedPacket(f"the rule `{id}` of a publisher does not expire at any time that there is")
    try:
        return Rule(
            id=id,
            topic=plain_filter(topic),
            subject=Selector.parse(subjects),
            effect=Effect(effect),
            when=when,
            expires=None if left is None else now + min(seconds),
            life=seconds[1],
        )
    except (ConfigError, ValueError) as error:
        raise MalformedPacket(f"the rule `{id}` of a publisher: {error}") from None


def _is_seconds(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_LIFE


def home_of(owner: str, here: str) -> tuple[str, str] | None:
    """The user and the domain in what `owner_of` returns in the domain `here`; None: it is no user, and what it says
    stays here."""
    name = owner_name(owner)
    if not name.startswith(_USER):
        return None
    bare = name.removeprefix(_USER)
    if "@" not in bare:
        return bare, here
    user, _, domain = bare.rpartition("@")
    return user, domain


def travelling(owner: str, book: Book, here: str, beliefs: Mapping[str, Any]) -> TravellingRules | None:
    """The rules of somebody as they travel; None: they stay here."""
    home = home_of(owner, here)
    if home is None:
        return None
    user, domain = home
    return TravellingRules(domain=domain, user=user, identity=owner_identity(owner), book=book, beliefs=beliefs)


def newer(book: Book, than: Book) -> bool:
    """Whether of two books of one publisher this one counts. Nodes that have both agree."""
    return (book.sequence, _digest(book)) > (than.sequence, _digest(than))


def _digest(book: Book) -> bytes:
    """Of what the rules say, whatever time they have left."""
    said = [
        [rule.id, rule.topic, sorted(map(str, rule.subject.terms)), rule.effect.value, rule.when or "", rule.life]
        for rule in sorted(book.rules.values(), key=lambda rule: rule.id)
    ]
    return sha256(cbor.canonical(said)).digest()


def meant(rule: Rule, domain: str, domains: Domains) -> Terms:
    """Whom a rule that was written in a domain is about, which believes this of others: also those elsewhere who are
    the same as somebody there."""
    terms = rule.subject.within(domain).terms
    return terms | frozenset(
        Term(term.sort, name, other)
        for term in terms
        if term.domain == domain
        for other, known in domains.items()
        for name, same in {"user": known.users, "role": known.roles, "group": known.groups}.get(term.sort, {}).items()
        if same == term.name
    )


def publisher(rules: TravellingRules, through: Subject) -> Subject:
    """Who has sent them, for the audit: `through` is the link that they have come over."""
    return Subject(
        kind="client",
        client=f"{through.client}",
        user=f"{rules.user}@{rules.domain}",
        scope=through.scope,
        node=through.node,
    )
