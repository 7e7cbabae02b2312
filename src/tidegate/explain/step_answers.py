"""What single steps of the path say of a message whose content, time and connections are not known yet.

It decides nothing by itself: policies, rules, preferences and views are asked as the gate asks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate import topics
from tidegate.explain.readable import Can, Readable
from tidegate.gate import RuleSet
from tidegate.gate.attributes import CONNECTION, Attributes
from tidegate.gate.verdict import Known
from tidegate.policy import DEFAULT, Action, Combining, Effect, Policy, Refuse, Undecided
from tidegate.policy.outcome import Outcome
from tidegate.policy.preferences import Applicable
from tidegate.policy.publisher_rules import ActiveRule, decide_rules
from tidegate.policy.subject import attributes_of
from tidegate.predicate import UNKNOWN, Predicate
from tidegate.session import Context, Subject

OPEN: Final = ("client", *CONNECTION)
"""Attributes of `s` that are not known before somebody connects."""


@dataclass(slots=True)
class _Clock:
    wall: float
    steady: float = 0.0


class StepAnswers:
    """Answers about one topic of one owner, under one version of the rules."""

    def __init__(
        self, rules: RuleSet, owner: Subject, topic: str, now: float, publisher_rules: Sequence[ActiveRule] = ()
    ) -> None:
        self.rules = rules
        self.owner = owner
        self.node = owner.node
        self.topic = topic
        """As it was published."""
        self.now = now
        self.attributes = Attributes(rules, _Clock(now))
        self.speaking = [each for each in publisher_rules if topics.matches(each.topic, topic)]
        self._envs: dict[str, dict[str, Any]] = {}

    def env(self, topic: str) -> dict[str, Any]:
        """What is known where the topic is called so."""
        known = self._envs.get(topic)
        if known is None:
            context = Context(subject=self.owner, topic=None if topic == self.topic else self.topic)
            asked = Known(topic=topic, context=context, link="in", now=self.now)
            published = {**self.attributes.publication(asked), **dict.fromkeys((*OPEN, "floor"), UNKNOWN)}
            known = self._envs[topic] = {
                "o": {**self.attributes.coming(asked), "retain": UNKNOWN, "qos": UNKNOWN},
                "e": self.attributes.around(self.owner, away=True),
                "p": published,
            }
        return known

    def link(self, subject: Subject) -> dict[str, Any]:
        """A link between scopes: all of it is known."""
        return attributes_of(subject, self.rules.domain, self.rules.domains)

    def receiving(self) -> Applicable:
        owner = self.owner
        return self.rules.preferences.receiving(owner.user, owner.domain, self.topic, owner.identity, self.now)

    def by_forwarding(self, subject: Subject, topic: str, to: str) -> Readable:
        """The owner about forwarding to a scope."""
        owner = self.owner
        preferences = self.rules.preferences
        applicable = preferences.forwarding(owner.user, owner.domain, self.topic, to, owner.identity, self.now)
        return self.by_preferences(applicable, subject, topic)

    def by_policies(
        self, subject: Subject, topic: str, action: Action = Action.READ, s: Mapping[str, Any] | None = None
    ) -> Readable:
        """And, for somebody who reads, the rules of the publisher."""
        policies, env = self.rules.policies, {**self.env(topic), "s": self.link(subject) if s is None else s}
        if policies is None:
            return Readable(can=Can.YES)
        terms = self.attributes.person(subject).terms
        reads = subject.kind != "link"
        speaking = [rule for rule in self.speaking if reads and not rule.terms.isdisjoint(terms)]
        answer = policies.decide(action, subject, topic, env, others=bool(speaking))
        outcomes = policies.outcomes(action, subject, topic, env)
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

    def by_preferences(
        self, applicable: Applicable, subject: Subject, topic: str, unknown: Iterable[str] = ()
    ) -> Readable:
        env = self.env(topic)
        answer = applicable.decide(subject, env, unknown)
        outcomes = applicable.outcomes(subject, env, unknown)
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

    def by_views(self, subject: Subject, topic: str) -> Readable:
        seen = self.rules.views.seen(subject, topic)
        if seen.view.shows_nothing:
            return Readable(can=Can.NO, rules=seen.rules)
        parts = None if seen.view.shows_all else tuple(sorted(map(str, seen.view.plain)))
        return Readable(can=Can.YES, rules=seen.rules, parts=parts)


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
