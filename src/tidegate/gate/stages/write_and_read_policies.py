"""Steps 1 and 8: may the subject write this topic, and may it read it (semantics, *Access policies*).

Where others may allow what no policy speaks of (`answer` with `others`), a denial by default is told from one by a
policy with `unspoken`. Topics on which clients speak to the node itself are open unless a policy denies them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from tidegate.bounded import Bounded
from tidegate.gate.attributes import Attributes, later
from tidegate.gate.stages.write_reserved_topics import is_own_state
from tidegate.gate.verdict import ALLOW, Allow, Answer, Deny, Known, Residual, Step
from tidegate.policy import (
    DEFAULT,
    Action,
    Environment,
    Moment,
    OpenPolicies,
    Permit,
    Policies,
    Refuse,
    Undecided,
    facets,
    paths_below,
)
from tidegate.policy.control_topics import ANSWER, SAID
from tidegate.session import Link, Message, Subject

ANSWERS: Final = 100_000  # that are made once; there is one for each policy


def unspoken(answer: Answer) -> bool:
    """Whether it is denied only because no policy speaks of it."""
    return isinstance(answer, Deny) and answer.rule == DEFAULT and not answer.error


class AccessStage:
    """The administrator's policies for one action."""

    def __init__(self, action: Action, policies: Policies, attributes: Attributes) -> None:
        self.step = Step.WRITE if action is Action.WRITE else Step.READ
        self.action = action
        self.policies = policies
        self.attributes = attributes
        reads = policies.reads(action)
        self._paths = paths_below("e" if action is Action.WRITE else "p", reads)
        step = self.step
        self._allows: Bounded[str, Allow] = Bounded(ANSWERS, lambda rule: Allow(rule=rule))
        self._denies: Bounded[str, Deny] = Bounded(ANSWERS, lambda rule: Deny(step=step, rule=rule))

    def evaluate(self, known: Known) -> Answer:
        if self.action is Action.WRITE and (known.topic in SAID or is_own_state(known.context.subject, known.topic)):
            return _unless_denied(self.answer(known, others=True))
        if self.action is Action.READ and known.topic == ANSWER:
            return ALLOW  # only the node speaks there, to one client alone
        return self.answer(known)

    def answer(self, known: Known, *, others: bool = False) -> Answer:
        """What the policies say. With `others`, DEFAULT denies only where it is certain that none of them speaks."""
        attributes = self.attributes
        if known.target is None:
            actor = known.context.subject
            p: dict[str, Any] = {}  # there is no publish context yet: reading one is an error
        else:
            actor = known.target.subject
            p = attributes.publication(known)
        s = attributes.subject(actor, known.away)
        env = {"s": s, "o": attributes.coming(known), "e": attributes.around(actor, known.away), "p": p}
        terms = attributes.person(actor).terms
        answer = self.policies.decide(self.action, actor, known.topic, env, terms, others=others)
        if isinstance(answer, Undecided):
            if known.away:
                return ALLOW if later(answer.reads, answer.volatile) else self._left(answer, s, actor)
            now = attributes.at_once(known, answer, env, actor)
            return self._left(answer, s, actor) if now is None else self._said(answer.residual(now))
        return self._said(answer)

    def _left(self, answer: Undecided[Permit | Refuse], s: dict[str, Any], actor: Subject) -> Residual:
        attributes, residual = self.attributes, answer.residual
        assert isinstance(residual, OpenPolicies)
        decided = residual.mapped(self._said)
        environment = attributes.environment(actor)
        roots = {path.partition(".")[0] for path in answer.reads}
        reads_s, reads_e, reads_p = "s" in roots, "e" in roots or answer.volatile, "p" in roots
        if not (reads_s or reads_e or reads_p):
            return Residual(lambda message: decided({"o": attributes.facts(message)}), answer.reads)

        if roots <= {"s", "e"} and not answer.unpredictable:
            return Residual(
                _once_a_turn(attributes, lambda now: decided({"s": s, "e": now}), environment), answer.reads
            )

        def decide(message: Message) -> Allow | Deny:
            env: dict[str, Any] = {"s": s, "o": attributes.facts(message)}
            if reads_e:
                env["e"] = attributes.now(environment)
            if reads_p:
                env["p"] = attributes.published(message)
            return decided(env)

        return Residual(decide, answer.reads)

    def _said(self, answer: Permit | Refuse) -> Allow | Deny:
        if isinstance(answer, Permit):
            return self._allows[answer.rule]
        if answer.error:
            return Deny(step=self.step, rule=answer.rule, error=answer.error)
        return self._denies[answer.rule]

    def cache_key(self, source: Link) -> Hashable:
        attributes = self.attributes
        if self.action is Action.WRITE:
            subject = source.subject
            person = attributes.person(subject)
            own = self.policies.cache_key(Action.WRITE, person.terms, person.s)
            return own, facets(attributes.environment(subject).known, self._paths)
        return attributes.cache_key(source, self._paths)

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        if self.action is Action.WRITE:
            return self._said(Permit(""))
        actor = target.subject
        env = {"s": self.attributes.subject(actor), "e": self.attributes.environment(actor).known}
        return self._said(self.policies.overlaps(Action.READ, actor, filter, env))


class ForwardingAccessStage(AccessStage):
    """The same for a link between scopes that forwards: it writes, and what is written has a publish context."""

    def __init__(self, policies: Policies, attributes: Attributes) -> None:
        super().__init__(Action.WRITE, policies, attributes)
        self._published = paths_below("p", policies.reads(Action.WRITE))

    def evaluate(self, known: Known) -> Answer:
        return self.answer(known)

    def cache_key(self, source: Link) -> Hashable:
        return self.attributes.cache_key(source, self._published)


def _once_a_turn(
    attributes: Attributes, decided: Callable[[Moment], Allow | Deny], environment: Environment
) -> Callable[[Message], Allow | Deny]:
    """What depends on the clock alone is asked once for all messages of one moment."""
    asked: Moment | None = None
    answer: Allow | Deny = ALLOW

    def decide(_: Message) -> Allow | Deny:
        nonlocal asked, answer
        now = attributes.now(environment)
        if now is not asked:
            asked, answer = now, decided(now)
        return answer

    return decide


def _unless_denied(answer: Answer) -> Answer:
    """The same, but what no policy speaks of is allowed."""
    if not isinstance(answer, Residual):
        return ALLOW if unspoken(answer) else answer
    asked = answer.decide

    def decide(message: Message) -> Allow | Deny:
        answered = asked(message)
        return ALLOW if unspoken(answered) else answered

    return Residual(decide, answer.reads)
