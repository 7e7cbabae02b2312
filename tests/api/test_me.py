"""Users and their own preferences, and nobody else's."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from api.pretending import served
from api.real import administering
from tidegate.api.me import MOST
from tidegate.store.registry import Limits

PREFERENCE: dict[str, Any] = {"topic": "a/#", "when": "false"}


async def test_a_user_manages_its_own(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        made = await api.ask("POST", "/me/preferences", "user", json=PREFERENCE)
        assert made.status_code == 201
        id = made.json()["id"]
        assert api.node.documents["preference", id]["body"] == {**PREFERENCE, "user": "mary"}
        assert [each["id"] for each in (await api.ask("GET", "/me/preferences", "user")).json()["items"]] == [id]
        shown = await api.ask("GET", f"/me/preferences/{id}", "user")
        etag = {"If-Match": shown.headers["etag"]}
        changed = await api.ask("PUT", f"/me/preferences/{id}", "user", json={"topic": "b"}, headers=etag)
        assert changed.status_code == 200
        late = await api.ask("PUT", f"/me/preferences/{id}", "user", json={"topic": "c"}, headers=etag)
        assert late.status_code == 412
        assert (await api.ask("PUT", f"/me/preferences/{id}", "user", json={"topic": "c"})).status_code == 428
        assert (await api.ask("DELETE", f"/me/preferences/{id}", "user")).status_code == 428
        gone = await api.ask("DELETE", f"/me/preferences/{id}", "user", headers={"If-Match": changed.headers["etag"]})
        assert gone.status_code == 200
        assert api.node.documents == {}


async def test_those_of_others_do_not_exist(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        version = api.node.put("preference", "bobs", {**PREFERENCE, "user": "bob"})
        before = dict(api.node.documents)
        assert (await api.ask("GET", "/me/preferences", "user")).json()["items"] == []
        etag = {"If-Match": f'"{version}"'}
        for method, options in (
            ("GET", {}),
            ("PUT", {"json": PREFERENCE, "headers": etag}),
            ("PUT", {"json": PREFERENCE, "headers": {"If-Match": "*"}}),
            ("PUT", {"json": PREFERENCE}),
            ("DELETE", {"headers": etag}),
            ("DELETE", {}),
        ):
            theirs = await api.ask(method, "/me/preferences/bobs", "user", **options)
            nobodys = await api.ask(method, "/me/preferences/none", "user", **options)
            assert theirs.status_code == 404
            assert theirs.text.replace("bobs", "none") == nobodys.text, "who asks must not see the difference"
        assert api.node.documents == before
        assert (await api.ask("GET", "/me/preferences/bobs", "bobs")).status_code == 200


async def test_nobody_makes_one_for_somebody_else(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        answer = await api.ask("POST", "/me/preferences", "user", json={**PREFERENCE, "user": "bob"})
        assert answer.status_code == 403
        for user in (None, ["mary"], {"mary": 1}, "mary@elsewhere"):
            answer = await api.ask("POST", "/me/preferences", "user", json={**PREFERENCE, "user": user})
            assert answer.status_code == 403
        answer = await api.ask("POST", "/me/preferences", "user", json={**PREFERENCE, "id": "mine"})
        assert answer.status_code == 422
        version = api.node.put("preference", "own", {**PREFERENCE, "user": "mary"})
        moved = await api.ask(
            "PUT",
            "/me/preferences/own",
            "user",
            json={**PREFERENCE, "user": "bob"},
            headers={"If-Match": f'"{version}"'},
        )
        assert moved.status_code == 403
        assert len(api.node.documents) == 1


async def test_one_of_the_file_is_shown_and_stays(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        api.node.put("preference", "up1", {**PREFERENCE, "user": "mary"}, source="file")
        assert (await api.ask("GET", "/me/preferences/up1", "user")).json()["source"] == "file"
        answer = await api.ask("DELETE", "/me/preferences/up1", "user", headers={"If-Match": "*"})
        assert answer.status_code == 403


async def test_a_token_for_nobody(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        api.node.tokens["user"]["user"] = None
        assert (await api.ask("GET", "/me/preferences", "user")).status_code == 403


async def test_nobody_fills_the_registry(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for number in range(MOST):
            api.node.put("preference", f"own-{number}", {**PREFERENCE, "user": "mary"})
        refused = await api.ask("POST", "/me/preferences", "user", json=PREFERENCE)
        assert refused.status_code == 409
        assert "which is the most" in refused.json()["detail"]
        assert (await api.ask("POST", "/me/preferences", "bobs", json=PREFERENCE)).status_code == 201


BOUND = Limits().group
LARGE = ["/" + "p" * 25_000 + str(number) for number in range(8)]


def stored(folder: Path) -> int:
    """Characters of all versions of preferences."""
    with contextlib.closing(sqlite3.connect(folder / "data" / "admin.db")) as database:
        ((size,),) = database.execute("SELECT sum(length(body)) FROM tidegate_entry WHERE kind = 'preference'")
    return int(size)


async def test_the_history_of_own_preferences_is_bounded(tmp_path: Path) -> None:
    """However often a user changes one, or makes and deletes them; those of others stay."""
    async with administering(tmp_path) as admin:
        administration = admin.served.node.administration
        assert administration is not None
        mary = (await admin.make("/users", {"name": "mary"}))["token"]
        zoe = (await admin.make("/users", {"name": "zoe"}))["token"]
        other = (await admin.make("/me/preferences", {"topic": "z/0"}, zoe))["id"]
        for number in range(1, 4):
            changed = await admin.ask(
                "PUT", f"/me/preferences/{other}", zoe, json={"topic": f"z/{number}"}, headers={"If-Match": "*"}
            )
            assert changed.status_code == 200, changed.text
        id = (await admin.make("/me/preferences", {"topic": "a/0", "keep": LARGE}, mary))["id"]
        for number in range(1, 20):
            body = {"topic": f"a/{number}", "keep": LARGE}
            changed = await admin.ask("PUT", f"/me/preferences/{id}", mary, json=body, headers={"If-Match": "*"})
            assert changed.status_code == 200, changed.text
        assert stored(tmp_path) < BOUND + 2000
        versions = administration.registry.history("preference", id)
        assert 2 < len(versions) < 12
        assert versions[-1].body is not None
        assert versions[-1].body["content"]["topic"] == "a/19"
        for number in range(12):
            made = (await admin.make("/me/preferences", {"topic": f"b/{number}", "keep": LARGE}, mary))["id"]
            gone = await admin.ask("DELETE", f"/me/preferences/{made}", mary, headers={"If-Match": "*"})
            assert gone.status_code == 200, gone.text
        assert stored(tmp_path) < BOUND + 2000
        assert len(administration.registry.history("preference", other)) == 4
        # the last change can still be taken back
        sequence = administration.registry.history("preference", made)[-1].sequence
        taken = await admin.ask("POST", f"/preferences/{made}/revert", json={"sequence": sequence})
        assert taken.is_success, taken.text


async def test_own_preferences_have_a_bound_together(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        mary = (await admin.make("/users", {"name": "mary"}))["token"]
        zoe = (await admin.make("/users", {"name": "zoe"}))["token"]
        made = []
        for number in range(BOUND // 200_000):
            made.append((await admin.make("/me/preferences", {"topic": f"a/{number}", "keep": LARGE}, mary))["id"])
        body = {"topic": "b", "keep": LARGE}
        full = await admin.ask("POST", "/me/preferences", mary, json=body)
        assert (full.status_code, "are the most" in full.json()["detail"]) == (413, True), full.text
        full = await admin.ask("PUT", f"/me/preferences/{made[0]}", mary, json=body, headers={"If-Match": "*"})
        assert full.status_code == 413, "the version before it stays as well"
        assert (await admin.make("/me/preferences", body, zoe))["id"]
        for id in made[:2]:
            gone = await admin.ask("DELETE", f"/me/preferences/{id}", mary, headers={"If-Match": "*"})
            assert gone.status_code == 200, gone.text
        assert (await admin.make("/me/preferences", body, mary))["id"]
        assert stored(tmp_path) < BOUND + 210_000
