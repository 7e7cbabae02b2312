"""Step 8, its second half: the person whose data it is agrees (semantics, *Preferences*).

Owners decide who may receive their messages, and to which scopes these may be forwarded. `policy/preferences.py` knows
which preferences apply, and that a message without an owner has none.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tidegate.gate.attributes import CONNECTION, Attributes, later
from tidegate.gate.verdict import ALLOW, REMADE, Allow, Answer, Deny, Known, Residual, Stage, Step
from tidegate.policy import Applicable, Granted, Preferences, Refuse, Undecided, paths_below
from tidegate.session import Link, Message


class PreferenceStage(Stage):
    """The preferences of the owners of what is published: who may receive it, and which parts of it."""

    step = Step.READ

    def __init__(self, preferences: Preferences, attributes: Attributes) -> None:
        self.preferences = preferences
        self.attributes = attributes
        self._paths = paths_below("p", preferences.reads)

    def evaluate(self, known: Known) -> Answer:
        applicable = self.applicable(known)
        if not applicable.preferences:
            return ALLOW
        assert known.target is not None
        attributes = self.attributes
        receiver, remade = known.target.subject, known.context.scored
        environment = attributes.environment(receiver)
        env: dict[str, Any] = {
            "o": attributes.coming(known),
            "e": attributes.around(receiver, known.away),
            "p": attributes.publication(known),
        }
        answer = applicable.decide(receiver, env, CONNECTION if known.away else ())
        if isinstance(answer, Undecided):
            if known.away and later(answer.reads, answer.volatile):
                known.unclear = True
                return ALLOW
            residual = answer.residual
            if (now := attributes.at_once(known, answer, env, receiver)) is not None:
                return self._said(residual(now), remade)

            def decide(message: Message) -> Allow | Deny:
                return self._said(
                    residual(
                        {
                            "o": attributes.facts(message),
                            "e": attributes.now(environment),
                            "p": attributes.published(message),
                        }
                    ),
                    remade,
                )

            return Residual(decide)
        return self._said(answer, remade)

    def applicable(self, known: Known) -> Applicable:
        """Those of the owner that speak of this message and its receiver."""
        owner = known.context.subject
        return self.preferences.receiving(owner.user, owner.domain, known.published, owner.identity)

    def _said(self, answer: Granted | Refuse, remade: bool) -> Allow | Deny:
        if isinstance(answer, Refuse):
            return Deny(step=Step.READ, rule=answer.rule, error=answer.error or "")
        if remade and not answer.view.shows_all:
            return Deny(step=Step.READ, rule=", ".join(answer.rules), error=REMADE)
        return Allow(rule=", ".join(answer.rules), view=answer.view, errors=answer.errors)

    def cache_key(self, source: Link) -> Hashable:
        subject = source.subject
        owner = self.preferences.cache_key(subject.user, subject.domain, subject.identity)
        return None if owner is None else (owner, self.attributes.cache_key(source, self._paths))


class ForwardingPreferenceStage(PreferenceStage):
    """The same for a link between scopes: whether it may be forwarded to the scope that it leads to."""

    def applicable(self, known: Known) -> Applicable:
        assert known.target is not None
        owner, to = known.context.subject, known.target.leads_to
        return self.preferences.forwarding(owner.user, owner.domain, known.published, to, owner.identity)
