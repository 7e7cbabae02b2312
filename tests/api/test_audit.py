"""The audit over HTTP: pages from the journal and from memory, and events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.pretending import Api, served
from harness import PATIENCE
from processes import until
from tidegate.store.journal import AUDIT, Writer
from tidegate.store.journal.rows import audit_row


async def pages(api: Api, limit: int, **wanted: Any) -> list[str]:
    """The rules of all rows, page by page."""
    found: list[str] = []
    before: dict[str, str] = {}
    while True:
        answer = await api.ask("GET", "/audit", params={"limit": limit, **wanted, **before})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["items"]) <= limit
        found += [each["rule"] for each in page["items"]]
        if page["next"] is None:
            return found
        before = {"before": page["next"]}


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_pages_of_what_the_node_remembers(tmp_path: Path, limit: int) -> None:
    async with served(tmp_path) as api:
        for number in range(20):
            api.node.row(1000.0 + number // 6, f"p{number}")  # many at one moment, as in one turn of the loop
        assert await pages(api, limit) == [f"p{number}" for number in reversed(range(20))]
        late = await pages(api, limit, since="1970-01-01T00:16:42Z")
        assert late == [f"p{number}" for number in reversed(range(12, 20))]


async def test_pages_of_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.api.audit.WINDOW", 7)
    data = tmp_path / "data"
    journal = Writer(data, AUDIT, call=lambda do, *args: do(*args))
    journal.open()
    try:
        for number in range(50):
            row = {"node": "n", "kind": "deny", "rule": f"p{number}", "user": "mary" if number % 10 == 0 else "bob"}
            journal.append(audit_row(1000.0 + number, **row))
    finally:
        journal.close()
    async with served(tmp_path, data=data) as api:
        everything = [f"p{number}" for number in reversed(range(50))]
        for limit in (1, 7, 20, 1000):
            assert await pages(api, limit) == everything
        assert await pages(api, 2, user="mary") == ["p40", "p30", "p20", "p10", "p0"]
        monkeypatch.setattr("tidegate.api.audit.LOOKING", -1.0)
        page = (await api.ask("GET", "/audit")).json()
        assert page == {"items": [], "next": "j50"}, "who is out of time goes on where it stopped"


async def test_wrong_questions(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for wrong in (
            {"before": "x"},
            {"before": "j5"},
            {"since": "yesterday"},
            {"since": "9999999999999"},
            {"kind": "nonsense"},
            {"topic": "a/#/b"},
            {"limit": "0"},
            {"user": "a\nb"},
        ):
            answer = await api.ask("GET", "/audit", params=wrong)
            assert answer.status_code == 422, wrong
            assert answer.headers["content-type"] == "application/problem+json"


# -- events ------------------------------------------------------------------------------------------------------------


class Events:
    """What is heard on a stream."""

    def __init__(self, api: Api, who: str = "auditor", **headers: str) -> None:
        headers = {"Authorization": f"Bearer {who}", "Accept": "text/event-stream", **headers}
        self._stream = api.stream("GET", "/audit", headers=headers)
        self.ids: list[str] = []

    async def __aenter__(self) -> Events:
        self.answer = await self._stream.__aenter__()
        self._lines: AsyncIterator[str] = self.answer.aiter_lines()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._stream.__aexit__(*raised)

    async def rule(self) -> str:
        """The rule of the next event."""
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if line.startswith("id: "):
                    self.ids.append(line.removeprefix("id: "))
                if line.startswith("data: "):
                    return str(json.loads(line.removeprefix("data: "))["rule"])
        raise AssertionError("the stream has ended")

    async def end(self) -> None:
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                assert not line.startswith("data: ")


async def test_events_and_coming_back(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        api.node.row(1.0, "before")
        async with Events(api) as events:
            assert events.answer.headers["content-type"].startswith("text/event-stream")
            await until(lambda: bool(api.node.sink._heard))
            for number in range(4):
                api.node.row(1000.0, f"p{number}")
            assert [await events.rule() for _ in range(2)] == ["p0", "p1"]
        await until(lambda: not api.node.sink._heard)
        async with Events(api, **{"Last-Event-ID": events.ids[-1]}) as again:
            assert [await again.rule() for _ in range(2)] == ["p2", "p3"]
            api.node.row(1001.0, "p4")
            assert await again.rule() == "p4"
        refused = await api.ask("GET", "/audit", headers={"Accept": "text/event-stream", "Last-Event-ID": "x"})
        assert refused.status_code == 400


async def test_a_stream_ends_with_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.api.event_streams.BEAT", 0.05)
    async with served(tmp_path) as api, Events(api) as events:
        await until(lambda: bool(api.node.sink._heard))
        del api.node.tokens["auditor"]
        await events.end()
        await until(lambda: not api.node.sink._heard)


async def test_nothing_is_told_on_a_stream_after_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For up to five seconds it was: the token was looked at with each sign of life only."""
    monkeypatch.setattr("tidegate.api.callers.TRUSTED", 0.0)  # as any other request
    async with served(tmp_path) as api, Events(api) as events:
        await until(lambda: bool(api.node.sink._heard))
        api.node.row(1.0, "before")
        assert await events.rule() == "before"
        del api.node.tokens["auditor"]
        api.node.row(2.0, "after")
        await events.end()


async def test_a_stream_ends_with_the_process(tmp_path: Path) -> None:
    async with served(tmp_path) as api, Events(api) as events:
        await until(lambda: bool(api.node.sink._heard))
        api.server.stop()
        await events.end()


async def test_listeners_are_limited(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        listening = [Events(api) for _ in range(4)]
        for each in listening:
            await each.__aenter__()
        refused = await api.ask("GET", "/audit", "auditor", headers={"Accept": "text/event-stream"})
        assert refused.status_code == 429
        for each in listening:
            await each.__aexit__(None, None, None)
        await until(lambda: not api.node.sink._heard)
        async with Events(api) as events:
            await until(lambda: bool(api.node.sink._heard))
            api.node.row(1.0, "again")
            assert await events.rule() == "again"


async def test_too_many_listeners_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.api.channel.STREAMS", 1)
    async with served(tmp_path) as api, Events(api):
        await until(lambda: bool(api.node.sink._heard))
        refused = await api.ask("GET", "/audit", "admin", headers={"Accept": "text/event-stream"})
        assert refused.status_code == 503
        assert refused.json()["detail"] == "too many are listening"
