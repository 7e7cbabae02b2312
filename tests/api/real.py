"""The application on a real node: `administering(...)` runs both on the test's own loop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from api.pretending import hosting
from harness import PATIENCE, free_port
from processes import Served, from_file
from tidegate import wire
from tidegate.admin.control_commands import MakeToken

FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
store: sqlite
sys: {interval: 0s}
directory: {users: {filed: {password: "plain:kept", roles: [coach]}}}
policies:
  - {id: p1, subject: "role:coach", topic: "coach/#", action: [read, write]}
  - {id: p2, subject: "*", topic: "of/#", action: [read, write], when: "s.application == 'app'"}
"""


class Administrator(httpx.AsyncClient):
    """Asks as whoever has a token; without one as an administrator."""

    def __init__(self, served: Served, port: int, token: str) -> None:
        super().__init__(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)
        self.served = served
        self.token = token

    async def ask(self, method: str, path: str, token: str | None = None, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or self.token}", **options.pop("headers", {})}
        return await self.request(method, path, headers=headers, **options)

    async def make(self, path: str, body: dict[str, Any], token: str | None = None) -> dict[str, Any]:
        """What was registered."""
        answer = await self.ask("POST", path, token, json=body)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    async def logs_in(self, user: str, password: str) -> bool:
        """Over MQTT."""
        client = await self.served.socket()
        await client.send(
            wire.Connect(
                version=wire.V5,
                client_id="",
                clean_start=True,
                keep_alive=0,
                username=user,
                password=password.encode(),
            )
        )
        answer = await client.expect(wire.Connack)
        client.writer.close()
        return answer.reason == 0


@contextlib.asynccontextmanager
async def administering(folder: Path, text: str = FILE, **settings: Any) -> AsyncIterator[Administrator]:
    async with from_file(folder, text) as served:
        administration = served.node.administration
        assert administration is not None
        made = await administration.tokens.make(MakeToken(role="admin", by="test"))
        port = free_port()
        config = served.node.config
        said = config.pipeline
        flowing = {"pipeline": said is not None, "rules": None if said is None else said.rules, **settings}
        async with (
            hosting(config.http_socket, port, data=config.node.data, max_body=512 << 10, **flowing),
            Administrator(served, port, made["token"]) as admin,
        ):
            yield admin
