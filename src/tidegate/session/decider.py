"""What a session asks of its scope about deliveries that were decided earlier. `scope.path.Egress` is the real one."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from tidegate.session.message import Delivery, Message

if TYPE_CHECKING:
    from tidegate.session.session import Session


class Later(Enum):
    """In place of what may be sent."""

    LATER = "over a better connection"


class Decider(Protocol):
    """What a session asks before it sends something that was decided earlier."""

    def permits(self, session: Session, delivery: Delivery) -> Message | Later | None:
        """What of it may be sent now; None if nothing; later, if a better connection would do."""
        ...

    def too_weak(self, session: Session, delivery: Delivery) -> bool:
        """Whether it waits for a better connection."""
        ...

    def stream(self, message: Message) -> Hashable:
        """Its publisher and its topic: what is alike in both stays in order."""
        ...

    def monitored(self, session: Session, delivery: Delivery, shown: Message | None) -> list[tuple[Delivery, Message]]:
        """What the monitors of its link make of something that is about to be sent, and what is shown of each.

        `shown`: what may be seen of it, if that has been decided just now.
        """
        ...

    def listened(self, session: Session, topic: str) -> bool:
        """Whether one of the monitors of its link has to see it. What none listens to may be on the fast lane."""
        ...

    def fresh(self, session: Session) -> bool:
        """Brings a session up to the rules in force; False if it has no business here any more."""
        ...

    def caught_up(self, session: Session) -> None:
        """Its monitors have seen everything that waited."""
        ...

    def hand_on(self, delivery: Delivery) -> None:
        """It came through a shared subscription, and this member may not have it now: another may.

        It was never sent, or with QoS 1.
        """
        ...
