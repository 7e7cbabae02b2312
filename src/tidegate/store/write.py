"""One batch, one transaction.

Every row handed to sqlite3 on its own lets go of the GIL and then waits to get it back from a busy loop, up to
5 ms each time. So many rows go into one statement: "VALUES (...), (...)" in fixed sizes, so that the statements
stay prepared, and deletions by a list of keys in JSON.

Every statement may be repeated: it replaces or deletes by key. A commit that was reported as failed, but is on
the disk all the same, is harmless when the same batch is written again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Any, Final

from tidegate.store.batch import SESSION, SHIFT, Batch, Noted
from tidegate.store.rows import delivery_row, message_row

SIZES: Final = (256, 64, 16, 4, 1)  # 256 rows of 14 columns are far below the limit of 32766 variables
STATEMENTS: Final = 128  # how many statements stay prepared; there are fewer


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Makes everything safe that is done within, or leaves everything as it was and raises."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite ends it by itself after some errors
            connection.execute("ROLLBACK")
        raise


def write(connection: sqlite3.Connection, batch: Batch, offset: float) -> None:
    """Make `batch` safe, or leave everything as it was and raise.

    Deletions first: a session, a packet id or a topic may have gone and come again within the batch.
    """
    with transaction(connection):
        delete(connection, "session", "id", batch.dropped)
        delete(connection, "subscription", "session", batch.dropped)
        for session, filter in batch.unsubscribed:
            connection.execute("DELETE FROM subscription WHERE session = ? AND filter = ?", (session, filter))
        delete(connection, "delivery", "id", batch.gone)
        delete(connection, "message", "id", batch.unreferenced)
        delete(connection, "incoming", "id", batch.released - batch.incoming.keys())
        delete(connection, "retained", "scope, topic", batch.cleared - batch.retained.keys())
        for record in [record for record, value in batch.records.items() if value is None]:
            # one by one: json_extract ends at a NUL
            connection.execute("DELETE FROM record WHERE room = ? AND key = ?", record)

        replace(connection, "session", 14, list(batch.sessions.values()), tuple)
        subscriptions = [row for rows in batch.subscriptions.values() for row in rows.values()]
        replace(connection, "subscription", 8, subscriptions, tuple)
        replace(connection, "message", 14, batch.bodies.items(), lambda item: message_row(item[0], item[1], offset))
        for noted in (batch.deliveries, batch.changed):
            replace(connection, "delivery", 10, noted.items(), _noted_row)
        replace(connection, "incoming", 2, batch.incoming.items(), tuple)
        replace(connection, "retained", 3, batch.retained.items(), lambda item: (*item[0], item[1]))
        replace(connection, "meta", 2, batch.remembered.items(), tuple)
        kept = [(room, key, value) for (room, key), value in batch.records.items() if value is not None]
        replace(connection, "record", 3, kept, tuple)


def _noted_row(item: tuple[int, Noted]) -> Sequence[Any]:
    key, noted = item
    return delivery_row(key >> SHIFT, key & SESSION, *noted)


def replace(
    connection: sqlite3.Connection,
    table: str,
    columns: int,
    items: Collection[Any],
    row: Callable[[Any], Sequence[Any]],
) -> None:
    left = len(items)
    source = iter(items)
    while left:
        size = next(size for size in SIZES if size <= left)
        values: list[Any] = []
        for item in islice(source, size):
            values += row(item)
        connection.execute(_replace(table, columns, size), values)
        left -= size


def delete(
    connection: sqlite3.Connection, table: str, columns: str, keys: Collection[int] | Collection[tuple[str, str]]
) -> None:
    """By the keys in one column, or by pairs in two."""
    if keys:
        connection.execute(_delete(table, columns), (json.dumps(list(keys), ensure_ascii=False),))


@cache
def _replace(table: str, columns: int, size: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"REPLACE INTO {table} VALUES {', '.join([row] * size)}"  # noqa: S608 - our own names


@cache
def _delete(table: str, columns: str) -> str:
    keys = "json_extract(value, '$[0]'), json_extract(value, '$[1]')" if "," in columns else "value"
    return f"DELETE FROM {table} WHERE ({columns}) IN (SELECT {keys} FROM json_each(?))"  # noqa: S608 - our own names
