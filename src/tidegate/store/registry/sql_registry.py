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

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from tidegate.errors import StoreError, Uncertain
from tidegate.store.registry import schema, tables, validation
from tidegate.store.registry.connection import Connection, ConnectionLost, Mode
from tidegate.store.registry.documents import (
    Answer,
    Applied,
    Change,
    Entry,
    Limits,
    Refused,
    Secret,
    Signature,
    Snapshot,
)
from tidegate.store.registry.listener import Listener

T = TypeVar("T")

PAUSE: Final = 0.1  # seconds between attempts to connect


class SqlRegistry:
    """A Registry. `make_connection` makes connections that are not open yet."""

    def __init__(self, make_connection: Callable[[], Connection], *, limits: Limits, patience: float) -> None:
        self.secrets = SqlSecrets(self)
        self.limits: Final = limits
        self._make_connection = make_connection
        self._connection = make_connection()
        self._patience = patience
        self._turn = threading.Lock()
        self._closing = threading.Event()
        self._opened = False
        self._listeners: list[Listener] = []

    def open(self) -> None:
        if self._opened or self._closing.is_set():
            raise StoreError(f"{self._connection.place} was opened before")
        try:
            # Nodes that find everything ready need not wait for each other.
            if self.run(Mode.READ, schema.stored_version) != schema.VERSION:
                self.run(Mode.MIGRATE, schema.prepare)
            self.run(Mode.READ, tables.read_state)
        except BaseException:
            self._connection.close()
            raise
        self._opened = True

    def close(self) -> None:
        self._closing.set()
        for listener in self._listeners:
            listener.close()
        with self._turn:
            self._connection.close()

    def load(self) -> Snapshot:
        def work(connection: Connection) -> Snapshot:
            return Snapshot(
                sequence=tables.read_state(connection).sequence, documents=tuple(tables.current(connection))
            )

        return self.run(Mode.READ, work)

    def since(self, sequence: int) -> list[Entry] | None:
        def work(connection: Connection) -> list[Entry] | None:
            state = tables.read_state(connection)
            if not state.forgotten <= sequence <= state.sequence:
                return None
            return tables.after(connection, sequence)

        return self.run(Mode.READ, work)

    def history(self, kind: str, id: str) -> list[Entry]:
        if validation.name(kind, id) is not None:
            return []
        return self.run(Mode.READ, lambda connection: tables.history(connection, kind, id))

    def apply(self, changes: Sequence[Change], *, by: str, why: str, at: float, id: str = "") -> Answer:
        bodies = validation.documents(changes, self.limits)
        if isinstance(bodies, Refused):
            return bodies
        signed = _signed(by=by, why=why, at=at, id=id)
        return self.write(
            signed, lambda connection, state: tables.change(connection, state, changes, bodies, signed, self.limits)
        )

    def revert(self, sequence: int, *, by: str, why: str, at: float, id: str = "") -> Answer:
        signed = _signed(by=by, why=why, at=at, id=id)

        def work(connection: Connection, state: tables.State) -> Answer:
            changes = tables.reverting(connection, state, sequence)
            if not isinstance(changes, list):
                return changes
            bodies = validation.documents(changes, self.limits)
            if isinstance(bodies, Refused):
                return bodies
            return tables.change(connection, state, changes, bodies, signed, self.limits)

        return self.write(signed, work)

    def outcome(self, id: str) -> Applied | None:
        if not validation.change_id(id):
            return None

        def work(connection: Connection) -> Applied | None:
            tables.read_state(connection, lock=True)
            return tables.done(connection, id)

        return self.run(Mode.WRITE, work)

    def listen(self, callback: Callable[[int], None], *, after: int) -> Listener:
        if not self._opened or self._closing.is_set():
            raise StoreError(f"{self._connection.place} is not open")
        listener = Listener(self._make_connection(), callback, after=after)
        self._listeners = [each for each in self._listeners if not each.closed] + [listener]
        listener.start()
        return listener

    # for this folder

    def write(self, signed: Signature, work: Callable[[Connection, tables.State], Answer]) -> Answer:
        """Make a change under the lock, unless it was made before."""
        wrong = validation.signature(signed)
        if wrong is not None:
            return wrong

        def once(connection: Connection) -> Answer:
            state = tables.read_state(connection, lock=True)
            return tables.done(connection, signed.id) or work(connection, state)

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
                return self._once(mode, work)
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

    def _once(self, mode: Mode, work: Callable[[Connection], T]) -> T:
        self._connection.begin(mode)
        try:
            result = work(self._connection)
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()
        return result


class SqlSecrets:
    """The secrets of a registry."""

    def __init__(self, registry: SqlRegistry) -> None:
        self._registry = registry

    def get(self, room: str, key: str, *, at: float) -> Secret | None:
        if validation.name(room, key) is not None:
            return None
        found = self._registry.run(Mode.READ, lambda connection: tables.secrets(connection, room, key, at=at))
        return found[0] if found else None

    def all(self, room: str, *, at: float) -> list[Secret]:
        if validation.name(room, "-") is not None:
            return []
        return self._registry.run(Mode.READ, lambda connection: tables.secrets(connection, room, None, at=at))

    def put(
        self,
        room: str,
        key: str,
        value: bytes | None,
        *,
        expected: int | None,
        at: float,
        expires: float | None = None,
        id: str = "",
    ) -> Answer:
        limits = self._registry.limits
        wrong = validation.secret(room, key, value, expires, limits)
        if wrong is not None:
            return wrong
        signed = _signed(by="secrets", why="", at=at, id=id)
        return self._registry.write(
            signed,
            lambda connection, state: tables.put(
                connection, state, room, key, value, expected=expected, expires=expires, signed=signed, limits=limits
            ),
        )

    def changed(self, sequence: int) -> frozenset[str]:
        return self._registry.run(Mode.READ, lambda connection: tables.rooms(connection, sequence))


def _final(error: StoreError, doubtful: str) -> StoreError:
    """What the caller hears of it."""
    if doubtful:
        return Uncertain(
            f"{error} The connection broke during a commit, so it is not known whether the change {doubtful} was made. "
            "Remedy: ask again when the database is back.",
            id=doubtful,
        )
    return StoreError(str(error))


def _signed(*, by: str, why: str, at: float, id: str) -> Signature:
    return Signature(id=id or secrets.token_hex(16), by=by, why=why, at=at)
