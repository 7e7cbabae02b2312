"""Step 8, its second half: the person whose data it is agrees (semantics, *Preferences*).

Owners decide who may receive their messages, and to which scopes these may be forwarded. `policy/preferences.py` knows
which preferences apply, and that a message without an owner has none.

Invariants
- An answer that a preference will change by expiring stands until then.
- Owners of other domains are asked by the set that has come from there, as their domain means it. Where that is not
  known, or is older than what travelled with the message, nobody receives the message.
- What depends on such a set stands until another one comes: whoever keeps it asks for `revision` (`Gate.derived_lane`).
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from tidegate.gate.attributes import CONNECTION, Attributes, later
from tidegate.gate.rule_set import RuleSet
from tidegate.gate.verdict import ALLOW, REMADE, Allow, Answer, Deny, Known, Residual, Stage, Step
from tidegate.policy import Applicable, Granted, Refuse, Subject, Undecided, paths_below
from tidegate.policy.preference_sets import Key, OwnerSet, owner_key
from tidegate.session import Context, Link, Message

UNKNOWN_OWNER: Final = Deny(step=Step.READ, rule="preferences", error="the preferences of the owner are not known here")


class ForeignOwners(Protocol):
    """The preferences of owners of other domains that have come from there."""

    @property
    def revision(self) -> int:
        """Another number, other answers of `of`."""
        ...

    def of(self, owner: Key, number: int) -> OwnerSet | None:
        """What counts for a message that travelled with this number; None: that is not known here."""
        ...


class OwnerPreferences:
    """What the owner of a message says of it, whoever's message it is, under one version of the rules.

    `foreign`: None if messages of other domains' people do not come here.
    """

    def __init__(self, rules: RuleSet, foreign: ForeignOwners | None = None) -> None:
        self.preferences = rules.preferences
        self._foreign = foreign
        self._ours = rules.formerly | {rules.domain}
        self._provided = frozenset(name for name, each in rules.domains.items() if each.provider)

    @property
    def any(self) -> bool:
        """Whether anybody may have preferences."""
        return len(self.preferences) > 0 or self._foreign is not None

    def is_foreign(self, context: Context) -> bool:
        """Whether the preferences of the owner have to come from another node: it is of another domain, or another
        node of this one, which knows what it wants while this one does not."""
        owner = context.subject
        if self._foreign is None or owner.user is None:
            return False
        if owner.domain in self._provided and context.foreign is None:
            return False  # somebody of an identity provider, who has published here
        if owner.domain not in self._ours:
            return True
        return context.foreign is not None and not self.preferences.of(owner.user, owner.domain, owner.identity)

    def _set(self, context: Context) -> OwnerSet | None:
        """The set that counts for a message of somebody of another domain; None: it is not known here."""
        if self._foreign is None or context.foreign is None:
            return None
        id, number = context.foreign
        return self._foreign.of((context.subject.domain, id), number)

    def receiving(self, context: Context, topic: str, now: float) -> Applicable | None:
        """What the owner says of subscribers that receive a message; None: that is not known here."""
        owner = context.subject
        if not self.is_foreign(context):
            return self.preferences.receiving(owner.user, owner.domain, topic, owner.identity, now)
        known = self._set(context)
        return None if known is None else known.receiving(topic, now)

    def forwarding(self, context: Context, topic: str, to: str, now: float) -> Applicable | None:
        """The same of forwarding it to the scope `to`."""
        owner = context.subject
        if not self.is_foreign(context):
            return self.preferences.forwarding(owner.user, owner.domain, topic, to, owner.identity, now)
        known = self._set(context)
        return None if known is None else known.forwarding(topic, to, now)

    def reads(self, context: Context) -> frozenset[str]:
        """What the conditions of an owner of another domain read; nothing of those of this one."""
        known = self._set(context) if self.is_foreign(context) else None
        return frozenset() if known is None else known.preferences.reads

    def cache_key(self, owner: Subject) -> Hashable:
        """Owners with equal values are treated alike: those without preferences are."""
        if self._foreign is not None and owner.user is not None and owner.domain not in self._ours:
            return owner_key(owner)
        return self.preferences.cache_key(owner.user, owner.domain, owner.identity)


class PreferenceStage(Stage):
    """The preferences of the owners of what is published: who may receive it, and which parts of it."""

    step = Step.READ

    def __init__(self, owners: OwnerPreferences, attributes: Attributes) -> None:
        self.owners = owners
        self.attributes = attributes
        self._paths = paths_below("p", owners.preferences.reads)

    def evaluate(self, known: Known) -> Answer:
        applicable = self.applicable(known)
        if applicable is None:
            return UNKNOWN_OWNER
        if applicable.until is not None:
            if known.away:  # by then others may apply: it is decided when it is sent
                known.unclear = True
                return ALLOW
            known.stands_until(datetime.fromtimestamp(applicable.until, UTC))
        if not applicable.preferences:
            return ALLOW
        assert known.target is not None
        attributes, domain = self.attributes, applicable.domain
        foreign = self.owners.is_foreign(known.context)
        receiver, remade = known.target.subject, known.context.scored
        environment = attributes.environment(receiver)
        env: dict[str, Any] = {
            "o": attributes.coming(known),
            "e": attributes.around(receiver, known.away),
            "p": attributes.publication_in(domain, known) if foreign else attributes.publication(known),
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
                            "p": attributes.published_in(domain, message) if foreign else attributes.published(message),
                        }
                    ),
                    remade,
                )

            return Residual(decide, answer.reads)
        return self._said(answer, remade)

    def applicable(self, known: Known) -> Applicable | None:
        """Those of the owner that speak of this message and its receiver; None: they are not known here."""
        return self.owners.receiving(known.context, known.published, known.now)

    def _said(self, answer: Granted | Refuse, remade: bool) -> Allow | Deny:
        if isinstance(answer, Refuse):
            return Deny(step=Step.READ, rule=answer.rule, error=answer.error or "")
        if remade and not answer.view.shows_all:
            return Deny(step=Step.READ, rule=", ".join(answer.rules), error=REMADE)
        return Allow(rule=", ".join(answer.rules), view=answer.view, errors=answer.errors)

    def cache_key(self, source: Link) -> Hashable:
        owner = self.owners.cache_key(source.subject)
        return None if owner is None else (owner, self.attributes.cache_key(source, self._paths))


class ForwardingPreferenceStage(PreferenceStage):
    """The same for a link between scopes: whether it may be forwarded to the scope that it leads to."""

    def applicable(self, known: Known) -> Applicable | None:
        assert known.target is not None
        return self.owners.forwarding(known.context, known.published, known.target.leads_to, known.now)
