"""What a connection asks of the scope it is connected to. `scope.Scope` is the real one.

A `Route` is what the gate compiled for one (kind of source, topic); connections only follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidegate.session.context import MessageOptions
from tidegate.session.message import Message
from tidegate.session.session import Session
from tidegate.wire import Auth, Connect, Disconnect, Properties, Reason, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from tidegate.session.connection import Connection


LINKS: Final = b""
"""In place of a property field: what goes over links to other nodes."""


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
    def asked(self) -> Any:
        """What `AskedWay` takes; None: the general path, unless it is `fast`."""
        ...

    @property
    def cross(self) -> tuple[tuple[bytes | None, tuple[Session, ...]], ...]:
        """And to these with another property field; None: with none, as 3.1.1 has it; LINKS: in an envelope."""
        ...

    @property
    def carried(self) -> bool:
        """Whether links to other nodes are among those."""
        ...

    @property
    def relayed(self) -> bool:
        """And all of them leave the scope that the message came to: what came from another node may go on as it is."""
        ...

    @property
    def guarded(self) -> bool:
        """Whether monitors listen: frames go to `fast` only while `calm` says so."""
        ...

    @property
    def monitored(self) -> bool:
        """Whether monitors of the link it came over have to see each message."""
        ...

    @property
    def floor_properties(self) -> Properties:
        """The floor as a user property for MQTT 5 subscribers; `NONE` if it is not announced."""
        ...

    def calm(self, source: Session) -> bool:
        """Whether all monitors would let every message pass as it is now, and stay as they are."""
        ...


class Lane(Protocol):
    """The routes of all sources that are decided alike, by topic in UTF-8."""

    @property
    def plans(self) -> Mapping[bytes, Route]: ...


Events = tuple[tuple[Any, Message], ...]
"""Messages that go on, each with the plan it follows, which only the path reads."""


class AskedWay(Protocol):
    """The steps of QoS 0 messages without properties that have to be looked at (`scope.asked_lane`)."""

    def publish(self, plan: Any, asked: Any, payload: bytes, frame: bytes, source: Session) -> Refusal | bool:
        """True: it went on; False: it has to take the general path; else why it may not, which is audited."""
        ...


class Path(Protocol):
    """The steps that a published message takes (`scope.path`). `plan` is its route."""

    @property
    def asked(self) -> AskedWay: ...

    def publish(self, plan: Any, message: Message, source: Session) -> int | Refusal:
        """QoS 0 and 1: how many it reached, or why it did not go on; a denial is audited."""
        ...

    def accept(self, plan: Any, message: Message, source: Session) -> Message | Refusal:
        """QoS 2, with PUBLISH: what the store keeps until it is released, or why it is refused."""
        ...

    def release(self, connection: Connection, message: Message) -> Events | Refusal:
        """QoS 2, with PUBREL: what goes on, or why nothing does."""
        ...

    def deliver_released(self, events: Events, message: Message, source: Session) -> int:
        """Delivers what goes on of a QoS 2 message, once the journal is safe if it was written there; to how many."""
        ...


class Handshake(Protocol):
    """CONNECT and AUTH."""

    def connect(self, connection: Connection, packet: Connect) -> None: ...
    def auth(self, connection: Connection, packet: Auth) -> None: ...
    def misdirected(self, connection: Connection, text: str) -> None:
        """Whoever is connected does not speak MQTT."""
        ...


class Lifetime(Protocol):
    """What becomes of a session."""

    def disconnected(self, connection: Connection, packet: Disconnect | None, reason: Reason) -> None: ...


class Plans(Protocol):
    """The routes of what a connection publishes."""

    def plan(self, connection: Connection, topic: bytes) -> Route: ...
    def read_options(self, properties: Properties) -> tuple[MessageOptions, Properties]:
        """What a message asks for itself, and what is left to forward. `NO_OPTIONS` if it asks for nothing."""
        ...

    def plan_as(self, connection: Connection, topic: bytes, options: MessageOptions) -> tuple[Route, bytes]:
        """The route of a message that asks for something, and its context."""
        ...

    def released(self, connection: Connection, message: Message) -> Any:
        """The route of a QoS 2 message that is released; None: it has come another way meanwhile."""
        ...


class Subscribing(Protocol):
    """SUBSCRIBE and UNSUBSCRIBE, in pieces: what comes out is when the next piece may begin, on the site's clock."""

    def subscribe(self, session: Session, packet: Subscribe) -> Iterator[float]: ...
    def unsubscribe(self, session: Session, packet: Unsubscribe) -> Iterator[float]: ...


class Host(Protocol):
    """The scope, seen from a connection: who takes what its packets ask for."""

    @property
    def handshake(self) -> Handshake: ...
    @property
    def lifetime(self) -> Lifetime: ...
    @property
    def plans(self) -> Plans: ...
    @property
    def path(self) -> Path: ...
    @property
    def subscribing(self) -> Subscribing: ...
