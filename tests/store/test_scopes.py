"""Several scopes in one store, seen from a node: each finds its own again, and nobody's is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from harness import Client
from processes import File, Process, Served, from_file, on_uvloop
from store.trial import tables
from tidegate import wire

HEAD = """
version: 1
node: {name: test, data: data}
policies: open
sys: {interval: 0s}
log: {format: json}
"""
ONE = """
  - {url: "mqtt://127.0.0.1:ONE_PORT", anonymous: true, scope: one}
"""
TWO = """
  - {url: "mqtt://127.0.0.1:TWO_PORT", anonymous: true, scope: two}
"""
DOOR = """
  - {id: door-NAME, scope: NAME, direction: im_pub, each: scope, only: unlock, after: [t, granted]}
"""
FIRST = f"{HEAD}scopes: {{one: {{}}}}\nlisteners: {ONE}monitors: {DOOR.replace('NAME', 'one')}"
BOTH = (
    f"{HEAD}scopes: {{one: {{}}, two: {{}}}}\nlisteners: {ONE}{TWO}"
    f"monitors: {DOOR.replace('NAME', 'one')}{DOOR.replace('NAME', 'two')}"
)
KEEP = wire.Properties(session_expiry_interval=600)


async def enter(port: int, name: str, **fields: object) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    await client.send(wire.Connect(version=wire.V5, client_id=name, keep_alive=0, **fields))
    client.connack = await client.expect(wire.Connack)
    assert client.connack.reason == 0
    return client


async def fill(ports: dict[str, int], *scopes: str) -> None:
    """In each scope: a session of the same name with something that waits, the same topic retained, and a monitor that
    has seen something."""
    for scope in scopes:
        port = ports[f"{scope.upper()}_PORT"]
        away = await enter(port, "c", clean_start=True, properties=KEEP)
        await away.subscribe("t", qos=1)
        await away.disconnect()
        other = await enter(port, "other", clean_start=True)
        await other.publish("t", f"waits in {scope}".encode(), qos=1)
        await other.publish("kept", f"kept in {scope}".encode(), qos=1, retain=True)
        await other.disconnect()


async def look(node: Served, scope: str) -> list[object]:
    """What the client that was away is sent when it comes back, what is retained, and where the monitors are."""
    back = await enter(node.ports[f"{scope.upper()}_PORT"], "c", clean_start=False, properties=KEEP)
    node.clients.append(back)
    assert back.connack.session_present
    found: list[object] = [(await back.message()).payload]
    await back.subscribe("kept")
    found.append((await back.message()).payload)
    await back.silent()
    states = node.node.scopes[scope].path.monitoring.states
    found.append({where: one.state for where, one in states.instances.items()})
    return found


def own(scope: str) -> list[object]:
    states = {(f"door-{scope}", f"scope:{scope}"): "seen t"}
    return [f"waits in {scope}".encode(), f"kept in {scope}".encode(), states]


async def lived(folder: Path, how: str) -> None:
    """A node with both scopes was here, and was stopped or killed."""
    running = Process(File(folder, BOTH))
    try:
        running.wait_until_it_accepts()
        await fill(running.ports, "one", "two")
    finally:
        running.kill() if how == "killed" else running.stop()
    running.check()


@pytest.mark.parametrize("how", ["stopped", "killed"])
@on_uvloop
async def test_each_finds_its_own(tmp_path: Path, how: str) -> None:
    await lived(tmp_path, how)
    with capture_logs() as logs:
        async with from_file(tmp_path, BOTH) as node:
            for scope in ("two", "one"):
                assert await look(node, scope) == own(scope)
    assert [entry for entry in logs if entry["log_level"] in ("warning", "error")] == []


@pytest.mark.parametrize("how", ["stopped", "killed"])
@on_uvloop
async def test_a_scope_that_is_not_there_is_kept(tmp_path: Path, how: str) -> None:
    await lived(tmp_path, how)
    with capture_logs() as logs:
        async with from_file(tmp_path, FIRST) as node:
            assert await look(node, "one") == own("one")
    (warning,) = [entry for entry in logs if entry["log_level"] in ("warning", "error")]
    assert (warning["scope"], warning["sessions"], warning["retained"]) == ("two", 1, 1)
    assert "Remedy" in warning["event"]
    async with from_file(tmp_path, BOTH) as node:
        assert await look(node, "two") == own("two")


UNSCOPE = """
BEGIN;
ALTER TABLE session DROP COLUMN scope;
ALTER TABLE session DROP COLUMN certificate;
CREATE TABLE before (topic TEXT PRIMARY KEY, message INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO before SELECT topic, message FROM retained;
DROP TABLE retained;
ALTER TABLE before RENAME TO retained;
UPDATE record SET room = 'monitor' WHERE room = 'monitor/one';
PRAGMA user_version = 3;
COMMIT;
"""


@on_uvloop
async def test_what_had_no_scope_goes_to_the_first(tmp_path: Path) -> None:
    """A node with one scope left it behind; the configuration has got another one since."""
    async with from_file(tmp_path, FIRST) as node:
        await fill(node.ports, "one")
    path = tmp_path / "data" / "tidegate.db"
    states = tables(path)["record"]
    assert [room for room, *_ in states if room != "identities"] == ["monitor/one"]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(UNSCOPE)
    connection.close()
    assert [room for room, *_ in tables(path)["record"] if room != "identities"] == ["monitor"]
    async with from_file(tmp_path, BOTH) as node:
        assert await look(node, "one") == own("one")
        assert not node.node.scopes["two"].sessions
        assert not len(node.node.scopes["two"].retained)
    assert tables(path)["record"] == states
