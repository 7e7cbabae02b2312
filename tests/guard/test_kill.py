"""The guard is killed: what it has acknowledged before the broker had it, and wills, are published when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from guard.guarded import HERE, restartable
from processes import File, Process, Served, on_uvloop
from sockets.acts import come, policy, setting
from tidegate import wire

WILL = wire.Will(topic="open/will", payload=b"gone", qos=2, retain=False)


@asynccontextmanager
async def killed(file: File) -> AsyncIterator[Served]:
    """A node as a process of its own, which is killed at the end."""
    process = Process(file)
    try:
        await asyncio.to_thread(process.wait_until_it_accepts)
        served = Served(None, file)  # type: ignore[arg-type]
        try:
            yield served
        finally:
            process.kill()
            for client in served.clients:
                client.abort()
    finally:
        process.kill()


def linked(port: int, **more: Any) -> str:
    sections: dict[str, Any] = {
        "scopes": {"legacy": {"backend": f"mqtt://127.0.0.1:{port}", **HERE, "parents": ["top"]}, "top": {}},
        "listeners": [
            {"url": "mqtt://127.0.0.1:PORT", "anonymous": True, "scope": "legacy"},
            {"url": "mqtt://127.0.0.1:TOP_PORT", "anonymous": True, "scope": "top"},
        ],
    }
    return setting(policy("all", "open/#"), policy("top", "top/#"), data=True, **sections, **more)


@on_uvloop
async def test_what_was_acknowledged_and_wills_survive(tmp_path: Path) -> None:
    """A will of a client whose session ends with its connection, and then QoS 1 and 2 from another scope while the
    broker is gone."""
    with restartable(tmp_path) as broker:
        file = File(tmp_path, linked(broker.port))
        async with killed(file) as node:
            mary = await come(node, "mary", stays=True)
            await mary.subscribe("open/#", qos=2)
            await mary.disconnect()
            await mary.closed()
            await come(node, "bob", will=WILL)
            carol = await come(node, "carol", port="TOP_PORT", stays=True)
            await carol.publish("top/a", qos=2)  # acknowledged with a commit, and so is what was noted before
        async with killed(file) as node:
            mary = await come(node, "mary", stays=True)
            assert (await mary.message()).payload == b"gone"
            await mary.silent()  # the broker has PUBCOMP
            await mary.disconnect()
            await mary.closed()
            broker.stop()
            bob = await come(node, "bob", port="TOP_PORT")
            for qos in (1, 2):
                await bob.publish("open/a", b"%d" % qos, qos=qos)
        broker.start()
        async with killed(file) as node:
            mary = await come(node, "mary", stays=True)
            assert [(await mary.message()).payload for _ in range(2)] == [b"1", b"2"]
            await mary.silent()
