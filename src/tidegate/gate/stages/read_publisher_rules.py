"""Step 8 where publishers have a say: policies, then the rules of whoever published (semantics, *Publisher rules*).

What a policy denies, or fails to say, is final under each combining algorithm. Otherwise the publisher's rules that are
about the message and its reader speak, and where they say nothing it stays with what the policies said: that includes
that none of them spoke, which denies. The owner of a message comes from its context, never from its topic.

Rules are decided when a plan is compiled, as far as possible; a rule that expires limits how long the plan is valid.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from datetime import UTC, datetime
from typing import Any, Protocol, assert_never

from tidegate.gate.attributes import CONNECTION, Attributes, later
from tidegate.gate.stages.write_and_read_policies import AccessStage, unspoken
from tidegate.gate.verdict import ALLOW, Allow, Answer, Deny, Known, Residual, Step
from tidegate.policy import DEFAULT, Effect, Terms, Undecided
from tidegate.policy.outcome import Outcome
from tidegate.policy.publisher_rules import ActiveRule, ActiveRules, Home, PublisherDecision, decide_rules, owner_of
from tidegate.policy.subject import attributes_of
from tidegate.predicate import UNKNOWN, Predicate
from tidegate.session import Link, Message, Subject

LOOKED = 20  # conditions asked before a SUBSCRIBE is granted unseen: each delivery is decided anyway

RULES = "rules"
"""Where a scene has those that speak of the message, whoever reads it."""


def reader(attributes: Attributes, actor: Subject, home: Home | None, *, away: bool = False) -> dict[str, Any]:
    """The root `s` of a reader, as the domain of the publisher sees them if that is another one."""
    if home is None:
        return attributes.subject(actor, away)
    s = attributes_of(actor, *home)
    return {**s, **dict.fromkeys(CONNECTION, UNKNOWN)} if away else s


class PublisherRules(Protocol):
    """The rules of all publishers that are in force now."""

    def of(self, publisher: Subject) -> ActiveRules | None:
        """The rules of one publisher; None if none of its rules is in force."""
        ...

    def left(self, rule: ActiveRule) -> float:
        """Seconds until a rule that expires does; 0 if it has."""
        ...

    def allowing(self, filter: str, scope: str, terms: Terms) -> Iterator[ActiveRule]:
        """Rules that may allow a subject with these terms to read something that is delivered in a scope under some
        topic of a filter."""
        ...


class PublisherRuleStage:
    """Policies for reading, if there are any, and publishers' rules. `keyed`: some topics are protected."""

    step = Step.READ

    def __init__(
        self, access: AccessStage | None, publishers: PublisherRules, attributes: Attributes, *, keyed: bool = False
    ) -> None:
        self.access = access
        self.publishers = publishers
        self.attributes = attributes
        self.keyed = keyed

    def evaluate(self, known: Known) -> Answer:
        assert known.target is not None
        actor = known.target.subject
        speaking = self._speaking(known, actor)
        if not speaking:
            return ALLOW if self.access is None else self.access.evaluate(known)
        home = speaking[0].home  # all are of one publisher
        first = ALLOW if self.access is None else self.access.answer(known, others=True)
        if isinstance(first, Deny) and not unspoken(first):
            return first
        attributes = self.attributes
        s = reader(attributes, actor, home, away=known.away)
        env: dict[str, Any] = {
            "s": s,
            "o": attributes.coming(known),
            "e": attributes.around(actor, known.away),
            "p": attributes.publication(known) if home is None else attributes.publication_in(home[0], known),
        }
        decision = decide_rules(speaking, env)
        if isinstance(decision, Undecided):
            if known.away and later(decision.reads, decision.volatile):
                return ALLOW  # it is decided when it is sent
            now = attributes.at_once(known, decision, env, actor)
            if now is None:
                return self._left(first, decision, s, actor, home)
            decision = decision.residual(now)
        if not isinstance(first, Residual):
            return _joined(first, decision)
        if decision.effect is Effect.DENY:
            return _joined(ALLOW, decision)  # whatever the policies will say
        return self._left(first, decision, s, actor, home)

    def _speaking(self, known: Known, actor: Subject) -> list[ActiveRule]:
        """The rules that are about a message and its reader."""
        about: list[ActiveRule] | None = known.scene.get(RULES)
        if about is None:
            active_rules = self.publishers.of(known.context.subject)
            about = known.scene[RULES] = [] if active_rules is None else active_rules.about(known.published)
        if not about:
            return about
        terms = self.attributes.person(actor).terms
        speaking: list[ActiveRule] = []
        for rule in about:
            if rule.terms.isdisjoint(terms):
                continue
            if rule.expires is not None:
                left = self.publishers.left(rule)
                if not known.stands_until(datetime.fromtimestamp(known.now + left, UTC)):
                    continue
            speaking.append(rule)
        return speaking

    def _left(
        self,
        first: Answer,
        decision: PublisherDecision | Undecided[PublisherDecision],
        s: dict[str, Any],
        actor: Subject,
        home: Home | None,
    ) -> Residual:
        attributes = self.attributes
        environment = attributes.environment(actor)
        reads_p = isinstance(decision, Undecided) and any(path.partition(".")[0] == "p" for path in decision.reads)

        def decide(message: Message) -> Allow | Deny:
            answer = first.decide(message) if isinstance(first, Residual) else first
            if isinstance(answer, Deny) and not unspoken(answer):
                return answer
            if isinstance(decision, PublisherDecision):
                return _joined(answer, decision)
            env: dict[str, Any] = {"s": s, "o": attributes.facts(message), "e": attributes.now(environment)}
            if reads_p:
                env["p"] = attributes.published(message) if home is None else attributes.published_in(home[0], message)
            return _joined(answer, decision.residual(env))

        return Residual(decide)

    def cache_key(self, source: Link) -> Hashable:
        policies = None if self.access is None else self.access.cache_key(source)
        active_rules = self.publishers.of(source.subject)
        own: Hashable = None
        if active_rules is not None:
            own = (active_rules.revision, self.attributes.cache_key(source, active_rules.paths))
        elif self.keyed:
            # whoever may have rules later has keys of its own now (`KeyGroupFinder`)
            own = owner_of(source.subject, self.attributes.rules.domain)
        return policies, own

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        answer = ALLOW if self.access is None else self.access.grant(filter, target)
        if isinstance(answer, Allow):
            return answer
        actor = target.subject
        around = self.attributes.environment(actor).known
        asked = 0
        for rule in self.publishers.allowing(filter, actor.scope, self.attributes.person(actor).terms):
            asked += rule.when is not None
            if asked > LOOKED or possible(rule.asked({"s": reader(self.attributes, actor, rule.home), "e": around})):
                return Allow(rule=rule.id)
        return answer


def possible(outcome: Outcome) -> bool:
    """Whether a condition is true, or may be when a message comes."""
    return outcome is True or isinstance(outcome, Predicate)


def _joined(first: Allow | Deny, decision: PublisherDecision) -> Allow | Deny:
    """What counts if the policies have said `first`: that they allow it, or that none of them speaks of it."""
    match decision.effect:
        case Effect.DENY:
            return Deny(step=Step.READ, rule=decision.rule)
        case Effect.ALLOW:
            return Allow(rule=decision.rule, errors=decision.errors)
        case None:
            pass
        case _:
            assert_never(decision.effect)
    if not decision.errors:
        return first
    if isinstance(first, Allow):
        return Allow(rule=first.rule, view=first.view, errors=decision.errors)
    return Deny(step=Step.READ, rule=DEFAULT, error="; ".join(f"{id}: {reason}" for id, reason in decision.errors))
