"""Administration over HTTP: versions, conditions, ids, passwords."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api.pretending import served

POLICY: dict[str, Any] = {"subject": "*", "topic": "a/#", "action": "read"}


async def test_made_changed_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        made = await api.ask("PUT", "/policies/p1", json=POLICY, params={"why": "a test"})
        assert made.status_code == 201
        assert made.headers["etag"] == f'"{made.json()["version"]}"'
        shown = await api.ask("GET", "/policies/p1")
        assert shown.json()["value"] == POLICY
        assert shown.headers["etag"] == made.headers["etag"]
        changed = await api.ask(
            "PUT", "/policies/p1", json={**POLICY, "topic": "b"}, headers={"If-Match": made.headers["etag"]}
        )
        assert changed.status_code == 200
        assert changed.headers["etag"] != made.headers["etag"]
        assert (await api.ask("GET", "/policies/p1")).json()["value"]["topic"] == "b"
        gone = await api.ask("DELETE", "/policies/p1", headers={"If-Match": changed.headers["etag"]})
        assert gone.status_code == 200
        assert (await api.ask("GET", "/policies/p1")).status_code == 404
        assert set(api.node.by) == {"token:id-admin"}


async def test_nobody_overwrites_what_they_have_not_seen(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        version = api.node.put("policy", "p1", POLICY)
        for headers, status in (
            ({}, 428),
            ({"If-None-Match": "*"}, 412),
            ({"If-Match": '"999"'}, 412),
            ({"If-Match": "nonsense"}, 400),
            ({"If-None-Match": '"1"'}, 400),
            ({"If-Match": f'"{version}"', "If-None-Match": "*"}, 400),
        ):
            answer = await api.ask("PUT", "/policies/p1", json={**POLICY, "topic": "evil"}, headers=headers)
            assert answer.status_code == status, (headers, answer.text)
            assert answer.json()["remedy"]
        assert api.node.documents["policy", "p1"]["body"] == POLICY
        assert (await api.ask("DELETE", "/policies/p1", headers={"If-Match": '"999"'})).status_code == 412
        assert (await api.ask("PUT", "/policies/p1", json=POLICY, headers={"If-Match": "*"})).status_code == 200
        assert (await api.ask("PUT", "/policies/p2", json=POLICY, headers={"If-Match": "*"})).status_code == 404
        assert (await api.ask("PUT", "/policies/p2", json=POLICY, headers={"If-Match": '"1"'})).status_code == 412
        assert (await api.ask("DELETE", "/policies/p2")).status_code == 404


async def test_dry_run_changes_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        tried = await api.ask("PUT", "/policies/p1?dry_run=true", json=POLICY)
        assert tried.status_code == 200
        assert tried.json()["dry_run"] is True
        assert tried.json()["effect"]["decisions"] == 0
        assert (await api.ask("POST", "/policies?dry_run=true", json=POLICY)).status_code == 200
        for slip in ("dryrun=true", "dry_run=true&dry_run=false", "Dry_Run=true", "dry_run=perhaps"):
            answer = await api.ask("PUT", f"/policies/p1?{slip}", json=POLICY)
            assert answer.status_code == 422, slip
        assert api.node.documents == {}


async def test_what_stands_in_the_file_is_read_only(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        api.node.put("policy", "p1", POLICY, source="file")
        shown = (await api.ask("GET", "/policies/p1")).json()
        assert (shown["source"], shown["version"]) == ("file", None)
        for answer in (await api.ask("PUT", "/policies/p1", json=POLICY), await api.ask("DELETE", "/policies/p1")):
            assert answer.status_code == 403
            assert answer.json()["type"].endswith(":readonly")


async def test_post_makes_up_an_id_or_takes_the_one_in_the_body(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        made = await api.ask("POST", "/policies", json=POLICY)
        assert made.status_code == 201
        assert (await api.ask("GET", f"/policies/{made.json()['id']}")).status_code == 200
        assert (await api.ask("POST", "/policies", json={**POLICY, "id": "mine"})).json()["id"] == "mine"
        assert (await api.ask("POST", "/policies", json={**POLICY, "id": "mine"})).status_code == 409
        assert (await api.ask("POST", "/policies", json={**POLICY, "id": 7})).status_code == 422
        assert (await api.ask("PUT", "/policies/x", json={**POLICY, "id": "y"})).status_code == 422


async def test_ids_may_hold_anything(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for id, written in (("a/b", "a%2Fb"), ("%2F", "%252F"), ("ü ?#", "%C3%BC%20%3F%23"), ("history", "history")):
            assert (await api.ask("PUT", f"/directory/clients/{written}", json={})).status_code == 201
            shown = await api.ask("GET", f"/directory/clients/{written}")
            assert shown.json()["id"] == id
            assert ("client", id) in api.node.documents
            assert (await api.ask("GET", f"/directory/clients/{written}/history")).status_code == 200
        for bad in ("%FF", "%00", "a%0Ab"):
            assert (await api.ask("GET", f"/directory/clients/{bad}")).status_code == 422, bad


async def test_pages(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for number in range(25):
            api.node.put("view", f"v{number:02}", {})
        seen, after = [], None
        while True:
            page = (await api.ask("GET", "/views", params={"limit": 10, **({"after": after} if after else {})})).json()
            seen += [each["id"] for each in page["items"]]
            after = page["next"]
            if after is None:
                break
        assert seen == [f"v{number:02}" for number in range(25)]
        for wrong in ("0", "-1", "1001", "x"):
            assert (await api.ask("GET", f"/views?limit={wrong}")).status_code == 422


async def test_passwords_are_hashed_and_never_told(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        assert (await api.ask("PUT", "/directory/users/eve", json={"password": "plain:wonder"})).status_code == 201
        stored = api.node.documents["user", "eve"]["body"]["password"]
        assert stored.startswith("$argon2id$")
        for path in ("/directory/users", "/directory/users/eve", "/directory/users/eve/history"):
            answer = await api.ask("GET", path, "auditor")
            assert answer.status_code == 200
            assert "argon2" not in answer.text


async def test_history_and_revert(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        first = api.node.put("policy", "p1", POLICY)
        second = api.node.put("policy", "p1", {**POLICY, "topic": "b"})
        items = (await api.ask("GET", "/policies/p1/history")).json()["items"]
        assert [each["sequence"] for each in items] == [first, second]
        only = await api.ask("POST", "/policies/p1/revert?dry_run=true", json={"sequence": second})
        assert (only.status_code, only.json()["dry_run"], only.json()["version"]) == (200, True, None)
        assert only.json()["effect"]["decisions"] == 0
        assert (await api.ask("POST", "/policies/p1/revert", json={"sequence": second})).status_code == 200
        other = api.node.put("view", "v", {})
        assert (await api.ask("POST", "/policies/p1/revert", json={"sequence": other})).status_code == 404
        for wrong in ({"sequence": "x"}, {}, [], {"sequence": 0}, {"sequence": 2**63}):
            assert (await api.ask("POST", "/policies/p1/revert", json=wrong)).status_code == 422
        assert (await api.ask("GET", "/policies/nothing/history")).status_code == 404


async def test_bodies_that_are_none(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        json = {"Content-Type": "application/json"}
        for body, headers, status in (
            (b"{}", {}, 415),
            (b"{}", {"Content-Type": "text/plain"}, 415),
            (b"", json, 400),
            (b"{", json, 400),
            (b'{"a": NaN}', json, 400),
            (b"\xff", json, 400),
            (b"[" * 60_000, json, 400),
            (b"[]", json, 422),
            (b"null", json, 422),
        ):
            answer = await api.ask("PUT", "/policies/p1", content=body, headers=headers)
            assert answer.status_code == status, (body[:10], answer.text)
        assert api.node.documents == {}
