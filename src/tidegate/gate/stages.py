"""Stages that hold whatever the policies say."""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.gate.verdict import ALLOW, Allow, Answer, Deny, Known, Step
from tidegate.session import Link

RESERVED = ("$SYS", "$tidegate", "$share")


class Reserved:
    """Topics below `$SYS` and the like are the node's own: only its services write there."""

    def evaluate(self, known: Known) -> Answer:
        if known.topic[:1] == "$" and known.topic.split("/", 1)[0] in RESERVED:
            if known.source is None or known.source.subject.kind != "service":
                return Deny(step=Step.WRITE, rule="reserved")
        return ALLOW

    def kin(self, source: Link) -> Hashable:
        return source.subject.kind

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        return ALLOW


class Closed:
    """Default deny: nobody has written a policy, and nobody has written `policies: open` either."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def evaluate(self, known: Known) -> Answer:
        actor = known.source if self.step is Step.WRITE else known.target
        if actor is not None and actor.subject.kind == "service":
            return ALLOW
        return Deny(step=self.step, rule="default")

    def kin(self, source: Link) -> Hashable:
        return source.subject.kind

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        return Deny(step=self.step, rule="default")
