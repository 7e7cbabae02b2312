"""A replay that somebody asks a node for: the pipeline takes it, says how far it is, and hears when it is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from processes import Served, from_file
from tidegate.admin import replays
from tidegate.errors import Problem
from tidegate.net.control_socket import ask
from tidegate.pipeline.replay import asked
from tidegate.pipeline.replay.asked import take

FILE = """
version: 1
node: {name: n, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
store: sqlite
sys: {interval: 0s}
record: traffic
pipeline: {ingest: ["a/#"]}
policies: [{id: p1, subject: "*", topic: "a/#", action: [read, write]}]
"""
DENY = {"kind": "policy", "id": "no", "body": {"subject": "*", "topic": "a/b", "action": "write", "effect": "deny"}}


class Node:
    def __init__(self, served: Served) -> None:
        self.served = served
        self.control = served.node.config.control_socket

    async def ask(self, command: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(ask, self.control, command, **arguments)

    async def state(self) -> dict[str, Any]:
        replay: dict[str, Any] = (await self.ask("replay_show"))["replay"]
        return replay


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with from_file(tmp_path, FILE) as served:
        yield Node(served)


async def test_a_draft_is_decided_over_what_was_recorded(node: Node, spark: SparkSession) -> None:
    client = await node.served.connect("c")
    await client.publish("a/b", b"1", qos=1)
    await client.publish("a/c", b"2", qos=1)
    await node.served.node.audit.written()
    begun = (await node.ask("replay_begin", changes=[DENY], by="user:grace"))["replay"]
    assert (begun["state"], begun["about"], begun["by"]) == ("waiting", ["policy/no"], "user:grace")
    with pytest.raises(Problem, match="under way"):
        await node.ask("replay_begin", changes=[DENY], by="user:other")
    assert await asyncio.to_thread(take, spark, node.served.file.path, node.control)
    told = await node.state()
    assert (told["state"], told["trouble"]) == ("done", None)
    assert (told["done"], told["all"]) == (told["all"], told["all"])
    assert told["report"]["messages"] == 2
    [change] = told["report"]["changes"]
    assert (change["topic"], change["before"]["allowed"], change["after"]) == (
        "a/b",
        True,
        {"allowed": False, "rule": "no", "sees": None},
    )
    assert not await asyncio.to_thread(take, spark, node.served.file.path, node.control), "there is nothing more to do"
    assert (await node.ask("explain", subject="client:c", action="write", topic="a/b"))["allowed"], (
        "nothing is in force"
    )


async def test_one_that_is_cancelled_is_told_so(node: Node, spark: SparkSession) -> None:
    await node.ask("replay_begin", changes=[DENY], by="user:grace")
    taken = (await node.ask("replay_take"))["replay"]
    assert (await node.ask("replay_tell", id=taken["id"], done=1, all=4))["wanted"]
    assert ((await node.state())["done"], (await node.state())["all"]) == (1, 4)
    assert (await node.ask("replay_cancel", by="user:grace"))["replay"]["state"] == "cancelled"
    assert not (await node.ask("replay_tell", id=taken["id"], done=2, all=4))["wanted"]
    assert not (await node.ask("replay_tell", id=taken["id"], report={}))["wanted"]
    assert (await node.state())["report"] is None
    assert (await node.ask("replay_begin", changes=[DENY], by="user:grace"))["replay"]["state"] == "waiting"


async def test_a_pipeline_that_is_gone_is_noticed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.ask("replay_begin", changes=[DENY], by="user:grace")
    await node.ask("replay_take")
    monkeypatch.setattr(replays, "SILENT", -1.0)
    told = await node.state()
    assert told["state"] == "failed"
    assert "pipeline" in told["trouble"]


async def test_what_cannot_be_made_is_not_replayed(node: Node) -> None:
    wrong = {"kind": "policy", "id": "no", "body": {"subject": "*", "topic": "a/b", "action": "wriet"}}
    with pytest.raises(Problem, match="action"):
        await node.ask("replay_begin", changes=[wrong], by="user:grace")
    assert (await node.ask("replay_show"))["replay"] is None
    text = node.served.file.path.read_text()
    await node.served.reload(text.replace("record: traffic", "record: decisions"))
    with pytest.raises(Problem, match="record: traffic"):
        await node.ask("replay_begin", changes=[DENY], by="user:grace")


async def test_cancelling_ends_what_spark_does(
    node: Node, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the session goes on with other work."""
    client = await node.served.connect("c")
    await client.publish("a/b", b"1", qos=1)
    await node.served.node.audit.written()
    await node.ask("replay_begin", changes=[DENY], by="user:grace")

    def endless(session: SparkSession, *_: Any, progress: Any, **__: Any) -> Any:
        """A replay that would take for ever: it is cancelled while Spark is at it."""
        ask(node.control, "replay_cancel", by="user:grace")
        threading.Timer(1.0, progress, (0, 1)).start()
        return session.range(1, 10**15, 1, 2).selectExpr("sum(id * id)").collect()

    monkeypatch.setattr(asked, "run", endless)
    assert await asyncio.to_thread(take, spark, node.served.file.path, node.control)
    assert (await node.state())["state"] == "cancelled"
    assert spark.range(10).count() == 10
    with asked.answering(spark, node.served.file.path, node.control):
        pass
