"""Keys and what they protect, on disk: nothing in clear, and nothing that outlives a crash without its key."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness import Client
from keyservice.keyholding import HEAD, KEEP, PAIRS, Reader, clear_bytes, come, mark, text
from processes import File, Process, from_file, on_uvloop
from tidegate import wire
from tidegate.keys import key_id, read_key, unseal
from tidegate.keyservice.control_commands import ListKeys
from tidegate.net.control_socket import ask
from tidegate.policy.control_topics import ANSWER, GET_KEY

SECRET = b"the-secret-of-the-soil"
RECORDING = HEAD + "record: traffic\n"
MONITORS = """
monitors:
  - {id: quiet, scope: main, direction: im_pub, silence: 1h, on: "p/#", emit: {topic: p/alarm, payload: silent}}
  - {id: once, scope: main, direction: im_pub, dedupe: 1h, on: "p/#"}
scopes: {main: {}}
"""


async def _fill(node: Any) -> None:
    """Every place where a node keeps messages has some of them."""
    nos = await come(node, "nos", properties=KEEP)
    away = await come(node, "mary", "p/#", properties=KEEP)
    bob = await come(node, "bob", "p/#", properties=KEEP)
    away.client.abort()
    for qos in (0, 1, 2):
        await nos.client.publish(f"p/{qos}", SECRET + b"%d" % qos, qos=qos, retain=True)
    await nos.client.send(wire.Publish(topic="p/unreleased", payload=SECRET + b"x", qos=2, packet_id=99))
    await nos.client.expect(wire.Pubrec)
    for _ in range(3):
        await bob.message()


@pytest.mark.parametrize("monitors", ["", MONITORS])
async def test_nothing_is_stored_or_recorded_in_clear(tmp_path: Path, monitors: str) -> None:
    async with from_file(tmp_path, text(head=RECORDING) + monitors) as node:
        await _fill(node)
        await asyncio.get_running_loop().run_in_executor(None, ask, node.node.config.control_socket, "audit_written")
        assert clear_bytes(tmp_path / "data", SECRET, b64encode(SECRET)[:20]) == []
    assert clear_bytes(tmp_path / "data", SECRET, b64encode(SECRET)[:20]) == []
    names = {path.name for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert "tidegate.db" in names
    with sqlite3.connect(tmp_path / "data" / "tidegate.db") as found:
        (kept,) = found.execute("SELECT count(*) FROM record WHERE room = 'keys'").fetchone()
    found.close()
    assert kept == 1


async def test_what_is_not_protected_is_found_that_way(tmp_path: Path) -> None:
    """The test above looks where it should."""
    async with from_file(tmp_path, text(head=RECORDING, keys="")) as node:
        nos = await come(node, "nos")
        assert (await nos.client.publish("p/1", SECRET, qos=1, retain=True)) is not None
    assert clear_bytes(tmp_path / "data", SECRET)


@on_uvloop
async def test_after_a_restart_everything_can_be_opened(tmp_path: Path) -> None:
    before: list[str | None] = []
    async with from_file(tmp_path, text()) as node:
        await _fill(node)
        before = [each["id"] for each in node.node.keys.list_all(ListKeys())["keys"]]
    async with from_file(tmp_path, text()) as node:
        mary = await come(node, "mary", clean_start=False, properties=KEEP)
        await mary.subscribe(ANSWER)
        queued = [await mary.message() for _ in range(2)]
        carol = await come(node, "carol", "p/#")
        kept = [await carol.message() for _ in range(3)]
        for reader, found in ((mary, queued), (carol, kept)):
            assert {key_id(each.payload) for each in found} == set(before)
            for each in found:
                assert (await reader.opened(each)).startswith(SECRET)
        nos = await come(node, "nos", clean_start=False, properties=KEEP)
        await nos.client.send(wire.Pubrel(packet_id=99))
        await nos.client.expect(wire.Pubcomp)
        released = await carol.message()
        assert (released.topic, await carol.opened(released)) == ("p/unreleased", SECRET + b"x")
        assert await nos.publish("p/new", SECRET) == 0
        new = await carol.message()
        assert key_id(new.payload) not in before, "what a store kept seals nothing new"
        assert await carol.opened(new) == SECRET


@on_uvloop
async def test_without_a_folder_keys_live_as_long_as_the_node(tmp_path: Path) -> None:
    whole = text(head=HEAD.replace(", data: data", ""))
    async with from_file(tmp_path, whole) as node:
        nos, mary = await come(node, "nos"), await come(node, "mary", "p/#")
        assert await nos.publish("p/x", SECRET) == 0
        message = await mary.message()
        assert await mary.opened(message) == SECRET
    async with from_file(tmp_path, whole) as node:
        mary = await come(node, "mary", "p/#")
        assert await mary.refused(key_id(message.payload)) == ("unknown", None)


# -- crashes ---------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def connected(running: Process, name: str, **fields: Any) -> AsyncIterator[Reader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.file.ports["PORT"])
    client = Client(reader, writer)
    connect = wire.Connect(
        version=wire.V5, client_id=name, username=name, password=name.encode(), keep_alive=0, **fields
    )
    try:
        await client.send(connect)
        assert (await client.expect(wire.Connack)).reason == 0
        yield Reader(name, client)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_killed_right_after_it_was_acknowledged(tmp_path: Path) -> None:
    file = File(tmp_path, text())
    first = Process(file)
    try:
        first.wait_until_it_accepts()
        async with connected(first, "mary", clean_start=True, properties=KEEP) as mary:
            await mary.subscribe("p/#")
        async with connected(first, "nos", clean_start=True) as nos:
            assert await nos.publish("p/x", SECRET) == 0
            first.kill()
    finally:
        first.kill()
    second = Process(file)
    try:
        second.wait_until_it_accepts()
        async with connected(second, "mary", clean_start=False, properties=KEEP) as mary:
            await mary.subscribe(ANSWER)
            assert await mary.opened(await mary.message()) == SECRET
        assert second.stop() == 0
        second.check()
    finally:
        second.kill()


async def test_killed_right_after_a_key_was_revoked(tmp_path: Path) -> None:
    """Whoever was told that a key is revoked can rely on it."""
    file = File(tmp_path, text())
    first = Process(file)
    try:
        first.wait_until_it_accepts()
        async with connected(first, "nos", clean_start=True) as nos:
            assert await nos.publish("p/x", SECRET, retain=True) in (0, 0x10)
        (listed,) = first.ask("key_list")["keys"]
        ask(first.control, "key_revoke", id=listed["id"], by="test", why="stolen")
    finally:
        first.kill()
    second = Process(file)
    try:
        second.wait_until_it_accepts()
        assert second.ask("key_list")["keys"] == []
        assert second.stop() == 0
    finally:
        second.kill()


async def test_a_master_key_that_is_found_again_while_the_node_runs(tmp_path: Path) -> None:
    masters = [os.urandom(32).hex() for _ in range(2)]
    where = tmp_path / "master.txt"
    whole = text() + "master_key: {file: master.txt}\n"

    def kept_in(*lines: str) -> None:
        where.write_text("\n".join(lines) + "\n")
        where.chmod(0o600)

    kept_in(masters[0])
    async with from_file(tmp_path, whole) as node:
        nos = await come(node, "nos")
        assert await nos.publish("p/x", SECRET, retain=True) in (0, 0x10)
    kept_in(masters[1])
    async with from_file(tmp_path, whole) as node:
        mary = await come(node, "mary", "p/#")
        message = await mary.message()
        assert await mary.refused(key_id(message.payload)) == ("unknown", None)
        kept_in(masters[1], masters[0])
        await node.reload()
        assert await mary.opened(message) == SECRET


async def test_another_master_key_at_the_start_is_told(tmp_path: Path) -> None:
    masters = [os.urandom(32).hex() for _ in range(2)]
    file = File(tmp_path, text() + "master_key: {file: master.txt}\n")
    where = tmp_path / "master.txt"

    def kept_in(*lines: str) -> None:
        where.write_text("\n".join(lines) + "\n")
        where.chmod(0o600)

    kept_in(masters[0])
    event = "stored topic keys cannot be opened; what they protect cannot be read"
    ids = []
    for lines, known in (((masters[0],), 1), ((masters[1],), 0), ((masters[1], masters[0]), 1)):
        kept_in(*lines)
        running = Process(file)
        try:
            running.wait_until_it_accepts()
            if not ids:
                async with connected(running, "nos", clean_start=True) as nos:
                    assert await nos.publish("p/x", SECRET, retain=True) in (0, 0x10)
            ids.append([each["id"] for each in running.ask("key_list")["keys"]])
            assert len(ids[-1]) == known, lines
            told = running.events(event)
            assert len(told) == (known == 0)
            if told:
                assert told[0]["count"] == 1
                assert "master_key" in told[0]["remedy"]
            assert running.stop() == 0
        finally:
            running.kill()
    assert ids[0] == ids[2], "nothing was lost meanwhile"


async def test_a_key_that_is_asked_for_by_hand(tmp_path: Path) -> None:
    """Every byte of the exchange, without anything of the harness in between."""
    async with from_file(tmp_path, text()) as node:
        nos, mary = await come(node, "nos"), await come(node, "mary", "p/#")
        assert await nos.publish("p/x", SECRET) == 0
        message = await mary.message()
        request = mark()
        said = {"keyId": json.loads(message.payload)["keyId"], "request": request}
        assert await mary.ask(GET_KEY, json.dumps(said).encode()) == 0
        answer = await mary.answered()
        assert set(json.loads(answer.payload)) == {"keyId", "request", "validMs", "kem", "key"}
        key = read_key(answer.payload, PAIRS["mary"].text(), reader="user:mary", request=request)
        assert unseal(key.secret, message.payload, topic="p/x") == SECRET
