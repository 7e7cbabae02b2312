"""One connection to a database, as the rest of the registry sees it: SQL with `?`, transactions, rows.

What differs between the databases in the SQL itself is in their `Dialect`. One thread at a time uses
a connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias, TypeVar

from tidegate.errors import StoreError

Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")


class ConnectionLost(StoreError):
    """The connection is gone, or of no use any more; with a new one it may work. Does not leave this folder."""

    def __init__(self, message: str, *, committing: bool = False) -> None:
        super().__init__(message)
        self.committing = committing  # it broke during COMMIT: nobody knows whether that was done


class Mode(Enum):
    READ = "read"  # sees one state of everything
    WRITE = "write"
    MIGRATE = "migrate"  # alone, however long it takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    integer: str
    real: str
    text: str
    bytes: str
    end: str  # behind the definition of a table
    lock: str  # behind a SELECT: nobody else gets these rows before the transaction ends
    exists: str  # a query for whether there is a table of that name
    now: str  # a query for the database's own clock, in seconds: one that all nodes share
    notify: str | None  # a statement that tells the others the number of a change when it is committed


class Connection(Protocol):
    """StoreError with the remedy if something is wrong, ConnectionLost if a new connection may help."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def place(self) -> str:
        """Which database, without any password."""

    def connect(self) -> None:
        """No harm if it is connected."""

    def close(self) -> None:
        """Never fails. It can be connected again."""

    def execute(self, sql: str, *values: object) -> list[Row]: ...

    def begin(self, mode: Mode) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Never fails: what cannot be rolled back is cut off."""

    def attend(self) -> None:
        """From now on `wait` notices changes."""

    def wait(self, stop: threading.Event) -> None:
        """Until it is worth a look whether something has changed, or soon after `stop` is set."""


def transact(connection: Connection, mode: Mode, work: Callable[[Connection], T]) -> T:
    """Does the work in a transaction, all of it or nothing."""
    connection.begin(mode)
    try:
        result = work(connection)
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    return result
