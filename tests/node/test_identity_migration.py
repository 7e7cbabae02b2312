"""A data folder from before there were identities: nobody who still has their name loses anything, and nobody gains."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import orjson

from processes import Served, from_file, on_uvloop, until
from tidegate.admin.administration import Administration
from tidegate.admin.control_commands import ApplyChanges, MakeToken
from tidegate.admin.documents import RequestedChange
from tidegate.errors import Problem
from tidegate.session.context import Context
from tidegate.wire import Properties

FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
store: sqlite
sys: {interval: 0s}
directory:
  users:
    alice: {password: "plain:pw"}
    bob: {password: "plain:pw"}
policies:
  - {id: all, subject: "*", topic: "#", action: [read, write]}
rules: {allow: ["#"]}
"""
ALONE = FILE.replace('    bob: {password: "plain:pw"}\n', "")


def administration(node: Served) -> Administration:
    assert node.node.administration is not None
    return node.node.administration


async def token_of(node: Served, user: str) -> str:
    return str((await administration(node).tokens.make(MakeToken(role="user", user=user, by="test")))["token"])


def counts(node: Served, token: str) -> bool:
    try:
        return bool(administration(node).tokens.check(token))
    except Problem:
        return False


async def fill(folder: Path) -> dict[str, str]:
    """Both have a token, a session with a message in it, a preference, and a rule that closes what they retained."""
    async with from_file(folder, FILE) as node:
        tokens = {name: await token_of(node, name) for name in ("alice", "bob")}
        change = [
            RequestedChange(kind="preference", id=f"p-{name}", body={"user": name, "topic": f"private/{name}"})
            for name in tokens
        ]
        await administration(node).apply_changes(ApplyChanges(changes=change, by="test"))
        stays = Properties(session_expiry_interval=1000)
        for name in tokens:
            client = await node.connect(name, username=name, password=b"pw", properties=stays)
            await client.subscribe(f"for/{name}", qos=1)
            rule = [{"id": "r", "topic": f"of/{name}", "subject": "*", "effect": "deny"}]
            answer = await client.publish("$tidegate/rules", orjson.dumps(rule), qos=1)
            assert answer is not None
            assert answer.reason < 0x80
            await client.publish(f"of/{name}", b"closed", qos=1, retain=True)
            client.abort()
        await until(lambda: node.node.scopes["main"].connected == 0)
    return tokens


def make_old(folder: Path) -> None:
    """Takes everything out that the previous version did not write."""
    with closing(sqlite3.connect(folder / "data/admin.db", isolation_level=None)) as registry:
        registry.execute("DROP TABLE tidegate_identity")
        registry.execute("DELETE FROM tidegate_room WHERE room = 'identities'")
        registry.execute("UPDATE tidegate_schema SET version = 1")
        for key, value in registry.execute("SELECT key, value FROM tidegate_secret WHERE room = 'tokens'").fetchall():
            token = orjson.loads(value)
            del token["identity"]
            registry.execute("UPDATE tidegate_secret SET value = ? WHERE key = ?", (orjson.dumps(token), key))
        preferences = "SELECT id, body FROM tidegate_entry WHERE kind = 'preference'"
        for id, body in registry.execute(preferences).fetchall():
            document = orjson.loads(body)
            del document["content"]["owner"]
            changed = (orjson.dumps(document).decode(), id)
            registry.execute("UPDATE tidegate_entry SET body = ? WHERE kind = 'preference' AND id = ?", changed)
    with closing(sqlite3.connect(folder / "data/tidegate.db", isolation_level=None)) as store:
        for table, column in context_columns(store):
            for row, data in store.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                context = Context.decode(data)
                bare = replace(context, subject=replace(context.subject, identity="")).encode()
                store.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (bare, row))
        for room, key in store.execute("SELECT room, key FROM record WHERE room = 'rules'").fetchall():
            name = key.partition("\n")[0]
            store.execute("UPDATE record SET key = ? WHERE room = ? AND key = ?", (name, room, key))


def context_columns(store: sqlite3.Connection) -> list[tuple[str, str]]:
    tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = [(table, row[1]) for table in tables for row in store.execute(f"PRAGMA table_info({table})")]
    return [(table, column) for table, column in columns if column == "context"]


async def owned(node: Served, name: str) -> set[str]:
    """The ids of the owners of what is kept of somebody."""
    table = node.node.identities.table
    body = administration(node).document_body("preference", f"p-{name}")
    assert body is not None
    sessions = node.node.scopes["main"].sessions.values()
    ids = {each.subject.identity for each in sessions if each.client == name}
    return {body["owner"], *ids, table.id("user", name)}


@on_uvloop
async def test_everything_belongs_to_who_has_the_name_at_the_first_start(tmp_path: Path) -> None:
    tokens = await fill(tmp_path)
    make_old(tmp_path)
    for _ in range(2):  # and stays so
        async with from_file(tmp_path, FILE) as node:
            for name, token in tokens.items():
                assert counts(node, token)
                assert len(await owned(node, name)) == 1
    async with from_file(tmp_path, FILE) as node:
        bob = await node.connect("bob", username="bob", password=b"pw", clean_start=False)
        assert bob.connack.session_present
        alice = await node.connect("other", username="alice", password=b"pw")
        await alice.subscribe("of/bob", qos=1)
        await alice.silent()  # his rule still closes what he retained
        await bob.publish("$tidegate/rules", b'[{"id": "r", "remove": true}]', qos=1)
        await bob.publish("of/bob", b"open", qos=1)
        assert (await alice.message()).payload == b"open"


@on_uvloop
async def test_who_is_not_there_at_the_first_start_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    tokens = await fill(tmp_path)
    make_old(tmp_path)
    async with from_file(tmp_path, ALONE) as node:
        assert counts(node, tokens["alice"])
        assert not counts(node, tokens["bob"])
        await node.reload(FILE)
        assert not counts(node, tokens["bob"])
        bob = await node.connect("bob", username="bob", password=b"pw", clean_start=False)
        assert not bob.connack.session_present
    async with from_file(tmp_path, FILE) as node:
        assert not counts(node, tokens["bob"])
