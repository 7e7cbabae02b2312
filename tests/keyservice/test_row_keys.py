"""Rows of protected topics: nothing in clear, and the key is with them when nobody else has it any more."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from admin.registries import administered
from admin.test_sources import HERE, part, register
from keyservice.keyholding import HEAD, POLICIES, clear_bytes, come, text
from node.disks import ingested
from processes import from_file, on_uvloop
from tidegate.errors import KeysError
from tidegate.keys import key_id, unseal
from tidegate.keyservice.row_keys import RowKeys
from tidegate.session import Context

SECRET = b"the-secret-of-the-soil"
INGESTING = HEAD + 'pipeline: {ingest: ["p/#", "e/#"]}\n'
SHORT = 'keys: {protect: ["p/#"], end_to_end: ["e/#"], rotate: 1s, overlap: 0s}\n'
MAPPED = """
scopes: {main: {}}
monitors: [{id: names, scope: main, direction: im_pub, map: {"old/#": "p/#"}}]
"""


def opened(rows: RowKeys, row: dict[str, object]) -> bytes:
    payload, topic, context = row["payload"], row["topic"], row["context"]
    assert isinstance(payload, bytes)
    assert isinstance(topic, str)
    assert isinstance(context, bytes)
    found = Context.decode(context)
    id, secret = rows.unwrapped(found)
    assert id == key_id(payload)
    return unseal(secret, payload, topic=found.under or topic)


@on_uvloop
async def test_opened_when_the_topic_key_is_gone(tmp_path: Path) -> None:
    policies = POLICIES.replace('"user:nos", topic: "#"', '["*", "monitor:names"], topic: "#"')
    async with from_file(tmp_path, text(head=INGESTING, keys=SHORT, policies=policies) + MAPPED) as node:
        nos = await come(node, "nos")
        for qos, topic in enumerate(("p/a", "p/b", "old/c")):
            await nos.client.publish(topic, SECRET + b"%d" % qos, qos=qos)
        await nos.client.publish("p/d", b"", qos=1, retain=True)
        topic_keys, rows = node.node.keys.topic_keys, ingested(tmp_path / "data")
        assert topic_keys is not None
        ids = {key_id(row["payload"]) for row in rows[:3]}
        async with asyncio.timeout(20):
            while any(topic_keys.told(id) is not None for id in ids if id):
                await asyncio.sleep(0.05)
                node.node.site.open()
        assert [row["topic"] for row in rows] == ["p/a", "p/b", "p/c", "p/d"]
        assert [opened(node.node.keys.rows, row) for row in rows[:3]] == [SECRET + b"%d" % n for n in range(3)]
        assert rows[3]["payload"] == b"", "that there is nothing any more is no secret"
        assert Context.decode(rows[3]["context"]).key is None
        assert clear_bytes(tmp_path / "data", SECRET, b64encode(SECRET)[:20]) == []
        routed = node.node.scopes["main"].gate.cache.plans()
        assert all(lane.context.key is None for lane, _ in routed), "only rows have it"
    async with from_file(tmp_path, text(head=INGESTING, keys=SHORT, policies=policies)) as node:
        assert opened(node.node.keys.rows, rows[0]) == SECRET + b"0", "and after a restart"


@on_uvloop
async def test_what_cannot_be_unwrapped(tmp_path: Path) -> None:
    async with from_file(tmp_path, text(head=INGESTING)) as node:
        nos = await come(node, "nos")
        assert await nos.publish("p/a", SECRET) == 0x10
        (row,) = ingested(tmp_path / "data")
        rows, context = node.node.keys.rows, Context.decode(row["context"])
        assert context.key is not None
        for broken in (None, b"", b"\x05ab", b"\x01\xff", context.key[:-1], b"\x01a" + context.key[25:]):
            with pytest.raises(KeysError):
                rows.unwrapped(replace(context, key=broken))
        assert rows.unwrapped(context)[0] == key_id(row["payload"])


@on_uvloop
async def test_another_master_key_wraps_what_comes_then(tmp_path: Path) -> None:
    keys = ("q" * 21 + "abcdefghijklmnopqrstuvw".replace("q", "Q"))[:43], "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg"
    master = tmp_path / "master"
    master.write_text(keys[0] + "\n")
    master.chmod(0o600)
    file = text(head=INGESTING + "master_key: {file: master}\n")
    async with from_file(tmp_path, file) as node:
        nos = await come(node, "nos")
        await nos.publish("p/a", SECRET)
        master.write_text(f"{keys[1]}\n{keys[0]}\n")
        await node.reload(file)
        await nos.publish("p/a", SECRET)
        before, after = ingested(tmp_path / "data")
        assert opened(node.node.keys.rows, before) == opened(node.node.keys.rows, after) == SECRET
        master.write_text(f"{keys[1]}\n")
        await node.reload(file)
        assert opened(node.node.keys.rows, after) == SECRET
        with pytest.raises(KeysError, match="master key"):
            opened(node.node.keys.rows, before)


async def test_over_http(tmp_path: Path) -> None:
    file = """
version: 1
node: {name: NAME, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
sys: {interval: 0s}
policies: [{id: raw, subject: "*", topic: "p/#", action: write}]
keys: {protect: ["p/#"]}
sources: {topic: "p/{source}"}
pipeline: {ingest: ["p/#"]}
STORE
"""
    async with administered(tmp_path, text=file) as node:
        await register(node, "s1")
        await node.ask("data_put", user="s1", part=part({"n": 1}, {"n": 2}), **HERE)
        rows = ingested(tmp_path / "data")
        assert [opened(node.node.keys.rows, row) for row in rows] == [b'{"n":1}', b'{"n":2}']
