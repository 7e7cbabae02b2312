"""What a peer asks of the scope it is connected to. `scope.Scope` is the real one.

A `Route` is what the gate compiled for one (kind of source, topic); peers only follow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.session.context import MessageOptions
from tidegate.session.message import Message
from tidegate.session.session import Session
from tidegate.wire import Auth, Connect, Disconnect, Properties, Reason, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from tidegate.session.connection import Line
    from tidegate.session.peer import Peer


class Refusal(Protocol):
    """Why a publish is refused."""

    @property
    def reason(self) -> int: ...
    @property
    def rule(self) -> str: ...
    @property
    def said(self) -> str:
        """What its sender is told in place of the rule."""
        ...

    @property
    def suppressed(self) -> bool:
        """A monitor has suppressed it: nobody has denied anything."""
        ...

    @property
    def no_room(self) -> bool:
        """Nothing can be made safe at the moment: it may be sent again."""
        ...


class Route(Protocol):
    """What is done with a message of this topic from this kind of source."""

    passed: int  # messages that took it

    @property
    def topic(self) -> str: ...
    @property
    def fast(self) -> tuple[Session, ...] | None:
        """QoS 0 frames go to these as they came; None: the general path."""
        ...

    @property
    def cross(self) -> tuple[tuple[bytes | None, tuple[Session, ...]], ...]:
        """And to these with another property field; None: with none, as 3.1.1 has it."""
        ...

    @property
    def guarded(self) -> bool:
        """Whether monitors listen: frames go to `fast` only while `calm` says so."""
        ...

    @property
    def monitored(self) -> bool:
        """Whether monitors of the link it came over have to see each message."""
        ...

    def calm(self, source: Session) -> bool:
        """Whether all monitors would let every message pass as it is now, and stay as they are."""
        ...


class Lane(Protocol):
    """The routes of all sources that are decided alike, by topic in UTF-8."""

    @property
    def plans(self) -> Mapping[bytes, Route]: ...
    @property
    def floor_properties(self) -> Properties:
        """The floor as a user property for MQTT 5 subscribers; `NONE` if it is not announced."""
        ...


class Path(Protocol):
    """The steps that a published message takes (`scope.path`)."""

    def publish(self, route: Route, message: Message, source: Session) -> int | Refusal:
        """QoS 0 and 1: how many it reached, or why it did not go on; a denial is audited."""
        ...

    def accept(self, route: Route, message: Message, source: Session) -> Message | Refusal:
        """QoS 2, with PUBLISH: what the store keeps until it is released, or why it is refused."""
        ...

    def release(self, connection: Line, message: Message) -> Sequence[Any] | Refusal:
        """QoS 2, with PUBREL: what goes on, or why nothing does."""
        ...

    def deliver_released(self, events: Sequence[Any], message: Message, source: Session) -> None:
        """Delivers what goes on of a QoS 2 message, once the journal is safe if it was written there."""
        ...


class Host(Protocol):
    """The scope, seen from a connection."""

    def connect(self, peer: Peer, packet: Connect) -> None: ...
    def auth(self, peer: Peer, packet: Auth) -> None: ...
    def disconnected(self, peer: Line, packet: Disconnect | None, reason: Reason) -> None: ...
    def plan(self, peer: Line, topic: bytes) -> Route: ...
    def read_options(self, properties: Properties) -> tuple[MessageOptions, Properties]:
        """What a message asks for itself, and what is left to forward. `NO_OPTIONS` if it asks for nothing."""
        ...

    def plan_as(self, peer: Line, topic: bytes, options: MessageOptions) -> tuple[Route, bytes]:
        """The route of a message that asks for something, and its context."""
        ...

    @property
    def path(self) -> Path: ...
    def subscribe(self, session: Session, packet: Subscribe) -> None: ...
    def unsubscribe(self, session: Session, packet: Unsubscribe) -> None: ...
