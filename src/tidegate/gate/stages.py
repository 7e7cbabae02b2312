"""A stage that holds whatever the policies say."""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.gate.verdict import ALLOW, Allow, Answer, Deny, Known, Step
from tidegate.session import Link

RESERVED = ("$SYS", "$tidegate", "$share")


class Reserved:
    """Topics below `$SYS` and the like are the node's own: only its services write there."""

    step = Step.WRITE

    def evaluate(self, known: Known) -> Answer:
        if known.topic[:1] == "$" and known.topic.split("/", 1)[0] in RESERVED:
            if known.context.subject.kind != "service":
                return Deny(step=Step.WRITE, rule="reserved")
        return ALLOW

    def kin(self, source: Link) -> Hashable:
        return source.subject.kind

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        return ALLOW
