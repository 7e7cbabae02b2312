"""Step 6: may a message that came over a link of one type leave over a link of another (semantics, *Brokering*).

Both types are known when a plan is compiled, so nothing is left to ask of a message. A stored message has kept the type
of the link that it came over, by its name: one that is not known any more is in no pair, and denies. A retained message
that came over several links has kept all of their types, and may leave if one of them allows it.
"""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.gate.verdict import ALLOW, Answer, Deny, Known, Stage, Step
from tidegate.policy.brokering import Brokering, came_over, exempt
from tidegate.session import Link, NodeLinkEnd


class BrokeringStage(Stage):
    """The allowed pairs of types."""

    step = Step.BROKERING

    def __init__(self, brokering: Brokering) -> None:
        self.brokering = brokering
        self._denies: dict[tuple[str, str], Deny] = {}

    def evaluate(self, known: Known) -> Answer:
        assert known.target is not None
        source, target, context = known.link, known.target.type, known.context
        if any(self.brokering.allow(each, target) for each in came_over(source)):
            return ALLOW
        if context.floor is None and exempt(context.subject):  # the own node, and not another that says so
            return ALLOW
        deny = self._denies.get((source, target))
        if deny is None:
            rule = f"brokering:{', '.join(came_over(source))}->{target}"
            deny = self._denies[source, target] = Deny(step=Step.BROKERING, rule=rule)
        return deny

    def cache_key(self, source: Link) -> Hashable:
        return source.type, exempt(source.subject)


class PathStage(Stage):
    """What does not cross a link to another node, whoever asks: what is not shared, and what has been there already."""

    step = Step.BROKERING
    # nobody has denied anything
    _NOT_SHARED = Deny(step=Step.WHERE, rule="share")
    _BEEN_THERE = Deny(step=Step.WHERE, rule="path")

    def evaluate(self, known: Known) -> Answer:
        target, context = known.target, known.context
        assert isinstance(target, NodeLinkEnd)
        if target.link is None or target.link.crossing(known.topic) is None:
            return self._NOT_SHARED
        paths = (context.path, *(other.context.path for other in context.others))
        return self._BEEN_THERE if target.far and any(target.far in path for path in paths) else ALLOW

    def cache_key(self, source: Link) -> Hashable:
        return None
