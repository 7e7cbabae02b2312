"""Sources and what they send, as the node is asked: disks that are full or slow, registries that fail, bounds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from admin.registries import FILE, Administered, administered
from node.disks import Disk
from tidegate.admin.control_commands import PutData
from tidegate.admin.ingest import MARK
from tidegate.errors import Problem, StoreError
from tidegate.keys.source import seal_body
from tidegate.store.journal import INGEST, Reader

HASH = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$oQGUs0jEBRN5XBTbfZRXQk8L5QoCxyhnDQ3aFVlNbfw"
HERE: dict[str, Any] = {"address": "127.0.0.1", "level": "plain"}


def part(*records: Any) -> str:
    return b64encode(MARK.join(orjson.dumps(each) for each in records)).decode()


async def register(node: Administered, id: str, **more: Any) -> Any:
    said = {"type": "sensor", "mode": "discrete", "password": HASH, "by": "token:test", "role": "admin", **more}
    return await node.ask("source_register", id=id, **said)


def kept(folder: Path) -> list[Any]:
    with Reader(folder / "data", INGEST) as reader:
        return [orjson.loads(each) for batch in reader.poll() for each in batch.column("payload").to_pylist()]


@contextlib.asynccontextmanager
async def running(folder: Path, **options: Any) -> AsyncIterator[Administered]:
    async with administered(folder, **options) as node:
        await register(node, "s1")
        yield node


async def taken(node: Administered, record: Any) -> bool:
    """Whether it was, or may be sent again."""
    try:
        await node.ask("data_put", user="s1", part=part(record), **HERE)
    except Problem as problem:
        if problem.problem != "unavailable":
            raise
        return False
    return True


async def test_a_full_disk_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.admin.ingest.PATIENCE", 0.3)
    monkeypatch.setattr("tidegate.admin.ingest.TROUBLED", 0.2)
    disk = Disk(monkeypatch)
    async with running(tmp_path) as node:
        await node.ask("data_put", user="s1", part=part({"n": 1}), **HERE)
        disk.full.set()
        for _ in range(3):
            problem = await node.problem("data_put", user="s1", part=part({"n": 2}, {"n": 3}), **HERE)
            assert problem.problem == "unavailable"
            assert "nothing was taken" in str(problem)
        several = await asyncio.gather(
            *(node.problem("data_put", user="s1", part=part({"n": 4}), **HERE) for _ in range(5))
        )
        assert {each.problem for each in several} == {"unavailable"}
        disk.full.clear()
        async with asyncio.timeout(20):
            while not await taken(node, {"n": 5}):
                pass  # the writer has not looked again yet
    assert kept(tmp_path) == [{"n": 1}, {"n": 5}], "nothing that was refused appears later"


async def test_a_disk_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.admin.ingest.PATIENCE", 0.2)
    monkeypatch.setattr("tidegate.admin.ingest.GRACE", 0.2)
    disk = Disk(monkeypatch)
    async with running(tmp_path) as node:
        disk.slow.set()
        first = asyncio.create_task(node.problem("data_put", user="s1", part=part({"n": 1}), **HERE))
        await asyncio.get_running_loop().run_in_executor(None, disk.tried.wait, 10)
        second = await node.problem("data_put", user="s1", part=part({"n": 2}), **HERE)
        assert second.problem == "unavailable", "it was not begun, and never will be"
        assert (await first).problem == "uncertain", "it may be there or not, and that is said"
        client = await node.connect()
        await client.silent()
        disk.go.set()
        disk.slow.clear()
        await node.ask("data_put", user="s1", part=part({"n": 3}), **HERE)
    assert kept(tmp_path) == [{"n": 1}, {"n": 3}]


async def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as node:
        monkeypatch.setattr("tidegate.store.journal.writer.Writer.full", True)
        problem = await node.problem("data_put", user="s1", part=part({"n": 1}), **HERE)
        assert problem.problem == "unavailable"
    assert kept(tmp_path) == []


async def test_others_get_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.admin.slices.SLICE", 0.0)  # a pause after each record
    async with running(tmp_path) as node:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.create_task(others())
        records = part(*({"n": number} for number in range(1000)))
        await node.node.ingest.put(PutData(user="s1", address="127.0.0.1", level="plain", part=records))
        turning.cancel()
        assert turns >= 1000
    assert len(kept(tmp_path)) == 1000


async def test_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as node:
        data = MARK.join(orjson.dumps({"n": number}) for number in range(100))
        upload = "0" * 32
        for start in range(0, 600, 100):
            await node.ask("data_add", upload=upload, part=b64encode(data[start : start + 100]).decode())
        last = b64encode(data[600:]).decode()
        answer = await node.ask("data_put", user="s1", part=last, upload=upload, **HERE)
        assert answer["accepted"] == 100
        assert (await node.problem("data_add", upload="x", part=last)).problem == "invalid"
        assert (await node.problem("data_add", upload=upload, part="no base64!")).problem == "invalid"
        monkeypatch.setattr("tidegate.admin.ingest.PARTS", 10)
        assert (await node.problem("data_add", upload=upload, part=last)).problem == "unavailable"
    assert kept(tmp_path) == [{"n": number} for number in range(100)]


async def test_a_key_is_stored_sealed_and_goes_with_its_source(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        made = await register(node, "s1", scheme="AES-256-GCM")
        administration = node.node.administration
        assert administration is not None
        registry = administration.registry.secrets
        [sealed] = registry.all("sources", at=time.time())
        assert b64decode(made["key"]) not in sealed.value
        again = await register(node, "s1", scheme="AES-256-GCM", role="source", user="s1")
        [other] = registry.all("sources", at=time.time())
        assert other.key != sealed.key
        assert again["key"] != made["key"]
        await node.ask("source_remove", id="s1", by="token:test")
        assert registry.all("sources", at=time.time()) == []
        assert (await node.problem("source_remove", id="s1", by="token:test")).problem == "unknown"


async def test_a_registry_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with administered(tmp_path) as node:
        administration = node.node.administration
        assert administration is not None
        registry = administration.registry

        def away(*_: Any, **__: Any) -> Any:
            raise StoreError("the registry is away")

        with monkeypatch.context() as broken:
            broken.setattr(registry, "apply", away)
            with pytest.raises(Problem) as caught:
                await register(node, "s1", scheme="AES-256-GCM")
        assert caught.value.problem == "unavailable"
        assert registry.secrets.all("sources", at=time.time()) == []
        assert "s1" not in node.node.config.directory.users
        with monkeypatch.context() as broken:
            broken.setattr(administration.tokens._tokens, "make", away)
            made = await register(node, "s1")
        assert made["token"] is None
        assert "register" in made["trouble"]
        assert (await register(node, "s1"))["token"] is not None


async def test_counters_are_kept(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        made = await register(node, "s1", scheme="AES-256-GCM")
        secret = b64decode(made["key"])

        def sealed(counter: int) -> str:
            now = int(time.time() * 1000)
            said = {"source": "s1", "audience": "test", "time": now, "counter": counter}
            return seal_body(secret, b"{}", nonce=os.urandom(12), **said).decode()  # type: ignore[arg-type]

        opened = await node.ask("source_open", user="s1", sealed=sealed(5))
        assert b64decode(opened["body"]) == b"{}"
        await node.ask("data_put", user="s1", part=part({}), key=opened["key"], counter=5, **HERE)
        late = await node.problem("data_put", user="s1", part=part({}), key=opened["key"], counter=5, **HERE)
        assert late.problem == "conflict"
        other = await node.problem("data_put", user="s1", part=part({}), key="0" * 16, counter=6, **HERE)
        assert other.problem == "conflict", "under a key that it has no more"
        clear = await node.problem("data_put", user="s1", part=part({}), **HERE)
        assert clear.problem == "forbidden"
    async with administered(tmp_path) as node:
        assert (await node.problem("source_open", user="s1", sealed=sealed(5))).problem == "conflict"
        assert (await node.ask("source_open", user="s1", sealed=sealed(6)))["key"] == opened["key"]
    assert len(kept(tmp_path)) == 1


async def test_who_is_no_source(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        assert (await node.problem("data_put", user="topic_keys", part=part({}), **HERE)).problem == "forbidden"
        assert (await node.problem("data_put", user=None, part=part({}), **HERE)).problem == "forbidden"
        assert (await node.problem("source_open", user="s1", sealed="{}")).problem == "invalid"


async def test_what_is_protected_is_written_down_sealed(tmp_path: Path) -> None:
    text = FILE + 'keys: {protect: ["filed/#"]}\nsources: {topic: "filed/{source}"}\n'
    async with running(tmp_path, text=text) as node:
        reader = await node.connect("reader")
        await reader.subscribe("filed/#")
        await node.ask("data_put", user="s1", part=part({"celsius": 21}), **HERE)
        [row] = kept(tmp_path)
        assert row.keys() == {"keyId", "data"}
        message = await reader.message()
        assert orjson.loads(message.payload)["keyId"] == row["keyId"]
        topic_keys = node.node.keys.topic_keys
        assert topic_keys is not None
        assert orjson.loads(topic_keys.opened(orjson.dumps(row), "filed/s1") or b"") == {"celsius": 21}
    written = b"".join(each.read_bytes() for each in (tmp_path / "data").rglob("*") if each.is_file())
    assert b"celsius" not in written
    async with administered(tmp_path, text=text) as node:
        topic_keys = node.node.keys.topic_keys
        assert topic_keys is not None
        assert topic_keys.opened(orjson.dumps(row), "filed/s1"), "its key was stored before it"


async def test_a_source_is_not_renewed_as_a_user(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        for dry_run in (True, False):
            refused = await node.problem("consumer_renew", name="s1", password=HASH, by="token:test", dry_run=dry_run)
            assert (refused.problem, "register it again" in str(refused)) == ("conflict", True)
        assert await taken(node, {})
