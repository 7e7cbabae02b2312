"""Where registries of a test are: a new, empty place in either database, and a way in for the test itself."""

from __future__ import annotations

import itertools
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import postgres
from harness import PATIENCE
from tidegate.store.registry import Answer, Applied, Change, Registry, registry

NOW = 1_700_000_000.0


class Place:
    """`registry()` opens another one on the same data, as another node would; all are closed at the end."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: list[Registry] = []

    def registry(self, url: str = "", **options: Any) -> Registry:
        made = registry(url or self.url, **options)
        self._opened.append(made)
        made.open()
        return made

    def sql(self, statement: str) -> list[Any]:
        """Behind the registry's back; committed."""
        raise NotImplementedError

    def empty(self) -> Place:
        """Another place in the same database."""
        raise NotImplementedError

    def close(self) -> None:
        for each in self._opened:
            each.close()

    def check(self) -> None:
        """What always holds in the tables."""
        ((documents, deleted, secrets, sequence),) = self.sql(
            "SELECT documents, deleted, secrets, sequence FROM tidegate_state"
        )
        newest = "SELECT count(*) FROM tidegate_entry WHERE newest = 1 AND body IS"
        assert self.sql(f"{newest} NOT NULL") == [(documents,)]
        assert self.sql(f"{newest} NULL") == [(deleted,)]
        assert self.sql("SELECT count(*) FROM tidegate_secret") == [(secrets,)]
        assert self.sql(f"SELECT count(*) FROM tidegate_entry WHERE sequence > {sequence}") == [(0,)]
        marked = self.sql("SELECT kind, id, sequence FROM tidegate_entry WHERE newest = 1 ORDER BY kind, id")
        assert marked == self.sql(
            "SELECT kind, id, max(sequence) FROM tidegate_entry GROUP BY kind, id ORDER BY kind, id"
        )


class SqlitePlace(Place):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self.path = folder / "registry.db"
        super().__init__(f"sqlite:///{self.path}")

    def sql(self, statement: str) -> list[Any]:
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=PATIENCE)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def empty(self) -> SqlitePlace:
        return SqlitePlace(self._folder / f"another-{next(self._numbers)}")


class PostgresPlace(Place):
    def __init__(self, server: postgres.Server) -> None:
        self.server = server
        self.schema = server.schema()
        super().__init__(server.address(schema=self.schema))

    def through(self, port: int) -> str:
        """The URL by another port."""
        return self.server.address(schema=self.schema, port=port)

    def sql(self, statement: str) -> list[Any]:
        with self.server.connect(self.schema) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description is not None else []

    def empty(self) -> PostgresPlace:
        return PostgresPlace(self.server)


class Notices:
    """What a listener was told."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.times: list[float] = []
        self._news = threading.Condition()

    def __call__(self, sequence: int) -> None:
        with self._news:
            self.told.append(sequence)
            self.times.append(time.monotonic())
            self._news.notify_all()

    def wait_for(self, sequence: int, seconds: float = PATIENCE) -> float:
        """When it was told, by the monotonic clock."""
        with self._news:
            assert self._news.wait_for(lambda: sequence in self.told, seconds), (sequence, self.told)
            return self.times[self.told.index(sequence)]


def make(
    where: Registry, *changes: Change, by: str = "user:ann", why: str = "because", at: float = NOW, id: str = ""
) -> Answer:
    return where.apply(changes, by=by, why=why, at=at, id=id)


def made(where: Registry, *changes: Change, **options: Any) -> int:
    """The number of the change, which must succeed."""
    answer = make(where, *changes, **options)
    assert isinstance(answer, Applied), answer
    return answer.sequence


def revert(where: Registry, sequence: int, *, by: str, why: str, at: float) -> Answer:
    """Takes a change back, if the registry says how."""
    changes = where.reverting(sequence)
    return make(where, *changes, by=by, why=why, at=at) if isinstance(changes, list) else changes


def put(kind: str, id: str, body: dict[str, Any], expected: int | None = None) -> Change:
    return Change(kind=kind, id=id, body=body, expected=expected)


def drop(kind: str, id: str, expected: int | None = None) -> Change:
    return Change(kind=kind, id=id, body=None, expected=expected)


def bodies(where: Registry) -> dict[tuple[str, str], Any]:
    return {(one.kind, one.id): one.body for one in where.load().documents}


def at_once(*works: Callable[[], object]) -> list[object]:
    """The results of all of them, on a thread each, or the exceptions."""
    results: list[object] = [None] * len(works)
    start = threading.Barrier(len(works))

    def run(index: int, work: Callable[[], object]) -> None:
        start.wait()
        try:
            results[index] = work()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results[index] = error

    threads = [threading.Thread(target=run, args=(index, work)) for index, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
