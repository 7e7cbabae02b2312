"""The order of the steps that the gate decides: 1, and 6 to 10 (semantics, *The path*).

The whole path, with the steps that are not decisions, stands in `scope/path.py` and `scope/egress.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidegate.gate.attributes import Attributes
from tidegate.gate.key_groups import KeyGroupFinder
from tidegate.gate.rule_set import RuleSet
from tidegate.gate.stages.brokering import BrokeringStage, PathStage
from tidegate.gate.stages.levels import DemandStage, LevelStage
from tidegate.gate.stages.read_preferences import (
    ForeignOwners,
    ForwardingPreferenceStage,
    OwnerPreferences,
    PreferenceStage,
)
from tidegate.gate.stages.read_publisher_rules import PublisherRules, PublisherRuleStage
from tidegate.gate.stages.view import ViewStage
from tidegate.gate.stages.waiting_for_trust import WaitingForTrust
from tidegate.gate.stages.where import WhereStage
from tidegate.gate.stages.whole_for_foreign_brokers import WholePreferenceStage, WholeViewStage
from tidegate.gate.stages.write_and_read_capability import CapabilityStage
from tidegate.gate.stages.write_and_read_policies import AccessStage, ForwardingAccessStage
from tidegate.gate.stages.write_reserved_topics import ReservedTopicStage
from tidegate.gate.verdict import Stage
from tidegate.policy import Action
from tidegate.policy.control_topics import KEYS
from tidegate.policy.publisher_rules import CONTROL
from tidegate.session import Link

_OF_READERS: Final = (PublisherRuleStage, WholePreferenceStage, WholeViewStage)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSet:
    """All stages of one scope under one version of the rules."""

    rules: RuleSet
    attributes: Attributes
    ingress: tuple[Stage, ...]
    egress: tuple[Stage, ...]
    sending: tuple[Stage, ...]
    """Where a link to another scope leaves this one."""
    receiving: tuple[Stage, ...]
    """Where it enters the other."""
    exporting: tuple[Stage, ...]
    """Where a link to a scope of another node leaves this one."""
    importing: tuple[Stage, ...]
    """Where a link from a scope of another node enters this one."""
    bridging: tuple[Stage, ...]
    """Where a link to a foreign broker leaves this one."""
    degraded: tuple[Stage, ...]
    """The same over a connection that is not trusted, of a link that is otherwise."""
    relaying: tuple[Stage, ...]
    """Where a message goes to the broker that the scope guards."""
    key_groups: KeyGroupFinder
    owners: OwnerPreferences

    @classmethod
    def of(
        cls,
        rules: RuleSet,
        attributes: Attributes,
        publishers: PublisherRules | None,
        foreign: ForeignOwners | None = None,
    ) -> StageSet:
        owners = OwnerPreferences(rules, foreign)
        if not rules.enforcing:
            return cls._lax(rules, attributes, owners, publishers)
        ingress, egress = stages(rules, attributes, owners, publishers)
        sending, receiving = crossing(rules, attributes, owners)
        exporting, importing = bordering(rules, attributes, owners)
        return cls(
            rules=rules,
            attributes=attributes,
            ingress=ingress,
            egress=egress,
            sending=sending,
            receiving=receiving,
            exporting=exporting,
            importing=importing,
            bridging=(whole := bridging(rules, attributes, owners, publishers)),
            degraded=tuple(WaitingForTrust(stage) if isinstance(stage, _OF_READERS) else stage for stage in whole),
            relaying=(LevelStage(rules.levels),),
            key_groups=KeyGroupFinder(rules, attributes, owners, publishers),
            owners=owners,
        )

    @classmethod
    def _lax(
        cls, rules: RuleSet, attributes: Attributes, owners: OwnerPreferences, publishers: PublisherRules | None
    ) -> StageSet:
        """Of a scope that does not enforce: nothing objects but what every broker would, and what keeps messages from
        going round."""
        path: tuple[Stage, ...] = (PathStage(),)
        return cls(
            rules=rules,
            attributes=attributes,
            ingress=(ReservedTopicStage(heard(rules)),),
            egress=(),
            sending=(),
            receiving=(),
            exporting=path,
            importing=(),
            bridging=path,
            degraded=path,
            relaying=(),
            key_groups=KeyGroupFinder(rules, attributes, owners, publishers),
            owners=owners,
        )

    @property
    def distinguishing(self) -> tuple[Stage, ...]:
        """The stages that may tell sources apart."""
        linked = self.sending + self.receiving if self.rules.space.links else ()
        if self.rules.space.remote:
            linked += self.exporting
            linked += self.bridging
        return self.ingress + self.egress + linked

    def towards(self, target: Link, away: bool = False) -> tuple[Stage, ...]:
        """Steps 6 to 10 for what is sent over a link; `away`: over which connection is not known yet."""
        if target.bridges and not (away and target.degraded):
            return self.degraded if target.degraded else self.bridging
        if target.relays:
            return self.relaying
        return self.exporting if target.exports else self.egress


def stages(
    rules: RuleSet, attributes: Attributes, owners: OwnerPreferences, publishers: PublisherRules | None = None
) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """The steps on the way in, and those on the way out. A step that cannot object is left out."""
    ingress: list[Stage] = [ReservedTopicStage(heard(rules)), DemandStage(rules.levels)]
    egress: list[Stage] = [] if rules.brokering.open else [BrokeringStage(rules.brokering)]
    egress.append(LevelStage(rules.levels))
    if rules.capabilities is not None:
        ingress.append(CapabilityStage(Action.WRITE, rules.capabilities, attributes))
        egress.append(CapabilityStage(Action.READ, rules.capabilities, attributes))
    reading = None
    if rules.policies is not None:
        ingress.append(AccessStage(Action.WRITE, rules.policies, attributes))
        reading = AccessStage(Action.READ, rules.policies, attributes)
    if rules.ceiling and publishers is not None:
        egress.append(PublisherRuleStage(reading, publishers, attributes, keyed=rules.keyed))
    elif reading is not None:
        egress.append(reading)
    if owners.any:
        egress.append(PreferenceStage(owners, attributes))
    egress += (ViewStage(rules.views), WhereStage(attributes))
    return tuple(ingress), tuple(egress)


def heard(rules: RuleSet) -> frozenset[str]:
    """The topics on which clients speak to the node itself."""
    return KEYS | {CONTROL} if rules.ceiling else KEYS


def crossing(
    rules: RuleSet, attributes: Attributes, owners: OwnerPreferences
) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """The steps of a link between scopes of one node: where it leaves one, and where it enters the other.

    Such a link is as safe as can be, nobody reads over it, and views are applied where somebody does.
    """
    sending: list[Stage] = [] if rules.brokering.open else [BrokeringStage(rules.brokering)]
    receiving: list[Stage] = []
    if rules.policies is not None:
        sending.append(ForwardingAccessStage(rules.policies, attributes))
        receiving.append(AccessStage(Action.READ, rules.policies, attributes))
    if owners.any:
        receiving.append(ForwardingPreferenceStage(owners, attributes))
    return tuple(sending), tuple(receiving)


def bordering(
    rules: RuleSet, attributes: Attributes, owners: OwnerPreferences
) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """The steps of a link between nodes: where it leaves this one, and where it enters this one.

    The other node decides who receives what crosses; views and publishers' tables go with it.
    """
    exporting: list[Stage] = [PathStage()]
    if not rules.brokering.open:
        exporting.append(BrokeringStage(rules.brokering))
    exporting.append(LevelStage(rules.levels))
    importing: list[Stage] = []
    if rules.policies is not None:
        exporting.append(ForwardingAccessStage(rules.policies, attributes))
        importing.append(AccessStage(Action.READ, rules.policies, attributes))
    if owners.any:
        exporting.append(ForwardingPreferenceStage(owners, attributes))
    return tuple(exporting), tuple(importing)


def bridging(
    rules: RuleSet, attributes: Attributes, owners: OwnerPreferences, publishers: PublisherRules | None
) -> tuple[Stage, ...]:
    """The steps of a link to a foreign broker.

    Nobody there enforces anything, so the link itself is a reader of the full content (semantics, *Context and derived
    messages*): beside what holds for each link, owners and publishers must let it have the whole message.
    """
    stages: list[Stage] = [PathStage()]
    if not rules.brokering.open:
        stages.append(BrokeringStage(rules.brokering))
    stages.append(LevelStage(rules.levels))
    if rules.policies is not None:
        stages.append(ForwardingAccessStage(rules.policies, attributes))
    if rules.ceiling and publishers is not None:
        stages.append(PublisherRuleStage(None, publishers, attributes, keyed=rules.keyed))
    if owners.any:
        stages.append(ForwardingPreferenceStage(owners, attributes))
        stages.append(WholePreferenceStage(owners, attributes))
    stages.append(WholeViewStage(rules.views))
    return tuple(stages)
