"""A stage that holds whatever the policies say."""

from __future__ import annotations

from collections.abc import Collection, Hashable

from tidegate.gate.verdict import ALLOW, Answer, Deny, Known, Stage, Step
from tidegate.session import Link

RESERVED = ("$SYS", "$tidegate", "$share")


class ReservedTopicStage(Stage):
    """Topics below `$SYS` and the like are the node's own: only its services write there.

    But clients speak to the node on `heard`: they send rules, and ask for keys, where there are any.
    """

    step = Step.WRITE

    def __init__(self, heard: Collection[str] = ()) -> None:
        self.heard = heard

    def evaluate(self, known: Known) -> Answer:
        if known.topic[:1] == "$" and known.topic.split("/", 1)[0] in RESERVED:
            kind = known.context.subject.kind
            if kind != "service" and not (kind == "client" and known.topic in self.heard):
                return Deny(step=Step.WRITE, rule="reserved")
        return ALLOW

    def cache_key(self, source: Link) -> Hashable:
        return source.subject.kind
