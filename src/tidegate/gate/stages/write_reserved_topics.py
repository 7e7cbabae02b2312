"""A stage that holds whatever the policies say."""

from __future__ import annotations

from collections.abc import Collection, Hashable

from tidegate.gate.verdict import ALLOW, Answer, Deny, Known, Residual, Stage, Step
from tidegate.policy import Subject
from tidegate.policy.subject import state_topic
from tidegate.session import Link

RESERVED = ("$SYS", "$tidegate", "$share")
DENIED = Deny(step=Step.WRITE, rule="reserved")
STATES = (b"0", b"1", b"")  # of a bridge; the last one clears what is retained


class ReservedTopicStage(Stage):
    """Topics below `$SYS` and the like are the node's own: only its services write there.

    But clients speak to the node on `heard`: they send rules, and ask for keys, where there are any. And a bridge says
    there, under its own name, whether it is connected: `1` or `0`, and nothing else.
    """

    step = Step.WRITE

    def __init__(self, heard: Collection[str] = ()) -> None:
        self.heard = heard

    def evaluate(self, known: Known) -> Answer:
        if known.topic[:1] == "$" and known.topic.split("/", 1)[0] in RESERVED:
            subject = known.context.subject
            kind = subject.kind
            if kind == "client" and is_own_state(subject, known.topic):
                return Residual(lambda message: ALLOW if message.payload in STATES else DENIED)
            if kind != "service" and not (kind == "client" and known.topic in self.heard):
                return DENIED
        return ALLOW

    def cache_key(self, source: Link) -> Hashable:
        subject = source.subject
        return subject.kind, subject.client if subject.bridge else None


def is_own_state(subject: Subject, topic: str) -> bool:
    """Whether a bridge says there whether it is connected."""
    return subject.bridge and topic == state_topic(subject.client)
