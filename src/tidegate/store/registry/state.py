"""The one row that every change of the registry locks and writes, and what a change ends with.

A change is made in three steps: `read_state` with `lock` keeps everybody else out, the checks compare what is there
with what the caller expects, and only if all of them hold is anything written. A change that is not made leaves
nothing. All of it is SQL that both databases understand, within a transaction of the caller's.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

from tidegate.store.registry import schema
from tidegate.store.registry.database import Connection
from tidegate.store.registry.documents import Applied, Conflict, Reason

REMEMBERED: Final = 1000  # changes that are known by their ids

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


def applied(connection: Connection, id: str) -> Applied | None:
    """The change of that id, if it was made."""
    rows = connection.execute("SELECT sequence FROM tidegate_done WHERE id = ?", id)
    return Applied(sequence=rows[0][0], id=id) if rows else None


def conflict(kind: str, id: str, version: int | None, expected: int | None, *, removing: bool) -> Conflict | None:
    """What is there against what was expected."""
    if version is None:
        reason = Reason.MISSING if removing or expected is not None else None
    elif expected is None:
        reason = None if removing else Reason.EXISTS
    else:
        reason = None if version == expected else Reason.CHANGED
    return None if reason is None else Conflict(kind=kind, id=id, reason=reason, version=version)


def finish(connection: Connection, state: State, id: str, *, room: str | None = None) -> Applied:
    """Writes the state, the id of the change, and the room that it has changed; tells the other nodes of it."""
    if room is not None:
        connection.execute("DELETE FROM tidegate_room WHERE room = ?", room)
        connection.execute("INSERT INTO tidegate_room (room, sequence) VALUES (?, ?)", room, state.sequence)
    connection.execute(
        "UPDATE tidegate_state SET sequence = ?, forgotten = ?, documents = ?, deleted = ?, secrets = ? WHERE one = 1",
        *astuple(state),
    )
    connection.execute("INSERT INTO tidegate_done (id, sequence) VALUES (?, ?)", id, state.sequence)
    connection.execute("DELETE FROM tidegate_done WHERE sequence <= ?", state.sequence - REMEMBERED)
    if connection.dialect.notify is not None:
        connection.execute(connection.dialect.notify, str(state.sequence))
    return Applied(sequence=state.sequence, id=id)
