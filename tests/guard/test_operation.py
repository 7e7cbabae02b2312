"""What `status`, the metrics and the audit tell of a guarded scope."""

from __future__ import annotations

import asyncio
from pathlib import Path

from guard.guarded import guarded, restartable
from harness import PATIENCE
from processes import Served, on_uvloop
from sockets.acts import come
from tidegate.api.metrics import Meters
from tidegate.config import Operation, parse
from tidegate.explain.question import Question
from tidegate.explain.what_if import WhatIf


async def told(node: Served, state: str) -> dict[str, object]:
    """What is told of the scope once it is in this state."""
    async with asyncio.timeout(PATIENCE):
        while (row := node.node.status()["guards"][0])["state"] != state:
            await asyncio.sleep(0.02)
    return dict(row)


@on_uvloop
async def test_status_and_metrics_know_the_broker(tmp_path: Path) -> None:
    with restartable(tmp_path) as broker:
        async with guarded(tmp_path, broker.port) as node:
            row = await told(node, "connected")
            await come(node, "mary")
            row = await told(node, "connected")
            assert (row["scope"], row["clients"], row["version"]) == ("legacy", 1, "5")
            assert row["backend"] == f"mqtt://127.0.0.1:{broker.port}"
            broker.stop()
            row = await told(node, "gone")
            assert row["error"]
            assert 'tidegate_guard_connected{scope="legacy"} 0.0' in Meters().text({"guards": [row]}).decode()


def test_explain_knows_users_whom_only_the_broker_knows() -> None:
    text = (
        "version: 1\nnode: {name: n}\nlisteners: [{url: 'mqtt://127.0.0.1:1883'}]\n"
        "scopes: {legacy: {backend: 'mqtt://127.0.0.1:1884'}}\n"
        "policies: [{id: w, subject: '*', topic: '#', action: write},\n"
        "  {id: p2, subject: 'user:alice', topic: '#', action: read, when: \"p.user == 'mary'\"}]\n"
    )
    what_if = WhatIf(parse(text, "f.yaml", variables={}))
    for publisher, allowed in (("user:mary", True), ("user:bob", False)):
        question = Question(subject="user:alice", action=Operation.READ, topic="a", publisher=publisher)
        assert what_if.explain(question).allowed is allowed
