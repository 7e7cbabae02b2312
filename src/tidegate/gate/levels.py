"""Step 7: how well the links are protected that a message crosses (semantics, *Levels and demands*).

The publisher's demand is held against the connection that the message would be sent over, the subscriber's against
the floor of the way the message came. Nothing here depends on a single message: what a message demands for itself is
known when its plan is looked up.
"""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.gate.verdict import ALLOW, Answer, Deny, Known, Stage, Step
from tidegate.policy import Levels
from tidegate.session import Link

PUBLISHER = Deny(step=Step.LEVELS, rule="publisher's demand")
SUBSCRIBER = Deny(step=Step.LEVELS, rule="subscriber's demand")


class LevelStage(Stage):
    """Both demands."""

    step = Step.LEVELS

    def __init__(self, levels: Levels) -> None:
        self.levels = levels

    def evaluate(self, known: Known) -> Answer:
        target = known.target
        assert target is not None
        levels = self.levels
        own = known.context.subject.level
        if known.away:
            # over which connection it will be sent is not known; what the subscription itself demands is
            demand = known.terms.demand
            return ALLOW if demand is None or levels.satisfies(demand, levels.floor(own)) else SUBSCRIBER
        level = target.subject.level
        if known.context.demand is not None and not levels.admits(known.context.demand, level):
            return PUBLISHER
        demanded = levels.effective(level, known.terms.demand, target.demand)
        return ALLOW if levels.satisfies(demanded, levels.floor(own)) else SUBSCRIBER

    def cache_key(self, source: Link) -> Hashable:
        return source.subject.level, source.demand
