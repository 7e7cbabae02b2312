"""From a path to an open database and everything in it, or a StoreError that names the remedy.

Whatever is wrong with the file, it is left as it was found: nothing is created in its place. Opening ends with a
commit (the boot counter), so that a store that opens is known to be writable.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tidegate.errors import StoreError
from tidegate.store import schema
from tidegate.store.disk import sync_path, with_remedy
from tidegate.store.load import Snapshot, load
from tidegate.store.lock import Lock, Record
from tidegate.store.wal import damage
from tidegate.store.write import STATEMENTS, transaction

Durability: TypeAlias = Literal["sync", "async"]

_RESTORE: Final = (
    "Remedy: restore the data folder from a backup, or salvage what can be read with `sqlite3 FILE .recover`. "
    "To begin with an empty store, move the whole data folder away."
)
_REMEDIES: Final = {
    "SQLITE_NOTADB": _RESTORE,
    "SQLITE_CORRUPT": _RESTORE,
    "SQLITE_FULL": "Remedy: free some space on that disk.",
    "SQLITE_BUSY": "Remedy: stop the program that has the database open.",
    "SQLITE_READONLY": "Remedy: make the data folder writable.",
    "SQLITE_CANTOPEN": "Remedy: let the user that runs Tidegate own the data folder and what is in it.",
    "SQLITE_IOERR": "Remedy: mend the disk, then restore the data folder from a backup if needed.",
}


def open_database(
    path: Path, lock: Lock, last: Record | None, durability: Durability, *, first: str, now_wall: float, now_mono: float
) -> tuple[sqlite3.Connection, Snapshot]:
    """Check, connect, create or migrate, count the boot, load. `last` is what the lock file said."""
    _inspect(path, last)
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            path, timeout=1.0, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS
        )
        snapshot = _enter(connection, path, durability, first=first, now_wall=now_wall, now_mono=now_mono)
        lock.write(database=path.name, durability=durability)
        # The log begins anew: what an `async` run wrote to it is not judged by the rules of `sync` later.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            name, remedy = explained(error, _REMEDIES)
            raise StoreError(f"{path} cannot be opened: {error} ({name}). {remedy}") from error
        if isinstance(error, StoreError) and "Remedy" not in str(error):
            raise StoreError(f"{path} is damaged: {error}. {_RESTORE}") from error
        raise
    return connection, snapshot


def explained(error: sqlite3.Error, remedies: Mapping[str, str]) -> tuple[str, str]:
    """SQLite's own name of an error, such as `SQLITE_IOERR_WRITE`, and the remedy for it.

    The first two words of the name tell the remedy; that for a damaged file if it is not known.
    """
    name: str = getattr(error, "sqlite_errorname", None) or type(error).__name__
    return name, remedies.get("_".join(name.split("_")[:2]), remedies["SQLITE_CORRUPT"])


def _inspect(path: Path, last: Record | None) -> None:
    """What SQLite would pass over in silence, or say less clearly."""
    log = path.with_name(path.name + "-wal")
    there = path.exists() and path.stat().st_size > 0
    if not there and log.exists() and log.stat().st_size > 0:
        raise StoreError(f"{path} is missing or empty, but its log {log.name} is not. {_RESTORE}")
    if not there and last is not None and last.database == path.name:
        raise StoreError(f"{path} is missing or empty, but there was a store here before. {_RESTORE}")
    if there and (last is None or last.durability == "sync"):
        wrong = damage(log)
        if wrong is not None:
            raise StoreError(f"{log} is damaged: {wrong}. {_RESTORE}")
    owner = f"the user that runs Tidegate (uid {os.geteuid()})"
    remedy = f"let {owner} own that file, on a file system that is writable"
    with with_remedy(f"{path} cannot be opened for writing", remedy):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        sync_path(path.parent)


def _enter(
    connection: sqlite3.Connection, path: Path, durability: Durability, *, first: str, now_wall: float, now_mono: float
) -> Snapshot:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
    found = schema.check(connection, path)
    wrong = [row[0] for row in connection.execute("PRAGMA quick_check(3)") if row[0] != "ok"]
    if wrong:
        raise StoreError("; ".join(wrong))
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"{path} cannot have a write-ahead log here (mode {mode}). Remedy: keep the data folder on a local disk."
        )
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'sync' else 'NORMAL'}")
    connection.execute("PRAGMA secure_delete = FAST").fetchone()
    connection.execute("PRAGMA cache_size = -16384")
    connection.execute("PRAGMA journal_size_limit = 67108864").fetchone()
    connection.execute("SELECT count(*) FROM json_each('[1]')").fetchone()  # deletions need it: fail here, not later
    with transaction(connection):
        schema.prepare(connection, found, first=first)
        return load(connection, now_wall=now_wall, now_mono=now_mono)
