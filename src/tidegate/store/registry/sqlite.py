"""A connection to an SQLite file: one node and the processes beside it, on one machine.

The file has a write-ahead log, so that readers and the writer do not wait for each other; of two writers one waits.
Every commit is forced to the disk. Other processes' changes are noticed by SQLite's own counter (`data_version`).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Final

from tidegate.errors import StoreError
from tidegate.store.disk import create_folder, with_remedy
from tidegate.store.opening import explained
from tidegate.store.registry.database import Dialect, Mode, Row

APPLICATION: Final = 0x54477265  # "TGre"
BEAT: Final = 0.25  # seconds between two looks at the counter
MIGRATING: Final = 60.0  # seconds to wait for another node that migrates

SQLITE: Final = Dialect(
    integer="INTEGER",
    real="REAL",
    text="TEXT",
    bytes="BLOB",
    end="STRICT",
    lock="",  # BEGIN IMMEDIATE has locked everything
    exists="SELECT count(*) FROM sqlite_master WHERE name = ?",
    now="SELECT CAST(strftime('%s', 'now') AS REAL)",
    notify=None,
)

_RESTORE: Final = "restore it from a backup, or salvage what can be read with `sqlite3 FILE .recover`"
_OWN: Final = "let the user that runs Tidegate own that file and its folder, on a file system that is writable"
_REMEDIES: Final = {
    "SQLITE_NOTADB": _RESTORE,
    "SQLITE_CORRUPT": _RESTORE,
    "SQLITE_FULL": "free some space on that disk",
    "SQLITE_BUSY": "find the program that holds the file locked, and end it",
    "SQLITE_READONLY": _OWN,
    "SQLITE_CANTOPEN": _OWN,
    "SQLITE_IOERR": "mend the disk",
}


class SqliteConnection:
    """`wait` is how long to wait for another writer, in seconds."""

    dialect: Final = SQLITE

    def __init__(self, path: Path, *, wait: float) -> None:
        self.place: Final = str(path)
        self._path = path
        self._wait = wait
        self._connection: sqlite3.Connection | None = None
        self._seen: object = None

    def connect(self) -> None:
        if self._connection is not None:
            return
        create_folder(self._path.parent)
        with with_remedy(f"{self.place} cannot be opened", _OWN):
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        try:
            self._connection = sqlite3.connect(
                self._path, timeout=self._wait, isolation_level=None, check_same_thread=False
            )
            self._enter()
        except sqlite3.Error as error:
            self.close()
            raise self._trouble(error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def execute(self, sql: str, *values: object) -> list[Row]:
        assert self._connection is not None
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._trouble(error) from error

    def begin(self, mode: Mode) -> None:
        if mode is Mode.MIGRATE:
            self._patient(MIGRATING)
        try:
            self.execute("BEGIN" if mode is Mode.READ else "BEGIN IMMEDIATE")
        finally:
            if mode is Mode.MIGRATE:
                self._patient(self._wait)

    def commit(self) -> None:
        try:
            self.execute("COMMIT")
        except StoreError:
            self.rollback()  # a COMMIT that failed may have left the transaction open
            raise

    def rollback(self) -> None:
        assert self._connection is not None
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()

    def attend(self) -> None:
        self._seen = None

    def wait(self, stop: threading.Event) -> None:
        while not stop.wait(BEAT):
            seen = self.execute("PRAGMA data_version")
            if seen != self._seen:
                self._seen = seen
                return

    def _enter(self) -> None:
        # in this order: whoever makes the registry at this moment marks it before there are tables
        ((tables,),) = self.execute("SELECT count(*) FROM sqlite_master")
        ((application,),) = self.execute("PRAGMA application_id")
        if application != APPLICATION and (application or tables):
            raise StoreError(
                f"{self.place} is an SQLite database, but no registry. Remedy: name another file, or move it away."
            )
        wrong = [row[0] for row in self.execute("PRAGMA quick_check(3)") if row[0] != "ok"]
        if wrong:
            raise StoreError(f"{self.place} is damaged: {'; '.join(wrong)}. Remedy: {_RESTORE}.")
        journal = self._logged()
        if journal != "wal":
            raise StoreError(
                f"{self.place} cannot have a write-ahead log here (mode {journal}). Remedy: keep it on a local disk."
            )
        self.execute("PRAGMA synchronous = FULL")
        self.execute("PRAGMA secure_delete = ON")
        if application != APPLICATION:
            self.execute(f"PRAGMA application_id = {APPLICATION}")

    def _logged(self) -> object:
        """Switch to a write-ahead log. SQLite does not wait for another process that does the same: we do."""
        assert self._connection is not None
        deadline = time.monotonic() + self._wait
        while True:
            try:
                return self._connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
                time.sleep(0.01)

    def _patient(self, seconds: float) -> None:
        self.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def _trouble(self, error: sqlite3.Error) -> StoreError:
        name, remedy = explained(error, _REMEDIES)
        return StoreError(f"{self.place}: {error} ({name}). Nothing was changed. Remedy: {remedy}.")
