"""Consumers as the node keeps them: one change each, tokens that follow, pages that are small."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from admin.registries import FILE, OPEN, SQLITE, Administered, administered
from processes import on_uvloop
from tidegate.admin import consumers
from tidegate.admin import documents as administering
from tidegate.authentication.passwords import hash_password
from tidegate.errors import Problem

HASH = hash_password(b"secret")
BY = {"by": "token:test"}


async def register(node: Administered, name: str, **more: Any) -> Any:
    body = {"password": HASH, **more.pop("body", {})}
    return await node.ask("consumer_register", name=name, body=body, **BY, **more)


async def ids(node: Administered, kind: str, **more: Any) -> list[str]:
    return [each["id"] for each in (await node.ask("admin_list", kind=kind, **more))["documents"]]


@on_uvloop
async def test_an_application_is_one_change(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        made = await register(node, "app", description="a gym")
        for kind in ("user", "application"):
            assert (await node.ask("admin_get", kind=kind, id="app"))["version"] == made["sequence"]
        await register(node, "mary", under="app")
        back = await node.ask("application_remove", id="app", **BY, why="closed")
        assert await ids(node, "user") == ["keeper"]
        assert await ids(node, "application") == []
        entries = (await node.ask("admin_history", kind="user", id="mary"))["entries"]
        assert (entries[-1]["sequence"], entries[-1]["body"], entries[-1]["why"]) == (back["sequence"], None, "closed")
        await node.ask("admin_revert", sequence=back["sequence"], **BY)
        assert sorted(await ids(node, "user")) == ["app", "keeper", "mary"]
        assert await ids(node, "application") == ["app"]


@on_uvloop
async def test_a_registration_that_is_taken_back_leaves_no_token(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        made = await register(node, "mary")
        token = made["token"]["token"]
        assert (await node.ask("token_check", token=token))["user"] == "mary"
        await node.ask("admin_revert", sequence=made["sequence"], **BY)
        await register(node, "mary")
        assert (await node.problem("token_check", token=token)).problem == "unknown"


@on_uvloop
async def test_no_token_can_be_made_and_the_rest_stands(tmp_path: Path) -> None:
    async with administered(tmp_path, text=FILE + "tokens: {most: 1}\n") as node:
        first = await register(node, "mary")
        assert first["token"]["user"] == "mary"
        second = await register(node, "bob")
        assert second["token"] is None
        assert "tokens already" in second["trouble"]
        assert await ids(node, "user") == ["keeper", "mary", "bob"]
        assert (await node.problem("consumer_register", name="bob", body={}, **BY)).problem == "conflict"
        assert len((await node.ask("token_list"))["tokens"]) == 1


@on_uvloop
async def test_what_is_refused_changes_nothing_and_is_audited(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        await register(node, "app", description="", body={"roles": ["coach"]})
        before = node.node.administration and node.node.administration.status()
        for problem, asked in (
            ("invalid", {"name": "a@b", "body": {}}),
            ("invalid", {"name": "x" * 201, "body": {}}),
            ("invalid", {"name": "m", "body": {"password": "plain:x"}}),
            ("invalid", {"name": "m", "body": {"attributes": {"application": "app"}}}),
            ("invalid", {"name": "m", "body": {"attributes": []}}),
            ("invalid", {"name": "m", "body": {"roles": "coach"}}),
            ("invalid", {"name": "m", "body": {"strange": 1}}),
            ("readonly", {"name": "keeper", "body": {}}),
            ("conflict", {"name": "app", "body": {}}),
            ("unknown", {"name": "m", "body": {}, "under": "none"}),
            ("unknown", {"name": "m", "body": {}, "under": "keeper"}),
            ("forbidden", {"name": "m", "body": {"roles": ["doctor"]}, "under": "app"}),
            ("forbidden", {"name": "m", "body": {}, "under": "app", "itself": True}),
        ):
            assert (await node.problem("consumer_register", **asked, **BY)).problem == problem, asked
            assert (await node.problem("consumer_register", **asked, **BY, dry_run=True)).problem == problem, asked
        assert node.node.administration
        assert node.node.administration.status() == before
        rows = [row for row in node.node.audit.sink.recent() if row.action == "refused"]
        assert any("user/m" in (row.detail or "") for row in rows)


@on_uvloop
async def test_an_application_has_so_many_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "USERS", 2)
    async with administered(tmp_path) as node:
        await register(node, "app", description="")
        for name in ("a", "b"):
            await register(node, name, under="app")
        with pytest.raises(Problem) as refused:
            await register(node, "c", under="app")
        assert refused.value.problem == "conflict"
        await node.ask("application_remove", id="app", **BY)
        assert await ids(node, "user") == ["keeper"]


@on_uvloop
async def test_two_who_renew_at_once(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        await register(node, "mary")
        asked = [node.ask("consumer_renew", name="mary", password=HASH, **BY) for _ in range(4)]
        made = [each["token"]["token"] for each in await asyncio.gather(*asked)]
        counting = [token for token in made if await _counts(node, token)]
        assert len(counting) == 1


async def _counts(node: Administered, token: str) -> bool:
    try:
        await node.ask("token_check", token=token)
    except Problem:
        return False
    return True


@on_uvloop
async def test_pages_by_id(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        changes = [{"kind": "policy", "id": f"p{number:02}", "body": OPEN} for number in reversed(range(25))]
        await node.ask("admin_apply", changes=changes, **BY)
        found: list[str] = []
        after = None
        while True:
            page = await node.ask("admin_list", kind="policy", limit=10, after=after)
            found += [each["id"] for each in page["documents"]]
            after = page["next"]
            if after is None:
                break
        assert found == ["filed", *(f"p{number:02}" for number in range(25))]
        assert await ids(node, "policy", limit=3, after="p22") == ["p23", "p24"]
        assert await ids(node, "policy", limit=3, after="zzz") == []
        for wrong in ({"limit": 0}, {"limit": "x"}, {"limit": 1, "after": 7}, {"limit": 1, "owner": ""}):
            assert (await node.problem("admin_list", kind="policy", **wrong)).problem == "invalid"


@on_uvloop
async def test_pages_of_what_somebody_owns(tmp_path: Path) -> None:
    text = FILE + 'preferences: [{id: filed-one, user: keeper, topic: "a"}]\n'
    async with administered(tmp_path, text=text) as node:
        for name in ("mary", "bob"):
            await register(node, name)
        changes = [
            {"kind": "preference", "id": f"u{number}", "body": {"user": ("mary", "bob")[number % 2], "topic": "a"}}
            for number in range(6)
        ]
        await node.ask("admin_apply", changes=changes, **BY)
        assert await ids(node, "preference", limit=10, owner="mary") == ["u0", "u2", "u4"]
        assert await ids(node, "preference", limit=2, owner="bob", after="u1") == ["u3", "u5"]
        assert await ids(node, "preference", limit=2, owner="keeper") == ["filed-one"]
        assert await ids(node, "preference", limit=2, owner="nobody") == []
        assert await ids(node, "policy", limit=2, owner="mary") == []


@on_uvloop
async def test_a_page_ends_when_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administering, "PAGE", 10_000)
    async with administered(tmp_path, SQLITE) as node:
        changes = [{"kind": "user", "id": f"u{n}", "body": {"attributes": {"a": "x" * 4000}}} for n in range(9)]
        await node.ask("admin_apply", changes=changes, **BY)
        first = await node.ask("admin_list", kind="user", limit=1000)
        assert len(first["documents"]) < 9
        found = [each["id"] for each in first["documents"]]
        while first["next"] is not None:
            first = await node.ask("admin_list", kind="user", limit=1000, after=first["next"])
            found += [each["id"] for each in first["documents"]]
        assert found == ["keeper", *(f"u{n}" for n in range(9))]
