"""The tables, their version, and the way from one version to the next.

The file says what it is twice: `application_id` that it is Tidegate's, `user_version` which version of the
tables it holds. The current version is read and older ones, from `OLDEST` on, are brought up to it in one
transaction, so that a crash leaves either the old tables or the new ones. Anything else is refused and left as it is.

Sessions and retained messages belong to a scope, by its name. Up to version 3 a node had one scope and the tables did
not name it; what they hold is given to the first scope of the configuration.

Keys are integers that the store assigns in memory, in the order things happened. Rows are therefore appended,
and what is written together lies together. There is no index but the keys: an index by session would make one
commit touch a page for every session.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tidegate.errors import StoreError

APPLICATION: Final = 0x54476174  # "TGat"
VERSION: Final = 5

RETAINED: Final = """CREATE TABLE retained (
        scope TEXT NOT NULL,
        topic TEXT NOT NULL,
        message INTEGER NOT NULL,
        PRIMARY KEY (scope, topic)
    ) STRICT, WITHOUT ROWID"""
# whatever a room keeps under keys of its own: monitors' states, publishers' rules, revocations
RECORD: Final = """CREATE TABLE record (
        room TEXT NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL, -- opaque
        PRIMARY KEY (room, key)
    ) STRICT, WITHOUT ROWID"""
TABLES: Final = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE session (
        id INTEGER PRIMARY KEY,
        principal TEXT NOT NULL,
        client TEXT NOT NULL,
        version INTEGER NOT NULL,
        expiry INTEGER NOT NULL,
        ended REAL,
        will_topic TEXT,
        will_payload BLOB,
        will_qos INTEGER,
        will_retain INTEGER,
        will_properties BLOB,
        context BLOB NOT NULL,
        scope TEXT NOT NULL DEFAULT '', -- where it lives; at the end, where a migration can add it
        certificate BLOB -- opaque; NULL: not known
    ) STRICT""",
    """CREATE TABLE subscription (
        session INTEGER NOT NULL,
        filter TEXT NOT NULL,
        qos INTEGER NOT NULL,
        no_local INTEGER NOT NULL,
        retain_as_published INTEGER NOT NULL,
        retain_handling INTEGER NOT NULL,
        identifier INTEGER,
        terms BLOB NOT NULL DEFAULT x'', -- opaque
        PRIMARY KEY (session, filter)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE message (
        id INTEGER PRIMARY KEY,
        topic TEXT NOT NULL,
        payload BLOB NOT NULL,
        qos INTEGER NOT NULL,
        retain INTEGER NOT NULL,
        published REAL NOT NULL,
        node TEXT NOT NULL,
        boot INTEGER NOT NULL,
        number INTEGER NOT NULL,
        output INTEGER NOT NULL,
        context BLOB NOT NULL,
        link TEXT NOT NULL,
        properties BLOB NOT NULL,
        expires REAL -- wall clock: the monotonic one does not outlive the boot
    ) STRICT""",
    """CREATE TABLE delivery (
        id INTEGER PRIMARY KEY, -- ascending in the order of the queue
        session INTEGER NOT NULL,
        message INTEGER NOT NULL,
        qos INTEGER NOT NULL,
        retain INTEGER NOT NULL,
        pid INTEGER NOT NULL,
        state INTEGER NOT NULL,
        ids TEXT, -- subscription identifiers, separated by commas
        share TEXT, -- name/filter of the shared subscription; a share name holds no slash
        seen INTEGER NOT NULL DEFAULT 0 -- it has passed the monitors of its link
    ) STRICT""",
    """CREATE TABLE incoming (
        id INTEGER PRIMARY KEY, -- (position << 48) + session * 65536 + packet id
        message INTEGER -- NULL: nothing is handed on for it, its packet id is still in use
    ) STRICT""",
    RETAINED,
    RECORD,
)

OWN: Final = frozenset({"node", "boot"})  # keys of meta that are the store's; the others are notes

# version n: the statements that lead to n + 1; `:first` is the name of the first scope
MIGRATIONS: Final[Mapping[int, Sequence[str]]] = {
    2: ("ALTER TABLE delivery ADD COLUMN seen INTEGER NOT NULL DEFAULT 0", RECORD),
    3: (
        "ALTER TABLE session ADD COLUMN scope TEXT NOT NULL DEFAULT ''",
        "UPDATE session SET scope = :first",
        "ALTER TABLE retained RENAME TO unscoped",
        RETAINED,
        "INSERT INTO retained SELECT :first, topic, message FROM unscoped",
        "DROP TABLE unscoped",
        "UPDATE record SET room = 'monitor/' || :first WHERE room = 'monitor'",
    ),
    4: ("ALTER TABLE session ADD COLUMN certificate BLOB",),
}
OLDEST: Final = min(MIGRATIONS)


def check(connection: sqlite3.Connection, path: Path, *, version: int = VERSION, oldest: int = OLDEST) -> int:
    """The version of the tables in the file, 0 for a file without any; StoreError if they are not for us."""
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if application == 0 and found == 0 and tables == 0:
        return 0
    if application != APPLICATION:
        raise StoreError(
            f"{path} is an SQLite database, but not one of Tidegate's. Remedy: name another data folder, or "
            "move that file away."
        )
    if found > version:
        raise StoreError(
            f"{path} was written by a newer Tidegate (store version {found}, this one reads {version}). "
            "Remedy: run the newer Tidegate, or restore the copy made before the upgrade."
        )
    if found < oldest:
        raise StoreError(
            f"{path} was written by a much older Tidegate (store version {found}, this one reads {oldest} "
            f"to {version}). Remedy: open it once with a release in between."
        )
    return found


def prepare(
    connection: sqlite3.Connection,
    found: int,
    *,
    first: str,
    version: int = VERSION,
    migrations: Mapping[int, Sequence[str]] = MIGRATIONS,
) -> None:
    """Create the tables, or bring those of version `found` up to `version`; within the caller's transaction.

    `first` is the scope that gets what was written when there was only one.
    """
    if found == version:
        return
    statements = TABLES if found == 0 else [s for n in range(found, version) for s in migrations[n]]
    for statement in statements:
        connection.execute(statement, {"first": first})
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {version}")
