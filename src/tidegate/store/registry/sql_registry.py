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
from tidegate.policy.identities import FileEntries, Identities, IdentityRecord, taken_up
from tidegate.store.registry import identities, schema, tables, validation
from tidegate.store.registry.connection import Connection, ConnectionLost, Mode, transact
from tidegate.store.registry.documents import (
    Answer,
    Applied,
    Change,
    Conflict,
    Entry,
    Limits,
    Refused,
    Secret,
    Signature,
    Snapshot,
)
from tidegate.store.registry.listener import Listener

T = TypeVar("T")

IDENTITIES: Final = "identities"
"""The room under which nodes are told that identities have changed."""
PAUSE: Final = 0.1  # seconds between attempts to connect


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
            self.run(Mode.READ, tables.read_state)
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
        """Everything."""
        return self.run(Mode.READ, tables.current)

    def since(self, sequence: int) -> list[Entry] | None:
        """The changes after `sequence`, oldest first; None: they are no longer known, load again.

        Of a document that was changed very often only the last versions are among them, always the current one.
        """
        return self.run(Mode.READ, lambda connection: tables.after(connection, sequence))

    def history(self, kind: str, id: str) -> list[Entry]:
        """The versions of a document, oldest first, deletions included."""
        if validation.name(kind, id) is not None:
            return []
        return self.run(Mode.READ, lambda connection: tables.history(connection, kind, id))

    def apply(self, changes: Sequence[Change], *, by: str, why: str, at: float, id: str = "") -> Answer:
        """Makes all these changes or none. One that is repeated with the same `id` is not made again."""
        bodies = validation.documents(changes, self.limits)
        if isinstance(bodies, Refused):
            return bodies
        signed = _signed(by=by, why=why, at=at, id=id)
        return self.write(
            signed, lambda connection, state: tables.change(connection, state, changes, bodies, signed, self.limits)
        )

    def reverting(self, sequence: int, *, besides: tuple[str, str] | None = None) -> list[Change] | Conflict | Refused:
        """The changes that take one change back, with everything that was made together with it.

        A Conflict if any of it was changed again since. The document `besides`, by kind and id, is left out.
        """
        return self.run(Mode.READ, lambda connection: tables.reverting(connection, sequence, besides))

    def outcome(self, id: str) -> Applied | None:
        """Whether the change of that id was made. None: it was not, and what is under way cannot make it any more.

        For the last thousand changes.
        """
        if not validation.change_id(id):
            return None

        def work(connection: Connection) -> Applied | None:
            tables.read_state(connection, lock=True)
            return tables.done(connection, id)

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


class Secrets:
    """Small binary records by room and key. They have no history."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def get(self, room: str, key: str, *, at: float) -> Secret | None:
        """None also if it has expired."""
        if validation.name(room, key) is not None:
            return None
        secrets = self._registry.run(Mode.READ, lambda connection: tables.secrets(connection, room, key, at=at))
        return secrets[0] if secrets else None

    def all(self, room: str, *, at: float) -> list[Secret]:
        """Those that have not expired, by key."""
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
        """Compare and set; None removes. `expected` as in `Change`; what has expired does not exist."""
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
        """The rooms in which something was put or removed after the change `sequence`."""
        return self._registry.run(Mode.READ, lambda connection: tables.rooms(connection, sequence))


class IdentityTable:
    """The identities of users and clients (`policy.identities`)."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def since(self, sequence: int) -> tuple[list[IdentityRecord], int]:
        """Those that were written after the change `sequence`, and the number of the newest change."""

        def work(connection: Connection) -> tuple[list[IdentityRecord], int]:
            newest = tables.read_state(connection).sequence
            return identities.after(connection, sequence if sequence <= newest else -1), newest

        return self._registry.run(Mode.READ, work)

    def take_up(
        self,
        known: Identities,
        sequence: int,
        file: FileEntries,
        *,
        at: float,
        changed: bool,
        brought: Sequence[IdentityRecord] = (),
    ) -> tuple[list[IdentityRecord], int]:
        """A node takes up a file: what has changed after `sequence`, by others and by this, and the newest change.

        `brought` are identities that the node has kept elsewhere so far. ConfigError if the file gives an id that was
        used before.
        """
        news: list[IdentityRecord] = []
        newest = sequence
        signed = _signed(by=file.node, why="identities", at=at, id="")

        def work(connection: Connection, state: tables.State) -> Answer:
            nonlocal newest
            news[:] = identities.after(connection, sequence if sequence <= state.sequence else -1)
            newest = state.sequence
            known.update(news)
            records = [each for each in brought if each.retired is not None or not known.id(*each.key)]
            known.update(records)
            records += taken_up(known, file, at=at, new_id=identities.new_id, changed=changed)
            if not records:
                return Applied(sequence=newest, id=signed.id)
            records = list({each.id: each for each in records}.values())
            news.extend(records)
            answer = tables.take_up(connection, state, records, signed, IDENTITIES)
            newest = state.sequence
            return answer

        match self._registry.write(signed, work):
            case Applied():
                return news, newest
            case answer:
                raise StoreError(f"identities cannot be stored: {answer}. Remedy: look at the registry.")


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
