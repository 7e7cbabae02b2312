"""The store against a model made of dictionaries: whatever is noted, handed over, committed, closed or cut off.

The loop turns only when a rule says so, so the model knows exactly what each batch holds: a crash goes back to the
state at the last hand-over that was committed.
"""

from __future__ import annotations

import shutil
import tempfile
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from store.trial import Trial, glance, look, message, stored, tables, wait, waiting
from tidegate.session.message import Delivery, Message, State
from tidegate.session.store import StoredSession
from tidegate.store.batch import PID, POSITION
from tidegate.wire import Subscription

PIDS = st.integers(1, 3)
FILTERS = st.sampled_from(["a", "b/+", "$share/g/#"])
SCOPES = st.sampled_from(["I", "H1"])
PLACES = st.tuples(SCOPES, st.sampled_from(["t/1", "t/2"]))
CLIENTS = st.tuples(SCOPES, st.sampled_from(["u", "v"]), st.sampled_from(["c1", "c2"]))
ROOMS = st.sampled_from(["monitor/I", "monitor/H1", "rules"])
KEYS = st.sampled_from(["", "a", "a\nb"])
LATE = -1e9  # long before any boot

Key = tuple[str, str, str]  # scope, principal and client: what tells sessions apart
Place = tuple[str, str]  # scope and topic


def name_of(session: StoredSession) -> Key:
    return session.scope, session.principal, session.client


@dataclass
class Session:
    """A session, by value."""

    expiry: int
    subscriptions: dict[str, Any] = field(default_factory=dict)
    queue: list[Any] = field(default_factory=list)
    incoming: dict[int, Any] = field(default_factory=dict)


@dataclass
class Everything:
    """What the store should hold, by value."""

    sessions: dict[Key, Session] = field(default_factory=dict)
    retained: dict[Place, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    records: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def opened(self) -> Everything:
        """What of it is found: not what has expired, but for deliveries that were begun."""
        found = deepcopy(self)
        for session in found.sessions.values():
            session.queue = [d for d in session.queue if not expired(d[0]) or d[6] is not State.QUEUED]
            session.incoming = {
                pid: [m for m in messages if not expired(m)] for pid, messages in session.incoming.items()
            }
        return found


def expired(looked: Any) -> bool:
    payload: bytes = looked[1]
    return payload == b"late"


class Machine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        memory = Path("/dev/shm")  # nothing here is about the disk
        self.folder = Path(tempfile.mkdtemp(prefix="tidegate-model-", dir=memory if memory.is_dir() else None))
        self.lives = 0
        self.trial = Trial(self.folder / "0" / "t.db", durability="async")
        self.known: dict[Key, StoredSession] = {}
        self.queues: dict[Key, list[Delivery]] = {}
        self.incoming: dict[Key, dict[int, tuple[Message, ...]]] = {}
        self.retained: dict[Place, Message] = {}
        self.notes: dict[str, str] = {}
        self.records: dict[tuple[str, str], bytes] = {}
        self.safe = Everything()

    def teardown(self) -> None:
        if hasattr(self, "trial"):
            self.trial.close()
            shutil.rmtree(self.folder)

    def now(self) -> Everything:
        """Everything as the caller of the store knows it."""
        return Everything(
            sessions={
                name: Session(
                    expiry=session.expiry,
                    subscriptions=deepcopy(session.subscriptions),
                    queue=[glance(d) for d in self.queues[name]],
                    incoming=waiting(self.incoming[name]),
                )
                for name, session in self.known.items()
            },
            retained={place: look(m) for place, m in self.retained.items()},
            notes=dict(self.notes),
            records={
                room: {key: value for (owner, key), value in self.records.items() if owner == room}
                for room in {owner for owner, _ in self.records}
            },
        )

    def pick(self, index: int) -> Key | None:
        return sorted(self.known)[index % len(self.known)] if self.known else None

    # sessions

    @rule(name=CLIENTS, expiry=st.integers(0, 9))
    def make(self, name: Key, expiry: int) -> None:
        """In place of the last one with the same client id in the same scope."""
        if name in self.known:
            self.trial.store.drop_session(self.known[name].row)
        scope, principal, client = name
        session = stored(client, scope=scope, principal=principal, expiry=expiry)
        self.trial.store.save_session(session)
        self.known[name] = session
        self.queues[name] = []
        self.incoming[name] = {}

    @precondition(lambda self: self.known)
    @rule(which=st.integers(0, 9), expiry=st.integers(0, 9))
    def save(self, which: int, expiry: int) -> None:
        session = self.known[self.pick(which)]
        session.expiry = expiry
        self.trial.store.save_session(session)

    @precondition(lambda self: len(self.known) > 1)
    @rule(which=st.integers(0, 9))
    def drop(self, which: int) -> None:
        name = self.pick(which)
        self.trial.store.drop_session(self.known.pop(name).row)
        del self.queues[name], self.incoming[name]

    @precondition(lambda self: self.known)
    @rule(
        which=st.integers(0, 9),
        filter=FILTERS,
        qos=st.integers(0, 2),
        identifier=st.none() | st.integers(1, 9),
        terms=st.binary(max_size=3),
    )
    def subscribe(self, which: int, filter: str, qos: int, identifier: int | None, terms: bytes) -> None:
        session = self.known[self.pick(which)]
        session.subscriptions[filter] = (Subscription(filter=filter, qos=qos), identifier, terms)
        self.trial.store.subscribe(session.row, *session.subscriptions[filter])

    @precondition(lambda self: self.known)
    @rule(which=st.integers(0, 9), filter=FILTERS)
    def unsubscribe(self, which: int, filter: str) -> None:
        session = self.known[self.pick(which)]
        session.subscriptions.pop(filter, None)
        self.trial.store.unsubscribe(session.row, filter)

    # messages

    def publish(self, m: Message, to: list[int], group: tuple[str, str] | None = None) -> None:
        for name in sorted({self.pick(index) for index in to} - {None}):
            delivery = Delivery(m, 1, False, (7,) if group else (), group)
            self.queues[name].append(delivery)
            self.trial.store.enqueue(self.known[name].row, delivery)

    @rule(to=st.lists(st.integers(0, 9), max_size=4), group=st.none() | st.just(("g", "x/+")))
    def new(self, to: list[int], group: tuple[str, str] | None) -> None:
        self.publish(message(), to, group)

    @rule(place=PLACES, to=st.lists(st.integers(0, 9), max_size=2))
    def retain(self, place: Place, to: list[int]) -> None:
        m = message(topic=place[1])
        self.publish(m, to)
        self.retained[place] = m
        self.trial.store.retain(*place, m)

    @rule(place=PLACES)
    def clear(self, place: Place) -> None:
        self.retained.pop(place, None)
        self.trial.store.retain(*place, None)

    @precondition(lambda self: self.retained)
    @rule(place=PLACES, to=st.lists(st.integers(0, 9), max_size=2))
    def retained_to_new_subscriber(self, place: Place, to: list[int]) -> None:
        if place in self.retained:
            self.publish(self.retained[place], to)

    @precondition(lambda self: self.retained)
    @rule(place=PLACES, scope=SCOPES)
    def retained_there_too(self, place: Place, scope: str) -> None:
        """The very same message, also in another scope."""
        if place in self.retained:
            m = self.retained[scope, place[1]] = self.retained[place]
            self.trial.store.retain(scope, place[1], m)

    @precondition(lambda self: any(self.queues.values()))
    @rule(
        which=st.integers(0, 9),
        place=st.integers(0, 9),
        pid=PIDS,
        state=st.sampled_from(State),
        seen=st.booleans(),
    )
    def update(self, which: int, place: int, pid: int, state: State, seen: bool) -> None:
        queue = self.queues[self.pick(which)]
        if queue:
            delivery = queue[place % len(queue)]
            delivery.pid, delivery.state, delivery.seen = pid, state, seen
            self.trial.store.update(delivery)

    @precondition(lambda self: any(self.queues.values()))
    @rule(which=st.integers(0, 9), place=st.integers(0, 9))
    def done(self, which: int, place: int) -> None:
        queue = self.queues[self.pick(which)]
        if queue:
            self.trial.store.done(queue.pop(place % len(queue)))

    @precondition(lambda self: any(self.queues.values()))
    @rule(which=st.integers(0, 9), to=st.integers(0, 9), place=st.integers(0, 9))
    def move(self, which: int, to: int, place: int) -> None:
        queue = self.queues[self.pick(which)]
        if queue:
            delivery = queue.pop(place % len(queue))
            self.queues[self.pick(to)].append(delivery)
            self.trial.store.enqueue(self.known[self.pick(to)].row, delivery)

    # incoming QoS 2

    @precondition(lambda self: self.known)
    @rule(which=st.integers(0, 9), pid=PIDS, number=st.integers(0, 3), late=st.integers(0, 15))
    def receive(self, which: int, pid: int, number: int, late: int) -> None:
        """`late` says which of them have expired: that is found out when the store is opened again."""
        name = self.pick(which)
        messages = tuple(
            message(b"late", qos=2, expires=LATE) if late >> n & 1 else message(qos=2) for n in range(number)
        )
        self.incoming[name][pid] = messages
        self.trial.store.receive(self.known[name].row, pid, messages)

    @precondition(lambda self: any(self.incoming.values()))
    @rule(which=st.integers(0, 9), pid=PIDS, other=PIDS)
    def receive_again(self, which: int, pid: int, other: int) -> None:
        """Messages that are there already, under this packet id or another."""
        name = self.pick(which)
        messages = (*self.incoming[name].get(other, ()), *self.incoming[name].get(pid, ()))[-4:]
        self.incoming[name][pid] = messages
        self.trial.store.receive(self.known[name].row, pid, messages)

    @precondition(lambda self: any(self.incoming.values()))
    @rule(which=st.integers(0, 9), pid=PIDS, to=st.lists(st.integers(0, 9), max_size=3))
    def hand_on(self, which: int, pid: int, to: list[int]) -> None:
        name = self.pick(which)
        if pid in self.incoming[name]:
            for m in self.incoming[name].pop(pid):
                self.publish(m, to)
            self.trial.store.release(self.known[name].row, pid)

    @precondition(lambda self: any(self.incoming.values()))
    @rule(which=st.integers(0, 9), pid=PIDS)
    def release(self, which: int, pid: int) -> None:
        name = self.pick(which)
        self.incoming[name].pop(pid, None)
        self.trial.store.release(self.known[name].row, pid)

    # short texts

    @rule(key=st.sampled_from(["policy", "", "ö'"]), value=st.text(st.characters(codec="utf-8"), max_size=5))
    def remember(self, key: str, value: str) -> None:
        self.notes[key] = value
        self.trial.store.remember(key, value)

    # what rooms keep

    @rule(room=ROOMS, key=KEYS, value=st.binary(max_size=3))
    def keep(self, room: str, key: str, value: bytes) -> None:
        self.records[room, key] = value
        self.trial.store.keep(room, key, value)

    @rule(room=ROOMS, key=KEYS)
    def take_back(self, room: str, key: str) -> None:
        self.records.pop((room, key), None)
        self.trial.store.keep(room, key, None)

    # time passes

    @precondition(lambda self: self.trial.store._writing is None and self.trial.store._woken)
    @rule()
    def hand_over(self) -> None:
        """The batch is on its way, and whatever is noted now comes after it."""
        before = self.trial.store._batch
        while self.trial.store._batch is before:
            self.trial.loop.turn()
        self.safe = self.now()

    @rule()
    def commit(self) -> None:
        self.trial.commit()
        self.safe = self.now()

    def quiet(self) -> None:
        """Nothing is under way on the writer's thread."""
        store = self.trial.store
        if store._writing is not None:
            wait(lambda: store._safe, "the commit")

    @rule()
    def crash(self) -> None:
        self.quiet()
        self.lives += 1
        path = self.trial.image(str(self.lives))
        self.trial.close()
        shutil.rmtree(self.trial.path.parent)
        self.reopened(path)

    @rule()
    def close(self) -> None:
        self.safe = self.now()
        path = self.trial.path
        self.trial.close()
        self.reopened(path)

    def reopened(self, path: Path) -> None:
        self.trial = Trial(path, durability="async")
        found = self.trial.found
        self.known = {name_of(s): s for s in found.sessions}
        assert len(self.known) == len(found.sessions), "no session twice"
        self.queues = {name_of(s): s.deliveries for s in found.sessions}
        self.incoming = {name_of(s): s.incoming for s in found.sessions}
        self.retained = {(scope, m.topic): m for scope, kept in found.retained.items() for m in kept}
        self.notes = dict(found.notes)
        self.records = {(room, key): value for room, kept in found.records.items() for key, value in kept.items()}
        assert self.now() == self.safe.opened()
        self.safe = self.now()
        content = tables(self.trial.image("content"))
        bodies = {row[2] for row in content["delivery"]}
        assert [row[0] for row in content["incoming"]] == sorted(
            position << POSITION | self.known[name].row << PID | pid
            for name, entries in self.incoming.items()
            for pid, messages in entries.items()
            for position in range(len(messages) or 1)
        )
        bodies |= {row[1] for row in content["incoming"]} - {None}
        bodies |= {row[2] for row in content["retained"]}
        assert bodies == {row[0] for row in content["message"]}, "every body is referred to, and there"

    @invariant()
    def references(self) -> None:
        if not hasattr(self, "trial"):
            return
        expected: dict[Message, int] = {}
        for m in (
            *(d.message for queue in self.queues.values() for d in queue),
            *(m for entries in self.incoming.values() for messages in entries.values() for m in messages),
            *self.retained.values(),
        ):
            expected[m] = expected.get(m, 0) + 1
        assert {m: m.rows for m in expected} == expected
        assert all(m.row for m in expected)


Machine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestModel = Machine.TestCase
