"""The tables, their version, and the way from one version to the next; the same for both databases.

`tidegate_entry` holds every version of every document that is kept. The newest of each is marked; one without a body
says that the document was deleted. There is no second table of current documents that could disagree.
`tidegate_state` has one row. Whoever changes anything locks it first: changes are therefore made one after the other,
and become visible in the order of their numbers. It also holds the counts that the limits need.
`tidegate_done` knows the last changes by their ids, `tidegate_room` the last change of each room of secrets.
`tidegate_identity` has one row for each identity that there is, and for those of the past (`identities`).
`tidegate_preferences` has the number of each owner's set of preferences, for ever (`preference_number_rows`).

The tables are made or migrated in one transaction, under a lock: of nodes that start at once, one does it. A version
that is newer than ours is refused, also when a newer Tidegate migrates the tables while we run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from tidegate.errors import StoreError
from tidegate.store.registry.database import Connection

VERSION: Final = 3

# what is in braces is called differently by the databases
IDENTITIES: Final = (
    """CREATE TABLE IF NOT EXISTS tidegate_identity (
        id {text} PRIMARY KEY,
        kind {text} NOT NULL,
        name {text} NOT NULL,
        since {real} NOT NULL,
        retired {real},
        holders {text} NOT NULL, -- JSON
        changed {integer} NOT NULL -- the number of the change that wrote it
    ) {end}""",
    "CREATE INDEX IF NOT EXISTS tidegate_identity_name ON tidegate_identity (kind, name)",
    "CREATE INDEX IF NOT EXISTS tidegate_identity_changed ON tidegate_identity (changed)",
)
PREFERENCES: Final = (
    """CREATE TABLE IF NOT EXISTS tidegate_preferences (
        owner {text} PRIMARY KEY,
        name {text} NOT NULL,
        digest {bytes} NOT NULL, -- of what the set of the owner says
        number {integer} NOT NULL
    ) {end}""",
)
TABLES: Final = (
    "CREATE TABLE tidegate_schema (version {integer} NOT NULL) {end}",
    """CREATE TABLE tidegate_state (
        one {integer} PRIMARY KEY CHECK (one = 1),
        sequence {integer} NOT NULL,
        forgotten {integer} NOT NULL, -- of documents deleted up to this change nothing may be left
        documents {integer} NOT NULL,
        deleted {integer} NOT NULL,
        secrets {integer} NOT NULL
    ) {end}""",
    """CREATE TABLE tidegate_entry (
        kind {text} NOT NULL,
        id {text} NOT NULL,
        sequence {integer} NOT NULL,
        size {integer} NOT NULL, -- how many documents this change changed
        newest {integer} NOT NULL,
        body {text}, -- JSON
        changed_at {real} NOT NULL,
        changed_by {text} NOT NULL,
        why {text} NOT NULL,
        PRIMARY KEY (kind, id, sequence)
    ) {end}""",
    "CREATE UNIQUE INDEX tidegate_newest ON tidegate_entry (kind, id) WHERE newest = 1",
    "CREATE INDEX tidegate_sequence ON tidegate_entry (sequence)",
    "CREATE INDEX tidegate_deleted ON tidegate_entry (sequence) WHERE newest = 1 AND body IS NULL",
    "CREATE TABLE tidegate_done (id {text} PRIMARY KEY, sequence {integer} NOT NULL) {end}",
    "CREATE INDEX tidegate_done_sequence ON tidegate_done (sequence)",
    """CREATE TABLE tidegate_secret (
        room {text} NOT NULL,
        key {text} NOT NULL,
        value {bytes} NOT NULL,
        version {integer} NOT NULL,
        expires {real},
        PRIMARY KEY (room, key)
    ) {end}""",
    "CREATE INDEX tidegate_secret_expires ON tidegate_secret (expires) WHERE expires IS NOT NULL",
    "CREATE TABLE tidegate_room (room {text} PRIMARY KEY, sequence {integer} NOT NULL) {end}",
    "INSERT INTO tidegate_state VALUES (1, 0, 0, 0, 0, 0)",
    *IDENTITIES,
    *PREFERENCES,
)

# version n: the statements that lead to n + 1
MIGRATIONS: Final[Mapping[int, Sequence[str]]] = {1: IDENTITIES, 2: PREFERENCES}


def stored_version(connection: Connection) -> int:
    """The version of the tables; 0: there are none."""
    if not connection.execute(connection.dialect.exists, "tidegate_schema")[0][0]:
        return 0
    ((version,),) = connection.execute("SELECT max(version) FROM tidegate_schema")
    return int(version or 0)


def check(version: int, place: str) -> None:
    """StoreError if these tables are not for us."""
    if version > VERSION:
        raise StoreError(
            f"{place} was written by a newer Tidegate (registry version {version}, this one reads {VERSION}). "
            "Remedy: run the newer Tidegate on every node, or restore the copy made before the upgrade."
        )


def prepare(connection: Connection) -> None:
    """Make the tables, or bring them up to VERSION; within a transaction of Mode.MIGRATE."""
    version = stored_version(connection)
    check(version, connection.place)
    if version == VERSION:
        return
    migrations = [statement for old in range(version, VERSION) for statement in MIGRATIONS[old]] if version else []
    dialect = asdict(connection.dialect)
    for statement in migrations if version else TABLES:
        connection.execute(statement.format(**dialect))
    connection.execute("DELETE FROM tidegate_schema")
    connection.execute("INSERT INTO tidegate_schema VALUES (?)", VERSION)
