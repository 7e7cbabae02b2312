"""A person is told when somebody new could read a topic of theirs: what changed, by whom, and nothing else."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.real import Administrator, administering
from harness import PATIENCE
from tidegate.admin.control_commands import MakeToken

FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
store: sqlite
sys: {interval: 0s}
me: {names: NAMES}
directory:
  users:
    mary: {password: "plain:m"}
    bob: {password: "plain:b", roles: [coach]}
    rita: {password: "plain:r", roles: [nurse]}
    scale: {password: "plain:s", owner: mary}
policies:
  - {id: own, subject: "user:mary", topic: "gym/mary/#", action: write}
  - {id: weigh, subject: "user:scale", topic: "scales/scale/#", action: write}
  - {id: nurses, subject: "role:nurse", topic: "gym/#", action: read}
"""


class Told:
    def __init__(self, admin: Administrator, mary: str) -> None:
        self.admin = admin
        self.node = admin.served.node
        self.mary = mary

    async def notices(self) -> list[dict[str, Any]]:
        assert await self.node.own_data.notices.settled(PATIENCE)
        answer = await self.admin.ask("GET", "/me/notices", self.mary)
        assert answer.status_code == 200, answer.text
        assert answer.json()["complete"]
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    async def policy(self, id: str, **body: Any) -> None:
        await self.admin.make("/policies", {"id": id, **body})


@pytest.fixture
async def told(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Told]:
    text = FILE.replace("NAMES", getattr(request, "param", "users"))
    async with administering(tmp_path, text) as admin:
        assert admin.served.node.administration is not None
        made = await admin.served.node.administration.tokens.make(MakeToken(role="user", user="mary", by="test"))
        yield Told(admin, made["token"])


def readers(notice: dict[str, Any]) -> dict[str, list[tuple[str, str, str]]]:
    return {
        each["filter"]: [(one["user"], one["could"], one["can"]) for one in each["readers"]]
        for each in notice["topics"]
    }


async def test_each_change_by_which_somebody_new_can_read(told: Told) -> None:
    """Policies, people, own preferences; of what concerns others, or only narrows, nobody is told."""
    assert await told.notices() == []
    await told.policy("coaches", subject="role:coach", topic="gym/mary/speed", action="read", when="o.payload.v > 3")
    [first] = await told.notices()
    assert readers(first) == {"gym/mary/speed": [("bob", "no", "if")]}
    assert first["topics"][0]["readers"][0]["when"] == "o.payload.v > 3"
    assert first["changes"] == [{"kind": "policy", "name": "coaches", "how": "added"}]
    assert [by.partition(":")[0] for by in first["by"]] == ["token"]

    await told.policy("elsewhere", subject="role:coach", topic="gym/bob/#", action="read")
    await told.policy("no", subject="role:coach", topic="gym/#", action="read", effect="deny")
    assert await told.notices() == [first]

    await told.admin.make("/directory/users", {"id": "nina", "roles": ["nurse"]})
    second, _ = await told.notices()
    assert readers(second) == {"gym/mary/#": [("nina", "no", "yes")]}
    assert second["changes"] == [{"kind": "user", "name": "nina", "how": "added"}]
    assert second["id"] > first["id"]

    await told.policy("scales", subject="user:bob", topic="scales/#", action="read")
    third, *_ = await told.notices()
    assert readers(third) == {"scales/scale/#": [("bob", "no", "yes")]}
    assert third["topics"][0]["device"] == "scale"

    exported = await told.admin.ask("GET", "/me/export", told.mary)
    assert [each["id"] for each in exported.json()["notices"]] == [3, 2, 1]
    made = await told.node.administration.tokens.make(MakeToken(role="user", user="bob", by="test"))  # type: ignore[union-attr]
    assert (await told.admin.ask("GET", "/me/notices", made["token"])).json()["items"] == []


async def test_a_preference_that_ends(told: Told) -> None:
    """Taken back, or expired: who was forbidden until then can read."""
    expires = datetime.fromtimestamp(time.time() + 1.0, UTC).isoformat()
    body = {"topic": "gym/mary/#", "effect": "deny", "when": "s.user == 'rita'"}
    first = await told.admin.make("/me/preferences", {**body, "expires": expires}, told.mary)
    kept = await told.admin.make("/me/preferences", body, told.mary)
    assert await told.notices() == []
    headers = {"If-Match": f'"{kept["version"]}"'}
    gone = await told.admin.ask("DELETE", f"/me/preferences/{kept['id']}", told.mary, headers=headers)
    assert gone.status_code == 200, gone.text
    async with asyncio.timeout(PATIENCE):
        news = await anext(told.node.own_data.notices.follow("mary", told.node.identities.owner("mary"), 0))
    assert readers(news[0]) == {"gym/mary/#": [("rita", "no", "yes")]}
    assert news[0]["by"] == ["clock"]
    assert news[0]["changes"] == [{"kind": "preference", "name": first["id"], "how": "expired"}]


@pytest.mark.parametrize("told", ["roles"], indirect=True)
async def test_where_only_roles_are_told(told: Told) -> None:
    await told.admin.make("/directory/users", {"id": "nina", "roles": ["nurse"]})
    [notice] = await told.notices()
    assert notice["topics"][0]["roles"] == {"nurse": 1}
    assert notice["changes"] == [{"kind": "user", "name": None, "how": "added"}]
    assert "nina" not in json.dumps(notice)


async def test_events_as_they_come(told: Told) -> None:
    """A client that comes back with `Last-Event-ID` misses none."""
    headers = {"Authorization": f"Bearer {told.mary}", "Accept": "text/event-stream"}

    async def first(**more: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            async with told.admin.stream("GET", "/me/notices", headers={**headers, **more}) as answer:
                assert answer.status_code == 200
                async for line in answer.aiter_lines():
                    if line.startswith(":"):
                        opened.set()
                    if line.startswith("data:"):
                        event: dict[str, Any] = json.loads(line[5:])
                        return event
        raise AssertionError("the stream ended")

    opened = asyncio.Event()
    waiting = asyncio.ensure_future(first(**{"Last-Event-ID": "0"}))
    await opened.wait()
    await told.admin.make("/directory/users", {"id": "nina", "roles": ["nurse"]})
    assert (await waiting)["id"] == 1
    assert (await first(**{"Last-Event-ID": "0"}))["id"] == 1
    wrong = await told.admin.ask("GET", "/me/notices", told.mary, headers={**headers, "Last-Event-ID": "x"})
    assert wrong.status_code == 400


async def test_notices_survive_a_restart(tmp_path: Path) -> None:
    text = FILE.replace("NAMES", "users")
    async with administering(tmp_path, text) as admin:
        assert admin.served.node.administration is not None
        token = (await admin.served.node.administration.tokens.make(MakeToken(role="user", user="mary", by="test")))[
            "token"
        ]
        await admin.make("/directory/users", {"id": "nina", "roles": ["nurse"]})
        assert await admin.served.node.own_data.notices.settled(PATIENCE)
    async with administering(tmp_path, text) as admin:
        answer = await admin.ask("GET", "/me/notices", token)
        assert [readers(each) for each in answer.json()["items"]] == [{"gym/mary/#": [("nina", "no", "yes")]}]
