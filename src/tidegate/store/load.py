"""Everything in the tables, as values.

Read within the transaction that opens the store, and cleaned in it: what has expired, deliveries of sessions that
were dropped just before a crash, and bodies that nothing refers to any more.

What has expired: [MQTT-3.3.2-5] lets a message go whose delivery has not begun. A delivery that was sent, or
released, is kept with its body: the client may hold its packet id, and to give that id to another QoS 2 message
would make the client take the other one for a duplicate. An incoming QoS 2 message that has expired leaves
its packet id in use, for the same reason, with what else is handed on for it.

A reference to a body that is not there is damage: StoreError, never a shorter queue.
"""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass
from typing import Any

from tidegate.errors import StoreError
from tidegate.session.message import Message, State
from tidegate.session.store import StoredSession
from tidegate.store.batch import PID, POSITION, SHIFT
from tidegate.store.rows import Messages, read_delivery, read_session, read_subscription
from tidegate.store.schema import OWN
from tidegate.store.write import delete, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The node's identity, everything that was safe when the store was opened, and the highest keys in use."""

    node: str  # 16 hex digits, made once
    boot: int
    sessions: list[StoredSession]
    retained: dict[str, list[Message]]  # by scope
    notes: dict[str, str]  # the last word given to `remember`, by key
    records: dict[str, dict[str, bytes]]  # what was given to `keep`, by room and key
    last_session: int
    last_body: int
    last_delivery: int


class _Reading:
    """Collects what is found, and what has to go."""

    def __init__(self, connection: sqlite3.Connection, *, now_wall: float, now_mono: float) -> None:
        self.connection = connection
        self.now = now_mono
        self.sessions = {row[0]: read_session(row) for row in connection.execute("SELECT * FROM session ORDER BY id")}
        messages = Messages(now_wall=now_wall, now_mono=now_mono)
        self.bodies = {row[0]: messages.read(row) for row in connection.execute("SELECT * FROM message ORDER BY id")}
        self.last_delivery = 0

    def expired(self, message: Message) -> bool:
        return message.expires is not None and message.expires <= self.now

    def body(self, key: int, table: str, row: Any) -> Message:
        message = self.bodies.get(key)
        if message is None:
            raise StoreError(f"table {table}, row {row!r} refers to message {key}, which is not there")
        return message

    def subscriptions(self) -> None:
        orphans = set()
        for row in self.connection.execute("SELECT * FROM subscription"):
            session = self.sessions.get(row[0])
            if session is None:
                orphans.add(row[0])
                continue
            session.subscriptions[row[1]] = read_subscription(row)
        delete(self.connection, "subscription", "session", orphans)

    def deliveries(self) -> None:
        gone = []
        for row in self.connection.execute("SELECT * FROM delivery ORDER BY id"):
            key = row[0]
            self.last_delivery = key
            session = self.sessions.get(row[1])
            if session is None:
                gone.append(key)
                continue
            message = self.body(row[2], "delivery", key)
            delivery = read_delivery(row, message)
            if delivery.state is State.QUEUED and self.expired(message):
                gone.append(key)
                continue
            delivery.row = key << SHIFT | session.row
            message.rows += 1
            session.deliveries.append(delivery)
        delete(self.connection, "delivery", "id", gone)

    def incoming(self) -> None:
        gone = []
        keys: dict[int, list[int]] = {}  # of the rows of each packet id
        shortened = set()
        # in the order of their positions, which stand highest in the key
        for key, body in self.connection.execute("SELECT id, message FROM incoming ORDER BY id"):
            entry = key & (1 << POSITION) - 1
            session, pid = self.sessions.get(entry >> PID), entry & (1 << PID) - 1
            if session is None:
                gone.append(key)
                continue
            keys.setdefault(entry, []).append(key)
            messages = session.incoming.setdefault(pid, ())
            if body is None:
                continue
            message = self.body(body, "incoming", key)
            if self.expired(message):
                shortened.add(entry)
            else:
                message.rows += 1
                session.incoming[pid] = (*messages, message)
        left: list[tuple[int, int | None]] = []  # of those, under the keys that they would have been given
        for entry in shortened:
            gone += keys[entry]
            messages = self.sessions[entry >> PID].incoming[entry & (1 << PID) - 1]
            bodies: list[int | None] = [message.row for message in messages]
            left += [(position << POSITION | entry, body) for position, body in enumerate(bodies or [None])]
        delete(self.connection, "incoming", "id", gone)
        replace(self.connection, "incoming", 2, left, tuple)

    def retained(self) -> dict[str, list[Message]]:
        kept: dict[str, list[Message]] = {}
        gone = []
        for scope, topic, body in self.connection.execute("SELECT * FROM retained ORDER BY scope, topic"):
            message = self.body(body, "retained", (scope, topic))
            if self.expired(message):
                gone.append((scope, topic))
                continue
            message.rows += 1
            kept.setdefault(scope, []).append(message)
        delete(self.connection, "retained", "scope, topic", gone)
        return kept

    def records(self) -> dict[str, dict[str, bytes]]:
        records: dict[str, dict[str, bytes]] = {}
        for room, key, value in self.connection.execute("SELECT room, key, value FROM record ORDER BY room, key"):
            records.setdefault(room, {})[key] = value
        return records


def _identity(connection: sqlite3.Connection, meta: dict[str, str]) -> tuple[str, int]:
    """The node's id, made once, and the number of this boot."""
    node = meta.get("node") or secrets.token_hex(8)
    boot = int(meta.get("boot", "0")) + 1
    connection.execute("REPLACE INTO meta VALUES ('node', ?), ('boot', ?)", (node, str(boot)))
    return node, boot


def load(connection: sqlite3.Connection, *, now_wall: float, now_mono: float) -> Snapshot:
    """Count the boot, read and clean the tables; the caller commits."""
    meta = dict(connection.execute("SELECT key, value FROM meta ORDER BY key"))
    node, boot = _identity(connection, meta)
    reading = _Reading(connection, now_wall=now_wall, now_mono=now_mono)
    reading.subscriptions()
    reading.deliveries()
    reading.incoming()
    retained = reading.retained()
    delete(connection, "message", "id", [key for key, message in reading.bodies.items() if not message.rows])
    return Snapshot(
        node=node,
        boot=boot,
        sessions=list(reading.sessions.values()),
        retained=retained,
        notes={key: value for key, value in meta.items() if key not in OWN},
        records=reading.records(),
        last_session=max(reading.sessions, default=0),
        last_body=max(reading.bodies, default=0),
        last_delivery=reading.last_delivery,
    )
