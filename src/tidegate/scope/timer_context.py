"""What a monitor's timer knows of the message that set it: enough to give what it emits the context of that message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.session import Link, Message, Origin
from tidegate.session.message import OUTPUT_BITS


@dataclass(frozen=True, slots=True)
class Cause:
    """A message without its content, and over whose link it went."""

    principal: str
    client: str
    inward: bool
    topic: str
    published: float
    node: str
    boot: int
    number: int
    output: int
    used: int
    """Which of its outputs the timer counts as: what it puts out is numbered after that."""
    link: str
    context: bytes
    ticked: int = 0
    """How many of those there have been."""

    @classmethod
    def of(cls, message: Message, principal: str, link: Link, used: int) -> Cause:
        return cls(
            principal,
            link.subject.client,
            link.inward,
            message.topic,
            message.published,
            message.origin.node,
            message.origin.boot,
            message.number,
            message.output,
            used,
            message.link,
            message.context,
        )

    def message(self) -> Message:
        """What the timer counts as, without content."""
        origin = Origin(self.node, self.boot)
        return Message(
            self.topic,
            b"",
            0,
            False,
            self.published,
            origin,
            self.number,
            self.context,
            self.link,
            output=self.output << OUTPUT_BITS | self.used if self.used else self.output,
        )

    def fields(self) -> list[Any]:
        """For the store."""
        return [getattr(self, name) for name in self.__slots__]
