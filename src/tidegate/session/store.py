"""What a session needs of a store. The real one is in `store/`; `Volatile` keeps nothing.

All calls are made on the loop and only note what is to be written. `after` runs a callback once everything noted
so far is safe; callbacks run in the order they were given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tidegate.native import mypyc_attr
from tidegate.session.message import Delivery, Message
from tidegate.wire import Subscription, Will

StoredSubscription: TypeAlias = tuple[Subscription, int | None, bytes]  # with its identifier and its terms

if TYPE_CHECKING:
    from tidegate.session.session import Session


@dataclass(slots=True, kw_only=True)
class StoredSession:
    """A persistent session as it stands in the store."""

    row: int  # 0: not stored yet; the store assigns it in `save_session`
    scope: str  # where it lives
    principal: str
    client: str
    version: int
    expiry: int  # seconds; 0xFFFFFFFF = never
    ended: float | None = None  # wall clock of the disconnection; None while connected
    will: Will | None = None
    context: bytes = b""
    certificate: bytes | None = None
    """That its client showed last; empty: none; None: written by a version that did not keep it."""
    subscriptions: dict[str, StoredSubscription] = field(default_factory=dict)  # by filter
    deliveries: list[Delivery] = field(default_factory=list)  # in order; filled by load only
    incoming: dict[int, tuple[Message, ...]] = field(default_factory=dict)  # QoS 2, by packet id: what PUBREL hands on

    @classmethod
    def of(cls, session: Session) -> StoredSession:
        """A session as it now is, without what is noted of it by itself."""
        shown = session.certificate
        return cls(
            row=session.row,
            scope=session.home,
            principal=session.principal,
            client=session.client,
            version=session.version,
            expiry=session.expiry,
            ended=session.ended,
            will=session.will,
            context=session.context,
            certificate=b"" if shown is None else shown.encode(session.subject.certified),
        )


class Store(Protocol):
    """The writing side. `session` is always the row that `save_session` assigned."""

    @property
    def refusing(self) -> bool:
        """True while nothing can be made safe (disk full): durable publishes are refused."""
        ...

    @property
    def backlog(self) -> int:
        """How many bytes wait for a commit."""
        ...

    @property
    def sequence(self) -> int:
        """The number of the batch that is being noted; what was noted under it is safe together."""
        ...

    @property
    def noted(self) -> bool:
        """Something has been noted in that batch."""
        ...

    def save_session(self, session: StoredSession) -> None: ...
    def drop_session(self, session: int) -> None: ...
    def subscribe(self, session: int, subscription: Subscription, identifier: int | None, terms: bytes = b"") -> None:
        """`terms` is what was agreed with it beside MQTT's options; the store does not look into it."""
        ...

    def unsubscribe(self, session: int, filter: str) -> None: ...
    def enqueue(self, session: int, delivery: Delivery) -> None: ...
    def update(self, delivery: Delivery) -> None: ...
    def done(self, delivery: Delivery) -> None: ...
    def receive(self, session: int, pid: int, messages: tuple[Message, ...]) -> None:
        """An incoming QoS 2 publish and what is handed on for it, which may be nothing."""
        ...

    def release(self, session: int, pid: int) -> None: ...
    def retain(self, scope: str, topic: str, message: Message | None) -> None:
        """A scope's retained message of a topic, in place of the last one; None: there is none any more."""
        ...

    def remember(self, key: str, value: str) -> None:
        """A short text that is found under `key` at the next start, in place of the last one."""
        ...

    def keep(self, room: str, key: str, value: bytes | bytearray | None, *, urgent: bool = True) -> None:
        """What a room keeps under a key of its own, in place of the last value; None: nothing any more.

        A `bytearray` may grow as long as `sequence` is the same.

        `urgent`: somebody may wait for the commit.
        """
        ...

    def after(self, callback: Callable[..., None], *args: Any) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Volatile:
    """Keeps nothing; everything is as safe as it will ever be at once."""

    refusing = False
    backlog = 0
    sequence = 0
    noted = False

    def __init__(self) -> None:
        self._rows = 0

    def save_session(self, session: StoredSession) -> None:
        if not session.row:
            self._rows += 1
            session.row = self._rows

    def drop_session(self, session: int) -> None:
        pass

    def subscribe(self, session: int, subscription: Subscription, identifier: int | None, terms: bytes = b"") -> None:
        pass

    def unsubscribe(self, session: int, filter: str) -> None:
        pass

    def enqueue(self, session: int, delivery: Delivery) -> None:
        pass

    def update(self, delivery: Delivery) -> None:
        pass

    def done(self, delivery: Delivery) -> None:
        pass

    def receive(self, session: int, pid: int, messages: tuple[Message, ...]) -> None:
        pass

    def release(self, session: int, pid: int) -> None:
        pass

    def retain(self, scope: str, topic: str, message: Message | None) -> None:
        pass

    def remember(self, key: str, value: str) -> None:
        pass

    def keep(self, room: str, key: str, value: bytes | bytearray | None, *, urgent: bool = True) -> None:
        pass

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        callback(*args)
