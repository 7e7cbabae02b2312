"""Preferences: the data owner restricts what policies grant (sharing, Definition 3; semantics, *Preferences*).

A receiver may read a message of user u if no denying preference of u applies to it, and some allowing preference of u
without `to` that matches the original topic is true for it, or u has none that matches. Forwarding to a scope R
likewise with those that name R, or, if none of the matching ones does, those that say `*`; what denies `*` denies R.

Invariants
- A condition that fails counts as false, and so does one that arrived from another node and is not understood here:
  a preference is never lost on the way, since losing one widens. One that denies and fails, or is not understood here,
  forbids. None forbids anything to the owner.
- One that has expired is as if it were not there. Until when an answer stands is part of what applies (`Applicable`).
- The conditions see people as the owner's domain names them, wherever they are evaluated.
- What the true ones keep unites; a true one without `keep` keeps all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from tidegate import topics
from tidegate.errors import ConfigError, MalformedPacket
from tidegate.policy.domains import NO_DOMAINS, Domains, domains_of
from tidegate.policy.levels import DEFAULT_RANKING
from tidegate.policy.outcome import Outcome, Refuse, Undecided, outcome, partial_outcome
from tidegate.policy.subject import Subject, attributes_of
from tidegate.policy.views import ALL, View, united
from tidegate.predicate import UNKNOWN, Env, Function, Predicate, PredicateError, PredicateFailed, Ranking, compile

ANY_SCOPE: Final = "*"
BUDGET: Final = 500
"""Operations of one evaluation, some 50 µs: an owner may have many, and each receiver asks all that match."""
TOGETHER: Final = 10_000
"""Operations that all of one owner may cost together, for one receiver."""
NEVER_EXPIRED: Final = float("-inf")
"""A moment at which none has expired."""
LEAST: Final = 50
"""But each may cost as much: a comparison or two."""
MAX_TRAVELLING: Final = 256
"""Preferences of one owner that may travel."""
ALLOW: Final = "allow"
DENY: Final = "deny"
_LATEST: Final = 2**53  # milliseconds
Conditions = MutableMapping[str, Predicate | str]
"""By their text; a text: why that is not understood here."""
_FIELDS: Final = frozenset(("id", "user", "owner", "topic", "to", "effect", "when", "keep", "expires"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """One line of a data owner. `broken` says why one from another node is not understood here.

    With `owner`, an id, it is of that identity, whatever the name; without it of whoever has the name, or had it.
    """

    id: str
    user: str
    owner: str | None = None
    topic: str
    to: str | None = None
    when: Predicate | None = None
    keep: View = ALL
    text: str | None = None
    broken: str | None = None
    denies: bool = False
    """Where its condition is true, or fails, it forbids, whatever others allow."""
    expires: float | None = None
    """By the wall clock."""
    person: tuple[str, str | None] | None = None
    """Whose device `user` is, by name and id, who says it. None: `user` says it."""

    @property
    def condition(self) -> Predicate | PredicateFailed | None:
        return self.when if self.broken is None else PredicateFailed(self.broken)


@dataclass(frozen=True, slots=True)
class Granted:
    """The owner agrees: by which preferences (none if none applies), and to which parts."""

    rules: tuple[str, ...] = ()
    view: View = ALL
    errors: tuple[tuple[str, str], ...] = ()
    """Preferences that counted as false because they failed, with what went wrong."""


@dataclass(frozen=True, slots=True)
class Applicable:
    """The preferences that speak of one message to one sort of receiver, written in `domain`, which believes this of
    others. `until`: when the first of them expires; None: none does."""

    preferences: tuple[Preference, ...]
    domain: str
    domains: Domains = field(default_factory=lambda: NO_DOMAINS)
    until: float | None = None

    @property
    def reads(self) -> frozenset[str]:
        return frozenset().union(*(each.when.reads for each in self.preferences if each.when is not None))

    def decide(
        self, receiver: Subject, known: Env, unknown: Iterable[str] = ()
    ) -> Granted | Refuse | Undecided[Granted | Refuse]:
        """Whether the owner agrees, as far as `known` decides it. Its `s` is not looked at: the receiver is.

        `unknown` are attributes of the receiver that are not known yet; what is left must then not be asked.
        """
        allowing = [each for each in self.preferences if not each.denies]
        denying = [each for each in self.preferences if each.denies and not self._owns(receiver, each)]
        if not allowing and not denying:
            return Granted()
        known = self.seeing(receiver, known, unknown)
        denials = [(each, partial_outcome(each.condition, known)) for each in denying]
        if (forbidden := _forbidden(denials)) is not None:
            return forbidden
        open_denials = tuple((each, left) for each, left in denials if isinstance(left, Predicate))
        outcomes = ((each, partial_outcome(each.condition, known)) for each in allowing)
        hits: list[_Hit] = [(each, left) for each, left in outcomes if left is not False]
        # a true one that keeps all leaves nothing for the others to add, and failing they take nothing away
        whole = next((each for each, left in hits if left is True and each.keep.shows_all), None)
        asked = [left for _, left in hits if isinstance(left, Predicate)]
        if not asked or whole is not None:
            asked, hits = [], [(each, False if isinstance(left, Predicate) else left) for each, left in hits]
        residual = _Residual(tuple(allowing), tuple(hits), open_denials)
        if not asked and (not open_denials or isinstance(refused := residual.agreed({}), Refuse)):
            return refused if open_denials else residual.agreed({})
        return Undecided.of(residual, [*asked, *(left for _, left in open_denials if isinstance(left, Predicate))])

    def is_own(self, receiver: Subject) -> tuple[bool, ...]:
        """Of each that denies, whether it forbids nothing to this receiver, whose preference it is."""
        return tuple(self._owns(receiver, each) for each in self.preferences if each.denies)

    def _owns(self, receiver: Subject, preference: Preference) -> bool:
        """Whether a receiver is the one whose preference it is."""
        if receiver.domain != self.domain or receiver.user is None:
            return False
        user, identity = preference.person or (preference.user, preference.owner)
        return receiver.identity == identity if identity is not None else receiver.user == user

    def seeing(self, receiver: Subject, env: Env, unknown: Iterable[str] = ()) -> dict[str, Any]:
        """What the conditions see: the receiver is known in full, so nothing that is left reads the node's own `s`."""
        s = attributes_of(receiver, self.domain, self.domains)
        return {**env, "s": {**s, **dict.fromkeys(unknown, UNKNOWN)}}

    def outcomes(
        self, receiver: Subject, known: Env, unknown: Iterable[str] = ()
    ) -> list[tuple[Preference, bool | Predicate | PredicateFailed]]:
        """What is known of each condition; without those that forbid nothing, because the receiver is the owner."""
        known = self.seeing(receiver, known, unknown)
        asked = [each for each in self.preferences if not (each.denies and self._owns(receiver, each))]
        return [(each, partial_outcome(each.condition, known)) for each in asked]

    def considered(self, receiver: Subject, env: Env) -> list[tuple[Preference, bool | PredicateFailed]]:
        """How each condition turns out when all of `env` is known, to show what was decided by."""
        env = self.seeing(receiver, env)
        return [(each, outcome(each.condition, env)) for each in self.preferences]


_Hit = tuple[Preference, Outcome]


def _forbidden(outcomes: Iterable[_Hit]) -> Refuse | None:
    """By denying preferences that are true, or that fail."""
    hits = [(each, left) for each, left in outcomes if left is True or isinstance(left, PredicateFailed)]
    if not hits:
        return None
    errors = "; ".join(f"{each.id}: {left.reason}" for each, left in hits if isinstance(left, PredicateFailed))
    return Refuse(", ".join(each.id for each, _ in hits), errors or None)


class _Residual:
    """What is left to ask for each message: of those that deny, and of those that allow."""

    __slots__ = ("_all", "_denials", "_hits")

    def __init__(self, all: tuple[Preference, ...], hits: tuple[_Hit, ...], denials: tuple[_Hit, ...] = ()) -> None:
        self._all = all
        self._hits = hits
        self._denials = denials

    def __call__(self, env: Env) -> Granted | Refuse:
        if self._denials:
            forbidden = _forbidden((each, outcome(left, env)) for each, left in self._denials)
            if forbidden is not None:
                return forbidden
        return self.agreed(env)

    def agreed(self, env: Env) -> Granted | Refuse:
        """What those that allow say."""
        if not self._all:
            return Granted()
        true: list[Preference] = []
        errors: list[tuple[str, str]] = []
        for each, left in self._hits:
            answer = outcome(left, env)
            if isinstance(answer, PredicateFailed):
                errors.append((each.id, answer.reason))
            elif answer:
                true.append(each)
        if true:
            return Granted(tuple(each.id for each in true), united(each.keep for each in true), tuple(errors))
        reasons = "; ".join(f"{id}: {reason}" for id, reason in errors)
        return Refuse(", ".join(each.id for each in self._all), reasons or None)


def _sharing(preferences: tuple[Preference, ...]) -> tuple[Preference, ...]:
    """The same, where those of an owner who has many share what all of them may cost."""
    counts = Counter(each.user for each in preferences)
    if not counts or max(counts.values()) * BUDGET <= TOGETHER:
        return preferences
    return tuple(
        each
        if each.when is None or counts[each.user] * BUDGET <= TOGETHER
        else replace(each, when=each.when.limited(max(LEAST, TOGETHER // counts[each.user])))
        for each in preferences
    )


class Preferences:
    """All preferences of the people of one domain, as one immutable set. `domains` is what that domain believes of
    others, wherever the set is."""

    def __init__(self, preferences: Iterable[Preference], *, domain: str = "", domains: Domains = NO_DOMAINS) -> None:
        self.preferences = _sharing(tuple(preferences))
        self.domain = domain
        self.domains = domains
        self._by_user: dict[str, list[Preference]] = {}
        self._by_owner: dict[str, list[Preference]] = {}  # and those of whoever has the name
        seen: set[tuple[str, str]] = set()
        for each in self.preferences:
            called = (each.id, "" if each.person is None else each.user)  # of several devices they are called alike
            if called in seen:
                raise ConfigError(f"two preferences have the id `{each.id}`")
            seen.add(called)
            self._by_user.setdefault(each.user, []).append(each)
            if each.owner is not None:
                self._by_owner.setdefault(each.owner, []).append(each)

    def __len__(self) -> int:
        return len(self.preferences)

    def of(self, user: str | None, domain: str, identity: str = "") -> list[Preference]:
        """All of an owner; a message without an owner has none.

        Without an identity it may be anybody who has the name or had it, so all of theirs count.
        """
        if user is None or domain != self.domain:
            return []
        named = self._by_user.get(user, [])
        if not identity:
            return named
        return [*(each for each in named if each.owner is None), *self._by_owner.get(identity, ())]

    def _matching(
        self, user: str | None, domain: str, topic: str, identity: str, now: float = NEVER_EXPIRED
    ) -> list[Preference]:
        return [
            each
            for each in self.of(user, domain, identity)
            if topics.matches(each.topic, topic) and (each.expires is None or each.expires > now)
        ]

    def receiving(
        self, user: str | None, domain: str, topic: str, identity: str = "", now: float = NEVER_EXPIRED
    ) -> Applicable:
        """What an owner says of subscribers that receive a message; `topic` is the original one."""
        matching = self._matching(user, domain, topic, identity, now)
        return self._applicable([each for each in matching if each.to is None])

    def forwarding(
        self, user: str | None, domain: str, topic: str, to: str, identity: str = "", now: float = NEVER_EXPIRED
    ) -> Applicable:
        """What an owner says of forwarding a message to the scope `to`."""
        matching = [each for each in self._matching(user, domain, topic, identity, now) if each.to in (to, ANY_SCOPE)]
        naming = any(each.to == to and not each.denies for each in matching)
        # what an allowing one says of R stands in place of what others allow to `*`; a denial of all denies R as well
        left = [each for each in matching if not naming or each.to == to or each.denies]
        return self._applicable(left, matching)

    def _applicable(self, preferences: list[Preference], expiring: Iterable[Preference] | None = None) -> Applicable:
        """`expiring`: those that would change what applies when they expire; default: the same."""
        moments = (each.expires for each in (preferences if expiring is None else expiring))
        until = min((moment for moment in moments if moment is not None), default=None)
        return Applicable(tuple(preferences), self.domain, self.domains, until)

    def applicable(self, user: str | None, domain: str, topic: str, identity: str = "") -> Preferences:
        """What travels with a message: everything its owner says of it."""
        matching = self._matching(user, domain, topic, identity)
        return Preferences(matching, domain=self.domain, domains=self.domains)

    def cache_key(self, user: str | None, domain: str, identity: str = "") -> Hashable:
        """Owners with equal values are treated alike: those without preferences are."""
        return (user, identity) if self.of(user, domain, identity) else None

    @cached_property
    def reads(self) -> frozenset[str]:
        return frozenset().union(*(each.when.reads for each in self.preferences if each.when is not None))

    # -- travelling ----------------------------------------------------------------------------------------------

    def encode(self) -> dict[str, Any]:
        data: dict[str, Any] = {"domain": self.domain, "preferences": [_encoded(each) for each in self.preferences]}
        if domains := {name: plain for name, each in self.domains.items() if (plain := each.plain)}:
            data["domains"] = domains
        return data

    @classmethod
    def decode(
        cls,
        data: object,
        *,
        functions: Mapping[str, Function] | None = None,
        ranking: Ranking = DEFAULT_RANKING,
        conditions: Conditions | None = None,
    ) -> Preferences:
        """From plain data of another node. MalformedPacket if it is none; what is not understood counts as false.

        `conditions` are those that were compiled before, with the same functions and ranking.
        """
        match data:
            case {"domain": str() as domain, "preferences": list() as entries, **rest}:
                check_travelling(entries)
                before: Conditions = {} if conditions is None else conditions
                known: Conditions = {}
                for when in {entry["when"] for entry in entries if "when" in entry}:
                    known[when] = before.get(when) or _compiled(when, functions, ranking)
                    before[when] = known[when]  # which may forget others
                try:
                    domains = domains_of(rest.get("domains", {}))
                except ConfigError as error:
                    raise MalformedPacket(f"preferences that cannot be read: {error}") from error
                return cls([_decoded(each, known) for each in entries], domain=domain, domains=domains)
            case _:
                raise MalformedPacket("preferences that cannot be read")


def check_travelling(entries: Sequence[object]) -> None:
    """MalformedPacket unless these are preferences as `Preferences.encode` writes them, understood here or not."""
    if len(entries) > MAX_TRAVELLING:
        raise MalformedPacket(f"{len(entries)} preferences of one owner: up to {MAX_TRAVELLING} travel")
    ids: set[str] = set()
    for entry in entries:
        match entry:
            case dict() if all(isinstance(entry.get(name), str) for name in ("id", "user", "topic")):
                id, topic = entry["id"], entry["topic"]
            case _:
                raise MalformedPacket("a preference without id, user and topic")
        if not all(isinstance(name, str) for name in entry):
            raise MalformedPacket("a preference with a field that has no name")
        if id in ids:
            raise MalformedPacket(f"two preferences have the id `{id[:100]}`")
        ids.add(id)
        if not topics.valid_filter(topic):
            raise MalformedPacket(f"`{topic[:100]}` of a preference is no topic filter")
        for name in ("owner", "to", "when"):
            if not isinstance(entry.get(name, ""), str):
                raise MalformedPacket(f"`{name}` of a preference is no text")
        keep = entry.get("keep", "all")
        try:
            View.parse(keep if isinstance(keep, (str, list)) else "")
        except ConfigError as error:
            raise MalformedPacket(f"`keep` of a preference cannot be read: {error}") from None


def _encoded(each: Preference) -> dict[str, Any]:
    data: dict[str, Any] = {"id": each.id, "user": each.user, "topic": each.topic}
    if each.owner is not None:
        data["owner"] = each.owner
    if each.to is not None:
        data["to"] = each.to
    if each.text is not None:
        data["when"] = each.text
    if each.denies:
        data["effect"] = DENY
    if not each.keep.shows_all:
        data["keep"] = each.keep.plain
    if each.expires is not None:
        data["expires"] = round(each.expires * 1000)
    return data


def _compiled(text: str, functions: Mapping[str, Function] | None, ranking: Ranking) -> Predicate | str:
    """A condition, or why it is not understood here."""
    try:
        return compile(text, functions=functions, budget=BUDGET, ranking=ranking)
    except PredicateError as error:
        return str(error)


def _decoded(data: Mapping[str, Any], conditions: Conditions) -> Preference:
    """What is not known here makes it one that is not understood: it may restrict in ways that are not known either."""
    when = data.get("when")
    condition = None if when is None else conditions[when]
    effect, expires = data.get("effect", ALLOW), data.get("expires")
    unknown = sorted(data.keys() - _FIELDS)
    if effect not in (ALLOW, DENY):
        unknown.append(f"effect: {effect}")
    if expires is not None and not (type(expires) is int and abs(expires) < _LATEST):
        unknown, expires = [*unknown, f"expires: {expires}"], None
    broken = f"`{', '.join(unknown)[:100]}` is not known here" if unknown else None
    if isinstance(condition, str):
        broken = broken or condition
    return Preference(
        id=data["id"],
        user=data["user"],
        owner=data.get("owner"),
        topic=data["topic"],
        to=data.get("to"),
        when=condition if isinstance(condition, Predicate) else None,
        keep=View.parse(data.get("keep", "all")),
        text=when,
        broken=broken,
        denies=effect != ALLOW,  # one that is not known may deny
        expires=None if expires is None else expires / 1000,
    )
