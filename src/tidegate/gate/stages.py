"""A stage that holds whatever the policies say."""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.gate.verdict import ALLOW, Allow, Answer, Deny, Known, Step
from tidegate.policy.rules import CONTROL
from tidegate.session import Link

RESERVED = ("$SYS", "$tidegate", "$share")


class Reserved:
    """Topics below `$SYS` and the like are the node's own: only its services write there.

    But `$tidegate/rules` is where clients send rules, if publishers have a say.
    """

    step = Step.WRITE

    def __init__(self, ruled: bool = False) -> None:
        self.ruled = ruled

    def evaluate(self, known: Known) -> Answer:
        if known.topic[:1] == "$" and known.topic.split("/", 1)[0] in RESERVED:
            kind = known.context.subject.kind
            if kind != "service" and not (self.ruled and kind == "client" and known.topic == CONTROL):
                return Deny(step=Step.WRITE, rule="reserved")
        return ALLOW

    def kin(self, source: Link) -> Hashable:
        return source.subject.kind

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        return ALLOW
