"""The registry itself, on a connection to either database.

Invariants
- A change is made whole or not at all, and once: its id is written with it. When the connection breaks, the change is
  looked up by its id under the lock, and made only if it is not there. The lock matters: a server that was told to
  commit holds it until that is done, whether or not anybody is left to hear of it.
- One call at a time has the connection. Whoever waits for a database that is away waits `patience` seconds, or until
  the registry is closed.

It does not know what documents mean, and it keeps nothing in memory: whoever needs speed loads once and listens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from tidegate.errors import StoreError, Uncertain
from tidegate.store.registry import groups, schema, validation
from tidegate.store.registry.database import Connection, ConnectionLost, Mode, transact
from tidegate.store.registry.documents import (
    Answer,
    Applied,
    Change,
    Conflict,
    Entry,
    Limits,
    Reason,
    Refused,
    Signature,
    Snapshot,
)
from tidegate.store.registry.identities import IdentityTable, follow_documents
from tidegate.store.registry.listener import Listener
from tidegate.store.registry.preference_number_rows import PreferenceNumbers
from tidegate.store.registry.secrets import Secrets
from tidegate.store.registry.state import State, applied, conflict, finish, read_state

T = TypeVar("T")

PAUSE: Final = 0.1  # seconds between attempts to connect

_ENTRY: Final = "SELECT sequence, kind, id, body, changed_at, changed_by, why FROM tidegate_entry"
_NEWEST: Final = "SELECT sequence, body IS NULL FROM tidegate_entry WHERE kind = ? AND id = ? AND newest = 1"


class Registry:
    """What people administer: documents with a history, and secrets.

    All calls block and belong on a worker thread; several threads may call at once. Time comes in as an argument:
    seconds of the wall clock. `make_connection` makes connections that are not open yet.

    StoreError if the database is in trouble; it names the remedy, and nothing was changed. Uncertain, a StoreError, if
    the connection broke while a change was being committed and the database did not come back in time: then `outcome`
    tells as soon as it is there again, and the same call with the same id does it unless it was done.
    """

    def __init__(self, make_connection: Callable[[], Connection], *, limits: Limits, patience: float) -> None:
        self.secrets = Secrets(self)
        self.identities = IdentityTable(self)
        self.preference_numbers = PreferenceNumbers(self)
        self.limits: Final = limits
        self._make_connection = make_connection
        self._connection = make_connection()
        self._patience = patience
        self._turn = threading.Lock()
        self._closing = threading.Event()
        self._opened = False
        self._listeners: list[Listener] = []

    def open(self) -> None:
        """Connects, and makes or migrates the tables."""
        if self._opened or self._closing.is_set():
            raise StoreError(f"{self._connection.place} was opened before")
        try:
            # Nodes that find everything ready need not wait for each other.
            if self.run(Mode.READ, schema.stored_version) != schema.VERSION:
                self.run(Mode.MIGRATE, schema.prepare)
            self.run(Mode.READ, read_state)
        except BaseException:
            self._connection.close()
            raise
        self._opened = True

    def close(self) -> None:
        """Ends the listening as well. What waits for the database gives up."""
        self._closing.set()
        for listener in self._listeners:
            listener.close()
        with self._turn:
            self._connection.close()

    def load(self) -> Snapshot:

        def work(connection: Connection) -> Snapshot:
            sequence = read_state(connection).sequence
            documents = _entries(connection, "newest = 1 AND body IS NOT NULL ORDER BY kind, id")
            return Snapshot(sequence=sequence, documents=tuple(documents))

        return self.run(Mode.READ, work)

    def since(self, sequence: int) -> list[Entry] | None:
        """The changes after `sequence`, oldest first; None: they are no longer known, load again.

        Of a document that was changed very often only the last versions are among them, always the current one.
        """

        def work(connection: Connection) -> list[Entry] | None:
            state = read_state(connection)
            if not state.forgotten <= sequence <= state.sequence:
                return None
            return _entries(connection, "sequence > ? ORDER BY sequence, kind, id", sequence)

        return self.run(Mode.READ, work)

    def history(self, kind: str, id: str) -> list[Entry]:
        """The versions of a document, oldest first, deletions included."""
        if validation.name(kind, id) is not None:
            return []
        condition = "kind = ? AND id = ? ORDER BY sequence"
        return self.run(Mode.READ, lambda connection: _entries(connection, condition, kind, id))

    def histories(self, kind: str, group: str) -> list[Entry]:
        """The versions of all documents whose ids begin so, oldest first, deletions included."""
        if validation.name(kind, group) is not None:
            return []
        condition = "kind = ? AND id >= ? AND id < ? ORDER BY sequence"
        behind = group[:-1] + chr(ord(group[-1]) + 1)
        return self.run(Mode.READ, lambda connection: _entries(connection, condition, kind, group, behind))

    def apply(self, changes: Sequence[Change], *, by: str, why: str, at: float, id: str = "") -> Answer:
        """Makes all these changes or none. One that is repeated with the same `id` is not made again."""
        bodies = validation.documents(changes, self.limits)
        if isinstance(bodies, Refused):
            return bodies
        signed = Signature.of(by=by, why=why, at=at, id=id)
        return self.write(signed, lambda connection, state: self._apply(connection, state, changes, bodies, signed))

    def _apply(
        self,
        connection: Connection,
        state: State,
        changes: Sequence[Change],
        bodies: Sequence[str | None],
        signed: Signature,
    ) -> Answer:
        growth = buried = 0
        known: list[bool] = []  # has it a history?
        come_and_gone: list[Change] = []
        for each, body in zip(changes, bodies, strict=True):
            there = connection.execute(_NEWEST, each.kind, each.id)
            deleted = bool(there) and bool(there[0][1])
            version = there[0][0] if there and not deleted else None
            wrong = conflict(each.kind, each.id, version, each.expected, removing=body is None)
            if wrong is not None:
                return wrong
            known.append(bool(there))
            growth += (body is not None) - (version is not None)
            if (body is None) != (version is None):
                come_and_gone.append(each)
            buried += (body is None) - deleted
        most = self.limits.documents
        if growth > 0 and state.documents + growth > most:
            return Refused(what=f"there are {state.documents} documents, and no more than {most} may be stored")
        grouped = {(each.kind, each.group) for each in changes if each.group is not None}
        for kind, group in grouped:
            if full := groups.objection(connection, kind, group, changes, bodies, self.limits.group):
                return full
        state.sequence += 1
        state.documents += growth
        state.deleted += buried
        for each, body, old in zip(changes, bodies, known, strict=True):
            if old:
                _supersede(connection, each.kind, each.id, self.limits.history)
            connection.execute(
                "INSERT INTO tidegate_entry (kind, id, sequence, size, newest, body, changed_at, changed_by, why)"
                " VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?)",
                *(each.kind, each.id, state.sequence, len(changes), body, signed.at, signed.by, signed.why),
            )
        follow_documents(connection, come_and_gone, at=signed.at, sequence=state.sequence)
        for kind, group in grouped:
            groups.trim(connection, state, kind, group, self.limits.group)
        _forget(connection, state, self.limits.deleted)
        return finish(connection, state, signed.id)

    def reverting(self, sequence: int, *, besides: tuple[str, str] | None = None) -> list[Change] | Conflict | Refused:
        """The changes that take one change back, with everything that was made together with it.

        A Conflict if any of it was changed again since. The document `besides`, by kind and id, is left out.
        """
        return self.run(Mode.READ, lambda connection: _reverting(connection, sequence, besides))

    def outcome(self, id: str) -> Applied | None:
        """Whether the change of that id was made. None: it was not, and what is under way cannot make it any more.

        For the last thousand changes.
        """
        if not validation.change_id(id):
            return None

        def work(connection: Connection) -> Applied | None:
            read_state(connection, lock=True)
            return applied(connection, id)

        return self.run(Mode.WRITE, work)

    def listen(self, callback: Callable[[int], None], *, after: int) -> Listener:
        """Calls back, on a thread of its own, with the number of the newest change whenever it is not `after` any more.

        Within a second of any change, by whomever; several changes may be one call. A number that is lower than the
        last one means that the database was put back: load again.
        """
        if not self._opened or self._closing.is_set():
            raise StoreError(f"{self._connection.place} is not open")
        listener = Listener(self._make_connection(), callback, after=after)
        self._listeners = [each for each in self._listeners if not each.closed] + [listener]
        listener.start()
        return listener

    # for this folder

    def write(self, signed: Signature, work: Callable[[Connection, State], Answer]) -> Answer:
        """Make a change under the lock, unless it was made before."""
        wrong = validation.signature(signed)
        if wrong is not None:
            return wrong

        def once(connection: Connection) -> Answer:
            state = read_state(connection, lock=True)
            return applied(connection, signed.id) or work(connection, state)

        return self.run(Mode.WRITE, once, id=signed.id)

    def run(self, mode: Mode, work: Callable[[Connection], T], *, id: str = "") -> T:
        """Do the work in a transaction; over a new connection if the old one is gone."""
        deadline = time.monotonic() + self._patience
        if not self._turn.acquire(timeout=self._patience):
            raise StoreError(
                f"{self._connection.place} is busy: other calls have waited for it for {self._patience:g} s. "
                "Nothing was changed. Remedy: find out why the database is so slow."
            )
        try:
            return self._persist(mode, work, deadline, id)
        finally:
            self._turn.release()

    def _persist(self, mode: Mode, work: Callable[[Connection], T], deadline: float, id: str) -> T:
        doubt = False
        while True:
            try:
                if self._closing.is_set():
                    raise StoreError(f"{self._connection.place} is closed.")
                self._connection.connect()
                return transact(self._connection, mode, work)
            except ConnectionLost as error:
                self._connection.close()
                doubt = doubt or error.committing
                if time.monotonic() < deadline and not self._closing.wait(PAUSE):
                    continue
                raise _final(error, id if doubt else "") from error
            except StoreError as error:
                if doubt:
                    raise _final(error, id) from error
                raise


def _final(error: StoreError, doubtful: str) -> StoreError:
    """What the caller hears of it."""
    if doubtful:
        return Uncertain(
            f"{error} The connection broke during a commit, so it is not known whether the change {doubtful} was made. "
            "Remedy: ask again when the database is back.",
            id=doubtful,
        )
    return StoreError(str(error))


def _entries(connection: Connection, condition: str, *values: object) -> list[Entry]:
    rows = connection.execute(f"{_ENTRY} WHERE {condition}", *values)
    return [
        Entry(sequence=sequence, kind=kind, id=id, body=validation.body(body), at=at, by=by, why=why)
        for sequence, kind, id, body, at, by, why in rows
    ]


def _reverting(
    connection: Connection, sequence: int, besides: tuple[str, str] | None
) -> list[Change] | Conflict | Refused:
    last = read_state(connection).sequence
    if not 0 < sequence <= last:
        return Refused(what=f"there was no change {sequence}: the newest one is {last}")
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
            ((version, gone),) = connection.execute(_NEWEST, kind, id)
            reason = Reason.MISSING if gone else Reason.CHANGED
            return Conflict(kind=kind, id=id, reason=reason, version=None if gone else version)
        # As long as a version is the newest, the one before it is kept: without one, the document was new.
        before = _entries(
            connection, "kind = ? AND id = ? AND sequence < ? ORDER BY sequence DESC LIMIT 1", kind, id, sequence
        )
        body = before[0].body if before else None
        changes.append(Change(kind=kind, id=id, body=body, expected=None if deletion else sequence))
    return changes


def _supersede(connection: Connection, kind: str, id: str, most: int) -> None:
    """Makes room for a newer version: with it there are no more than `most`."""
    connection.execute("UPDATE tidegate_entry SET newest = 0 WHERE kind = ? AND id = ? AND newest = 1", kind, id)
    connection.execute(
        "DELETE FROM tidegate_entry WHERE kind = ? AND id = ? AND sequence <= (SELECT sequence FROM tidegate_entry"
        " WHERE kind = ? AND id = ? ORDER BY sequence DESC LIMIT 1 OFFSET ?)",
        *(kind, id, kind, id, most - 1),
    )


def _forget(connection: Connection, state: State, most: int) -> None:
    """What was deleted first, if there is more than may be kept."""
    surplus = state.deleted - most
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
