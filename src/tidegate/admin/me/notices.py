"""Notices: a person is told when somebody new could read a topic of theirs, what changed, and by whom.

- After each change of the configuration, and when a preference expires, the readers before and after are compared
  (`explain.reader_changes`) on a thread that gives way to the loop, one person after the other.
- Whoever has said a preference, has a token, or has ever asked about their data is watched: at most `WATCHED` people.
- The newest `KEPT` notices of a person are in the store of the node, so a restart loses none. What a file says at a
  start that it did not say when the node stopped is not compared: the node does not keep the file.
- Changes that come while one is compared are compared together afterwards; the notice then names all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson
import structlog

from tidegate.admin.me.people import OwnersNode, devices_of
from tidegate.config import Config
from tidegate.config.load import free_configs
from tidegate.config.me import Names
from tidegate.explain.effects import publisher
from tidegate.explain.reader_changes import Differences, Gained, Moment, ReaderChanges
from tidegate.give_way import give_way
from tidegate.policy.identities import USER
from tidegate.policy.preferences import Preference
from tidegate.session import Subject

ROOM: Final = "notices"  # in the store
WATCHED: Final = 1000
"""People."""
KEPT: Final = 100
"""Notices of one person."""
NAMED: Final = 20
"""Readers named under one filter, and changes named in one notice."""
PLACES: Final = 16
"""Filters told in one notice."""
SLEEP: Final = 60.0  # seconds until the clock is looked at again
PATIENCE: Final = 5.0  # seconds that a question waits for changes that came before it
CLOCK: Final = "clock"
"""By whom something is that happens by itself."""

log = structlog.get_logger("tidegate.node")
Notice = dict[str, Any]


@dataclass(slots=True)
class _Watched:
    """One person, by identity; without one by name."""

    user: str
    identity: str
    notices: list[Notice] = field(default_factory=list)
    """The oldest first."""
    last: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def key(self) -> str:
        return self.identity or self.user

    def encode(self) -> bytes:
        return orjson.dumps({"user": self.user, "notices": self.notices, "last": self.last})


class Notices:
    """Those of one node."""

    def __init__(self, node: OwnersNode, records: Mapping[str, bytes]) -> None:
        self._node = node
        self._people: OrderedDict[str, _Watched] = OrderedDict()
        self._since = time.time()
        """Until when expiries have been looked at."""
        self._pending: list[Config] = []  # what was in force before the changes that nobody has compared yet
        self._by: list[str] = []
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="notices", initializer=give_way)
        for key, data in records.items():
            value = orjson.loads(data)
            if not key:
                self._since = value["until"]
                continue
            user = node.identities.table.name(key) or value["user"]
            identity = key if key != value["user"] else ""
            self._people[key] = _Watched(user, identity, value["notices"], value["last"])

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown(wait=False, cancel_futures=True)

    # -- who is watched, and what they are told ------------------------------------------------------------------------

    def watch(self, user: str, identity: str) -> _Watched:
        """From now on they are told."""
        key = identity or user
        person = self._people.get(key)
        if person is None:
            person = self._people[key] = _Watched(user, identity)
            self._node.site.open()
            self._keep(person)
            while len(self._people) > WATCHED:
                gone, _ = self._people.popitem(last=False)
                self._node.site.store.keep(ROOM, gone, None, urgent=False)
        person.user = user
        self._people.move_to_end(key)
        return person

    def _keep(self, person: _Watched) -> None:
        self._node.site.store.keep(ROOM, person.key, person.encode(), urgent=False)

    def of(self, user: str, identity: str, limit: int) -> list[Notice]:
        """The newest first."""
        person = self.watch(user, identity)
        return [self._shown(each) for each in reversed(person.notices[-limit:])]

    async def follow(self, user: str, identity: str, since: int | None) -> AsyncIterator[list[Notice]]:
        """Those after a number, and then each when it comes."""
        person = self.watch(user, identity)
        last = person.last if since is None else since
        while True:
            news = [self._shown(each) for each in person.notices if each["id"] > last]
            if news:
                last = news[-1]["id"]
                yield news
            person.news.clear()
            if person.last <= last:
                await person.news.wait()

    def _shown(self, notice: Notice) -> Notice:
        """As `me.names` lets owners learn of others."""
        if self._node.config.me.names is Names.USERS:
            return {**notice, "topics": [{**each, "roles": None} for each in notice["topics"]]}
        users = self._node.config.directory.users
        topics = []
        for each in notice["topics"]:
            counted: dict[str, int] = {}
            for reader in each["readers"]:
                entry = users.get(reader["user"] or "")
                for role in () if entry is None else entry.roles:
                    counted[role] = counted.get(role, 0) + 1
            readers = [{**reader, "user": None, "client": None} for reader in each["readers"]]
            topics.append({**each, "readers": readers, "roles": counted})
        changes = [{**each, "name": None} if each["kind"] in ("user", "client") else each for each in notice["changes"]]
        by = [self._role_of(each) for each in notice["by"]]
        return {**notice, "topics": topics, "changes": changes, "by": by}

    def _role_of(self, by: str) -> str:
        kind, _, name = by.partition(":")
        if kind != "user":
            return by
        entry = self._node.config.directory.users.get(name)
        roles = () if entry is None else entry.roles
        return f"role:{roles[0]}" if roles else "user"

    # -- comparing -----------------------------------------------------------------------------------------------------

    def changed(self, before: Config, by: str) -> None:
        """Another configuration is in force than this."""
        self._pending.append(before)
        self._by = [*self._by, by] if by not in self._by else self._by
        self._idle.clear()
        self._awake.set()

    async def settled(self, patience: float = PATIENCE) -> bool:
        """Whether nothing waits to be compared any more, within that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._idle.wait()
        return self._idle.is_set()

    async def _run(self) -> None:
        while True:
            due = self._next_expiry()
            if not self._pending:
                self._idle.set()
                delay = SLEEP if due is None else min(SLEEP, max(0.0, due - time.time()))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):  # `wait_for` loses a cancellation that comes with a change
                        await self._awake.wait()
            self._awake.clear()
            try:
                await (self._compare_changes() if self._pending else self._compare_expired())
            except Exception:  # people go on being told of what comes
                log.exception("who could read what could not be compared; nobody was told of the last change")

    async def _compare_changes(self) -> None:
        held, by, self._pending, self._by = self._pending, self._by, [], []
        before, after, now = held[0], self._node.config, time.time()
        try:
            differences = await self._do(partial(Differences.between, before, after))
            if differences.entries:
                await self._compare(Moment(config=before, at=now), Moment(config=after, at=now), differences, by)
        finally:
            del before
            await self._do(partial(free_configs, held))

    async def _compare_expired(self) -> None:
        """Of those whose preferences have expired: what was forbidden until then may not be any more."""
        now, config = time.time(), self._node.config
        expired = [(each, at) for each, at in _expiries(config) if self._since < at <= now]
        if not expired:
            return
        differences = Differences(
            entries=tuple(dict.fromkeys(("preference", each.id, "expired") for each, _ in expired))
        )
        before = Moment(config=config, at=min(at for _, at in expired) - 0.001)
        only = {each.user for each, _ in expired}
        await self._compare(before, Moment(config=config, at=now), differences, [CLOCK], only)
        self._since = now
        self._node.site.open()
        self._node.site.store.keep(ROOM, "", orjson.dumps({"until": now}), urgent=False)

    def _next_expiry(self) -> float | None:
        return min((at for _, at in _expiries(self._node.config) if at > self._since), default=None)

    async def _compare(
        self,
        before: Moment,
        after: Moment,
        differences: Differences,
        by: Sequence[str],
        only: set[str] | None = None,
    ) -> None:
        changes = ReaderChanges(before, after, differences)
        for user, identity in self._watched(after.config):
            devices = devices_of(after.config, user)
            if only is not None and only.isdisjoint((user, *devices)):
                continue
            if user not in before.config.directory.users:
                continue  # nobody could read what was not there
            publishers = [self._publisher(after.config, each, each == user and identity) for each in (user, *devices)]
            began = time.perf_counter()
            gained = await self._do(partial(_gained, changes, publishers, (user, *devices)))
            if gained:
                self._tell(self.watch(user, identity), gained, differences, by)
            await asyncio.sleep(time.perf_counter() - began)  # half of the time belongs to others

    def _watched(self, config: Config) -> list[tuple[str, str]]:
        """Whoever has asked, has said something, or has a token."""
        table = self._node.identities.table
        people = {person.key: (person.user, person.identity) for person in self._people.values()}
        named = {each.user: None for each in config.preferences}
        administration = self._node.administration
        if administration is not None:
            named |= {each["user"]: None for each in administration.tokens.list() if each["role"] == "user"}
        for user in list(named)[:WATCHED]:
            identity = table.id(USER, user)
            people.setdefault(identity or user, (user, identity))
        return [each for each in people.values() if each[0] in config.directory.users]

    def _publisher(self, config: Config, user: str, identity: str | bool) -> Subject:
        whose = identity if isinstance(identity, str) else self._node.identities.owner(user)
        return publisher(config, user, whose)

    def _tell(self, person: _Watched, gained: Sequence[Gained], differences: Differences, by: Sequence[str]) -> None:
        """Writes it down. What others say of their own data is not told."""
        own = {each.id for each in self._node.config.preferences if each.user == person.user}
        entries = [each for each in differences.entries if each[0] != "preference" or each[1] in own]
        person.last += 1
        notice = {
            "id": person.last,
            "at": time.time(),
            "by": list(by)[:NAMED],
            "changes": [{"kind": kind or "setting", "name": name, "how": how} for kind, name, how in entries[:NAMED]],
            "topics": [_told(each) for each in gained[:PLACES]],
        }
        person.notices = [*person.notices, notice][-KEPT:]
        self._node.site.open()
        self._keep(person)
        person.news.set()

    async def _do(self, do: partial[Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, do)


def _expiries(config: Config) -> Iterator[tuple[Preference, float]]:
    for each in config.built.rules.preferences.preferences:
        if each.expires is not None:
            yield each, each.expires


def _gained(changes: ReaderChanges, publishers: Sequence[Subject], own: Sequence[str]) -> list[Gained]:
    first, *devices = publishers
    found = changes.gained(first, own)
    for device in devices:
        found += changes.gained(device, own, device.user)
    return found


def _told(gained: Gained) -> dict[str, Any]:
    readers = [
        {
            "user": each.reader[1] if each.reader[0] == "user" else None,
            "client": each.reader[1] if each.reader[0] == "client" else None,
            "other": each.reader[1] if each.reader[0] == "other" else None,
            "anonymous": each.reader == ("user", None),
            "could": each.before.value,
            "can": each.now.can.value,
            "when": each.now.when,
            "parts": None if each.now.parts is None else list(each.now.parts),
        }
        for each in gained.gains[:NAMED]
    ]
    return {"filter": gained.filter, "device": gained.device, "count": len(gained.gains), "readers": readers}
