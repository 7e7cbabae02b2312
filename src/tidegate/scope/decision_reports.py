"""What a scope reports of its decisions. What becomes of it is the node's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidegate.gate import Deny, Lane, Plan
from tidegate.session import Grant, Link, Message, Session, Subject


class Audit(Protocol):
    """The node's ear. Every call is made on the loop, and is cheap."""

    def denied(
        self,
        action: str,
        link: Link,
        topic: str,
        why: Deny,
        publishers: str | None = None,
        message: Message | None = None,
        *,
        shadow: bool = False,
    ) -> None:
        """A publish, a subscription or a delivery was refused. `publishers`: whom the message comes from. Rows about a
        `message` of another node, or of a link, have its id. `shadow`: it was not, because that is not enforced."""
        ...

    def failed(self, link: Link, topic: str, errors: Iterable[tuple[str, str]]) -> None:
        """Conditions that failed and counted as false, by rule."""
        ...

    def delivered(self, link: Link, topic: str, publishers: str) -> None:
        """A delivery that no plan counts was allowed; only while what is allowed is counted."""
        ...

    def compiled(self, lane: Lane, plan: Plan) -> None:
        """A plan was made; what it denies it denies for every message."""
        ...

    def retired(self, plan: Plan) -> None:
        """A plan is not used any more; `passed` less `counted` messages have not been accounted for."""
        ...

    def subscribed(self, session: Session, grant: Grant) -> None: ...
    def unsubscribed(self, session: Session, filter: str) -> None: ...
    def connected(self, session: Session) -> None: ...
    def disconnected(self, session: Session, reason: int) -> None: ...
    def refused(
        self, address: str, client: str, user: str | None, reason: int, text: str, rule: str = "connect"
    ) -> None: ...
    def published(self, message: Message, subject: Subject) -> None:
        """A message was admitted; only while every message is written down."""
        ...

    def ruled(self, subject: Subject, sequence: int, ids: Iterable[str]) -> None:
        """A publisher has changed these of its rules."""
        ...


class Silent:
    """Nobody listens."""

    def denied(
        self,
        action: str,
        link: Link,
        topic: str,
        why: Deny,
        publishers: str | None = None,
        message: Message | None = None,
        *,
        shadow: bool = False,
    ) -> None: ...
    def delivered(self, link: Link, topic: str, publishers: str) -> None: ...
    def failed(self, link: Link, topic: str, errors: Iterable[tuple[str, str]]) -> None: ...
    def compiled(self, lane: Lane, plan: Plan) -> None: ...
    def retired(self, plan: Plan) -> None: ...
    def subscribed(self, session: Session, grant: Grant) -> None: ...
    def unsubscribed(self, session: Session, filter: str) -> None: ...
    def connected(self, session: Session) -> None: ...
    def disconnected(self, session: Session, reason: int) -> None: ...
    def refused(
        self, address: str, client: str, user: str | None, reason: int, text: str, rule: str = "connect"
    ) -> None: ...
    def published(self, message: Message, subject: Subject) -> None: ...
    def ruled(self, subject: Subject, sequence: int, ids: Iterable[str]) -> None: ...
