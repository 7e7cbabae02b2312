"""What the registry reads and writes, as SQL that both databases understand; within a transaction of the caller's.

A change is made in three steps: `state` with `lock` keeps everybody else out, the checks compare what is there with
what the caller expects, and only if all of them hold is anything written. A change that is not made leaves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final

from tidegate.policy.identities import IdentityRecord
from tidegate.store.registry import identities, schema, validation
from tidegate.store.registry.connection import Connection, Row
from tidegate.store.registry.documents import (
    Answer,
    Applied,
    Change,
    Conflict,
    Document,
    Entry,
    Limits,
    Reason,
    Refused,
    Secret,
    Signature,
    Snapshot,
)

REMEMBERED: Final = 1000
"""Changes that are known by their ids."""
GRACE: Final = 3600.0
"""Seconds before an expired secret is removed: the clock of another node may be behind. One that is far ahead removes
nothing that has not expired by the clock of the database."""

_ENTRY: Final = "SELECT sequence, kind, id, body, changed_at, changed_by, why FROM tidegate_entry"
_NEWEST: Final = "SELECT sequence, body IS NULL FROM tidegate_entry WHERE kind = ? AND id = ? AND newest = 1"
_RECORD: Final = "SELECT room, key, value, version, expires FROM tidegate_secret"
_STATE: Final = (
    "SELECT (SELECT max(version) FROM tidegate_schema), sequence, forgotten, documents, deleted, secrets"
    " FROM tidegate_state WHERE one = 1"
)


@dataclass(slots=True)
class State:
    """The one row of `tidegate_state`, with its columns in the order of the UPDATE."""

    sequence: int
    forgotten: int
    documents: int
    deleted: int
    secrets: int


def read_state(connection: Connection, *, lock: bool = False) -> State:
    """With `lock`, nobody else changes anything before the transaction ends."""
    ((version, *numbers),) = connection.execute(_STATE + (connection.dialect.lock if lock else ""))
    schema.check(int(version), connection.place)
    return State(*numbers)


def current(connection: Connection) -> Snapshot:
    sequence = read_state(connection).sequence
    rows = connection.execute(_ENTRY + " WHERE newest = 1 AND body IS NOT NULL ORDER BY kind, id")
    documents = tuple(
        Document(kind=kind, id=id, body=validation.body(body), version=version, changed_at=at, changed_by=by, why=why)
        for version, kind, id, body, at, by, why in rows
    )
    return Snapshot(sequence=sequence, documents=documents)


def after(connection: Connection, sequence: int) -> list[Entry] | None:
    """The changes after `sequence`; None: they are no longer known."""
    state = read_state(connection)
    if not state.forgotten <= sequence <= state.sequence:
        return None
    return _entries(connection.execute(_ENTRY + " WHERE sequence > ? ORDER BY sequence, kind, id", sequence))


def history(connection: Connection, kind: str, id: str) -> list[Entry]:
    return _entries(connection.execute(_ENTRY + " WHERE kind = ? AND id = ? ORDER BY sequence", kind, id))


def done(connection: Connection, id: str) -> Applied | None:
    """The change of that id, if it was made."""
    rows = connection.execute("SELECT sequence FROM tidegate_done WHERE id = ?", id)
    return Applied(sequence=rows[0][0], id=id) if rows else None


def change(
    connection: Connection,
    state: State,
    changes: Sequence[Change],
    bodies: Sequence[str | None],
    signed: Signature,
    limits: Limits,
) -> Answer:
    """Make the changes, whose bodies are `bodies`, or say why not."""
    growth = buried = 0
    known: list[bool] = []  # has it a history?
    come_and_gone: list[Change] = []
    for each, body in zip(changes, bodies, strict=True):
        there = connection.execute(_NEWEST, each.kind, each.id)
        deleted = bool(there) and bool(there[0][1])
        version = there[0][0] if there and not deleted else None
        wrong = compared(each.kind, each.id, version, each.expected, removing=body is None)
        if wrong is not None:
            return wrong
        known.append(bool(there))
        growth += (body is not None) - (version is not None)
        if (body is None) != (version is None):
            come_and_gone.append(each)
        buried += (body is None) - deleted
    if growth > 0 and state.documents + growth > limits.documents:
        return Refused(what=f"there are {state.documents} documents, and no more than {limits.documents} may be stored")
    state.sequence += 1
    state.documents += growth
    state.deleted += buried
    for each, body, old in zip(changes, bodies, known, strict=True):
        if old:
            _supersede(connection, each.kind, each.id, limits.history)
        connection.execute(
            "INSERT INTO tidegate_entry (kind, id, sequence, size, newest, body, changed_at, changed_by, why)"
            " VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?)",
            *(each.kind, each.id, state.sequence, len(changes), body, signed.at, signed.by, signed.why),
        )
    identities.follow(connection, come_and_gone, at=signed.at, sequence=state.sequence)
    _forget(connection, state, limits)
    return _finish(connection, state, signed.id)


def reverting(
    connection: Connection, sequence: int, besides: tuple[str, str] | None
) -> list[Change] | Conflict | Refused:
    """The changes that take the change `sequence` back, without the document `besides`."""
    newest_sequence = read_state(connection).sequence
    if not 0 < sequence <= newest_sequence:
        return Refused(what=f"there was no change {sequence}: the newest one is {newest_sequence}")
    rows = connection.execute(
        "SELECT kind, id, size, newest, body IS NULL FROM tidegate_entry WHERE sequence = ? ORDER BY kind, id", sequence
    )
    if not rows or len(rows) != rows[0][2]:
        return Refused(
            what=f"change {sequence} cannot be taken back: it is no longer kept whole, or it was one of secrets"
        )
    changes: list[Change] = []
    for kind, id, _, newest, deletion in rows:
        if (kind, id) == besides:
            continue
        if not newest:
            return _overtaken(connection, kind, id)
        # As long as a version is the newest, the one before it is kept: without one, the document was new.
        before = connection.execute(
            "SELECT body FROM tidegate_entry WHERE kind = ? AND id = ? AND sequence < ? ORDER BY sequence DESC LIMIT 1",
            kind,
            id,
            sequence,
        )
        body = validation.body(before[0][0]) if before and before[0][0] is not None else None
        changes.append(Change(kind=kind, id=id, body=body, expected=None if deletion else sequence))
    return changes


def put(
    connection: Connection,
    state: State,
    room: str,
    key: str,
    value: bytes | None,
    *,
    expected: int | None,
    expires: float | None,
    signed: Signature,
    limits: Limits,
) -> Answer:
    """Compare and set a secret."""
    rows = connection.execute("SELECT version, expires FROM tidegate_secret WHERE room = ? AND key = ?", room, key)
    version = rows[0][0] if rows and _lasts(rows[0][1], signed.at) else None
    wrong = compared(room, key, version, expected, removing=value is None)
    if wrong is not None:
        return wrong
    if value is not None and not rows and state.secrets >= limits.secrets:
        return Refused(what=f"there are {state.secrets} secrets, and no more than {limits.secrets} may be stored")
    state.sequence += 1
    state.secrets += (value is not None) - bool(rows)
    connection.execute("DELETE FROM tidegate_secret WHERE room = ? AND key = ?", room, key)
    if value is not None:
        row = (room, key, value, state.sequence, expires)
        connection.execute(
            "INSERT INTO tidegate_secret (room, key, value, version, expires) VALUES (?, ?, ?, ?, ?)", *row
        )
    ((now,),) = connection.execute(connection.dialect.now)
    expired = min(signed.at, now) - GRACE
    state.secrets -= len(connection.execute("DELETE FROM tidegate_secret WHERE expires < ? RETURNING room", expired))
    _touch(connection, room, state.sequence)
    return _finish(connection, state, signed.id)


def take_up(
    connection: Connection, state: State, records: Sequence[IdentityRecord], signed: Signature, room: str
) -> Answer:
    """Writes identities, and tells of it under the name of a room."""
    state.sequence += 1
    identities.write(connection, records, state.sequence)
    _touch(connection, room, state.sequence)
    return _finish(connection, state, signed.id)


def _touch(connection: Connection, room: str, sequence: int) -> None:
    connection.execute("DELETE FROM tidegate_room WHERE room = ?", room)
    connection.execute("INSERT INTO tidegate_room (room, sequence) VALUES (?, ?)", room, sequence)


def secrets(connection: Connection, room: str, key: str | None, *, at: float) -> list[Secret]:
    """Those of a room that have not expired; with a key, that one."""
    if key is None:
        rows = connection.execute(_RECORD + " WHERE room = ? ORDER BY key", room)
    else:
        rows = connection.execute(_RECORD + " WHERE room = ? AND key = ?", room, key)
    return [
        Secret(room=room, key=key, value=bytes(value), version=version, expires=expires)
        for room, key, value, version, expires in rows
        if _lasts(expires, at)
    ]


def rooms(connection: Connection, sequence: int) -> frozenset[str]:
    """Rooms with changes after `sequence`."""
    if sequence > read_state(connection).sequence:
        sequence = 0  # the database was put back: anything may be different
    rows = connection.execute("SELECT room FROM tidegate_room WHERE sequence > ?", max(sequence, 0))
    return frozenset(room for (room,) in rows)


def compared(kind: str, id: str, version: int | None, expected: int | None, *, removing: bool) -> Conflict | None:
    """What is there against what was expected."""
    if version is None:
        reason = Reason.MISSING if removing or expected is not None else None
    elif expected is None:
        reason = None if removing else Reason.EXISTS
    else:
        reason = None if version == expected else Reason.CHANGED
    return None if reason is None else Conflict(kind=kind, id=id, reason=reason, version=version)


def _supersede(connection: Connection, kind: str, id: str, most: int) -> None:
    """Makes room for a newer version: with it there are no more than `most`."""
    connection.execute("UPDATE tidegate_entry SET newest = 0 WHERE kind = ? AND id = ? AND newest = 1", kind, id)
    connection.execute(
        "DELETE FROM tidegate_entry WHERE kind = ? AND id = ? AND sequence <= (SELECT sequence FROM tidegate_entry"
        " WHERE kind = ? AND id = ? ORDER BY sequence DESC LIMIT 1 OFFSET ?)",
        *(kind, id, kind, id, most - 1),
    )


def _forget(connection: Connection, state: State, limits: Limits) -> None:
    """What was deleted first, if there is more than may be kept."""
    surplus = state.deleted - limits.deleted
    if surplus <= 0:
        return
    rows = connection.execute(
        "SELECT kind, id, sequence FROM tidegate_entry WHERE newest = 1 AND body IS NULL"
        " ORDER BY sequence, kind, id LIMIT ?",
        surplus,
    )
    for kind, id, sequence in rows:
        connection.execute("DELETE FROM tidegate_entry WHERE kind = ? AND id = ?", kind, id)
        state.forgotten = max(state.forgotten, sequence)
    state.deleted -= len(rows)


def _finish(connection: Connection, state: State, id: str) -> Applied:
    connection.execute(
        "UPDATE tidegate_state SET sequence = ?, forgotten = ?, documents = ?, deleted = ?, secrets = ? WHERE one = 1",
        *astuple(state),
    )
    connection.execute("INSERT INTO tidegate_done (id, sequence) VALUES (?, ?)", id, state.sequence)
    connection.execute("DELETE FROM tidegate_done WHERE sequence <= ?", state.sequence - REMEMBERED)
    if connection.dialect.notify is not None:
        connection.execute(connection.dialect.notify, str(state.sequence))
    return Applied(sequence=state.sequence, id=id)


def _overtaken(connection: Connection, kind: str, id: str) -> Conflict:
    ((version, gone),) = connection.execute(_NEWEST, kind, id)
    if gone:
        return Conflict(kind=kind, id=id, reason=Reason.MISSING, version=None)
    return Conflict(kind=kind, id=id, reason=Reason.CHANGED, version=version)


def _entries(rows: Sequence[Row]) -> list[Entry]:
    bodies = [None if row[3] is None else validation.body(row[3]) for row in rows]
    return [
        Entry(sequence=sequence, kind=kind, id=id, body=body, at=at, by=by, why=why)
        for (sequence, kind, id, _, at, by, why), body in zip(rows, bodies, strict=True)
    ]


def _lasts(expires: float | None, at: float) -> bool:
    return expires is None or expires > at
