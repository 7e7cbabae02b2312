"""The registry itself, on a line to either database.

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
from tidegate.store.registry import checking, schema, tables
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
from tidegate.store.registry.line import Line, Lost, Mode
from tidegate.store.registry.listening import Listener

T = TypeVar("T")

PAUSE: Final = 0.1  # seconds between attempts to connect


class Ledger:
    """A Registry. `dial` makes lines that are not connected yet."""

    def __init__(self, dial: Callable[[], Line], *, limits: Limits, patience: float) -> None:
        self.secrets = LedgerSecrets(self)
        self.limits: Final = limits
        self._dial = dial
        self._line = dial()
        self._patience = patience
        self._turn = threading.Lock()
        self._closing = threading.Event()
        self._opened = False
        self._listeners: list[Listener] = []

    def open(self) -> None:
        if self._opened or self._closing.is_set():
            raise StoreError(f"{self._line.place} was opened before")
        try:
            # Nodes that find everything ready need not wait for each other.
            if self.run(Mode.READ, schema.found) != schema.VERSION:
                self.run(Mode.MIGRATE, schema.prepare)
            self.run(Mode.READ, tables.state)
        except BaseException:
            self._line.close()
            raise
        self._opened = True

    def close(self) -> None:
        self._closing.set()
        for listener in self._listeners:
            listener.close()
        with self._turn:
            self._line.close()

    def load(self) -> Snapshot:
        def work(line: Line) -> Snapshot:
            return Snapshot(sequence=tables.state(line).sequence, documents=tuple(tables.current(line)))

        return self.run(Mode.READ, work)

    def since(self, sequence: int) -> list[Entry] | None:
        def work(line: Line) -> list[Entry] | None:
            found = tables.state(line)
            if not found.forgotten <= sequence <= found.sequence:
                return None
            return tables.after(line, sequence)

        return self.run(Mode.READ, work)

    def history(self, kind: str, id: str) -> list[Entry]:
        if checking.name(kind, id) is not None:
            return []
        return self.run(Mode.READ, lambda line: tables.history(line, kind, id))

    def apply(self, changes: Sequence[Change], *, by: str, why: str, at: float, id: str = "") -> Answer:
        bodies = checking.documents(changes, self.limits)
        if isinstance(bodies, Refused):
            return bodies
        signed = _signed(by=by, why=why, at=at, id=id)
        return self.write(signed, lambda line, found: tables.change(line, found, changes, bodies, signed, self.limits))

    def revert(self, sequence: int, *, by: str, why: str, at: float, id: str = "") -> Answer:
        signed = _signed(by=by, why=why, at=at, id=id)

        def work(line: Line, found: tables.State) -> Answer:
            changes = tables.reverting(line, found, sequence)
            if not isinstance(changes, list):
                return changes
            bodies = checking.documents(changes, self.limits)
            if isinstance(bodies, Refused):
                return bodies
            return tables.change(line, found, changes, bodies, signed, self.limits)

        return self.write(signed, work)

    def outcome(self, id: str) -> Applied | None:
        if not checking.change_id(id):
            return None

        def work(line: Line) -> Applied | None:
            tables.state(line, lock=True)
            return tables.done(line, id)

        return self.run(Mode.WRITE, work)

    def listen(self, callback: Callable[[int], None], *, after: int) -> Listener:
        if not self._opened or self._closing.is_set():
            raise StoreError(f"{self._line.place} is not open")
        listener = Listener(self._dial(), callback, after=after)
        self._listeners = [each for each in self._listeners if not each.closed] + [listener]
        listener.start()
        return listener

    # for this folder

    def write(self, signed: Signature, work: Callable[[Line, tables.State], Answer]) -> Answer:
        """Make a change under the lock, unless it was made before."""
        wrong = checking.signature(signed)
        if wrong is not None:
            return wrong

        def once(line: Line) -> Answer:
            found = tables.state(line, lock=True)
            return tables.done(line, signed.id) or work(line, found)

        return self.run(Mode.WRITE, once, id=signed.id)

    def run(self, mode: Mode, work: Callable[[Line], T], *, id: str = "") -> T:
        """Do the work in a transaction; over a new connection if the old one is gone."""
        deadline = time.monotonic() + self._patience
        if not self._turn.acquire(timeout=self._patience):
            raise StoreError(
                f"{self._line.place} is busy: other calls have waited for it for {self._patience:g} s. "
                "Nothing was changed. Remedy: find out why the database is so slow."
            )
        try:
            return self._persist(mode, work, deadline, id)
        finally:
            self._turn.release()

    def _persist(self, mode: Mode, work: Callable[[Line], T], deadline: float, id: str) -> T:
        doubt = False
        while True:
            try:
                if self._closing.is_set():
                    raise StoreError(f"{self._line.place} is closed.")
                self._line.connect()
                return self._once(mode, work)
            except Lost as error:
                self._line.close()
                doubt = doubt or error.committing
                if time.monotonic() < deadline and not self._closing.wait(PAUSE):
                    continue
                raise _final(error, id if doubt else "") from error
            except StoreError as error:
                if doubt:
                    raise _final(error, id) from error
                raise

    def _once(self, mode: Mode, work: Callable[[Line], T]) -> T:
        self._line.begin(mode)
        try:
            result = work(self._line)
        except BaseException:
            self._line.rollback()
            raise
        self._line.commit()
        return result


class LedgerSecrets:
    """The secrets of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def get(self, room: str, key: str, *, at: float) -> Secret | None:
        if checking.name(room, key) is not None:
            return None
        found = self._ledger.run(Mode.READ, lambda line: tables.secrets(line, room, key, at=at))
        return found[0] if found else None

    def all(self, room: str, *, at: float) -> list[Secret]:
        if checking.name(room, "-") is not None:
            return []
        return self._ledger.run(Mode.READ, lambda line: tables.secrets(line, room, None, at=at))

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
        limits = self._ledger.limits
        wrong = checking.secret(room, key, value, expires, limits)
        if wrong is not None:
            return wrong
        signed = _signed(by="secrets", why="", at=at, id=id)
        return self._ledger.write(
            signed,
            lambda line, found: tables.put(
                line, found, room, key, value, expected=expected, expires=expires, signed=signed, limits=limits
            ),
        )

    def changed(self, sequence: int) -> frozenset[str]:
        return self._ledger.run(Mode.READ, lambda line: tables.rooms(line, sequence))


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
