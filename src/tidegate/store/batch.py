"""What waits for a commit, and what never has to be written.

A `Batch` is a set of changes to the tables, not a list of operations: per row it knows only the last word. What
is undone before the batch is handed to the writer leaves no trace in it (annihilation); for a subscriber that
is online that is the rule: the delivery is noted, sent, acknowledged and struck out, and the disk never hears
of it.

`Notes` is the loop's side of the store: it assigns keys, counts the references to each body, and keeps what it
takes to let go of them. It has no threads, files or clock; `SqliteStore` adds these.

Invariants
- Every op leaves the batch so that the tables with the batch applied equal the state the caller knows.
- What a batch holds does not change any more after it was handed over: the fields of deliveries that change (packet
  id, state, seen) and the body's key are copied when they are noted. The writer reads only those and what never
  changes.
- `message.rows` is the number of deliveries, incoming and retained entries, stored or noted, that refer to the
  body; when it falls to 0 the body goes and `message.row` is 0 again. Keys are never used twice in one boot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tidegate.session.message import Delivery, Message, State
from tidegate.session.store import StoredSession
from tidegate.store.rows import SessionRow, SubscriptionRow, session_row, subscription_row
from tidegate.store.schema import OWN
from tidegate.wire import Subscription

SHIFT: Final = 32  # a delivery's key in memory: its number, and in the low bits its session
SESSION: Final = (1 << SHIFT) - 1
PID: Final = 16  # an incoming entry's key: the session, and in the low bits the packet id
POSITION: Final = 48  # and above them which of the messages that are handed on for it
SLICE: Final = 1000  # deliveries of a dropped session struck out in one go: well below a millisecond

Place: TypeAlias = tuple[str, str]  # of a retained message: its scope and its topic
Callback: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]
Noted: TypeAlias = tuple[int, Delivery, int, State, bool]  # the body's key, the delivery, its packet id, state, seen


@dataclass(slots=True, eq=False)
class Batch:
    """The changes of one transaction. Deletions are applied first, then the rest replaces what is there."""

    sessions: dict[int, SessionRow] = field(default_factory=dict)
    created: set[int] = field(default_factory=set)  # sessions that no earlier batch knows
    dropped: set[int] = field(default_factory=set)
    subscriptions: dict[int, dict[str, SubscriptionRow]] = field(default_factory=dict)
    unsubscribed: set[tuple[int, str]] = field(default_factory=set)
    bodies: dict[int, Message] = field(default_factory=dict)
    unreferenced: list[int] = field(default_factory=list)  # bodies of earlier batches that go
    deliveries: dict[int, Noted] = field(default_factory=dict)  # new in this batch
    changed: dict[int, Noted] = field(default_factory=dict)  # of earlier batches
    gone: list[int] = field(default_factory=list)  # of earlier batches
    incoming: dict[int, int | None] = field(default_factory=dict)  # new in this batch: key to body
    released: set[int] = field(default_factory=set)  # of earlier batches
    retained: dict[Place, int] = field(default_factory=dict)  # to body
    cleared: set[Place] = field(default_factory=set)  # those that an earlier batch has an entry for
    remembered: dict[str, str] = field(default_factory=dict)
    records: dict[tuple[str, str], bytes | bytearray | None] = field(default_factory=dict)
    """By room and key; None: it goes."""
    size: int = 0  # bytes of payload in `bodies`
    callbacks: list[Callback] = field(default_factory=list)

    @property
    def void(self) -> bool:
        """Nothing to write: everything noted was undone."""
        # Bodies are left out: each has a delivery, an incoming or a retained entry beside it.
        deliveries = self.deliveries or self.gone or self.changed or self.unreferenced
        messages = self.incoming or self.released or self.retained or self.cleared
        sessions = self.sessions or self.dropped or self.subscriptions or self.unsubscribed
        return not (deliveries or messages or sessions or self.remembered or self.records)


class Notes:
    """The ops of `session.store.Store`. Called on the loop only; each costs a few dictionary accesses."""

    def __init__(self) -> None:
        self.sequence = 1  # of the current batch
        self._batch = Batch()
        self._woken = False  # something was noted in the current batch
        self._urgent = False  # and somebody waits for its commit
        self._last_session = 0
        self._last_body = 0
        self._last_delivery = 0
        self._held: dict[int, set[Delivery]] = {}  # what each session is owed: dropping it lets go of the bodies
        self._incoming: dict[int, dict[int, tuple[Message, ...]]] = {}
        self._retained: dict[Place, Message] = {}
        self._sweeping: list[Delivery] = []  # owed to sessions that are gone

    @property
    def noted(self) -> bool:
        return self._woken

    def _wake(self) -> None:
        """Something was noted in a batch that was untouched. It may well be undone soon."""
        raise NotImplementedError

    def _hurry(self) -> None:
        """Something was noted for whose commit somebody waits; no harm if something was before."""
        raise NotImplementedError

    def _later(self, function: Callable[[], None]) -> None:
        """Run it on the loop, in another turn."""
        raise NotImplementedError

    # sessions

    def save_session(self, session: StoredSession) -> None:
        batch = self._batch
        fresh = session.row not in self._held  # also one that was dropped: keys are never used twice
        if fresh:
            self._last_session += 1
            session.row = self._last_session
            batch.created.add(session.row)
            self._held[session.row] = set()
        batch.sessions[session.row] = session_row(session)
        self._hurry()
        if fresh:
            for subscription, identifier, terms in session.subscriptions.values():
                self.subscribe(session.row, subscription, identifier, terms)

    def drop_session(self, session: int) -> None:
        """With its subscriptions, incoming entries and deliveries.

        A long queue is struck out in slices. The session is gone with this batch all the same: a delivery
        without a session is struck out when the store is opened, should a crash come in between.
        """
        held = self._held.pop(session, None)
        if held is None:
            return
        batch = self._batch
        batch.sessions.pop(session, None)
        batch.subscriptions.pop(session, None)
        if session not in batch.created:
            batch.dropped.add(session)
        batch.created.discard(session)
        for pid in tuple(self._incoming.get(session, ())):
            self.release(session, pid)
        self._incoming.pop(session, None)
        if len(held) <= SLICE and not self._sweeping:
            for delivery in held:
                self._strike(delivery, delivery.row)
        else:
            if not self._sweeping:
                self._later(self._sweep)
            self._sweeping.extend(held)
        self._hurry()

    def _sweep(self) -> None:
        for delivery in self._sweeping[-SLICE:]:
            row = delivery.row
            if row and row & SESSION not in self._held:  # else it is done, or was moved to another session
                self._strike(delivery, row)
        del self._sweeping[-SLICE:]
        self._hurry()
        if self._sweeping:
            self._later(self._sweep)

    def subscribe(self, session: int, subscription: Subscription, identifier: int | None, terms: bytes = b"") -> None:
        row = subscription_row(session, subscription, identifier, terms)
        self._batch.subscriptions.setdefault(session, {})[subscription.filter] = row
        self._hurry()

    def unsubscribe(self, session: int, filter: str) -> None:
        batch = self._batch
        noted = batch.subscriptions.get(session)
        if noted is not None:
            noted.pop(filter, None)
            if not noted:
                del batch.subscriptions[session]
        if session not in batch.created:  # else no earlier batch can know it
            batch.unsubscribed.add((session, filter))
        self._hurry()

    # deliveries

    def enqueue(self, session: int, delivery: Delivery) -> None:
        # hot: two dictionary entries, a set entry and a tuple
        batch = self._batch
        held = self._held[session]
        message = delivery.message
        message.rows += 1
        if delivery.row:
            self.done(delivery)  # moved here from another session
        body = message.row
        if not body:
            self._last_body = body = message.row = self._last_body + 1
            batch.bodies[body] = message
            batch.size += len(message.payload)
        self._last_delivery = number = self._last_delivery + 1
        delivery.row = row = number << SHIFT | session
        held.add(delivery)
        batch.deliveries[row] = (body, delivery, delivery.pid, delivery.state, delivery.seen)
        if delivery.qos == 2 or not delivery.state:  # it is sent, or its publisher acknowledged, after the commit
            if not self._urgent:
                self._hurry()
        elif not self._woken:
            self._wake()

    def update(self, delivery: Delivery) -> None:
        row = delivery.row
        if not row:
            return  # not stored
        batch = self._batch
        noted = batch.deliveries if row in batch.deliveries else batch.changed
        noted[row] = (delivery.message.row, delivery, delivery.pid, delivery.state, delivery.seen)
        if not self._urgent:
            self._hurry()

    def done(self, delivery: Delivery) -> None:
        row = delivery.row
        if not row:
            return  # not stored, or struck out with its session
        held = self._held.get(row & SESSION)
        if held is not None:
            held.discard(delivery)
        self._strike(delivery, row)
        if not self._woken:
            self._wake()
        message = delivery.message
        if not message.rows and message.waiter is not None:
            # nobody is owed it any more: safe without the disk
            waiter, message.waiter = message.waiter, None
            waiter.settle()

    def _strike(self, delivery: Delivery, row: int) -> None:
        # hot: usually one deletion from each of two dictionaries, and nothing is left of the message
        batch = self._batch
        delivery.row = 0
        if batch.deliveries.pop(row, None) is None:
            batch.gone.append(row >> SHIFT)
            batch.changed.pop(row, None)
        message = delivery.message
        message.rows -= 1
        if not message.rows:
            self._forget(message)

    def _forget(self, message: Message) -> None:
        batch = self._batch
        if batch.bodies.pop(message.row, None) is None:
            batch.unreferenced.append(message.row)
        else:
            batch.size -= len(message.payload)
        message.row = 0

    def _refer(self, message: Message) -> int:
        """Adds a reference to the body, which is noted with the first one, and returns its key."""
        if not message.row:
            self._last_body += 1
            message.row = self._last_body
            self._batch.bodies[message.row] = message
            self._batch.size += len(message.payload)
        message.rows += 1
        return message.row

    def _release(self, message: Message) -> None:
        message.rows -= 1
        if not message.rows:
            self._forget(message)

    # incoming QoS 2

    def receive(self, session: int, pid: int, messages: tuple[Message, ...]) -> None:
        batch = self._batch
        entries = self._incoming.setdefault(session, {})
        # before the old ones go: they may be the same
        bodies: list[int | None] = [self._refer(message) for message in messages]
        if pid in entries:
            self._end(session, pid)
        entries[pid] = messages
        for key, body in zip(_keys(session, pid, messages), bodies or [None], strict=True):
            batch.incoming[key] = body
        self._hurry()

    def release(self, session: int, pid: int) -> None:
        entries = self._incoming.get(session)
        if entries is not None and pid in entries:
            self._end(session, pid)
            self._hurry()

    def _end(self, session: int, pid: int) -> None:
        batch = self._batch
        messages = self._incoming[session].pop(pid)
        for key in _keys(session, pid, messages):
            if key in batch.incoming:
                del batch.incoming[key]
            else:
                batch.released.add(key)
        for message in messages:
            self._release(message)

    # retained messages

    def retain(self, scope: str, topic: str, message: Message | None) -> None:
        """`topic` is the message's own topic; None clears it."""
        batch = self._batch
        place = (scope, topic)
        body = 0 if message is None else self._refer(message)  # before the old one goes: it may be the same
        old = self._retained.pop(place, None)
        if old is not None:
            if batch.retained.pop(place, None) is None:
                batch.cleared.add(place)
            self._release(old)
        elif message is None:
            return
        if message is not None:
            self._retained[place] = message
            batch.retained[place] = body
        self._hurry()

    # short texts

    def remember(self, key: str, value: str) -> None:
        if key in OWN:
            raise ValueError(f"the store itself keeps {key!r}: remember it under another key")
        self._batch.remembered[key] = value
        self._hurry()

    # whatever else a room keeps

    def keep(self, room: str, key: str, value: bytes | bytearray | None, *, urgent: bool = True) -> None:
        self._batch.records[room, key] = value
        if urgent:
            self._hurry()
        elif not self._woken:
            self._wake()

    # what was found when the store was opened

    def _adopt(self, sessions: Iterable[StoredSession], retained: Mapping[str, Iterable[Message]]) -> None:
        for session in sessions:
            self._held[session.row] = set(session.deliveries)
            if session.incoming:
                self._incoming[session.row] = dict(session.incoming)
        for scope, messages in retained.items():
            for message in messages:
                self._retained[scope, message.topic] = message


def _keys(session: int, pid: int, messages: tuple[Message, ...]) -> list[int]:
    """Where the entries of one packet id are; if nothing is handed on for it, it still has one."""
    return [position << POSITION | session << PID | pid for position in range(max(1, len(messages)))]
