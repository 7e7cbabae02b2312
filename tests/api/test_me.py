"""Users and their own preferences, and nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api.pretending import served
from tidegate.api.me import MOST

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
