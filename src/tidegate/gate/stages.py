"""The order of the steps. It is fixed, and it stands here and nowhere else (semantics, *The path*)."""

from __future__ import annotations

from tidegate.gate.access import Access, Forwarding
from tidegate.gate.attributes import Sight
from tidegate.gate.brokering import Brokered
from tidegate.gate.capability import Capable
from tidegate.gate.levels import Secured
from tidegate.gate.preferences import Forwarded, Owners
from tidegate.gate.publisher_rules import Granting, Publishing
from tidegate.gate.reserved import Reserved
from tidegate.gate.rule_set import Rules
from tidegate.gate.verdict import Stage
from tidegate.gate.views import Visible
from tidegate.gate.where import Wanted
from tidegate.policy import Action
from tidegate.policy.control import KEYS
from tidegate.policy.publisher_rules import CONTROL


def stages(
    rules: Rules, sight: Sight, publishers: Publishing | None = None
) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """The steps on the way in, and those on the way out. A step that cannot object is left out."""
    ingress: list[Stage] = [Reserved(heard(rules))]
    egress: list[Stage] = [] if rules.brokering.open else [Brokered(rules.brokering)]
    egress.append(Secured(rules.levels))
    if rules.capabilities is not None:
        ingress.append(Capable(Action.WRITE, rules.capabilities, sight))
        egress.append(Capable(Action.READ, rules.capabilities, sight))
    reading = None
    if rules.policies is not None:
        ingress.append(Access(Action.WRITE, rules.policies, sight))
        reading = Access(Action.READ, rules.policies, sight)
    if rules.ceiling and publishers is not None:
        egress.append(Granting(reading, publishers, sight))
    elif reading is not None:
        egress.append(reading)
    if len(rules.preferences):
        egress.append(Owners(rules.preferences, sight))
    egress += (Visible(rules.views), Wanted(sight))
    return tuple(ingress), tuple(egress)


def heard(rules: Rules) -> frozenset[str]:
    """The topics on which clients speak to the node itself."""
    return KEYS | {CONTROL} if rules.ceiling else KEYS


def crossing(rules: Rules, sight: Sight) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """The steps of a link between scopes of one node: where it leaves one, and where it enters the other.

    Such a link is as safe as can be, nobody reads over it, and views are applied where somebody does.
    """
    sending: list[Stage] = [] if rules.brokering.open else [Brokered(rules.brokering)]
    receiving: list[Stage] = []
    if rules.policies is not None:
        sending.append(Forwarding(rules.policies, sight))
        receiving.append(Access(Action.READ, rules.policies, sight))
    if len(rules.preferences):
        receiving.append(Forwarded(rules.preferences, sight))
    return tuple(sending), tuple(receiving)
