"""Rules of the pipeline over HTTP, on a real node: checked with the file and with each other, kept, taken back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.real import Administrator, administering
from tidegate.api import documents, pipeline_rules

FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
store: sqlite
sys: {interval: 0s}
policies: []
pipeline: {ingest: ["raw/#"], rules: rules.yaml}
"""
RULES = """version: 1
sources:
  - id: filed
    topic: "raw/filed"
    values: [{name: t, at: /t, unit: C}]
"""
THERMO: dict[str, Any] = {
    "source": {"topic": "raw/thermo", "values": [{"name": "t", "at": "/t", "unit": "F", "to": "C"}]}
}
ALL: dict[str, Any] = {"source": {"values": [{"name": "x", "at": "/x"}]}}
FRESH: dict[str, Any] = {
    "score": {"dimension": "timeliness", "check": "age_under", "args": {"good": "2s", "bad": "60s"}}
}
PLACE: dict[str, Any] = {"topic": {"topic": "weather/{type}/{source}"}}


@contextlib.asynccontextmanager
async def flowing(folder: Path, rules: str = RULES) -> AsyncIterator[Administrator]:
    (folder / "rules.yaml").write_text(rules)
    async with administering(folder, FILE) as admin:
        yield admin


async def put(admin: Administrator, id: str, body: dict[str, Any], **options: Any) -> Any:
    return await admin.ask("PUT", f"/pipeline/rules/{id}", json=body, **options)


async def documents_of(admin: Administrator) -> list[dict[str, Any]]:
    administration = admin.served.node.administration
    assert administration is not None
    found: list[dict[str, Any]] = (await administration.documents_of("pipeline"))["documents"]
    return found


async def test_made_changed_taken_back_and_kept(tmp_path: Path) -> None:
    async with flowing(tmp_path) as admin:
        before = admin.served.node.audit.version
        made = await put(admin, "thermo", THERMO, params={"why": "a new sensor"})
        assert made.status_code == 201, made.text
        assert made.headers["etag"] == f'"{made.json()["version"]}"'
        assert len(made.json()["pipeline"]) == 12
        assert admin.served.node.audit.version == before, "they are no rules of the gate"
        for id, body in (("fresh", FRESH), ("place", PLACE)):
            assert (await put(admin, id, body)).status_code == 201
        assert await documents_of(admin) == [
            {"id": "thermo", "body": THERMO},
            {"id": "fresh", "body": FRESH},
            {"id": "place", "body": PLACE},
        ]
        assert (await put(admin, "thermo", ALL)).status_code == 428
        assert (await put(admin, "thermo", ALL, headers={"If-Match": '"999"'})).status_code == 412
        match = {"If-Match": made.headers["etag"]}
        changed = await put(admin, "thermo", ALL, headers=match)
        assert changed.status_code == 200, changed.text
        assert changed.json()["pipeline"] != made.json()["pipeline"]
        history = (await admin.ask("GET", "/pipeline/rules/thermo/history")).json()["items"]
        assert [each["value"] for each in history] == [THERMO, ALL]
        assert history[0]["why"] == "a new sensor"
        again = await admin.ask("POST", "/pipeline/rules/thermo/revert", json={"sequence": changed.json()["version"]})
        assert again.status_code == 200, again.text
        assert (await admin.ask("GET", "/pipeline/rules/thermo")).json()["value"] == THERMO
        kept = await documents_of(admin)
        version = again.json()["pipeline"]
    async with flowing(tmp_path) as admin:  # after a restart
        assert await documents_of(admin) == kept
        tried = await admin.ask("DELETE", "/pipeline/rules/place", params={"dry_run": "true"})
        assert tried.json()["effect"]["version"]["before"] == version
        assert (await admin.ask("DELETE", "/pipeline/rules/place")).status_code == 200
        assert [each["id"] for each in await documents_of(admin)] == ["thermo", "fresh"]
        assert (await admin.ask("DELETE", "/pipeline/rules/place")).status_code == 404


async def test_a_dry_run_names_versions_and_rules_and_changes_nothing(tmp_path: Path) -> None:
    async with flowing(tmp_path) as admin:
        tried = await put(admin, "thermo", THERMO, params={"dry_run": "true"})
        assert tried.status_code == 200, tried.text
        effect = tried.json()["effect"]
        assert effect["validated"] is True
        assert (effect["added"], effect["changed"], effect["removed"]) == (["thermo"], [], [])
        assert await documents_of(admin) == []
        made = (await put(admin, "thermo", THERMO)).json()
        assert made["pipeline"] == tried.json()["pipeline"] == effect["version"]["after"] != effect["version"]["before"]
        sequence = {"sequence": made["version"]}
        tried = await admin.ask("POST", "/pipeline/rules/thermo/revert", json=sequence, params={"dry_run": "true"})
        assert tried.json()["effect"]["version"] == {
            "before": effect["version"]["after"],
            "after": effect["version"]["before"],
        }
        assert tried.json()["effect"]["removed"] == ["thermo"]
        assert len(await documents_of(admin)) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "must have one key"),
        ({**THERMO, **FRESH}, "must have one key"),
        ({"sources": THERMO["source"]}, "did you mean `source`?"),
        ({"source": {"topic": "raw/x"}}, "is missing; add it"),
        ({"source": {**THERMO["source"], "tpye": "x"}}, "did you mean `type`?"),
        ({"source": {**THERMO["source"], "values": [{"name": "t", "at": "t"}]}}, "must be a JSON pointer"),
        ({"score": {**FRESH["score"], "dimension": "speed"}}, "dimension"),
        ({"score": {**FRESH["score"], "check": "nonsense"}}, "nonsense"),
        ({"topic": {"topic": "weather/{what}"}}, "unknown placeholder"),
        ({"source": 5}, "must be a mapping"),
    ],
)
async def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, body: dict[str, Any], said: str) -> None:
    async with flowing(tmp_path) as admin:
        for answer in (await put(admin, "bad", body), await put(admin, "bad", body, params={"dry_run": "true"})):
            assert answer.status_code == 422, answer.text
            assert answer.json()["type"].endswith(":invalid")
            [error] = answer.json()["errors"]
            assert error["at"] == "pipeline/bad"
            assert said in error["error"]
        assert (await admin.ask("POST", "/pipeline/rules", json={**body, "id": "bad"})).status_code == 422
        assert await documents_of(admin) == []


async def test_what_stands_in_the_file_is_shown_and_not_changed(tmp_path: Path) -> None:
    async with flowing(tmp_path) as admin:
        for id in ("a", "z", "m"):
            topic = {"source": {**THERMO["source"], "topic": f"raw/{id}"}}
            assert (await put(admin, id, topic)).status_code == 201
        shown = (await admin.ask("GET", "/pipeline/rules/filed")).json()
        assert (shown["source"], shown["version"]) == ("file", None)
        assert shown["value"] == {"source": {"topic": "raw/filed", "values": [{"name": "t", "at": "/t", "unit": "C"}]}}
        for limit in (1, 2, 3, 4, 10):
            seen: list[str] = []
            after = None
            while True:
                query = {"limit": limit, **({"after": after} if after else {})}
                page = (await admin.ask("GET", "/pipeline/rules", params=query)).json()
                seen += [each["id"] for each in page["items"]]
                assert len(page["items"]) <= limit
                after = page["next"]
                if after is None:
                    break
            assert seen == ["a", "filed", "m", "z"], limit
        for answer in (
            await put(admin, "filed", THERMO),
            await put(admin, "filed", THERMO, headers={"If-Match": "*"}),
            await admin.ask("DELETE", "/pipeline/rules/filed"),
        ):
            assert answer.status_code == 403, answer.text
            assert answer.json()["type"].endswith(":readonly")


async def test_two_that_clash(tmp_path: Path) -> None:
    """A mapping that fits everything hides all that come after it."""
    async with flowing(tmp_path) as admin:
        first = await put(admin, "all", ALL)
        assert first.status_code == 201
        hidden = await put(admin, "thermo", THERMO)
        assert hidden.status_code == 422
        assert "`all` before it fits everything" in hidden.json()["detail"]
        gone = await admin.ask("DELETE", "/pipeline/rules/all")
        assert (await put(admin, "thermo", THERMO)).status_code == 201
        # Put back it has its old place, which is before the other one.
        back = await admin.ask("POST", "/pipeline/rules/all/revert", json={"sequence": gone.json()["version"]})
        assert back.status_code == 422
        assert back.json()["errors"][0]["at"] == "pipeline/thermo"
        assert [each["id"] for each in await documents_of(admin)] == ["thermo"]


async def test_two_at_once_are_checked_with_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone would do. Both have been checked before either is made."""
    drafted = asyncio.Barrier(2)
    usual, seen = documents.ask, 0

    async def together(*arguments: Any, **more: Any) -> dict[str, Any]:
        nonlocal seen
        seen += 1
        if seen <= 2:
            await drafted.wait()
        return await usual(*arguments, **more)

    monkeypatch.setattr(pipeline_rules.documents, "ask", together)
    other = {"source": {"values": [{"name": "y", "at": "/y"}]}}
    async with flowing(tmp_path) as admin:
        answers = await asyncio.gather(put(admin, "one", ALL), put(admin, "two", other))
        assert sorted(answer.status_code for answer in answers) == [201, 422]
        assert len(await documents_of(admin)) == 1
        assert seen == 2, "the one that was overtaken is checked again, and not even asked for"


async def test_a_file_that_is_broken_later(tmp_path: Path) -> None:
    async with flowing(tmp_path) as admin:
        for id in ("one", "two"):
            body = {"source": {**THERMO["source"], "topic": f"raw/{id}"}}
            assert (await put(admin, id, body)).status_code == 201
        file = tmp_path / "rules.yaml"
        file.write_text(RULES + "  - {id: one, topic: a, values: [{name: t, at: /t}]}\nscores: 5\n")
        refused = await put(admin, "three", FRESH)
        assert refused.status_code == 422
        places = [each["at"] for each in refused.json()["errors"]]
        assert sorted(places) == [f"{file}:7", "pipeline/one"]
        # What is wrong already keeps nobody from removing something, nor from giving way.
        assert (await admin.ask("DELETE", "/pipeline/rules/two")).status_code == 200
        sources = {each["id"]: each["source"] for each in (await admin.ask("GET", "/pipeline/rules")).json()["items"]}
        assert sources == {"filed": "file", "one": "api"}
        assert (await admin.ask("DELETE", "/pipeline/rules/one")).status_code == 200
        assert (await admin.ask("GET", "/pipeline/rules/one")).json()["source"] == "file"
        file.write_text("version: [\n")
        listed = await admin.ask("GET", "/pipeline/rules")
        assert listed.status_code == 503
        assert "rules.yaml" in listed.json()["detail"]
        file.unlink()
        assert (await put(admin, "three", FRESH)).status_code == 503


async def test_without_a_pipeline(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        for answer in (
            await put(admin, "thermo", THERMO),
            await admin.ask("DELETE", "/pipeline/rules/thermo"),
            await admin.ask("GET", "/pipeline"),
        ):
            assert answer.status_code == 404
            assert answer.json()["remedy"] == "set `pipeline` in its file"
        assert (await admin.ask("GET", "/pipeline/rules")).json() == {"items": [], "next": None}
