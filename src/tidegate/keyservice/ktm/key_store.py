"""The keys of the key service: those that nodes share, and those that it makes itself and gives to no node.

Both are rows of its SQLite file, sealed under its master key, in rooms of their own: what was made here for topics
whose content no node may see is found by no `find` and told to no watcher; only its answers, wrapped for a reader,
leave.

Invariants
- What was answered is on the disk.
- A key that was revoked stays so, whoever brings it again: its id is remembered beyond its end, over restarts.
- Writes happen one after the other, in the order in which they were asked for.
- Its clock never goes back, so setting the machine's lengthens no key's life.

It does not decide who may have a key: nodes do, before they ask.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar
from urllib.parse import quote

import structlog

from tidegate.config.ktm import KtmConfig
from tidegate.errors import KeysError, StoreError
from tidegate.keys import Group, PublicKey, Ring, Steady, TopicKey, wrap
from tidegate.keyservice.exchange import LATE, REVOKED, ROOM, KeyRows, note_revoked
from tidegate.keyservice.master_keys import KEY, MasterKeys, renew_all
from tidegate.store.disk import create_folder
from tidegate.store.lock import Lock
from tidegate.store.registry import registry

DATABASE: Final = "ktm.db"
OWN: Final = "keys.own"  # the room of those that are made here
DAY: Final = 86400.0  # seconds for which a revocation is remembered at least

T = TypeVar("T")

log = structlog.get_logger("tidegate.ktm")


class KeyStore:
    """All calls on one loop."""

    def __init__(self, config: KtmConfig) -> None:
        data = config.data
        self._lock = Lock(data)
        self._registry = registry(f"sqlite:///{quote(str(data / DATABASE))}")
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="key_store")
        self._clock = Steady()
        keys = config.keys
        self._ring = Ring(entropy=os.urandom, rotate=keys.rotate, overlap=keys.overlap, uses=keys.uses)
        self._dead: dict[str, float] = {}
        self._unstored: set[str] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._master_keys: MasterKeys
        self._shared: KeyRows
        self._own: KeyRows

    async def open(self, config: KtmConfig) -> None:
        """ConfigError or StoreError with the remedy."""
        await self._call(partial(self._open, config))
        self._renew()

    def _open(self, config: KtmConfig) -> None:
        create_folder(config.data)
        self._lock.acquire()
        self._lock.write(database=DATABASE, durability="sync")
        self._master_keys = MasterKeys(config.master_key, config.data)
        self._registry.open()
        secrets = self._registry.secrets
        self._shared, self._own = KeyRows(secrets, self._master_keys, ROOM), KeyRows(secrets, self._master_keys, OWN)
        now = self._now()
        self._dead = {each.key: each.expires or math.inf for each in secrets.all(REVOKED, at=now)}
        keys, closed = self._own.all_opened(now)
        for key in keys:
            self._ring.adopt(key, now)
        if closed:
            remedy = "add the master key that they are under behind the first one of `master_key`, and send SIGHUP"
            log.warning("keys in the store cannot be opened", count=closed, remedy=remedy)

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait((self._renewing,))
        await self._call(self._registry.close)
        self._pool.shutdown()
        self._lock.release()

    async def reload(self, config: KtmConfig) -> None:
        """Other master keys and settings. ConfigError, and nothing has changed."""
        if await self._call(partial(self._master_keys.reread, config.master_key)):
            self._renew()
        keys = config.keys
        self._ring.change(rotate=keys.rotate, overlap=keys.overlap, uses=keys.uses)

    def _renew(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        self._renewing = asyncio.get_running_loop().create_task(self._renewed())

    async def _renewed(self) -> None:
        try:
            for room in (ROOM, OWN):
                await renew_all(self._registry.secrets, room, self._master_keys, of=KEY, aside=self._call)
        except StoreError as error:
            log.error("keys could not be renewed under the first master key; send SIGHUP again", reason=str(error))

    # -- keys of nodes ---------------------------------------------------------------------------------------------

    async def put(self, key: TopicKey) -> bool:
        """Whether it is kept; if not, it was revoked."""
        if key.id not in self._dead:
            await self._call(partial(self._shared.put, key, self._now()))
        return key.id not in self._dead  # what was revoked meanwhile is removed behind us

    async def find(self, id: str) -> TopicKey | None:
        if id in self._dead:
            return None
        key = await self._opened(self._shared, id)
        return None if id in self._dead else key

    async def shared(self) -> list[TopicKey]:
        keys, closed = await self._call(partial(self._shared.all_opened, self._now()))
        if closed:
            log.warning("keys in the store cannot be opened", count=closed)
        return [key for key in keys if key.id not in self._dead]

    # -- revoking --------------------------------------------------------------------------------------------------

    @property
    def revoked(self) -> Collection[str]:
        """Ids that must not come back."""
        return self._dead.keys()

    async def revoke(self, ids: Collection[str]) -> None:
        """Here at once; durable when it returns."""
        now = self._now()
        for id in [id for id, until in self._dead.items() if until <= now]:
            del self._dead[id]
        for id in ids:
            self._dead.setdefault(id, now + DAY)
            self._ring.forbid(id, self._dead[id], now)
        self._dead |= await self._call(partial(self._remove, list(ids), now))

    def _remove(self, ids: list[str], now: float) -> dict[str, float]:
        secrets = self._registry.secrets
        until: dict[str, float] = {}
        for id in ids:
            ends = [row.expires or 0.0 for room in (ROOM, OWN) if (row := secrets.get(room, id, at=now)) is not None]
            until[id] = max(now + DAY, *ends, 0.0) + LATE
            note_revoked(secrets, id, now, until[id])
            self._shared.remove(id, now)
            self._own.remove(id, now)
        return until

    # -- keys that no node sees ------------------------------------------------------------------------------------

    async def grant(self, group: Group, public: PublicKey, *, reader: str, request: str) -> tuple[bytes, str]:
        """The key that seals now, for a publisher; the answer says for how long it may seal."""
        now = self._now()
        key = self._ring.held(group, now)
        if key is None:
            key = self._ring.current(group, now)
            self._unstored.add(key.id)
        if key.id in self._unstored:
            await self._call(partial(self._own.put, key, now))
            self._unstored.discard(key.id)
        now = self._now()
        if key.id in self._dead:
            raise StoreError("the key was revoked just now; ask again")
        seconds = self._ring.left(key.id, now) - self._ring.overlap
        return wrap(key, public, reader=reader, request=request, seconds=seconds), key.id

    async def wrap(self, id: str, public: PublicKey, *, reader: str, request: str) -> bytes | None:
        """A key for a reader; None if there is none of that id any more."""
        key = await self._any(id)
        if key is None:
            return None
        now = self._now()
        seconds = self._ring.left(id, now) or key.readable_until - now
        return wrap(key, public, reader=reader, request=request, seconds=seconds) if seconds > 0 else None

    def rotate(self) -> None:
        """Others seal from now on. A node asks for it when somebody has lost a right."""
        self._ring.rotate_now()

    async def group(self, id: str) -> Group | None:
        key = await self._any(id)
        return None if key is None else key.group

    async def _any(self, id: str) -> TopicKey | None:
        key = self._ring.find(id, self._now())
        if key is not None:
            return key
        if id in self._dead:
            return None
        found = await self._opened(self._own, id) or await self._opened(self._shared, id)
        return None if id in self._dead else found

    # -- the rest --------------------------------------------------------------------------------------------------

    async def _opened(self, rows: KeyRows, id: str) -> TopicKey | None:
        try:
            return await self._call(partial(rows.get, id, self._now()))
        except KeysError as error:
            raise StoreError(f"the key {id} cannot be opened: {error}") from error

    async def _call(self, do: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, do)

    def _now(self) -> float:
        return self._clock(time.time())
