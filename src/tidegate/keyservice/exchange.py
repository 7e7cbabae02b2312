"""How the keys of a node get to other nodes, and theirs here: over the registry that they share.

A key is a row of the room `keys`, sealed under the master key and gone when it can be read no more. Other nodes learn
of it when the registry tells that the room has changed. Revoking a key removes its row: whoever has seen the row and
misses it before its end knows that the key was revoked. Its id stays in the room `keys.revoked` for as long as the key
would have lasted: a node that was away has the key in its own store, and has to be told.

Invariants
- Nothing here blocks the loop or waits for the registry. What is to be stored waits, within a limit, until it is.
- A row that cannot be opened (another master key) is left alone, counted, and said once; the others still count.
- Rows are looked at and written one after the other, so that a key that was just stored is never missed by a look that
  began before.

It does not decide who may have a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

import structlog

from tidegate.errors import KeysError, StoreError
from tidegate.keys import TopicKey
from tidegate.keys.key import valid_id
from tidegate.keyservice.master_keys import KEY, MasterKeys, renew_all
from tidegate.store.registry import Refused, Secret, Secrets

ROOM: Final = "keys"
REVOKED: Final = "keys.revoked"
LATE: Final = 3600.0  # seconds for which a revocation is remembered beyond the end of its key
UNSEEN: Final = 86400.0  # the same for a key that is not in the registry
WAITING: Final = 65_536  # keys that may wait for a registry that is away; beyond, the oldest is given up
BATCH: Final = 32  # keys that are written before anything else gets its turn
ASKING: Final = 64  # questions at a time
PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0)  # seconds before the registry is tried again
REST: Final = 0.2  # seconds between two looks, at least; a look that takes long is followed by a longer rest
LEAVING: Final = 2.0  # seconds to store what waits when the node stops

T = TypeVar("T")
OnKeys: TypeAlias = Callable[[Sequence[TopicKey], Collection[str]], None]

log = structlog.get_logger("tidegate.keys")


class PendingKeys:
    """What is to be stored or revoked, the oldest first."""

    def __init__(self, limit: int = WAITING) -> None:
        self.puts: OrderedDict[str, TopicKey] = OrderedDict()
        self.revoked: OrderedDict[str, None] = OrderedDict()
        self.given_up = 0
        self._limit = limit

    def __bool__(self) -> bool:
        return bool(self.puts or self.revoked)

    def put(self, key: TopicKey) -> None:
        if key.id not in self.revoked:
            self.puts[key.id] = key
            self._bound(self.puts)

    def revoke(self, ids: Collection[str]) -> None:
        for id in ids:
            self.puts.pop(id, None)
            self.revoked[id] = None
            self._bound(self.revoked)

    def next_puts(self, now: float) -> list[TopicKey]:
        """The oldest that still matter."""
        while self.puts and (first := next(iter(self.puts.values()))).readable_until <= now:
            del self.puts[first.id]
        return list(islice(self.puts.values(), BATCH))

    def next_revoked(self) -> list[str]:
        return list(islice(self.revoked, BATCH))

    def stored(self, key: TopicKey) -> None:
        """Done with it, unless it was revoked meanwhile."""
        if self.puts.get(key.id) is key:
            del self.puts[key.id]

    def _bound(self, which: OrderedDict[str, Any]) -> None:
        if len(which) > self._limit:
            id, _ = which.popitem(last=False)
            if not self.given_up:
                log.error("too many keys wait to be shared, the oldest are given up", id=id, waiting=self._limit)
            self.given_up += 1


class KeyExchange(ABC):
    """Where a node shares its keys with others. All calls on the loop; none blocks."""

    def __init__(self, trouble: str | None, limit: int = WAITING) -> None:
        self.trouble = trouble  # why keys cannot be shared at the moment
        self._waiting = PendingKeys(limit)
        self._took: OnKeys = lambda keys, revoked: None
        self._tasks: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()

    def start(self, took: OnKeys) -> None:
        """From now on `took` is called on the loop with keys that others made, at the start with all there are, and
        with ids that were revoked."""
        self._took = took

    def put(self, key: TopicKey) -> None:
        """Stored as soon as it can be. It is kept until then; of too many, the oldest is given up."""
        self._waiting.put(key)
        self._work()

    def revoke(self, ids: Collection[str]) -> None:
        """Nobody is told these keys any more, as soon as that can be said."""
        self._waiting.revoke([id for id in ids if valid_id(id)])
        self._work()

    @abstractmethod
    async def find(self, id: str) -> TopicKey | None:
        """Asks for a key that is not known here; None: nobody has it. StoreError if nobody can be asked."""

    async def close(self) -> None:
        """What waits is stored if that takes no time."""
        if self._tasks and self._waiting and self.trouble is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVING):
                    await self._idle.wait()
        if self._tasks and self._waiting:
            log.warning("keys were not shared before the end", keys=len(self._waiting.puts))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _work(self) -> None:
        self._idle.clear()
        self._wake.set()

    def _may_exist(self, id: str) -> bool:
        return valid_id(id) and id not in self._waiting.revoked


class KeyRows:
    """Keys in a room of a registry; blocks. Several threads may use it."""

    def __init__(self, secrets: Secrets, master_keys: MasterKeys, room: str = ROOM) -> None:
        self.secrets = secrets
        self.master_keys = master_keys
        self.room = room

    def all(self, now: float) -> list[Secret]:
        return self.secrets.all(self.room, at=now)

    def opened(self, row: Secret) -> TopicKey:
        """The key; KeysError if it cannot be read."""
        return self.master_keys.open_key(row.key, row.value)

    def all_opened(self, now: float) -> tuple[list[TopicKey], int]:
        """All keys, and how many rows cannot be opened."""
        keys: list[TopicKey] = []
        rows = self.all(now)
        for row in rows:
            with contextlib.suppress(KeysError):
                keys.append(self.opened(row))
        return keys, len(rows) - len(keys)

    def get(self, id: str, now: float) -> TopicKey | None:
        """KeysError if it is there and cannot be opened."""
        row = self.secrets.get(self.room, id, at=now)
        return None if row is None else self.opened(row)

    def put(self, key: TopicKey, now: float) -> None:
        """Keeps it; one that is there already stays. KeysError if no store would take it.

        A write that is repeated is not done again, so that nothing comes back that was removed in between.
        """
        value = self.master_keys.seal_key(key)
        change = blake2b(f"put\0{self.room}\0{key.id}".encode(), digest_size=16, person=b"tidegate1change").hexdigest()
        answer = self.secrets.put(
            self.room, key.id, value, expected=None, at=now, expires=key.readable_until, id=change
        )
        if isinstance(answer, Refused):
            raise KeysError(f"the key {key.id} cannot be stored: {answer.what}")

    def remove(self, id: str, now: float) -> None:
        """No harm if it is not there."""
        self.secrets.put(self.room, id, None, expected=None, at=now)

    def revoke(self, id: str, now: float) -> None:
        """It is removed, and those who come later are told."""
        row = self.secrets.get(self.room, id, at=now)
        note_revoked(self.secrets, id, now, now + UNSEEN if row is None or row.expires is None else row.expires + LATE)
        self.remove(id, now)

    def revoked(self, now: float) -> frozenset[str]:
        return frozenset(row.key for row in self.secrets.all(REVOKED, at=now))


def note_revoked(secrets: Secrets, id: str, now: float, until: float) -> None:
    """Remembers the end of a key. Done before its row is removed: after a crash in between it is revoked, not lost."""
    answer = secrets.put(REVOKED, id, b"1", expected=None, at=now, expires=until)
    if isinstance(answer, Refused):
        raise StoreError(f"the end of the key {id} cannot be stored: {answer.what}")


class RegistryExchange(KeyExchange):
    """Shares keys over a registry. Somebody has to call `notice` when the room has changed."""

    def __init__(self, secrets: Secrets, master_keys: MasterKeys, *, limit: int = WAITING) -> None:
        super().__init__(None, limit)
        self._rows = KeyRows(secrets, master_keys)
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="exchange")
        self._stale = True
        self._rested = 0.0  # when the next look may begin
        self._seen: dict[str, float] = {}  # rows that were there, and when they end
        self._found: dict[str, float] = {}  # the same of rows that were asked for since
        self._dead: frozenset[str] = frozenset()  # ids that were told to be revoked
        self._closed: dict[str, int] = {}  # rows that could not be opened, and their version
        self._asking = 0
        self._generation = master_keys.generation

    def start(self, took: OnKeys) -> None:
        super().start(took)
        self._wake.set()
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(self._run()), loop.create_task(self._renew())]

    def notice(self) -> None:
        """The room has changed, by whomever."""
        self._stale = True
        self._wake.set()

    def renew(self) -> None:
        """If there are other master keys, what could not be opened is tried again, and what is under old ones renewed.

        No harm if there are none.
        """
        if self._generation == self._rows.master_keys.generation:
            return
        self._generation = self._rows.master_keys.generation
        self._closed.clear()
        self.notice()
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.get_running_loop().create_task(self._renew()))

    async def find(self, id: str) -> TopicKey | None:
        if not self._may_exist(id):
            return None
        if self.trouble is not None:
            raise StoreError(self.trouble)
        if self._asking >= ASKING:
            raise StoreError(f"{ASKING} keys are being asked for already; ask again")
        self._asking += 1
        try:
            key = await self._call(partial(self._rows.get, id, time.time()))
        except KeysError as error:
            raise StoreError(f"the key {id} cannot be opened here: {error}") from error
        except StoreError as error:
            self._away(str(error))  # nobody else waits to hear the same; whoever works on it notices when it is back
            self.notice()
            raise
        finally:
            self._asking -= 1
        if key is None or id in self._waiting.revoked:
            return None
        # the next look has to miss it, should it be revoked before that
        self._found[id] = key.readable_until
        return key

    async def close(self) -> None:
        await super().close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- working ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while True:
            with contextlib.suppress(TimeoutError):
                # what is stale is looked at when it has rested; what is to be stored does not wait for that
                pause = max(0.0, self._rested - time.monotonic()) if self._stale else None
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()
            try:
                reached = await self._store()
                if self._stale and time.monotonic() >= self._rested:
                    await self._look()
                    reached = True
            except StoreError as error:
                self._away(str(error))
                self._stale = True
                await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
                failures += 1
                self._wake.set()
            except Exception:
                log.exception("keys could not be shared")
                await asyncio.sleep(PAUSES[-1])
                self._stale = True
            else:
                if reached:
                    failures = 0
                    self._back()

    async def _store(self) -> bool:
        """What waits, until nothing does; whether the registry was asked for anything."""
        waiting = self._waiting
        reached = False
        while waiting:
            for id in waiting.next_revoked():
                await self._call(partial(self._rows.revoke, id, time.time()))
                reached = True
                self._dead |= {id}
                waiting.revoked.pop(id, None)
                self._seen.pop(id, None)
                self._found.pop(id, None)
            now = time.time()
            for key in waiting.next_puts(now):
                try:
                    await self._call(partial(self._rows.put, key, now))
                    reached = True
                    self._seen[key.id] = key.readable_until
                except KeysError as error:
                    log.error("a key cannot be shared", reason=str(error))
                waiting.stored(key)
        self._idle.set()
        return reached

    async def _look(self) -> None:
        """At all rows: what is new, and what is gone."""
        self._stale = False
        began, now, generation = time.monotonic(), time.time(), self._generation
        self._seen |= self._found
        self._found.clear()
        dead = await self._call(partial(self._rows.revoked, now))
        rows, keys, closed = await self._call(partial(self._read, now, frozenset(self._seen), dict(self._closed)))
        rows, keys = rows - dead, [key for key in keys if key.id not in dead]
        gone = [id for id, until in self._seen.items() if id not in rows and until > now]
        gone += dead - self._dead - set(gone)
        self._dead = dead
        for id in [id for id in self._seen if id not in rows]:
            del self._seen[id]
        self._seen |= {key.id: key.readable_until for key in keys}
        if generation == self._generation:
            self._tell(closed)
        keys = [key for key in keys if key.id not in self._waiting.revoked]
        if keys or gone:
            self._took(keys, gone)
        self._rested = time.monotonic() + max(REST, 3 * (time.monotonic() - began))

    def _read(
        self, now: float, known: frozenset[str], closed: dict[str, int]
    ) -> tuple[frozenset[str], list[TopicKey], dict[str, int]]:
        """On a thread: the ids that are there, keys that were not known, and rows that cannot be opened."""
        ids: set[str] = set()
        keys: list[TopicKey] = []
        shut: dict[str, int] = {}
        for row in self._rows.all(now):
            ids.add(row.key)
            if row.key in known:
                continue
            if closed.get(row.key) == row.version:
                shut[row.key] = row.version
                continue
            try:
                keys.append(self._rows.opened(row))
            except KeysError as error:
                log.debug("a key cannot be opened", id=row.key, reason=str(error))
                shut[row.key] = row.version
        return frozenset(ids), keys, shut

    async def _renew(self) -> None:
        failures = 0
        while True:
            try:
                await renew_all(self._rows.secrets, ROOM, self._rows.master_keys, of=KEY, aside=self._call)
                return
            except StoreError as error:
                log.debug("keys could not be renewed yet", reason=str(error))
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1

    async def _call(self, do: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, do)

    # -- saying ----------------------------------------------------------------------------------------------------

    def _tell(self, closed: dict[str, int]) -> None:
        if closed and not self._closed:
            remedy = "add the master key of the other nodes behind the first one of `master_key`, and reload"
            log.warning("keys of other nodes cannot be opened here", count=len(closed), remedy=remedy)
        self._closed = closed

    def _away(self, reason: str) -> None:
        if self.trouble is None:
            log.warning("keys cannot be shared at the moment", reason=reason)
        self.trouble = reason

    def _back(self) -> None:
        if self.trouble is not None:
            log.info("keys are shared again")
        self.trouble = None
