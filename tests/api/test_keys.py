"""Topic keys over HTTP: who asks, how it came, and how denials are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.pretending import hosting, served
from harness import free_port
from tidegate.errors import Problem

MARK = "0123456789abcdef-_AB"


async def test_a_key_by_its_id(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        answer = await api.ask("GET", "/keys/k1", "user", params={"request": MARK})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == {"keyId": "k1", "request": MARK, "validMs": 1000, "kem": "x25519", "key": "QUJD"}
        asked = {"user": "mary", "key": "k1", "request": MARK, "level": "plain", "address": "127.0.0.1"}
        asked |= {"capability": None, "proof": None}
        assert api.node.requests == [asked]
        again = await api.ask("POST", "/keys/request", "user", json={"keyId": "k1", "request": MARK})
        assert again.json() == answer.json()
        assert api.node.requests == [asked, asked]


async def test_a_key_to_publish_with(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        answer = await api.ask("POST", "/keys/request", "bobs", json={"topic": "a/b", "request": MARK})
        assert answer.status_code == 200
        [asked] = api.node.requests
        assert (asked["user"], asked["topic"]) == ("bob", "a/b")


@pytest.mark.parametrize("level", ["tls", "mtls"])
async def test_how_the_request_came_is_told(tmp_path: Path, level: str) -> None:
    async with served(tmp_path) as api:
        port = free_port()
        files = {"cert": Path("node.pem"), "client_ca": Path("ca.pem") if level == "mtls" else None}
        async with hosting(api.control.path, port, **files):
            url = f"http://127.0.0.1:{port}/keys/k1"
            answer = await api.ask("GET", url, "user", params={"request": MARK})
            assert answer.status_code == 200
        assert api.node.requests[0]["level"] == level


@pytest.mark.parametrize(
    ("problem", "details", "status"),
    [
        ("denied", [{"rule": "p1", "stage": "policy"}], 403),
        ("unknown", [], 404),
        ("conflict", [], 409),
        ("invalid", [], 422),
        ("unavailable", [], 503),
    ],
)
async def test_no_key(tmp_path: Path, problem: str, details: list[dict[str, Any]], status: int) -> None:
    async with served(tmp_path) as api:
        api.node.refusal = Problem("no. Remedy: ask for another", problem=problem, details=details)
        answer = await api.ask("GET", "/keys/k1", "user", params={"request": MARK})
        assert answer.status_code == status
        said = answer.json()
        assert said["type"] == f"urn:tidegate:problem:{problem}"
        assert (said["detail"], said["remedy"]) == ("no", "ask for another")
        if details:
            assert (said["rule"], said["stage"]) == ("p1", "policy")
        else:
            assert "rule" not in said


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"request": MARK},
        {"keyId": "k1"},
        {"keyId": "k1", "request": "short"},
        {"keyId": "k1", "request": 7},
        {"keyId": 7, "request": MARK},
        {"keyId": "k 1", "request": MARK},
        {"keyId": "k" * 65, "request": MARK},
        {"keyId": "k1", "topic": "a", "request": MARK},
        {"keyId": "k1", "request": MARK, "user": "bob"},
        {"topic": "", "request": MARK},
        {"topic": "a" * 65_536, "request": MARK},
        {"topic": None, "request": MARK},
    ],
)
async def test_requests_that_are_none(tmp_path: Path, body: dict[str, Any]) -> None:
    async with served(tmp_path, max_body=1 << 20) as api:
        answer = await api.ask("POST", "/keys/request", "user", json=body)
        assert answer.status_code == 422
        assert answer.json()["remedy"]
        assert api.node.requests == []


async def test_wrong_in_other_ways(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for path, status in (
            ("/keys/k1", 422),
            (f"/keys/k1?request={MARK}&request={MARK}", 422),
            (f"/keys/k1?request={MARK}&user=bob", 422),
            (f"/keys/{'k' * 65}?request={MARK}", 422),
            (f"/keys/k%2F1?request={MARK}", 422),
            (f"/keys/k1/2?request={MARK}", 404),
        ):
            assert (await api.ask("GET", path, "user")).status_code == status, path
        plain = {"content": b"x", "headers": {"Content-Type": "text/plain"}}
        assert (await api.ask("POST", "/keys/request", "user", **plain)).status_code == 415
        broken = {"content": b"{", "headers": {"Content-Type": "application/json"}}
        assert (await api.ask("POST", "/keys/request", "user", **broken)).status_code == 400
        assert (await api.ask("POST", "/keys/request", "user", json={"x": "y" * 100_000})).status_code == 413
        api.node.tokens["nobodys"] = {"id": "id-nobody", "role": "user", "user": None, "expires": 4e9}
        assert (await api.ask("GET", f"/keys/k1?request={MARK}", "nobodys")).status_code == 403
        assert api.node.requests == []


async def test_listed_rotated_and_revoked(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        listed = (await api.ask("GET", "/keys", "auditor", params={"limit": 2})).json()
        assert [each["id"] for each in listed["items"]] == ["k1", "k2"]
        assert listed["items"][0]["valid_until"] == "2001-09-09T01:51:40.000Z"
        rest = (await api.ask("GET", "/keys", "auditor", params={"after": listed["next"]})).json()
        assert ([each["id"] for each in rest["items"]], rest["next"]) == (["k3"], None)
        only = {"dry_run": "true"}
        tried = await api.ask("POST", "/keys/rotate", json={"user": "mary"}, params=only)
        assert tried.json() == {"groups": 4, "dry_run": True}
        tried = await api.ask("DELETE", "/keys/k1", params=only)
        assert (tried.json()["dry_run"], tried.json()["key"]) == (True, listed["items"][0])
        assert api.node.requests == []
        done = await api.ask("POST", "/keys/rotate", json={"user": "mary"}, params={"why": "lost"})
        assert done.json() == {"groups": 4, "dry_run": False}
        assert (await api.ask("POST", "/keys/rotate", json={"user": "a", "filter": "b"})).status_code == 422
        assert (await api.ask("POST", "/keys/rotate", json={"all": True})).status_code == 422
        done = await api.ask("DELETE", "/keys/k1", params={"why": "stolen"})
        assert done.json() == {"revoked": "k1", "dry_run": False, "key": None}
        assert api.node.requests == [
            {"by": "token:id-admin", "filter": None, "user": "mary", "why": "lost"},
            {"id": "k1", "by": "token:id-admin", "why": "stolen"},
        ]


async def test_a_token_that_is_known_costs_no_second_question(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for _ in range(3):
            assert (await api.ask("GET", f"/keys/k1?request={MARK}", "user")).status_code == 200
        assert api.node.asked == ["token_check", "key_get", "key_get", "key_get"]
