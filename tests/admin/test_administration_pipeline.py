"""Rules of the pipeline as the node keeps them: in order, over a restart, on all nodes, and only as drafted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postgres
from admin.registries import SQLITE, Administered, administered
from processes import on_uvloop, until
from tidegate.errors import Problem

ONE: dict[str, Any] = {"topic": {"topic": "one"}}
TWO: dict[str, Any] = {"topic": {"topic": "two"}}


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return SQLITE
    found: postgres.Server = request.getfixturevalue("server")
    return f'store: "{found.address(schema=found.schema())}"'


def wanted(id: str, body: Any, expected: int | None = None) -> list[dict[str, Any]]:
    return [{"kind": "pipeline", "id": id, "body": body, "expected": expected}]


async def kept(node: Administered) -> Any:
    assert node.node.administration is not None
    return await node.node.administration.documents_of("pipeline")


@on_uvloop
async def test_they_are_kept_in_order_and_are_no_part_of_the_configuration(tmp_path: Path, store: str) -> None:
    async with administered(tmp_path, store) as node:
        assert await kept(node) == {"documents": [], "version": 0}
        version = node.node.audit.version
        await node.put("pipeline", "z", ONE)
        done = await node.put("pipeline", "a", TWO)
        found = await kept(node)
        assert found["documents"] == [{"id": "z", "body": ONE}, {"id": "a", "body": TWO}]
        assert node.node.audit.version == version
        assert ("change", "token:test") in [(row.action, row.user) for row in node.node.audit.sink.recent()]
    async with administered(tmp_path, store) as node:
        assert await kept(node) == found
        await node.put("pipeline", "z", TWO, (await node.ask("admin_get", kind="pipeline", id="z"))["version"])
        assert [each["id"] for each in (await kept(node))["documents"]] == ["z", "a"], "it keeps its place"
        await node.put("pipeline", "z", None)
        assert (await kept(node))["documents"] == [{"id": "a", "body": TWO}]
        await node.ask("admin_revert", sequence=done["sequence"], by="x")
        last = await kept(node)
        assert last["documents"] == []
        assert last["version"] > found["version"]


@on_uvloop
async def test_a_draft_changes_nothing(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        draft = await node.ask("pipeline_draft", changes=wanted("a", ONE))
        assert draft == {"before": [], "after": [{"id": "a", "body": ONE}], "fence": 0}
        assert (await kept(node))["documents"] == []
        made = await node.put("pipeline", "a", ONE)
        draft = await node.ask("pipeline_draft", sequence=made["sequence"])
        assert (draft["before"], draft["after"]) == ([{"id": "a", "body": ONE}], [])
        assert len((await kept(node))["documents"]) == 1
        for problem, arguments in (
            ("conflict", {"changes": wanted("a", TWO)}),
            ("conflict", {"changes": wanted("b", TWO, 1)}),
            ("unknown", {"changes": wanted("b", None)}),
            ("invalid", {"sequence": 999}),
            ("invalid", {}),
            ("invalid", {"changes": []}),
            ("invalid", {"sequence": 0}),
        ):
            assert (await node.problem("pipeline_draft", **arguments)).problem == problem, arguments


def overtaken(problem: Problem) -> bool:
    return problem.problem == "conflict" and problem.details[0]["at"] == "fence/documents"


@on_uvloop
async def test_a_change_is_made_as_it_was_drafted_or_not_at_all(tmp_path: Path, store: str) -> None:
    async with administered(tmp_path, store) as node:
        nothing = (await node.ask("pipeline_draft", changes=wanted("a", ONE)))["fence"]
        made = await node.put("pipeline", "a", ONE, fence=nothing)
        assert overtaken(await node.refused("pipeline", "b", TWO, fence=nothing))
        draft = await node.ask("pipeline_draft", sequence=made["sequence"])
        await node.put("policy", "p", {"subject": "*", "topic": "t", "action": "read"})  # whatever it is
        refused = await node.problem("admin_revert", sequence=made["sequence"], by="x", fence=draft["fence"])
        assert overtaken(refused)
        assert (await kept(node))["documents"] == [{"id": "a", "body": ONE}]
        draft = await node.ask("pipeline_draft", sequence=made["sequence"])
        await node.ask("admin_revert", sequence=made["sequence"], by="x", fence=draft["fence"])
        assert (await kept(node))["documents"] == []
        for nonsense in (-1, "1", True, 1.5, 2**63):
            assert (await node.refused("pipeline", "b", TWO, fence=nonsense)).problem == "invalid", nonsense


@on_uvloop
async def test_other_nodes_follow(tmp_path: Path, server: postgres.Server) -> None:
    store = f'store: "{server.address(schema=server.schema())}"'
    async with (
        administered(tmp_path / "a", store, name="a") as a,
        administered(tmp_path / "b", store, name="b") as b,
    ):
        draft = await b.ask("pipeline_draft", changes=wanted("y", TWO))
        await a.put("pipeline", "x", ONE)
        assert overtaken(await b.refused("pipeline", "y", TWO, fence=draft["fence"])), "though b may not know yet"
        assert b.node.administration is not None
        here = b.node.administration
        await until(lambda: here.document_body("pipeline", "x") == ONE, 2.0)
        assert (await kept(b))["documents"] == [{"id": "x", "body": ONE}]
