"""Keys shared over a registry, on both databases; master keys that change; a registry that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import postgres
from admin.registries import SQLITE, administered
from harness import PATIENCE
from processes import on_uvloop, until
from tidegate.config import MasterKey, parse
from tidegate.errors import ConfigError, StoreError
from tidegate.keys import Group, MasterKeySet, TopicKey, new_master
from tidegate.keyservice import exchange as depots
from tidegate.keyservice.exchange import ROOM, PendingKeys, RegistryExchange
from tidegate.keyservice.master_keys import MasterKeys, open_master_keys
from tidegate.store.registry import Registry, registry

GROUP = Group.of(filter="t/#", conditions=["c"], topic="t/1", context=b"witness")


def make(id: str, *, lasts: float = 60.0) -> TopicKey:
    now = time.time()
    return TopicKey(
        id=id, group=GROUP, secret=os.urandom(32), made=now, valid_until=now + lasts / 2, readable_until=now + lasts
    )


def written(path: Path, *masters: str) -> MasterKey:
    path.write_text("\n".join(masters) + "\n")
    path.chmod(0o600)
    return MasterKey(file=path)


class Side:
    """A node: its exchange, and what it was told."""

    def __init__(self, store: Registry, master_keys: MasterKeys, **options: int) -> None:
        self.store = store
        self.master_keys = master_keys
        self.exchange = RegistryExchange(store.secrets, master_keys, **options)
        self.keys: dict[str, TopicKey] = {}
        self.revoked: list[str] = []

    def took(self, keys: Sequence[TopicKey], revoked: Collection[str]) -> None:
        self.keys |= {key.id: key for key in keys}
        self.revoked += revoked

    async def has(self, *ids: str) -> None:
        await until(lambda: set(ids) <= self.keys.keys())

    async def stored(self, *ids: str) -> None:
        """Until the registry has them."""
        loop = asyncio.get_running_loop()
        while True:
            rows = await loop.run_in_executor(None, lambda: self.store.secrets.all(ROOM, at=time.time()))
            if set(ids) <= {row.key for row in rows}:
                return


@contextlib.asynccontextmanager
async def side(url: str, master_keys: MasterKeys, **options: int) -> AsyncIterator[Side]:
    loop = asyncio.get_running_loop()
    store = registry(url, patience=2.0)
    await loop.run_in_executor(None, store.open)
    made = Side(store, master_keys, **options)
    made.exchange.start(made.took)

    def notice(sequence: int) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(made.exchange.notice)

    store.listen(notice, after=0)
    try:
        yield made
    finally:
        await made.exchange.close()
        await loop.run_in_executor(None, store.close)


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shared.db"
    found: postgres.Server = request.getfixturevalue("server")
    return found.address(schema=found.schema())


@pytest.fixture
def master_keys(tmp_path: Path) -> MasterKeys:
    return MasterKeys(None, tmp_path)


# -- sharing -------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_key_made_on_one_node_is_on_the_other_within_a_second(url: str, master_keys: MasterKeys) -> None:
    async with side(url, master_keys) as a, side(url, master_keys) as b:
        await asyncio.gather(a.stored(), b.stored())
        key = make("k1")
        a.exchange.put(key)
        await b.has("k1")
        assert b.keys["k1"] == key
        assert b.keys["k1"].group.context == b"witness"
        assert "k1" not in a.keys
        assert await b.exchange.find("k1") == key
        assert await b.exchange.find("k2") is None
        assert await b.exchange.find("not an id/") is None


@on_uvloop
async def test_who_starts_later_is_told_everything_that_has_not_ended(url: str, master_keys: MasterKeys) -> None:
    async with side(url, master_keys) as a:
        a.exchange.put(make("short", lasts=0.3))
        for number in range(100):
            a.exchange.put(make(f"k{number}"))
        await a.stored("k99")
        await asyncio.sleep(0.4)  # the short one has ended
        async with side(url, master_keys) as b:
            await b.has(*(f"k{number}" for number in range(100)))
            assert "short" not in b.keys
            assert await b.exchange.find("short") is None
            assert b.revoked == []


@on_uvloop
async def test_a_revoked_key_is_gone_everywhere(url: str, master_keys: MasterKeys) -> None:
    async with side(url, master_keys) as a, side(url, master_keys) as b:
        a.exchange.put(make("k1"))
        a.exchange.put(make("k2"))
        await b.has("k1", "k2")
        b.exchange.revoke(["k1"])
        assert await b.exchange.find("k1") is None
        await until(lambda: a.revoked == ["k1"])
        assert await a.exchange.find("k1") is None
        assert await a.exchange.find("k2") is not None
        async with side(url, master_keys) as c:
            await c.has("k2")
            assert "k1" not in c.keys


@on_uvloop
async def test_who_was_away_is_told_what_was_revoked_meanwhile(url: str, master_keys: MasterKeys) -> None:
    async with side(url, master_keys) as b:
        async with side(url, master_keys) as a:
            a.exchange.put(make("k1"))
            a.exchange.put(make("k2"))
            await b.has("k1", "k2")
        b.exchange.revoke(["k1"])
        await until(lambda: not b.exchange._waiting)
        async with side(url, master_keys) as a:  # it has both in its own store
            await a.has("k2")
            assert a.revoked == ["k1"]
            assert b.revoked == []
            assert "k1" not in a.keys


@on_uvloop
async def test_the_end_of_a_key_is_no_revocation(url: str, master_keys: MasterKeys) -> None:
    async with side(url, master_keys) as a, side(url, master_keys) as b:
        a.exchange.put(make("short", lasts=1.0))
        await b.has("short")
        await asyncio.sleep(1.0)
        a.exchange.put(make("k1"))
        await b.has("k1")
        assert a.revoked == b.revoked == []


@on_uvloop
async def test_a_key_that_was_asked_for_and_revoked_before_the_next_look_is_told(
    url: str, master_keys: MasterKeys
) -> None:
    async with side(url, master_keys) as a:
        store = registry(url)
        await asyncio.get_running_loop().run_in_executor(None, store.open)
        b = Side(store, master_keys)  # nobody tells it that anything has changed
        b.exchange.start(b.took)
        try:
            await until(lambda: not b.exchange._stale)
            a.exchange.put(make("k1"))
            await a.stored("k1")
            assert await b.exchange.find("k1") is not None
            a.exchange.revoke(["k1"])
            await until(lambda: not a.exchange._waiting)
            b.exchange.notice()
            await until(lambda: b.revoked == ["k1"])
        finally:
            await b.exchange.close()
            store.close()


@on_uvloop
async def test_a_key_that_is_revoked_before_it_is_stored_never_gets_there(url: str, master_keys: MasterKeys) -> None:
    async with side(url, master_keys) as a, side(url, master_keys) as b:
        a.exchange.put(make("k1"))
        a.exchange.revoke(["k1"])
        a.exchange.put(make("k2"))
        await b.has("k2")
        assert "k1" not in b.keys
        assert await b.exchange.find("k1") is None


@on_uvloop
async def test_a_write_that_is_repeated_does_not_bring_back_what_was_revoked(url: str, master_keys: MasterKeys) -> None:
    async with side(url, master_keys) as a, side(url, master_keys) as b:
        key = make("k1")
        a.exchange.put(key)
        await b.has("k1")
        b.exchange.revoke(["k1"])
        await until(lambda: a.revoked == ["k1"])
        a.exchange.put(key)  # as after a commit that nobody heard of
        a.exchange.put(make("k2"))
        await b.has("k2")
        assert await b.exchange.find("k1") is None


@on_uvloop
async def test_closing_stores_what_waits(url: str, master_keys: MasterKeys) -> None:
    async with side(url, master_keys) as a:
        for number in range(50):
            a.exchange.put(make(f"k{number}"))
    async with side(url, master_keys) as b:
        await b.has(*(f"k{number}" for number in range(50)))


def test_what_waits_is_bounded_and_the_oldest_is_given_up() -> None:
    waiting = PendingKeys(3)
    with capture_logs() as logs:
        for number in range(5):
            waiting.put(make(f"k{number}"))
    assert list(waiting.puts) == ["k2", "k3", "k4"]
    assert waiting.given_up == 2
    assert [line["event"] for line in logs] == ["too many keys wait to be shared, the oldest are given up"]
    assert [key.id for key in waiting.next_puts(time.time() + 3600)] == []
    assert not waiting


# -- a registry that is away ---------------------------------------------------------------------------------------


@on_uvloop
async def test_a_server_that_is_away_stops_nothing_and_gets_everything_later(
    server: postgres.Server, master_keys: MasterKeys
) -> None:
    url = server.address(schema=server.schema())
    with capture_logs() as logs:
        async with side(url, master_keys) as a, side(url, master_keys) as b:
            a.exchange.put(make("before"))
            await b.has("before")
            server.stop()
            began = time.monotonic()
            for number in range(100):
                a.exchange.put(make(f"k{number}"))
            a.exchange.revoke(["before"])
            assert time.monotonic() - began < PATIENCE
            await until(lambda: a.exchange.trouble is not None)
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(StoreError):
                    await a.exchange.find("k1")
            await asyncio.get_running_loop().run_in_executor(None, server.start)
            await b.has(*(f"k{number}" for number in range(100)))
            await until(lambda: b.revoked == ["before"] and a.exchange.trouble is None)
    events = [line["event"] for line in logs]
    assert events.count("keys cannot be shared at the moment") >= 1
    assert "keys are shared again" in events


@on_uvloop
async def test_the_loop_goes_on_while_the_registry_hangs(tmp_path: Path, master_keys: MasterKeys) -> None:
    async with side(f"sqlite:///{tmp_path}/shared.db", master_keys) as a:
        await until(lambda: not a.exchange._stale)
        released, answered = threading.Event(), threading.Event()

        def hang(*args: object, **kwargs: object) -> None:
            released.wait(PATIENCE)
            answered.set()

        a.store.secrets.put = hang  # type: ignore[method-assign]
        try:
            a.exchange.put(make("k1"))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not answered.is_set()
            assert await a.exchange.find("k2") is None  # over the other thread
        finally:
            released.set()


@on_uvloop
async def test_questions_are_bounded(tmp_path: Path, master_keys: MasterKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depots, "ASKING", 2)
    async with side(f"sqlite:///{tmp_path}/shared.db", master_keys) as a:
        answers = await asyncio.gather(*(a.exchange.find(f"k{number}") for number in range(5)), return_exceptions=True)
        assert [type(each) for each in answers] == [type(None)] * 2 + [StoreError] * 3
        assert await a.exchange.find("k1") is None


# -- master keys ---------------------------------------------------------------------------------------------------


def masters_of(store: Registry) -> set[str]:
    return {MasterKeySet.master_of(row.value) for row in store.secrets.all(ROOM, at=time.time())}


@on_uvloop
async def test_the_master_key_changes_without_a_pause(url: str, tmp_path: Path) -> None:
    old, new = new_master(os.urandom), new_master(os.urandom)
    first, second = tmp_path / "a.key", tmp_path / "b.key"
    a_key, b_key = written(first, old), written(second, old)
    async with side(url, MasterKeys(a_key, None)) as a, side(url, MasterKeys(b_key, None)) as b:
        ids = [f"k{number}" for number in range(80)]
        for id in ids:
            a.exchange.put(make(id))
        await b.has(*ids)
        before = masters_of(a.store)
        for path, key, node in ((first, a_key, a), (second, b_key, b)):  # behind the old one, everywhere
            written(path, old, new)
            assert not node.master_keys.reread(key)
            node.exchange.renew()
        assert masters_of(a.store) == before
        written(first, new, old)
        assert a.master_keys.reread(a_key)
        a.exchange.renew()
        b.exchange.put(make("under-old"))  # a node that still seals with the old one
        a.exchange.put(make("under-new"))
        await a.has("under-old")
        await b.has("under-new")
        written(second, new, old)
        assert b.master_keys.reread(b_key)
        b.exchange.renew()
        await until(lambda: masters_of(a.store) == {a.master_keys.current})
        assert a.master_keys.current not in before
        assert a.revoked == b.revoked == []
        for path, key, node in ((first, a_key, a), (second, b_key, b)):
            written(path, new)
            assert not node.master_keys.reread(key)
            node.exchange.renew()
        async with side(url, MasterKeys(a_key, None)) as c:
            await c.has(*ids, "under-old", "under-new")
            assert len(c.exchange._closed) == 0


@on_uvloop
async def test_rows_of_another_master_key_are_left_alone_and_said_once(url: str, tmp_path: Path) -> None:
    ours, theirs = new_master(os.urandom), new_master(os.urandom)
    a_key, b_key = written(tmp_path / "a.key", theirs), written(tmp_path / "b.key", ours)
    with capture_logs() as logs:
        async with side(url, MasterKeys(a_key, None)) as a, side(url, MasterKeys(b_key, None)) as b:
            a.exchange.put(make("k1"))
            a.exchange.put(make("k2"))
            await a.stored("k1", "k2")
            b.exchange.put(make("k3"))
            await a.stored("k3")
            await until(lambda: len(b.exchange._closed) == 2)
            b.exchange.notice()
            assert b.keys == {}
            with pytest.raises(StoreError, match="master key"):
                await b.exchange.find("k1")
            assert b.exchange.trouble is None
            written(tmp_path / "b.key", ours, theirs)
            b.master_keys.reread(b_key)
            b.exchange.renew()
            await b.has("k1", "k2")
            assert len(b.exchange._closed) == 0
            assert a.revoked == b.revoked == []
    said = [line for line in logs if line["event"] == "keys of other nodes cannot be opened here"]
    assert len([line for line in said if line["count"] == 2]) <= 1
    assert all("master_key" in line["remedy"] for line in said)


@on_uvloop
async def test_rereading_the_same_master_keys_does_nothing(tmp_path: Path, master_keys: MasterKeys) -> None:
    async with side(f"sqlite:///{tmp_path}/shared.db", master_keys) as a:
        await until(lambda: len(a.exchange._tasks) == 2 and a.exchange._tasks[1].done())
        assert not master_keys.reread(None)
        a.exchange.renew()
        assert len(a.exchange._tasks) == 2


# -- where master keys come from -----------------------------------------------------------------------------------

NODE = "version: 1\nnode: {name: n DATA}\nlisteners: [{url: 'mqtt://127.0.0.1:1883', anonymous: true}]\n"


def config(tmp_path: Path, text: str = "", data: str = ", data: data") -> object:
    return parse(NODE.replace("DATA", data) + text, str(tmp_path / "tidegate.yaml"))


def test_a_master_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    with capture_logs() as logs:
        made = open_master_keys(config(tmp_path))  # type: ignore[arg-type]
    path = tmp_path / "data" / "master.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [line["event"].partition(":")[0] for line in logs] == ["made a master key"]
    assert path.read_text().strip() not in str(logs)
    blob = made.seal(b"s", of="key:1")
    assert open_master_keys(config(tmp_path)).unseal(blob, of="key:1") == b"s"  # type: ignore[arg-type]
    assert list(path.parent.iterdir()) == [path]


def test_of_several_who_make_one_at_once_all_have_the_same(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(MasterKeys(None, tmp_path / "d").current)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_master_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    MasterKeys(None, tmp_path)
    (tmp_path / "master.key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        MasterKeys(None, tmp_path)


def test_nodes_on_postgresql_need_a_master_key(tmp_path: Path) -> None:
    shared = 'store: "postgresql://node@127.0.0.1/tidegate"\n'
    with pytest.raises(ConfigError, match="tidegate key master"):
        open_master_keys(config(tmp_path, shared))  # type: ignore[arg-type]
    written(tmp_path / "m.key", new_master(os.urandom))
    assert open_master_keys(config(tmp_path, shared + "master_key: {file: m.key}\n"))  # type: ignore[arg-type]


def test_without_a_place_there_is_no_master_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tidegate key master"):
        open_master_keys(config(tmp_path, data=""))  # type: ignore[arg-type]


def test_a_broken_master_key_changes_nothing(tmp_path: Path) -> None:
    key = written(tmp_path / "m.key", new_master(os.urandom))
    master_keys = MasterKeys(key, None)
    blob, current = master_keys.seal(b"s", of="x"), master_keys.current
    written(tmp_path / "m.key", "not a key")
    with pytest.raises(ConfigError):
        master_keys.reread(key)
    assert (master_keys.current, master_keys.generation) == (current, 0)
    assert master_keys.unseal(blob, of="x") == b"s"


# -- the node tells ------------------------------------------------------------------------------------------------


@on_uvloop
async def test_the_node_tells_that_a_room_has_changed(tmp_path: Path, master_keys: MasterKeys) -> None:
    async with administered(tmp_path, SQLITE) as node:
        administration = node.node.administration
        assert administration is not None
        told: list[str] = []
        administration.on_secrets_changed["keys"] = lambda: told.append("keys")
        administration.on_secrets_changed["other"] = lambda: told.append("other")
        a = Side(administration.registry, master_keys)
        a.exchange.start(a.took)
        try:
            a.exchange.put(make("k1"))
            await until(lambda: told == ["keys"])
        finally:
            await a.exchange.close()
