"""Tokens over HTTP, on a real node: tried, made, listed and revoked."""

from __future__ import annotations

from pathlib import Path

from api.real import administering

ONLY = {"dry_run": "true"}


async def test_only_tried(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        before = (await admin.ask("GET", "/tokens")).json()
        [mine] = before["items"]
        body = {"role": "user", "user": "filed", "name": "n", "seconds": 3600}
        tried = await admin.ask("POST", "/tokens", json=body, params=ONLY)
        assert tried.status_code == 200
        said = tried.json()
        assert said.pop("expires").endswith("Z")
        assert said == {"dry_run": True, "role": "user", "user": "filed", "name": "n"}
        for wrong, status in (
            ({"user": "nobody"}, 404),
            ({"seconds": 10 * 366 * 86400}, 422),
            ({"role": "admin"}, 422),
        ):
            assert (await admin.ask("POST", "/tokens", json={**body, **wrong}, params=ONLY)).status_code == status
        tried = await admin.ask("DELETE", f"/tokens/{mine['id']}", params=ONLY)
        assert tried.json() == {**mine, "dry_run": True}
        assert (await admin.ask("DELETE", "/tokens/nothing", params=ONLY)).status_code == 404
        assert (await admin.ask("GET", "/tokens")).json() == before


async def test_who_revoked_it_when_and_why(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        made = (await admin.ask("POST", "/tokens", json={"role": "auditor"}, params={"why": "a visit"})).json()
        assert (made["revoked_at"], made["revoked_by"]) == (None, None)
        gone = (await admin.ask("DELETE", f"/tokens/{made['id']}", params={"why": "it is over"})).json()
        assert gone["dry_run"] is False
        me = (await admin.ask("GET", "/me")).json()["token"]
        listed = {each["id"]: each for each in (await admin.ask("GET", "/tokens")).json()["items"]}
        assert listed[made["id"]]["revoked_at"] == gone["revoked_at"]
        assert gone["revoked_at"].endswith("Z")
        assert gone["revoked_by"] == f"token:{me}"
        assert listed[me]["revoked_at"] is None
        rows = (await admin.ask("GET", "/audit")).json()["items"]
        said = {(each["action"], each["detail"]) for each in rows if each["rule"] == f"token:{made['id']}"}
        assert said == {("token make", "auditor: a visit"), ("token revoke", "it is over")}
