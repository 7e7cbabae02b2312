"""Step 7: how well the links are protected that a message crosses (semantics, *Levels and demands*).

The publisher's demand is held against the connection that the message would be sent over, the subscriber's against
the floor of the way the message came. Nothing here depends on a single message: what a message demands for itself is
known when its plan is looked up, and so is whether its publisher proves each message.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from tidegate.gate.verdict import ALLOW, WHOLE, Allow, Answer, Deny, Known, Stage, Step
from tidegate.policy import Demand, Levels
from tidegate.policy.demands import REQUIRE, effective_demand, meets, unknown_name
from tidegate.policy.levels import SIGNED
from tidegate.session import Link
from tidegate.wire import Reason

PUBLISHER = "publisher's demand"
SUBSCRIBER = "subscriber's demand"


class DemandStage(Stage):
    """On the way in: a demand that names nothing known here is refused, because nobody could be held to it."""

    step = Step.LEVELS

    def __init__(self, levels: Levels) -> None:
        self.levels = levels

    def evaluate(self, known: Known) -> Answer:
        context, levels = known.context, self.levels
        why = unknown_demand(levels, context.demand)
        if why is None or context.demand is None:
            return ALLOW
        floor = levels.told(context.level, levels.floor_facts(context.facts, signed=context.signed))
        return replace(why, detail=f"{why.detail}; {_detail(context.demand, floor)}")

    def cache_key(self, source: Link) -> Hashable:
        return source.demand


class LevelStage(Stage):
    """Both demands."""

    step = Step.LEVELS

    def __init__(self, levels: Levels) -> None:
        self.levels = levels

    def evaluate(self, known: Known) -> Answer:
        target = known.target
        assert target is not None
        levels, context = self.levels, known.context
        floor, facts = levels.floor(context.level), levels.floor_facts(context.facts, signed=context.signed)
        if known.away:
            # over which connection it will be sent is not known; what the subscription itself demands is
            demand = known.terms.demand
            met = demand is None or meets(levels, floor, demand, facts)
            if demand is not None and not met:
                return _denied(SUBSCRIBER, demand, levels.told(floor, facts))
            return _met(demand, context.demand)
        receiver = target.subject
        demand = context.demand
        if demand is not None:
            held = levels.floor_facts(receiver.facts, signed=context.signed)
            if not meets(levels, receiver.level, demand, held):
                both = levels.floor_facts(context.facts, receiver.facts, signed=context.signed)
                told = levels.told(levels.floor(context.level, receiver.level), both)
                return _denied(PUBLISHER, demand, told, waits=True)
        demand = effective_demand(levels, receiver.level, known.terms.demand, target.demand)
        if not meets(levels, floor, demand, facts):
            return _denied(SUBSCRIBER, demand, levels.told(floor, facts))
        return _met(demand, context.demand)

    def cache_key(self, source: Link) -> Hashable:
        return source.subject.level, source.subject.facts, source.demand


def _met(*demands: Demand | None) -> Allow:
    """What is demanded holds; what is to be signed must not be cut by a view."""
    return WHOLE if any(map(demands_signed, demands)) else ALLOW


def demands_signed(demand: Demand | None) -> bool:
    return demand is not None and SIGNED in demand.names


def unknown_demand(levels: Levels, demand: Demand | None) -> Deny | None:
    """Why a demand of a publisher is refused; None if it can be met."""
    why = unknown_name(levels, demand)
    if not why:
        return None
    said = f"{REQUIRE}: {why}"
    return Deny(step=Step.LEVELS, rule=REQUIRE, reason=Reason.IMPLEMENTATION_SPECIFIC_ERROR, said=said, detail=why)


def _denied(rule: str, demand: Demand, floor: str, *, waits: bool = False) -> Deny:
    return Deny(step=Step.LEVELS, rule=rule, detail=_detail(demand, floor), waits=waits)


def _detail(demand: Demand, floor: str) -> str:
    """What the audit has of it."""
    return f"demand {demand.text}; floor {floor}"
