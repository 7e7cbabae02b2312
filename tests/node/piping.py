"""A node with a pipeline that is played by the test: rows are read from the journal, and asked about as it does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from admin.registries import ASKING
from keyservice.keyholding import PAIRS
from processes import Served, from_file
from tidegate.errors import Problem
from tidegate.net.control_socket import ask
from tidegate.store.journal import INGEST, Reader

POLICIES = """
  - {id: stations, subject: "user:nos", topic: "#", action: write}
  - {id: people, subject: "role:farmer", topic: "#", action: read}
  - {id: pipe-reads, subject: "service:pipeline", topic: "p/raw/#", action: read}
  - {id: pipe-writes, subject: "service:pipeline", topic: "weather/#", action: write}
  - {id: pipe-seals, subject: "service:pipeline", topic: "p/weather/#", action: write}
  - {id: pipe-ends, subject: "service:pipeline", topic: "e/#", action: write}
  - {id: pipe-warm, subject: "service:pipeline", topic: "warm/#", action: write, when: "o.payload.value > 20"}
"""
KEYS = 'keys: {protect: ["p/#"], end_to_end: ["e/#"]}'
BODY = b'{"id":"x","source":"nos","type":"temperature","name":"t","value":21.5,"unit":"C"}'


def text(*, keys: str = KEYS, policies: str = POLICIES, ingest: str = '["raw/#", "p/raw/#"]', more: str = "") -> str:
    users = "".join(
        f'    {name}: {{password: "plain:{name}", roles: [farmer], public_key: "{pair.public}"}}\n'
        for name, pair in PAIRS.items()
    )
    return f"""
version: 1
node: {{name: test, data: data}}
listeners: [{{url: "mqtt://127.0.0.1:PORT"}}]
sys: {{interval: 0s}}
explain: true
log: {{format: json}}
pipeline: {{ingest: {ingest}}}
{keys}
directory:
  users:
{users}
policies:{policies}
{more}
"""


def b64(data: bytes) -> str:
    return b64encode(data).decode()


def rows(folder: Path) -> list[dict[str, Any]]:
    """What is in the journal."""
    with Reader(folder / "data", INGEST) as reader:
        return [row for batch in reader.poll() for row in batch.to_pylist()]


class Piped(Served):
    """The node, as its pipeline knows it."""

    async def ask(self, command: str, **arguments: Any) -> Any:
        asking = partial(ask, self.node.config.control_socket, command, timeout=30.0, **arguments)
        return await asyncio.get_running_loop().run_in_executor(ASKING, asking)

    async def problem(self, command: str, **arguments: Any) -> Problem:
        try:
            answer = await self.ask(command, **arguments)
        except Problem as problem:
            return problem
        raise AssertionError(answer)

    async def row(self, topic: str = "raw/1", payload: bytes = b'{"t": 21.5}', **fields: Any) -> dict[str, Any]:
        """Publishes something as `nos`, and finds it in the journal."""
        end = await self.connect("nos", username="nos", password=b"nos")
        answer = await end.publish(topic, payload, qos=1, **fields)
        assert answer is not None
        assert answer.reason < 0x80
        await end.disconnect()
        return rows(self.file.folder)[-1]

    async def key(self, topic: str, row: dict[str, Any], **more: Any) -> dict[str, Any]:
        said = {"topic": topic, "context": 0, "from": row["topic"], **more}
        (answer,) = (await self.ask("pipeline_keys", contexts=[b64(row["context"])], asks=[said]))["answers"]
        return dict(answer)

    async def open(self, row: dict[str, Any], **more: Any) -> dict[str, Any]:
        said = {"topic": row["topic"], "keyId": json.loads(row["payload"])["keyId"], "context": 0, **more}
        (answer,) = (await self.ask("pipeline_open", contexts=[b64(row["context"])], asks=[said]))["answers"]
        return dict(answer)

    async def publish(self, *records: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        answer = await self.ask("pipeline_publish", contexts=[b64(row["context"])], records=list(records))
        return dict(answer)


def record(row: dict[str, Any], topic: str, payload: bytes = BODY, *, part: int = 0, **more: Any) -> dict[str, Any]:
    said = {"id": f"{row['id']}.{part + 1}", "topic": topic, "payload": b64(payload), "context": 0}
    return {**said, "scores": {"timeliness": 0.9}, "from": row["topic"], **more}


def secret(answer: dict[str, Any]) -> bytes:
    assert "secret" in answer, answer
    return b64decode(answer["secret"])


def told(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    return dict(pairs)


@contextlib.asynccontextmanager
async def piped(folder: Path, whole: str | None = None) -> AsyncIterator[Piped]:
    async with from_file(folder, text() if whole is None else whole) as served:
        served.__class__ = Piped
        assert isinstance(served, Piped)
        yield served
