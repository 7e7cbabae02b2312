"""What the store's tests share: a loop they turn by hand, values, and a look at what is on the disk."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tidegate.session.message import Delivery, Message, Origin
from tidegate.session.store import StoredSession
from tidegate.store import Snapshot, SqliteStore
from tidegate.wire import NONE, Properties

ORIGIN = Origin("0123456789abcdef", 7)
NEVER = 0xFFFFFFFF
MAIN = "main"  # the scope that a test is not about
_numbers = count(1)


class Turns:
    """A loop that turns only when told to."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def call(self, function: Callable[[], None]) -> None:
        self.queue.put(function)

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        if seconds:
            timer = threading.Timer(seconds, self.queue.put, (function,))
            timer.daemon = True
            timer.start()
        else:
            self.queue.put(function)

    def turn(self, timeout: float = 20.0) -> None:
        self.queue.get(timeout=timeout)()

    def until(self, happened: Callable[[], Any]) -> None:
        while not happened():
            self.turn()


class Trial:
    """An open store with its loop."""

    def __init__(self, path: Path, *, start: bool = True, **options: Any) -> None:
        options.setdefault("interval", 0.0)
        self.path = path
        self.loop = Turns()
        self.store = SqliteStore(path, call=self.loop.call, later=self.loop.later, **options)
        self.found: Snapshot = self.store.open(first=MAIN)
        if start:
            self.store.start()

    def commit(self) -> None:
        """Everything noted so far is safe when this returns."""
        done: list[int] = []
        self.store.after(done.append, 1)
        self.loop.until(lambda: done)

    def close(self) -> None:
        self.store.close(20.0)

    def again(self, **options: Any) -> Trial:
        """Close and open again."""
        self.close()
        return Trial(self.path, **options)

    def image(self, name: str = "image") -> Path:
        """A copy of the files, beside them, as a crash at this moment would leave them. Nothing may be under way."""
        folder = self.path.parent.with_name(name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.path.parent, folder)
        return folder / self.path.name

    def session(self, client: str = "c", **values: Any) -> StoredSession:
        session = stored(client, **values)
        self.store.save_session(session)
        return session

    @property
    def connection(self) -> sqlite3.Connection:
        connection = self.store._connection
        assert connection is not None
        return connection


def stored(client: str = "c", **values: Any) -> StoredSession:
    given = {"row": 0, "scope": MAIN, "principal": "u", "client": client, "version": 5, "expiry": NEVER}
    return StoredSession(**given | values)


def message(
    payload: bytes = b"payload",
    topic: str = "a/b",
    *,
    expires: float | None = None,
    properties: Properties = NONE,
    qos: int = 1,
) -> Message:
    return Message(topic, payload, qos, False, 5.5, ORIGIN, next(_numbers), b"\x01context", "in", properties, expires)


def lay(path: Path, tables: str, rows: str, *, crashed: bool) -> Path:
    """A database at `path` as these statements make it; `crashed`: the rows are only in its log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    making = path.with_name("making.db")
    connection = sqlite3.connect(making, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(f"BEGIN; {tables} COMMIT;")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    connection.executescript(f"BEGIN; {rows} COMMIT;")
    if not crashed:
        connection.close()
    shutil.copy(making, path)
    if crashed:
        shutil.copy(making.with_name("making.db-wal"), path.with_name(path.name + "-wal"))
        connection.close()
    making.unlink()
    return path


def tables(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in a database that nobody has open, but the meta table."""
    connection = sqlite3.connect(path)
    try:
        names = ("session", "subscription", "message", "delivery", "incoming", "retained", "record")
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in names}
    finally:
        connection.close()


def notes(path: Path) -> dict[str, str]:
    """The meta table of a database that nobody has open."""
    connection = sqlite3.connect(path)
    try:
        return dict(connection.execute("SELECT key, value FROM meta"))
    finally:
        connection.close()


def counts(path: Path) -> dict[str, int]:
    return {name: len(rows) for name, rows in tables(path).items() if rows}


def look(m: Message) -> Any:
    """A message by value, but for its expiry, which goes through two clocks."""
    return (m.topic, m.payload, m.qos, m.retain, m.published, m.id, m.context, m.link, m.properties)


def glance(d: Delivery) -> Any:
    """A delivery by value."""
    return (look(d.message), d.qos, d.retain, d.ids, d.group, d.pid, d.state, d.seen)


def waiting(incoming: dict[int, tuple[Message, ...]]) -> dict[int, list[Any]]:
    """What each packet id hands on, by value."""
    return {pid: [look(m) for m in messages] for pid, messages in incoming.items()}


def wait(happened: Callable[[], Any], what: str) -> None:
    """For what another thread does and tells nobody about."""
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)
