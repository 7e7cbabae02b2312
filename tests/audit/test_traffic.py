"""`record: traffic`: what a replay needs to know who would have received what."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from harness import Live, live
from processes import from_file, on_uvloop, until
from tidegate import wire
from tidegate.errors import ConfigError
from tidegate.session import Context
from tidegate.store.journal import TRAFFIC, Reader

PEOPLE = """
directory:
  users:
    mary: {password: "plain:lamb", roles: [coach], attributes: {shift: "08:00-14:00"}}
    bob: {password: "plain:tin"}
"""
USER = wire.Properties(user_properties=(("unit", "m"), ("unit", "s")), content_type="text/plain")


def rows(data: Path) -> list[dict[str, Any]]:
    """What stands there, without what is not said."""
    found = []
    for row in Reader(data, TRAFFIC).rows():
        found.append({name: value for name, value in row.items() if value is not None})
    return found


def happened(found: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [row for row in found if row["event"] == event]


async def settled(node: Live) -> None:
    """Nothing is left to do, such as writing the state down."""
    await until(lambda: not node.node.site.unfinished)


async def recorded(node: Live) -> None:
    """Everything that was told is on the disk."""
    traffic = node.node.audit.traffic
    assert traffic is not None
    done = asyncio.Event()
    traffic.journal.after(done.set)
    await done.wait()


@pytest.mark.parametrize("payloads", [True, False])
@on_uvloop
async def test_what_happens_is_written_down(tmp_path: Path, payloads: bool) -> None:
    text = f"{PEOPLE}record: traffic\ntraffic: {{payloads: {str(payloads).lower()}}}\n"
    async with live(text, data=tmp_path) as node:
        await settled(node)
        asks = wire.Properties(session_expiry_interval=60, user_properties=(("require", "none"),))
        mary = await node.connect("m", username="mary", password=b"lamb", properties=asks)
        bob = await node.connect("b", username="bob", password=b"tin")
        terms = wire.Properties(user_properties=(("where", "o.size > 0"), ("require", "plain")))
        await bob.subscribe("a/#", qos=1, no_local=True, retain_handling=2, properties=terms)
        await bob.subscribe("$share/g/b")
        await mary.publish("a/1", b"one")  # would take the fast lane
        await mary.publish("a/2", b"two", qos=2, retain=True, properties=USER)
        assert [(await bob.message()).payload for _ in range(2)] == [b"one", b"two"]
        await bob.unsubscribe("$share/g/b")
        await bob.disconnect()
        await until(lambda: node.node.scopes["main"].connected == 1)
        await settled(node)
        await mary.disconnect()
        await until(lambda: not node.node.scopes["main"].connected)
        await settled(node)
        await recorded(node)
        found = rows(tmp_path)
        version = node.node.audit.version
        status = node.node.status()["audit"]
        assert status["recording"] == "traffic"
        assert status["bytes"] > 0
    order = [(row["event"], row["client"], row.get("topic") or row.get("filter")) for row in found]
    assert order == [
        ("connect", "m", None),
        ("connect", "b", None),
        ("subscribe", "b", "a/#"),
        ("subscribe", "b", "$share/g/b"),
        ("message", "m", "a/1"),
        ("message", "m", "a/2"),
        ("unsubscribe", "b", "$share/g/b"),
        ("disconnect", "b", None),
        ("unsubscribe", "b", None),  # the session is over; mary's is not
        ("disconnect", "m", None),
    ]
    assert {row["policy_version"] for row in found} == {version}
    connect = found[0]
    attributes = json.loads(connect["attributes"])
    assert attributes["roles"] == ["coach"]
    assert attributes["shift"] == "08:00-14:00"
    assert (attributes["scope"], attributes["address"]) == ("main", "127.0.0.1")
    assert connect["user"] == "mary"
    assert connect["level"] == "plain"
    assert connect["properties"] == [{"name": "require", "value": "none"}]
    subscribe = found[2]
    assert subscribe["options"] == 1 | 1 << 2 | 2 << 4
    assert {pair["name"]: pair["value"] for pair in subscribe["properties"]} == {
        "where": "o.size > 0",
        "require": "plain",
    }
    first, second = happened(found, "message")
    assert (first["qos"], first["retain"], first["source"], first["floor"]) == (0, False, "client:m", "plain")
    assert (second["qos"], second["retain"], second["content_type"]) == (2, True, "text/plain")
    assert [pair["value"] for pair in second["properties"]] == ["m", "s"]
    assert Context.decode(first["context"]).subject.user == "mary"
    assert first["id"] != second["id"]
    assert [row.get("payload") for row in (first, second)] == ([b"one", b"two"] if payloads else [None, None])


@on_uvloop
async def test_a_denied_publish_is_written_down_too(tmp_path: Path) -> None:
    """Other rules might let it pass."""
    async with live("record: traffic\n", data=tmp_path, policies="[]") as node:
        client = await node.connect("c")
        await client.publish("a", qos=1)
        await recorded(node)
        (row,) = happened(rows(tmp_path), "message")
        assert (row["topic"], row["client"]) == ("a", "c")
        assert "id" not in row


@on_uvloop
async def test_a_clean_start_ends_the_old_session(tmp_path: Path) -> None:
    async with live("record: traffic\n", data=tmp_path) as node:
        await settled(node)
        keep = wire.Properties(session_expiry_interval=60)
        old = await node.connect("c", properties=keep)
        await old.subscribe("a")
        await node.connect("c", properties=keep)
        await recorded(node)
        order = [(row["event"], row.get("filter")) for row in rows(tmp_path)]
        assert order == [
            ("connect", None),
            ("subscribe", "a"),
            ("disconnect", None),
            ("unsubscribe", None),
            ("connect", None),
        ]


@on_uvloop
async def test_a_segment_begins_with_the_state(tmp_path: Path) -> None:
    async with live("record: traffic\n", data=tmp_path) as node:
        await settled(node)
        keep = wire.Properties(session_expiry_interval=600)
        away = await node.connect("away", properties=keep)
        await away.subscribe("a", qos=1)
        await away.disconnect()
        here = await node.connect("here")
        await here.subscribe("b")
        await until(lambda: node.node.scopes["main"].connected == 1)
        await recorded(node)
        before = len(rows(tmp_path))
        node.node.audit._rolled(before)  # as the journal tells it
        node.node.audit._rolled(before)  # only the last counts
        node.node.site.open()
        await settled(node)
        await recorded(node)
        state = [(row["event"], row["client"], row.get("filter")) for row in rows(tmp_path)[before:]]
        assert state == [
            ("connect", "away", None),
            ("disconnect", "away", None),
            ("subscribe", "away", "a"),
            ("connect", "here", None),
            ("subscribe", "here", "b"),
        ]


@on_uvloop
async def test_sessions_of_an_earlier_life_are_in_it(tmp_path: Path) -> None:
    keep = wire.Properties(session_expiry_interval=600)
    async with live(data=tmp_path) as node:
        client = await node.connect("c", properties=keep)
        await client.subscribe("a", qos=1)
    async with live("record: traffic\n", data=tmp_path) as node:
        await settled(node)
        await recorded(node)
        order = [(row["event"], row.get("filter")) for row in rows(tmp_path)]
        assert order == [("connect", None), ("disconnect", None), ("subscribe", "a")]


BASE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
policies: open
sys: {interval: 0s}
"""


@on_uvloop
async def test_it_begins_and_ends_with_a_reload(tmp_path: Path) -> None:
    async with from_file(tmp_path, BASE) as node:
        receiver = await node.connect("r")
        await receiver.subscribe("a")
        sender = await node.connect("s")
        await sender.publish("a", b"0")  # a plan with a fast lane is there
        await receiver.message()
        await node.reload(BASE + "record: traffic")
        for payload in (b"1", b"2"):
            await sender.publish("a", payload)
            await receiver.message()
        await settled(node)
        assert node.node.audit.traffic is not None
        folder = node.node.audit.traffic.journal
        await node.reload(BASE)
        assert node.node.audit.traffic is None
        await sender.publish("a", b"3")
        await receiver.message()
        found = rows(tmp_path / "data")
        assert len(happened(found, "message")) == 2
        assert {row["client"] for row in happened(found, "connect")} == {"r", "s"}
        assert [row["filter"] for row in happened(found, "subscribe")] == ["a"]
        assert folder.append((0.0,) * len(TRAFFIC.columns)) is False  # it is closed
        await node.reload(BASE + "record: traffic\ntraffic: {payloads: true}")
        await sender.publish("a", b"4")
        await receiver.message()
    found = rows(tmp_path / "data")
    assert [row.get("payload") for row in happened(found, "message")] == [None, None, b"4"]


@on_uvloop
async def test_it_needs_a_folder() -> None:
    with pytest.raises(ConfigError, match=r"record: traffic.*node\.data"):
        async with live("record: traffic\n"):
            pass
