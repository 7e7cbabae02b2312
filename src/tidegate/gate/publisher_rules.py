"""Step 8 where publishers have a say: policies, then the rules of whoever published (semantics, *Publisher rules*).

What a policy denies, or fails to say, is final under each combining algorithm. Otherwise the publisher's rules that are
about the message and its reader speak, and where they say nothing it stays with what the policies said: that includes
that none of them spoke, which denies. Whose a message is says its context, never its topic.

Rules are decided when a plan is made, as far as they can be; those that expire make it stand only until then.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from datetime import UTC, datetime
from typing import Any, Protocol, assert_never

from tidegate.gate.access import Access, unspoken
from tidegate.gate.attributes import Sight, later
from tidegate.gate.verdict import ALLOW, Allow, Answer, Deny, Known, Residual, Step
from tidegate.policy import DEFAULT, Effect, Terms
from tidegate.policy.publisher_decision import Undecided, Voice, Voices, Word, said
from tidegate.predicate import Predicate
from tidegate.session import Link, Message, Subject

LOOKED = 20  # conditions asked before a SUBSCRIBE is granted unseen: each delivery is decided anyway

RULES = "rules"
"""Where a scene has those that speak of the message, whoever reads it."""


class Publishing(Protocol):
    """The rules of all publishers at this moment."""

    def of(self, publisher: Subject) -> Voices | None:
        """Those of one of them; None if it has none that count."""
        ...

    def left(self, voice: Voice) -> float:
        """Seconds until a rule that expires does; 0 if it has."""
        ...

    def allowing(self, filter: str, terms: Terms) -> Iterator[Voice]:
        """Those that may allow somebody of whom these terms can be said some topic of a filter."""
        ...


class Granting:
    """Policies for reading, if there are any, and publishers' rules."""

    step = Step.READ

    def __init__(self, access: Access | None, publishers: Publishing, sight: Sight) -> None:
        self.access = access
        self.publishers = publishers
        self.sight = sight

    def evaluate(self, known: Known) -> Answer:
        assert known.target is not None
        actor = known.target.subject
        voices = self._speaking(known, actor)
        if not voices:
            return ALLOW if self.access is None else self.access.evaluate(known)
        first = ALLOW if self.access is None else self.access.answer(known, others=True)
        if isinstance(first, Deny) and not unspoken(first):
            return first
        sight = self.sight
        s = sight.subject(actor, known.away)
        env: dict[str, Any] = {
            "s": s,
            "o": sight.coming(known),
            "e": sight.around(actor, known.away),
            "p": sight.publication(known),
        }
        word = said(voices, env)
        if isinstance(word, Undecided):
            if known.away and later(word.reads, word.volatile):
                return ALLOW  # it is decided when it is sent
            now = sight.at_once(known, word, env, actor)
            if now is None:
                return self._left(first, word, s, actor)
            word = word.residual(now)
        if not isinstance(first, Residual):
            return _joined(first, word)
        if word.effect is Effect.DENY:
            return _joined(ALLOW, word)  # whatever the policies will say
        return self._left(first, word, s, actor)

    def _speaking(self, known: Known, actor: Subject) -> list[Voice]:
        """The rules that are about a message and its reader."""
        found: list[Voice] | None = known.scene.get(RULES)
        if found is None:
            voices = self.publishers.of(known.context.subject)
            found = known.scene[RULES] = [] if voices is None else voices.about(known.topic, known.published)
        if not found:
            return found
        terms = self.sight.person(actor).terms
        speaking: list[Voice] = []
        for voice in found:
            if voice.terms.isdisjoint(terms):
                continue
            if voice.expires is not None:
                left = self.publishers.left(voice)
                if not known.stands_until(datetime.fromtimestamp(known.now + left, UTC)):
                    continue
            speaking.append(voice)
        return speaking

    def _left(self, first: Answer, word: Word | Undecided, s: dict[str, Any], actor: Subject) -> Residual:
        sight = self.sight
        environment = sight.environment(actor)
        reads_p = isinstance(word, Undecided) and any(path.partition(".")[0] == "p" for path in word.reads)

        def decide(message: Message) -> Allow | Deny:
            answer = first.decide(message) if isinstance(first, Residual) else first
            if isinstance(answer, Deny) and not unspoken(answer):
                return answer
            if isinstance(word, Word):
                return _joined(answer, word)
            env: dict[str, Any] = {"s": s, "o": sight.facts(message), "e": sight.now(environment)}
            if reads_p:
                env["p"] = sight.published(message)
            return _joined(answer, word.residual(env))

        return Residual(decide)

    def kin(self, source: Link) -> Hashable:
        policies = None if self.access is None else self.access.kin(source)
        voices = self.publishers.of(source.subject)
        own = None if voices is None else (voices.revision, self.sight.kin(source, voices.paths))
        return policies, own

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        answer = ALLOW if self.access is None else self.access.grant(filter, target)
        if isinstance(answer, Allow):
            return answer
        actor = target.subject
        known = {"s": self.sight.subject(actor), "e": self.sight.environment(actor).known}
        asked = 0
        for voice in self.publishers.allowing(filter, self.sight.person(actor).terms):
            asked += voice.when is not None
            outcome = True if asked > LOOKED else voice.asked(known)
            if outcome is True or isinstance(outcome, Predicate):
                return Allow(rule=voice.id)
        return answer


def _joined(first: Allow | Deny, word: Word) -> Allow | Deny:
    """What counts if the policies have said `first`: that they allow it, or that none of them speaks of it."""
    match word.effect:
        case Effect.DENY:
            return Deny(step=Step.READ, rule=word.rule)
        case Effect.ALLOW:
            return Allow(rule=word.rule, errors=word.errors)
        case None:
            pass
        case _:
            assert_never(word.effect)
    if not word.errors:
        return first
    if isinstance(first, Allow):
        return Allow(rule=first.rule, view=first.view, errors=word.errors)
    return Deny(step=Step.READ, rule=DEFAULT, error="; ".join(f"{id}: {reason}" for id, reason in word.errors))
