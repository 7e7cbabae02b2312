"""What `status`, the metrics and the audit tell of a guarded scope."""

from __future__ import annotations

import asyncio
from pathlib import Path

from guard.guarded import guarded, restartable
from harness import PATIENCE
from processes import Served, on_uvloop
from sockets.acts import come
from tidegate.api.metrics import Meters


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
