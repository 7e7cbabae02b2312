"""Access policies: who may read or write what (semantics, *Access policies*).

A policy *applies* if its subject, topic and action fit. Of those that apply
1. an error in a condition denies, whatever the combining algorithm;
2. then the combining algorithm speaks of those whose condition is true;
3. and where none has spoken, it is denied.

Invariants
- `decide` with a part of the environment, and its residual with all of it, allow exactly what `decide` with all of it
  allows. Which of several rules that deny is named may differ.
- A residual that could still fail keeps a decision open even where another policy allows: see 1.
- The set is immutable; the cost of a decision follows the policies whose subject and topic fit, not the set's size.

It does not say who somebody is, and knows nothing of preferences, capabilities or publishers' rules.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, TypeVar, assert_never

from tidegate import topics
from tidegate.bounded import Bounded
from tidegate.errors import ConfigError
from tidegate.policy.domains import NO_DOMAINS, Domains
from tidegate.policy.index import FilterIndex
from tidegate.policy.outcome import DEFAULT, Answer, Outcome, Permit, Refuse, Undecided, outcome, partial_outcome
from tidegate.policy.selector import Selector, Term, Terms, names_needed, terms_of
from tidegate.policy.subject import Paths, Subject, attributes_of, facets, paths_below
from tidegate.policy.template import Template
from tidegate.predicate import Env, Predicate, PredicateFailed


class Action(Enum):
    """What a subject does with a message. For a scope or a link: importing in, and forwarding out."""

    READ = "read"
    WRITE = "write"


class Effect(Enum):
    ALLOW = "allow"
    DENY = "deny"


class Combining(Enum):
    """What counts when several policies apply."""

    DENY_OVERRIDES = "deny-overrides"
    PERMIT_OVERRIDES = "permit-overrides"
    FIRST_APPLICABLE = "first-applicable"


_DECISIVE = {
    Combining.DENY_OVERRIDES: (False,),
    Combining.PERMIT_OVERRIDES: (True,),
    Combining.FIRST_APPLICABLE: (True, False),
}
"""Of the policies that speak, the first that decides: one that allows (True), one that denies (False), or either."""

T = TypeVar("T")
S = TypeVar("S")
BOTH = frozenset(Action)
COMBINATIONS: Final = 256  # of conditions that are true, for which the answer is remembered
MAX_KINDS = 10_000  # sorts of actors for which it is remembered what they are told apart by


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One line of an administrator."""

    id: str
    subject: Selector
    topic: Template
    action: frozenset[Action] = BOTH
    effect: Effect = Effect.ALLOW
    when: Predicate | None = None
    permit: Permit = field(init=False, repr=False, compare=False)
    refuse: Refuse = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # made once: a decision allocates nothing
        object.__setattr__(self, "permit", Permit(self.id))
        object.__setattr__(self, "refuse", Refuse(self.id))

    @property
    def allows(self) -> bool:
        return self.effect is Effect.ALLOW

    @property
    def unconditional(self) -> bool:
        return self.when is None or self.when.partial({}) is True

    @property
    def reads(self) -> frozenset[str]:
        return self.topic.reads if self.when is None else self.topic.reads | self.when.reads


Hit = tuple[Policy, Predicate | None]
"""A policy that applies, and what is left of its condition; None if that is true."""


class Policies:
    """All policies of a node, in file order, as one immutable set. `domain` is the node's, `domains` what it believes
    of others."""

    def __init__(
        self,
        policies: Iterable[Policy],
        combining: Combining = Combining.DENY_OVERRIDES,
        *,
        domain: str = "",
        domains: Domains = NO_DOMAINS,
    ) -> None:
        self.combining = combining
        self.domain = domain
        self.domains = domains
        self.policies = tuple(policies)
        self._index: dict[Action, dict[Term, FilterIndex[int]]] = {action: {} for action in Action}
        self._subjects: list[Selector] = []
        reads: dict[Action, dict[Term, set[str]]] = {action: {} for action in Action}
        seen: set[str] = set()
        for position, policy in enumerate(self.policies):
            if policy.id in seen:
                raise ConfigError(f"two policies have the id `{policy.id}`")
            seen.add(policy.id)
            subject = policy.subject.within(domain)
            self._subjects.append(subject)
            for action in policy.action:
                for term in subject.terms:
                    self._index[action].setdefault(term, FilterIndex()).add(policy.topic.levels, position)
                    reads[action].setdefault(term, set()).update(policy.reads)
        self._reads = {
            action: {term: frozenset(paths) for term, paths in terms.items()} for action, terms in reads.items()
        }

        self._paths: Bounded[tuple[Action, Terms], Paths] = Bounded(MAX_KINDS)
        self._everybody: dict[Action, FilterIndex[int]] = {}  # whomever they are about; made when first asked

    def __len__(self) -> int:
        return len(self.policies)

    def pieces(self) -> list[object]:
        """What it is made of, for whoever lets go of it piece by piece; it is not used any more."""
        pieces: list[object] = [*self.policies, *self._subjects]
        for trees in self._index.values():
            pieces += trees.values()
        return pieces

    # -- deciding ------------------------------------------------------------------------------------------------

    def decide(
        self,
        action: Action,
        actor: Subject,
        topic: str,
        known: Env,
        terms: Terms | None = None,
        *,
        others: bool = False,
    ) -> Answer:
        """Whether the actor may read or write the topic, as far as `known` decides it.

        `known` is as for `Predicate.partial`: what is absent or UNKNOWN in it is not known yet. Its root `s`, if it
        has none, is made from the actor. `terms` are the actor's, from whoever has them already. With `others`, others
        may allow what no policy speaks of: then DEFAULT refuses only where it is certain that none does.
        """
        known = self._with_subject(actor, known)
        hits: list[Hit] = []
        for policy in self._applying(action, self._terms(actor) if terms is None else terms, topic, known):
            left = partial_outcome(policy.when, known)
            if isinstance(left, PredicateFailed):
                return Refuse(policy.id, left.reason)
            if left is not False:
                hits.append((policy, None if left is True else left))
        return _settled(tuple(hits), self.combining, others)

    def overlaps(self, action: Action, actor: Subject, filter: str, known: Env | None = None) -> Permit | Refuse:
        """Whether some topic of a plain filter may be allowed: an allowing policy overlaps it that can be true.

        `known` shall hold nothing that may change while the subscription lasts, such as the clock.
        """
        known = self._with_subject(actor, known or {})
        refused = Refuse(DEFAULT)
        for policy in self._overlapping(action, self._terms(actor), filter, known):
            left = partial_outcome(policy.when, known)
            if isinstance(left, PredicateFailed):
                refused = refused if refused.error else Refuse(policy.id, left.reason)
            elif left is not False:
                return policy.permit
        return refused

    def _applying(self, action: Action, terms: Terms, topic: str, known: Env) -> Iterator[Policy]:
        s: Any = known["s"]
        trees = self._about(action, terms)
        named = names_needed(terms)
        for position in sorted({position for tree in trees for position in tree.matching(topic)}):
            policy = self.policies[position]
            if named and policy.allows and self._subjects[position].terms.isdisjoint(named):
                continue
            if policy.topic.matches(s, topic):
                yield policy

    def _overlapping(self, action: Action, terms: Terms, filter: str, known: Env) -> Iterator[Policy]:
        """The policies that allow some topic of a filter if their condition is true, in file order."""
        s: Any = known["s"]
        trees = self._about(action, terms)
        for position in sorted({position for tree in trees for position in tree.overlapping(filter)}):
            policy = self.policies[position]
            if policy.allows and policy.topic.overlaps(s, filter):
                yield policy

    def concerning(self, action: Action, topic: str) -> list[Policy]:
        """Those that can apply to a topic for somebody, whoever that is, in file order."""
        index = self._everybody.get(action)
        if index is None:
            index = FilterIndex()
            for position, policy in enumerate(self.policies):
                if action in policy.action:
                    index.add(policy.topic.levels, position)
            self._everybody[action] = index
        return [self.policies[position] for position in sorted(index.matching(topic))]

    def named(self, action: Action, sort: str) -> frozenset[str]:
        """The subjects of a sort, such as monitors, to which a policy allows an action by name."""
        return frozenset(
            term.name
            for policy in self.policies
            if policy.allows and action in policy.action
            for term in policy.subject.terms
            if term.sort == sort
        )

    # -- showing what was decided by -----------------------------------------------------------------------------

    def considered(self, action: Action, actor: Subject, topic: str, env: Env) -> list[tuple[Policy, Outcome]]:
        """Every policy that `decide` looks at, and how its condition turns out when all of `env` is known."""
        env = self._with_subject(actor, env)
        return [
            (policy, outcome(policy.when, env)) for policy in self._applying(action, self._terms(actor), topic, env)
        ]

    def outcomes(self, action: Action, actor: Subject, topic: str, known: Env) -> list[tuple[Policy, Outcome]]:
        """Every policy that `decide` looks at, and what is known of its condition."""
        known = self._with_subject(actor, known)
        applying = self._applying(action, self._terms(actor), topic, known)
        return [(policy, partial_outcome(policy.when, known)) for policy in applying]

    def considered_for(self, action: Action, actor: Subject, filter: str, known: Env) -> list[tuple[Policy, Outcome]]:
        """Every policy that `overlaps` looks at, and what is known of its condition before any message comes."""
        known = self._with_subject(actor, known)
        policies = self._overlapping(action, self._terms(actor), filter, known)
        return [(policy, partial_outcome(policy.when, known)) for policy in policies]

    def _with_subject(self, actor: Subject, known: Env) -> Env:
        return known if "s" in known else {**known, "s": attributes_of(actor, self.domain, self.domains)}

    def _terms(self, actor: Subject) -> Terms:
        return terms_of(actor, self.domain, self.domains)

    def _about(self, action: Action, terms: Terms) -> list[FilterIndex[int]]:
        """The policies that are about somebody of whom these terms can be said."""
        index = self._index[action]
        return [tree for term in terms if (tree := index.get(term)) is not None]

    # -- sharing what was decided --------------------------------------------------------------------------------

    def reads(self, action: Action) -> frozenset[str]:
        """Every attribute of `s`, `o`, `e` and `p` that some policy for this action reads."""
        return frozenset().union(*self._reads[action].values())

    def cache_key(self, action: Action, terms: Terms, s: Mapping[str, Any]) -> Hashable:
        """Actors with equal values are decided alike: what policies that are about them can tell them apart by.

        `terms` and `s` are the actor's.
        """
        by_term = self._reads[action]
        own = frozenset(term for term in terms if term in by_term)
        paths = self._paths.get((action, own))
        if paths is None:
            reads: frozenset[str] = frozenset().union(*(by_term[term] for term in own))
            paths = self._paths[action, own] = paths_below("s", reads)
        return own, facets(s, paths)

    # -- warnings ------------------------------------------------------------------------------------------------

    def never_decides(self) -> dict[str, str]:
        """Ids of policies that can never decide, and why.

        A policy behind one that always decides before it can still deny by an error in its condition; it is named all
        the same.
        """
        shadows = {action: self._unconditional(action) for action in Action}
        reasons: dict[str, str] = {}
        for position, policy in enumerate(self.policies):
            if policy.when is not None and policy.when.partial({}) is False:
                reasons[policy.id] = "its condition is always false"
            else:
                by = {self._shadow(position, shadows[action]) for action in policy.action}
                if None not in by:
                    reasons[policy.id] = "always decided by " + ", ".join(sorted(str(id) for id in by))
        return reasons

    def _unconditional(self, action: Action) -> dict[Term, FilterIndex[int]]:
        """The policies that can leave others nothing to decide."""
        indexes: dict[Term, FilterIndex[int]] = {}
        for position, policy in enumerate(self.policies):
            strong = policy.allows in _DECISIVE[self.combining]
            if strong and action in policy.action and policy.unconditional:
                for term in self._subjects[position].terms:
                    indexes.setdefault(term, FilterIndex()).add(policy.topic.text.split("/"), position)
        return indexes

    def _shadow(self, position: int, index: dict[Term, FilterIndex[int]]) -> str | None:
        policy, subject = self.policies[position], self._subjects[position]
        for term in (Term("*"), *sorted(subject.terms, key=str)):
            if term not in index:
                continue
            for other in sorted(set(index[term].matching(policy.topic.text))):
                above = self.policies[other]
                if self.combining is Combining.FIRST_APPLICABLE:
                    if other >= position:
                        break
                elif above.allows is policy.allows:
                    continue  # both say the same, so either may be named
                if above.allows and not names_needed(subject.terms) <= self._subjects[other].terms:
                    continue  # `*` allows no monitor anything
                # placeholders are levels like any other here: equal ones hold equal values
                if self._subjects[other].covers(subject) and topics.covers(above.topic.text, policy.topic.text):
                    return above.id
        return None


def _settled(hits: tuple[Hit, ...], combining: Combining, others: bool) -> Answer:
    """The answer if it is certain, else what is left to ask."""
    left = [when for _, when in hits if when is not None]
    if not left:
        return _combined([policy for policy, _ in hits], _DECISIVE[combining])
    certain = _certain_refusal(hits, combining)
    if certain is not None and not (others and certain.rule == DEFAULT):
        return certain
    return Undecided.of(OpenPolicies(hits, combining, _as_it_is), left)


def _certain_refusal(hits: tuple[Hit, ...], combining: Combining) -> Refuse | None:
    """The refusal that stands whatever the open conditions turn out to be. A permission never stands: they may fail."""
    match combining:
        case Combining.DENY_OVERRIDES:
            for policy, when in hits:
                if when is None and not policy.allows:
                    return policy.refuse
        case Combining.PERMIT_OVERRIDES:
            pass
        case Combining.FIRST_APPLICABLE:
            for policy, when in hits:
                if policy.allows:
                    return None
                if when is None:
                    return policy.refuse
        case _:
            assert_never(combining)
    if any(policy.allows for policy, _ in hits):
        return None
    return next((policy.refuse for policy, when in hits if when is None), Refuse(DEFAULT))


def _combined(spoken: list[Policy], decisive: tuple[bool, ...]) -> Permit | Refuse:
    """What the policies say whose condition is true, in file order. None of them has failed."""
    if not spoken:
        return Refuse(DEFAULT)
    chosen = spoken[0]
    for policy in spoken:
        if policy.allows in decisive:
            chosen = policy
            break
    return chosen.permit if chosen.allows else chosen.refuse


class OpenPolicies(Generic[T]):
    """What is left to ask for each message: which of the open conditions are true decides, by a table.

    `told`: what becomes of an answer. It is made once for each combination of conditions that occurs.
    """

    __slots__ = ("_answers", "_certain", "_decisive", "_hits", "_open", "_told")

    def __init__(self, hits: tuple[Hit, ...], combining: Combining, told: Callable[[Permit | Refuse], T]) -> None:
        self._hits = hits
        self._decisive = _DECISIVE[combining]
        self._told = told
        self._open = tuple((1 << at, when, policy.id) for at, (policy, when) in enumerate(hits) if when is not None)
        self._certain = sum(1 << at for at, (_, when) in enumerate(hits) if when is None)
        self._answers: Bounded[int, T] = Bounded(COMBINATIONS)

    def __call__(self, env: Env) -> T:
        # hot: one call per open condition, one look-up
        spoken = self._certain
        for bit, when, id in self._open:
            try:
                if when(env):
                    spoken |= bit
            except PredicateFailed as failed:
                return self._told(Refuse(id, failed.reason))
        answer = self._answers.get(spoken)
        if answer is None:
            true = [policy for at, (policy, _) in enumerate(self._hits) if spoken >> at & 1]
            answer = self._answers[spoken] = self._told(_combined(true, self._decisive))
        return answer

    def mapped(self, told: Callable[[Permit | Refuse], S]) -> Callable[[Env], S]:
        """The same with other answers."""
        if len(self._hits) == 1:
            return _alone(*self._hits[0], told)
        made: OpenPolicies[S] = OpenPolicies(self._hits, Combining.DENY_OVERRIDES, told)
        made._decisive = self._decisive
        return made


def _alone(policy: Policy, when: Predicate | None, told: Callable[[Permit | Refuse], S]) -> Callable[[Env], S]:
    """The answer of one policy that depends on its condition, with no other that applies."""
    assert when is not None
    met, unmet, asked = told(policy.permit if policy.allows else policy.refuse), told(Refuse(DEFAULT)), when

    def decide(env: Env) -> S:
        try:
            return met if asked(env) else unmet
        except PredicateFailed as failed:
            return told(Refuse(policy.id, failed.reason))

    return decide


def _as_it_is(answer: Permit | Refuse) -> Permit | Refuse:
    return answer
