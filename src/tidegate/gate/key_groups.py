"""Step 4: which key protects a message (semantics, *Protected topics*).

A key is for all messages that the same readers may read: those under one entry of `keys.protect`, about which the same
policies, publisher's rules and owner's preferences speak, that differ in nothing which these conditions read, and for
which the same level is demanded. Where publishers may have rules, each has keys of its own: rules that one of them
sends later must not decide who reads the messages of another. That is known when a plan is made, so each plan has its
group.

Invariants
- What a condition reads of a message to come (its payload, its size, its time) cannot decide who has a key. The
  configuration refuses such policies and preferences for protected topics; a publisher's rule like that denies the
  message.
- A publisher's table of visibility cannot be kept where nobody can look inside: such a message is denied.
- What is sealed already is not sealed again, unless a link or a monitor gives it another topic: who reads it there need
  not be who could read it before, and a seal is bound to its topic.

It seals nothing: that is for whoever has the keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tidegate.gate.attributes import Attributes
from tidegate.gate.rule_set import RuleSet
from tidegate.gate.stages.read_preferences import OwnerPreferences
from tidegate.gate.stages.read_publisher_rules import RULES, PublisherRules
from tidegate.gate.verdict import Deny, Known, Step
from tidegate.keys.group import Group, protecting
from tidegate.policy import Action, Preference, facets, paths_below
from tidegate.policy.environment import CLOCK
from tidegate.policy.publisher_rules import ActiveRule, owner_of
from tidegate.predicate import Predicate
from tidegate.topics import matches

EACH: Final = frozenset(
    {f"o.{name}" for name in ("payload", "size", "qos", "retain", "properties", "scores")}
    | {f"p.{name}" for name in ("time", "qos", "size")}
)
"""What differs from message to message."""
DENYING: Final = "\0deny"
_UNKNOWN: Final = (Preference(id="", user="", topic="#", broken="the preferences of the owner are not known here"),)
"""Stands for those of an owner whose preferences are not known here."""

VIEWED: Final = Deny(
    step=Step.PROTECT,
    rule="keys",
    error="a protected message is read whole or not at all: send it without `view`",
    said="keys: a protected message is read whole or not at all: send it without `view`",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """How messages of one plan are protected."""

    group: Group
    end_to_end: bool = False
    """They come sealed, or not at all."""
    under: str | None = None
    """They are sealed already, under this topic, and have another one now."""


def of_each(reads: Iterable[str]) -> str | None:
    """Of attributes that a condition reads, one that differs from message to message; None if none does."""
    for path in sorted(reads):
        root, _, rest = path.partition(".")
        if root in ("o", "p") and (not rest or f"{root}.{rest.split('.')[0]}" in EACH):
            return path
        if path == "p.e" or (path.startswith("p.e.") and path.split(".")[2] in CLOCK):
            return path
    return None


class KeyGroupFinder:
    """Finds groups, under one version of the rules."""

    def __init__(
        self,
        rules: RuleSet,
        attributes: Attributes,
        owners: OwnerPreferences,
        publishers: PublisherRules | None,
    ) -> None:
        self.rules = rules
        self.attributes = attributes
        self.owners = owners
        self.publishers = publishers if rules.ceiling else None

    def protection(self, known: Known) -> Protection | Deny | None:
        """That of a message to come; None if it needs none."""
        rules = self.rules
        if known.topic[:1] == "$":
            return None
        if known.context.sealed:
            return self._renamed(known)
        filter = protecting(rules.end_to_end, known.topic)
        end_to_end = filter is not None
        if filter is None:
            filter = protecting(rules.protect, known.topic)
        if filter is None:
            return None
        if known.context.view is not None or any(other.context.view is not None for other in known.context.others):
            return VIEWED
        for rule in self._publisher_rules(known):
            if rule.when is not None and (path := of_each(rule.when.reads)):
                why = f"a rule for a protected topic cannot read `{path}`, which differs from message to message"
                return Deny(step=Step.PROTECT, rule=rule.id, error=why, said=f"{rule.id}: {why}")
        return Protection(group=self._group(known, filter), end_to_end=end_to_end)

    def _renamed(self, known: Known) -> Protection | None:
        """Of a sealed message that a link or a monitor has given another topic: it is sealed again, under that."""
        under = known.context.under
        if under is None or under == known.topic or protecting(self.rules.end_to_end, under) is not None:
            return None
        filter = protecting(self.rules.protect, known.topic) or protecting(self.rules.protect, under) or under
        return Protection(group=self._group(known, filter), under=under)

    def _group(self, known: Known, filter: str) -> Group:
        owner = known.context.subject
        applicable = self.owners.receiving(known.context, known.published, known.now)
        if applicable is not None and applicable.until is not None:
            known.stands_until(datetime.fromtimestamp(applicable.until, UTC))
        demand = known.context.demand
        return Group.of(
            filter=filter,
            conditions=[
                *self._policies(known),
                *self._publisher(known),
                *(self._bound_rule(rule, known) for rule in self._publisher_rules(known)),
                # a message that comes from others has a key with those alone that come from the same
                *(f"from\0{other.data.hex()}" for other in known.context.others),
            ],
            preferences=[
                self._bound(f"{each.id}\0{each.broken or ''}{DENYING if each.denies else ''}", each.when, known)
                for each in (_UNKNOWN if applicable is None else applicable.preferences)
            ],
            owner=owner.user,
            domain=owner.domain,
            demand=None if demand is None else demand.text,
            topic=known.topic,
            context=known.context.encode(),
        )

    def _policies(self, known: Known) -> Iterable[str]:
        """Every policy that can apply to the topic for some reader."""
        policies = self.rules.policies
        if policies is None:
            return ["open"]
        conditions = [policies.combining.value]
        for each in policies.concerning(Action.READ, known.topic):
            subject = ",".join(sorted(map(str, each.subject.terms)))
            # with a placeholder in it, the topic decides whom it is about
            topic = known.topic if each.topic.fixed is None else ""
            text = "\0".join((each.id, each.effect.value, subject, each.topic.text, topic))
            conditions.append(self._bound(text, each.when, known))
        return conditions

    def _publisher(self, known: Known) -> Iterable[str]:
        """Who published it, if they may ever have rules for its topic: then who reads it is theirs to say."""
        publisher = None if self.publishers is None else owner_of(known.context.subject, self.rules.domain)
        names = (known.topic, known.published)
        if publisher is not None and any(matches(filter, name) for filter in self.rules.ceiling for name in names):
            yield f"publisher\0{publisher}"

    def _publisher_rules(self, known: Known) -> list[ActiveRule]:
        if RULES in known.scene:  # whoever represents publishers without rules may have some by now
            rules: list[ActiveRule] = known.scene[RULES]
            return rules
        active_rules = None if self.publishers is None else self.publishers.of(known.context.subject)
        return [] if active_rules is None else active_rules.about(known.published)

    def _bound_rule(self, rule: ActiveRule, known: Known) -> str:
        terms = ",".join(sorted(map(str, rule.terms)))
        text = "\0".join((rule.id, str(rule.allows), terms, rule.topic, str(rule.expires), rule.broken or ""))
        return self._bound(text, rule.when, known)

    def _bound(self, text: str, when: Predicate | None, known: Known) -> str:
        """A condition, with what it reads of the message and its publisher."""
        if when is None:
            return text
        values = [
            facets(root, paths_below(name, when.reads))
            for name, root in (("o", self.attributes.coming(known)), ("p", self.attributes.publication(known)))
        ]
        return "\0".join((text, when.text, *map(_stable, values)))


def _stable(value: Any) -> str:
    """A text for what `facets` gives, the same in every process."""
    match value:
        case frozenset():
            return "{" + ",".join(sorted(map(_stable, value))) + "}"
        case tuple():
            return "(" + ",".join(map(_stable, value)) + ")"
        case type():
            return value.__name__
        case _:
            return repr(value)
