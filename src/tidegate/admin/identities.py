"""The identities of a node: taken up with each configuration, and kept where its documents are.

With a registry they are there, for all nodes that share it. Without one they are in the node's own store, or, if it has
none, in memory. A node that gets a registry later takes them along.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

import orjson
import structlog

from tidegate.config import Config
from tidegate.errors import StoreError
from tidegate.policy.identities import CLIENT, NODE, USER, FileEntries, Identities, IdentityRecord, Key, taken_up
from tidegate.store.registry.identities import new_id

if TYPE_CHECKING:
    from tidegate.admin.administration import Administration

ROOM: Final = "identities"  # in the store of the node

log = structlog.get_logger("tidegate.node")

Keep = Callable[[str, str, bytes | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What changes when a configuration is taken up: nothing counts before `NodeIdentities.adopt`."""

    records: list[IdentityRecord] = field(default_factory=list)
    sequence: int = 0
    named: Mapping[Key, str] = field(default_factory=dict)
    first: bool = False  # the node had none before: what it stored refers to names
    untold: bool = False  # the registry could not be told


class NodeIdentities:
    def __init__(
        self, node: str, records: Mapping[str, bytes], keep: Keep, administration: Administration | None
    ) -> None:
        """`records` is what the store kept under `ROOM`, `keep` is the store's."""
        self._administration = administration
        registry = None if administration is None else administration.registry
        known = [orjson.loads(each) for each in records.values()]
        local = [IdentityRecord(**{**each, "holders": frozenset(each["holders"])}) for each in known]
        self.table = Identities(local if registry is None else ())
        self._brought = [] if registry is None else local  # what the registry has not been told yet
        self._node = node
        self._keep = keep
        self._registry = registry
        self._sequence = -1

    @property
    def untold(self) -> bool:
        """Whether the registry was away when some of them changed."""
        return bool(self._brought)

    def check(self, config: Config) -> None:
        """ConfigError if the file gives an id that was used before."""
        file = self._file_entries(config)
        if file.named:
            taken_up(self.table, file, at=time.time(), new_id=new_id)

    async def take_up(self, config: Config, *, changed: bool) -> Taken:
        """What becomes of them with a configuration. `changed`: its file is another one than before, or read first.

        While the registry is away a file can still be taken up: it is told later. ConfigError if the file gives an id
        that was used before; StoreError if the registry is needed and cannot be reached.
        """
        file = self._file_entries(config)
        return await asyncio.to_thread(self._take_up, file, time.time(), changed or self.untold)

    def _take_up(self, file: FileEntries, at: float, changed: bool) -> Taken:
        """In a thread. The table only changes when somebody adopts what this returns."""
        registry, started = self._registry, self._sequence >= 0
        own = [] if not changed else taken_up(self.table, file, at=at, new_id=new_id)
        if registry is None or (changed and started and not own and not self.untold):
            return Taken(records=own, named=file.named, first=registry is None and not self.table.held_by(self._node))
        known, brought = self.table.copy(), self._brought
        try:
            records, sequence = registry.identities.take_up(
                known, self._sequence, file, at=at, changed=changed, brought=brought
            )
        except StoreError as error:
            if not changed or not started:
                raise
            log.warning("the registry is told later who was added to the file, and who removed", reason=str(error))
            return Taken(records=own, named=file.named, untold=True)
        first = not known.held_by(self._node)
        return Taken(records=records, sequence=sequence, named=file.named, first=first)

    def owner(self, user: str) -> str:
        return self.table.id(USER, user)

    def named(self, users: Iterable[str]) -> dict[str, str]:
        return {f"{USER}:{name}": self.table.id(USER, name) for name in users}

    def _file_entries(self, config: Config) -> FileEntries:
        documents = frozenset() if self._administration is None else self._administration.people()
        directory, entries = config.directory, dict[Key, str | None]({(NODE, self._node): None})
        for kind, people in ((USER, directory.users), (CLIENT, directory.clients)):
            entries |= {(kind, name): entry.id for name, entry in people.items() if (kind, name) not in documents}
        return FileEntries(node=self._node, entries=entries, documents=documents)

    async def behind(self) -> bool:
        """Whether another node has changed any since they were taken up here; StoreError if nobody can tell."""
        if self._registry is None or self.untold:
            return self.untold
        records, _ = await asyncio.to_thread(self._registry.identities.since, self._sequence)
        return any(self.table.record(each.id) != each for each in records)

    def adopt(self, taken: Taken) -> list[IdentityRecord]:
        """They count from now on; those that have changed."""
        self._sequence = max(self._sequence, taken.sequence)
        names = {each.id: self.table.name(each.id) for each in taken.records}
        news = self.table.update(taken.records)
        self.table.call(taken.named)
        if self._registry is None:
            for each in news:
                self._keep(ROOM, each.id, orjson.dumps({**asdict(each), "holders": sorted(each.holders)}))
        if taken.untold:
            self._brought += taken.records
        elif taken.sequence:
            for each in self._brought:  # they are in the registry now
                self._keep(ROOM, each.id, None)
            self._brought = []
        for each in news:
            if each.retired is not None and names[each.id] is not None:
                log.info("an identity is retired", kind=each.kind, name=each.name, id=each.id)
        return news
