"""Nodes with something to administer: on an SQLite file of their own, or on a PostgreSQL server that they share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from harness import PATIENCE
from processes import Served, from_file
from tidegate.errors import Problem
from tidegate.net.control_socket import ask

FILE = """
version: 1
node: {name: NAME, data: data}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", anonymous: true}
directory:
  users:
    keeper: {password: "plain:kept"}
policies:
  - {id: filed, subject: "*", topic: "filed/#", action: [read, write]}
sys: {interval: 0s}
STORE
"""
OPEN = {"subject": "*", "topic": "t/#", "action": ["read", "write"]}
SQLITE = "store: sqlite"
ASKING = ThreadPoolExecutor(16)  # not the loop's own: the node needs that one


class Administered(Served):
    """A node that is asked over its control socket, as the process that speaks HTTP does."""

    async def ask(self, command: str, **arguments: Any) -> Any:
        asking = partial(ask, self.node.config.control_socket, command, timeout=30.0, **arguments)
        return await asyncio.get_running_loop().run_in_executor(ASKING, asking)

    async def put(self, kind: str, id: str, body: Any, expected: int | None = None, **more: Any) -> Any:
        change = {"kind": kind, "id": id, "body": body, "expected": expected}
        return await self.ask("admin_apply", changes=[change], by="token:test", **more)

    async def problem(self, command: str, **arguments: Any) -> Problem:
        """What is wrong with what was asked."""
        try:
            answer = await self.ask(command, **arguments)
        except Problem as problem:
            return problem
        raise AssertionError(answer)

    async def refused(self, kind: str, id: str, body: Any, expected: int | None = None, **more: Any) -> Problem:
        change = {"kind": kind, "id": id, "body": body, "expected": expected}
        return await self.problem("admin_apply", changes=[change], by="token:test", **more)

    async def passes(self, topic: str) -> bool:
        """Whether anybody may publish to it, by the rules in force."""
        client = await self.connect()
        answer = await client.publish(topic, qos=1)
        await client.disconnect()
        assert answer is not None
        return answer.reason < 0x80

    async def until_passes(self, topic: str, wanted: bool = True, seconds: float = PATIENCE) -> None:
        async with asyncio.timeout(seconds):
            while await self.passes(topic) is not wanted:
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def administered(
    folder: Path, store: str = SQLITE, *, name: str = "test", text: str = FILE
) -> AsyncIterator[Administered]:
    """A node with a registry, on this loop."""
    folder.mkdir(exist_ok=True)
    async with from_file(folder, text.replace("NAME", name).replace("STORE", store)) as served:
        served.__class__ = Administered
        assert isinstance(served, Administered)
        yield served
