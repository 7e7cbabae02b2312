"""Notices of changes: a thread with a connection of its own that looks whether the number of the newest change is new.

It looks when the database says that something happened, and now and then anyway, because a notice may be lost. While
the database is away it goes on trying; what was missed is made up for by the first look over the new connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from tidegate.errors import StoreError
from tidegate.store.registry.database import Connection, Mode, transact
from tidegate.store.registry.state import read_state

PAUSES: Final = (0.05, 0.1, 0.2, 0.5)  # seconds before the next attempt to connect; the last one again and again

log = structlog.get_logger("tidegate.store.registry")


class Listener:
    """Calls `callback` on its own thread with the number of the newest change, if that is not `after` any more."""

    def __init__(self, connection: Connection, callback: Callable[[int], None], *, after: int) -> None:
        self.trouble: str | None = None
        self._connection = connection
        self._callback = callback
        self._told = after
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidegate-registry", daemon=True)

    @property
    def closed(self) -> bool:
        return self._stop.is_set()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Once it returns nothing is called any more. From within the callback, it returns at once."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                self._connection.connect()
                self._connection.attend()
                while not self._stop.is_set():
                    self._look()
                    failures = 0
                    self._connection.wait(self._stop)
            except StoreError as error:
                self._connection.close()
                self._report(str(error))
                self._stop.wait(PAUSES[min(failures, len(PAUSES) - 1)])
                failures += 1
        self._connection.close()

    def _look(self) -> None:
        sequence = transact(self._connection, Mode.READ, read_state).sequence
        self._report(None)
        if sequence != self._told:
            self._told = sequence
            try:
                self._callback(sequence)
            except Exception:
                log.exception("a callback after a change failed", callback=repr(self._callback))

    def _report(self, trouble: str | None) -> None:
        if trouble is not None and self.trouble is None:
            log.warning("changes of the registry are not noticed", place=self._connection.place, error=trouble)
        elif trouble is None and self.trouble is not None:
            log.info("changes of the registry are noticed again", place=self._connection.place)
        self.trouble = trouble
