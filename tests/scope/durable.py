"""Nodes in one process that have a store on a (memory) disk, and can end and begin anew."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scope.nodes import Node
from tidegate.policy.scopes import NodeLink
from tidegate.scope.foreign_preferences import ROOM as PREFERENCES
from tidegate.store.batch import Batch
from tidegate.store.sqlite import SqliteStore

FIRST = "main"


class Inline:
    """Where the writer's thread would be: what is handed over is committed at once."""

    def __init__(self, store: DurableStore) -> None:
        self.store = store

    def put(self, handed: tuple[Batch, bool]) -> None:
        if self.store._commit(handed[0]):
            self.store.waiting.append(self.store._settle)


class DurableStore(SqliteStore):
    """Commits when it is asked to, on the loop of a test."""

    def __init__(self, folder: Path) -> None:
        self.waiting: deque[Callable[[], Any]] = deque()
        super().__init__(
            folder / "t.db",
            call=self.waiting.append,
            later=lambda _, function: self.waiting.append(function),
            durability="async",
        )
        self._inbox = Inline(self)  # type: ignore[assignment]
        self.snapshot = self.open(first=FIRST)

    def pump(self) -> None:
        for _ in range(100):
            if not self.waiting:
                return
            self.waiting.popleft()()

    def kill(self) -> None:
        """What was not committed is lost."""
        assert self._connection is not None
        self._closed = True
        self._connection.close()
        self._lock.release()


class DurableNode(Node):
    """A node that finds what it has kept. Its wall clock goes on."""

    def __init__(self, name: str, *links: NodeLink, folder: Path, boot: int, wall: float, **rules: Any) -> None:
        self.store = DurableStore(folder)
        snapshot = self.store.snapshot
        super().__init__(name, *links, store=self.store, boot=boot, wall=wall, **rules)
        realm = self.realm
        self.site.open()
        realm.foreign.restore(snapshot.records.get(PREFERENCES, {}), self.verify)
        scope = self.scope
        scope.path.monitoring.states.restore(snapshot.records.get(scope.path.monitoring.states.room, {}))
        for message in snapshot.retained.get(scope.name, ()):
            scope.retained.restore(message)
        for record in snapshot.sessions:
            if realm.node_links.owns(record):
                realm.node_links.restore(record)
            else:
                scope.lifetime.restore(record)
        realm.node_links.begin(snapshot.records)
        self.turn()

    def turn(self, seconds: float = 0.0) -> None:
        super().turn(seconds)
        while self.store.waiting:
            self.site.open()
            self.store.pump()
            super().turn()


def disk() -> Path:
    memory = Path("/dev/shm")  # nothing here is about the disk
    return Path(tempfile.mkdtemp(prefix="tidegate-graph-", dir=memory if memory.is_dir() else None))
