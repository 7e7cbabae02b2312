"""What the rules of a publisher say of one of its messages and a reader (semantics, *Publisher rules*).

Of the rules that are about both, those whose condition is true speak: one that denies denies, else one that allows
allows, else they say nothing. A condition that fails counts as false.

Invariant: `decide_rules` with part of the environment, then its residual with all of it, has the same effect as
`decide_rules` with all of it.

It knows nothing of policies: they come first, and what they deny is not asked about here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate import topics
from tidegate.policy.access import Effect
from tidegate.policy.actor import Paths, paths_below
from tidegate.policy.publisher_rules import Rule, owner_name
from tidegate.policy.selector import Terms
from tidegate.policy.verdict import Outcome, Undecided, outcome, partial_outcome
from tidegate.predicate import Env, Predicate, PredicateFailed


class ActiveRule:
    """One rule that counts, with its condition understood; `broken` says why that is not."""

    __slots__ = ("allows", "broken", "expires", "id", "over", "owner", "rule", "terms", "topic", "when")

    def __init__(self, rule: Rule, owner: str, domain: str, when: Predicate | str | None) -> None:
        self.rule = rule
        self.owner = owner
        self.id = f"rule:{owner_name(owner)}/{rule.id}"
        self.topic = rule.topic
        self.terms: Terms = rule.subject.within(domain).terms
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

    def about(self, topic: str, published: str) -> list[ActiveRule]:
        """Those that speak of a message that is delivered under `topic` and was published under `published`.

        A monitor may have changed the topic. What is denied under either is denied; what is opened is what is
        delivered under a topic that may be opened.
        """
        return [
            each
            for each in self.rules
            if topics.matches(each.topic, topic) or (not each.allows and topics.matches(each.topic, published))
        ]


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
