"""A node's audit through real sockets: what is written, where it can be seen, and how it follows the configuration."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import PATIENCE, Live, live
from processes import from_file, on_uvloop, until
from tidegate.audit.auditor import Auditor
from tidegate.audit.query import Query, from_columns, summary
from tidegate.errors import ConfigError, TidegateError
from tidegate.net import control_socket as control
from tidegate.store.journal import AUDIT, Reader
from tidegate.store.journal.rows import AuditRow
from tidegate.wire import Reason

PEOPLE = """
directory:
  users: {mary: {password: "plain:lamb"}, bob: {password: "plain:tin"}}
"""
POLICIES = """
- {id: writes, subject: "user:mary", topic: "a/#", action: write}
- {id: reads, subject: "user:bob", topic: "a/open", action: read}
"""


def world(more: str = "") -> dict[str, Any]:
    return {"text": PEOPLE + more, "policies": POLICIES}


async def people(node: Live) -> tuple[Any, Any]:
    mary = await node.connect("m", username="mary", password=b"lamb")
    bob = await node.connect("b", username="bob", password=b"tin")
    return mary, bob


async def seen(node: Live, **wanted: Any) -> list[AuditRow]:
    """What the node remembers."""
    return [AuditRow(*row) async for piece in node.node.audit.stream(**wanted) for row in piece]


def denials(rows: list[AuditRow]) -> Counter[tuple[str | None, ...]]:
    found: Counter[tuple[str | None, ...]] = Counter()
    for row in rows:
        if row.kind == "deny":
            found[row.client, row.user, row.action, row.topic, row.stage, row.rule] += row.count
    return found


@pytest.mark.parametrize("kept", [True, False])
@on_uvloop
async def test_every_denial_is_seen_and_counted(tmp_path: Path, kept: bool) -> None:
    async with live(**world(), data=tmp_path / "data" if kept else None) as node:
        mary, bob = await people(node)
        await bob.subscribe("a/+")
        assert (await bob.subscribe("b")).reasons == (Reason.NOT_AUTHORIZED,)
        for _ in range(5):
            await mary.publish("a/shut", qos=0)  # the fast lane: nobody asks again
        assert (await mary.publish("b", qos=1)).reason == Reason.NOT_AUTHORIZED
        await mary.publish("a/open", qos=1)
        assert (await bob.message()).topic == "a/open"
        version = node.node.versions and node.node.audit.version
        rows = await seen(node)
        found = denials(rows)
        assert len(found) == 3
        assert found["b", "bob", "subscribe", "b", "read", rule_of(rows, "subscribe")] == 1
        assert found["b", "bob", "read", "a/shut", "read", rule_of(rows, "read")] == 5
        assert found["m", "mary", "write", "b", "write", rule_of(rows, "write")] == 1
        assert all(row.policy_version == version for row in rows)
        assert {row.node for row in rows} == {"test"}
        links = {row.action: row.link for row in rows if row.kind == "deny"}
        assert links["write"] == "client:m->scope:main"
        assert links["read"] == links["subscribe"] == "scope:main->client:b"
        status = node.node.status()["audit"]
        assert status["rows"] == len(rows)
        assert (status["dropped"], status["trouble"], status["recording"]) == (0, None, "denials")
    if kept:
        written = [from_columns(row) for row in Reader(tmp_path / "data", AUDIT).rows()]
        assert denials(written) == found
        assert [row.kind for row in written][:3] == ["change", "connect", "connect"]
        assert Counter(row.kind for row in written)["disconnect"] == 2


def rule_of(rows: list[AuditRow], action: str) -> str | None:
    (rule,) = {row.rule for row in rows if row.kind == "deny" and row.action == action}
    assert rule
    return rule


@on_uvloop
async def test_who_comes_goes_and_is_turned_away() -> None:
    async with live(**world()) as node:
        mary = await node.connect("m", username="mary", password=b"lamb")
        await node.connect("m", username="mary", password=b"wolf", expect=Reason.BAD_USER_NAME_OR_PASSWORD)
        await node.connect("m", username="mary", password=b"wolf", expect=Reason.BAD_USER_NAME_OR_PASSWORD)
        await mary.disconnect()
        await until(lambda: not node.node.scopes["main"].connected)
        rows = await seen(node, kinds=["connect", "disconnect", "deny"])
        told = [(row.kind, row.client, row.user, row.rule, row.count) for row in rows]
        assert told == [
            ("connect", "m", "mary", "connect", 1),
            ("deny", "m", "mary", "connect", 1),
            ("disconnect", "m", "mary", "connect", 1),
            ("deny", "m", "mary", "connect", 1),
        ]
        assert rows[1].action == "connect"
        assert rows[1].detail is not None
        assert "from 127.0.0.1" in rows[1].detail


BASE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
sys: {interval: 0s}
"""


def text(more: str = "", policies: str = "open") -> str:
    return f"{BASE}policies: {policies}\n{more}"


@on_uvloop
async def test_changes_are_rows_and_denials_have_their_version(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        old = node.node.audit.version
        receiver = await node.connect("r")
        await receiver.subscribe("a")
        sender = await node.connect("s")
        await node.reload(text(policies='[{id: p, subject: "client:s", topic: a, action: write}]'))
        new = node.node.audit.version
        assert int(new.split("-")[0]) == int(old.split("-")[0]) + 1
        for _ in range(3):
            await sender.publish("a", qos=1)
        rows = await seen(node, kinds=["change", "deny"])
        assert [(row.kind, row.action, row.policy_version) for row in rows[:2]] == [
            ("change", "start", old),
            ("change", "reload", new),
        ]
        assert rows[1].detail == str(node.file.path)
        assert {(row.client, row.policy_version) for row in rows[2:]} == {("r", new)}
        assert sum(row.count for row in rows[2:]) == 3


@on_uvloop
async def test_what_is_recorded_changes_with_the_file(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        receiver = await node.connect("r")
        sender = await node.connect("s")
        await receiver.subscribe("a/#")
        await sender.publish("a/1", qos=1)
        await receiver.message()
        assert not await seen(node, kinds=["allowed"])
        await node.reload(text("record: decisions"))
        assert node.node.status()["audit"]["recording"] == "decisions"
        for _ in range(3):
            await sender.publish("a/1")
            await receiver.message()
        await receiver.subscribe("b", qos=1)
        await receiver.unsubscribe("b")
        rows = await seen(node, kinds=["allowed"])
        passed = [row for row in rows if row.action == "read"]
        assert [(row.client, row.topic, row.count) for row in passed] == [("r", "a/1", 3)]
        told = [(row.action, row.topic, row.detail) for row in rows if row.action != "read"]
        assert told == [("subscribe", "b", "QoS 1"), ("unsubscribe", "b", None)]
        await node.reload(text())
        await sender.publish("a/1", qos=1)
        await receiver.message()
        assert len(await seen(node, kinds=["allowed"])) == len(rows)


@on_uvloop
async def test_how_long_it_is_kept_cannot_change_while_it_is_written(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        await node.reload(text("audit: {rate: 5}"))
        with pytest.raises(ConfigError, match=r"`audit.keep` and `audit.size` cannot change"):
            await node.reload(text("audit: {keep: 1d}"))
        await node.reload(text("traffic: {keep: 1d}"))  # nobody writes that


@on_uvloop
async def test_the_configured_rate_counts() -> None:
    async with live("audit: {rate: 1}", policies="[]") as node:
        client = await node.connect("c")
        for number in range(50):
            await client.publish(f"t/{number}", qos=1)
        rows = [row for row in await seen(node, kinds=["deny"]) if row.action == "write"]
        assert sum(row.count for row in rows) == 50
        assert rows[-1].detail == "left out"
        assert rows[-1].topic is None
        assert 5 <= len(rows) <= 8


# -- over the control socket -------------------------------------------------------------------------------------


def items(node: Live, **arguments: Any) -> Iterator[Any]:
    return control.follow(node.node.config.control_socket, "audit", **arguments)


@on_uvloop
async def test_the_command_filters_and_limits() -> None:
    async with live(policies="[]") as node:
        client = await node.connect("c")
        for number in range(50):
            await client.publish(f"t/{number}", qos=1)
        rows = await asyncio.to_thread(
            lambda: [AuditRow(*row) for piece in items(node, limit=3, kinds=["deny"], topic="t/+") for row in piece]
        )
        assert [row.topic for row in rows] == ["t/47", "t/48", "t/49"]
        for wrong, said in (
            ({"kinds": ["denied"]}, "there is no kind 'denied'"),
            ({"kinds": 3}, "`kinds` is a list"),
            ({"topic": "a/#/b"}, "no topic filter"),
            ({"who": "mary"}, "records have no 'who'"),
            ({"user": 3}, "texts"),
            ({"limit": -1}, "a number of rows"),
        ):
            with pytest.raises(TidegateError, match=said):
                await asyncio.to_thread(lambda wrong=wrong: list(items(node, **wrong)))


@on_uvloop
async def test_a_follower_sees_what_comes() -> None:
    async with live(policies="[]") as node:
        client = await node.connect("c")
        await client.publish("t/0", qos=1)
        stream = items(node, limit=10, follow=True, kinds=["deny"])
        (first,) = await asyncio.to_thread(next, stream)
        assert AuditRow(*first).topic == "t/0"
        await client.publish("t/1", qos=1)
        (second,) = await asyncio.to_thread(next, stream)
        assert AuditRow(*second).topic == "t/1"
        stream.close()
        await until(lambda: not node.node.audit.sink._heard)


async def test_a_slow_follower_is_told_what_it_missed() -> None:
    from tidegate.audit.sink import AuditSink

    sink = AuditSink(recent=5)
    stream = sink.stream(Query(), 10, follow=True)
    sink.write(AuditRow(0.0, topic="t/0"))
    assert [row[7] for row in await anext(stream)] == ["t/0"]
    for number in range(1, 9):
        sink.write(AuditRow(float(number), topic=f"t/{number}"))
    (missed,) = await anext(stream)
    assert AuditRow(*missed).detail == "3 rows came faster than they could be shown"
    assert [row[7] for row in await anext(stream)] == [f"t/{number}" for number in range(4, 9)]
    await stream.aclose()  # type: ignore[attr-defined]
    assert not sink._heard


@on_uvloop
async def test_a_disk_that_does_not_answer_keeps_nobody_waiting(tmp_path: Path, monkeypatch: Any) -> None:
    async with live(data=tmp_path / "data") as node:
        audit: Auditor = node.node.audit
        assert (await audit.written()) == {"journal": True, "trouble": None}
        monkeypatch.setattr("tidegate.audit.auditor.PATIENCE", 0.05)
        assert audit.sink.journal is not None
        monkeypatch.setattr(audit.sink.journal, "after", lambda callback: None)
        async with asyncio.timeout(PATIENCE):
            assert "more than" in (await audit.written())["trouble"]


@on_uvloop
async def test_a_journal_that_cannot_be_opened_is_no_start(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "journal" / "audit"
    folder.mkdir(parents=True)
    (folder / "0").write_text("in the way")
    with pytest.raises(TidegateError, match="Remedy"):
        async with live(data=tmp_path / "data"):
            pass


# -- what somebody wants -----------------------------------------------------------------------------------------

ROWS = [
    AuditRow(1.0, kind="deny", user="mary", client="m", topic="a/b", stage="read", rule="up1, up2"),
    AuditRow(2.0, kind="deny", user="bob", client="b", topic="a", stage="write", rule="p1", count=4),
    AuditRow(3.0, kind="error", user="mary", client="m2", topic="a/b", stage="read", rule="up1", detail="why"),
    AuditRow(
        4.0, kind="deny", action="subscribe", user="bob", client="b", topic="$share/g/a/+", rule="p1", stage="read"
    ),
    AuditRow(5.0, kind="connect", client="c", rule="connect"),
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"since": 2.0, "until": 4.0}, [2, 3]),
        ({"kinds": frozenset(("error", "connect"))}, [3, 5]),
        ({"user": "mary"}, [1, 3]),
        ({"client": "m"}, [1]),
        ({"topic": "a/#"}, [1, 2, 3, 4]),
        ({"topic": "a/+"}, [1, 3, 4]),
        ({"topic": "$share/g/a/+"}, [4]),
        ({"rule": "up1"}, [1, 3]),
        ({"rule": "up1, up2"}, [1]),
        ({"stage": "write"}, [2]),
        ({"user": "mary", "kinds": frozenset(("deny",)), "topic": "a/b", "rule": "up2"}, [1]),
    ],
)
async def test_memory_and_journal_answer_alike(tmp_path: Path, query: dict[str, Any], found: list[int]) -> None:
    from tidegate.store.journal import Writer

    wanted = Query(**query)
    assert Query.of(wanted.arguments()) == wanted
    assert [row.at for row in ROWS if wanted.takes(row)] == found
    writer = Writer(tmp_path, AUDIT, call=asyncio.get_running_loop().call_soon_threadsafe, sync=False)
    writer.open()
    writer.start()
    for row in ROWS:
        writer.append(tuple(row))
    writer.close()
    read = [from_columns(row) for row in Reader(tmp_path, AUDIT, select=wanted.selection()).rows()]
    assert [row.at for row in read] == found
    assert [row for row in ROWS if row in read] == read


def test_the_summary_adds_up() -> None:
    told = [(each.rule, each.stage, each.count, sorted(each.people), each.last) for each in summary(ROWS)]
    assert told == [
        ("p1", "write", 4, ["bob"], 2.0),
        ("connect", None, 1, ["c"], 5.0),
        ("p1", "read", 1, ["bob"], 4.0),
        ("up1, up2", "read", 1, ["mary"], 1.0),
        ("up1", "read", 1, ["mary"], 3.0),
    ]
