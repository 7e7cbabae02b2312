"""Who may use which route: the whole matrix, asked over HTTP."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from api.pretending import ROLES, served
from tidegate.api.access import ALLOWED, COLLECTIONS, PUBLIC, check
from tidegate.api.limits import GUESSED

LOOKING = "admin operator auditor"
EXPECTED = {
    "GET /health/live": None,
    "GET /health/ready": None,
    "GET /docs": None,
    "GET /docs/{asset}": None,
    "GET /openapi.json": None,
    "POST /login": None,
    "GET /oidc/login": None,
    "GET /oidc/callback": None,
    "POST /logout": None,
    "GET /metrics": LOOKING,
    "GET /me": "admin operator auditor user source",
    "GET /me/preferences": "user",
    "POST /me/preferences": "user",
    "GET /me/preferences/{id}": "user",
    "PUT /me/preferences/{id}": "user",
    "DELETE /me/preferences/{id}": "user",
    "GET /clients": LOOKING,
    "GET /clients/{id}": LOOKING,
    "DELETE /clients/{id}": "admin operator",
    "GET /sessions": LOOKING,
    "GET /sessions/{id}": LOOKING,
    "DELETE /sessions/{id}": "admin operator",
    "GET /subscriptions": LOOKING,
    "GET /topics": LOOKING,
    "GET /topics/{id}": LOOKING,
    "DELETE /topics/{id}": "admin operator",
    "GET /flows": LOOKING,
    "POST /explain": LOOKING,
    "GET /audit": LOOKING,
    "GET /links/state": LOOKING,
    "GET /pipeline": LOOKING,
    "GET /pipeline/quality": LOOKING,
    "GET /tokens": "admin",
    "POST /tokens": "admin",
    "DELETE /tokens/{id}": "admin",
    "GET /me/readers": "user",
    "GET /me/deliveries": "user",
    "GET /me/history": "user",
    "GET /me/export": "user",
    "GET /me/notices": "user",
    "GET /me/erase": "user",
    "POST /me/erase": "user",
    "GET /erasures": LOOKING,
    "POST /erasures/{id}/grant": "admin",
    "POST /erasures/{id}/refuse": "admin",
    "POST /me/credentials": "user",
    "PUT /me/key": "user",
    "POST /users": "admin",
    "POST /users/{name}/credentials": "admin user",
    "PUT /users/{name}/key": "admin user",
    "GET /applications": LOOKING,
    "POST /applications": "admin",
    "GET /applications/{id}": f"{LOOKING} user",
    "DELETE /applications/{id}": "admin",
    "GET /applications/{id}/users": f"{LOOKING} user",
    "POST /applications/{id}/users": "admin user",
    "DELETE /applications/{id}/users/{name}": "admin user",
    "GET /keys/{key_id}": "user",
    "POST /keys/request": "user",
    "GET /keys": LOOKING,
    "POST /keys/rotate": "admin",
    "DELETE /keys/{key_id}": "admin",
    "POST /registration": "admin source",
    "POST /data": "source",
    "GET /sources": LOOKING,
    "DELETE /sources/{id}": "admin",
}
OPERATED = ("/monitors", "/views", "/links")
ADMINISTERED = (
    "/policies",
    "/preferences",
    "/rules",
    "/flows/assertions",
    "/pipeline/rules",
    "/directory/users",
    "/directory/clients",
    "/directory/roles",
    "/directory/groups",
)
SHOWN = ("/directory/applications",)
for _path in (*OPERATED, *ADMINISTERED, *SHOWN):
    EXPECTED |= {f"GET {_path}": LOOKING, f"GET {_path}/{{id}}": LOOKING, f"GET {_path}/{{id}}/history": LOOKING}
for _path in (*OPERATED, *ADMINISTERED):
    _changers = "admin operator" if _path in OPERATED else "admin"
    EXPECTED |= {
        f"POST {_path}": _changers,
        f"PUT {_path}/{{id}}": _changers,
        f"DELETE {_path}/{{id}}": _changers,
        f"POST {_path}/{{id}}/revert": _changers,
    }


def test_every_route_is_in_the_matrix() -> None:
    assert {f"{method} {path}" for method, path in ALLOWED} == set(EXPECTED)
    assert {one.path for one in COLLECTIONS} == {*OPERATED, *ADMINISTERED, *SHOWN}


async def test_what_is_only_shown_cannot_be_changed(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for method, path in (("POST", ""), ("PUT", "/a"), ("DELETE", "/a"), ("POST", "/a/revert")):
            answer = await api.ask(method, f"/directory/applications{path}", json={})
            assert answer.status_code in (404, 405), (method, path)
        assert api.node.documents == {}


def test_a_route_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(RuntimeError, match="/forgotten"):
        check([*ALLOWED, ("GET", "/forgotten")])


def _filled(path: str) -> str:
    """With mary, who is the user that asks, wherever something is named."""
    return path.replace("{id}", "mary").replace("{name}", "mary").replace("{key_id}", "mary")


async def test_matrix(tmp_path: Path) -> None:
    """Every role, nobody, and a wrong token, on every route."""
    wrong = []
    async with served(tmp_path, rate=1e6, address_rate=1e6) as api:
        for route, roles in EXPECTED.items():
            method, path = route.split()
            for who in (*ROLES, None):
                answer = await api.ask(method, _filled(path), who)
                if roles is None or (who is not None and who in roles.split()):
                    right = answer.status_code not in (401, 403)
                else:
                    right = answer.status_code == (401 if who is None else 403)
                if not right:
                    wrong.append((route, who, answer.status_code))
    assert not wrong


async def test_nothing_is_asked_of_the_node_for_those_who_may_not(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for method, path in ALLOWED:
            if ALLOWED[method, path] is not PUBLIC:
                assert (await api.ask(method, _filled(path), None)).status_code == 401
        assert api.node.asked == []


async def test_wrong_tokens(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for given in ("Bearer", "Bearer wrong", "Basic admin", "admin", f"Bearer {'x' * 600}", "Bearer a b"):
            answer = await api.get("/me", headers={"Authorization": given})
            assert answer.status_code == 401, given
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/problem+json"
            assert "token" in answer.json()["remedy"]
        twice = [("Authorization", "Bearer admin"), ("Authorization", "Bearer user")]
        assert (await api.get("/me", headers=twice)).status_code == 401


async def test_a_token_that_is_revoked_is_refused_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as api:
        assert (await api.ask("GET", "/me", "user")).json()["user"] == "mary"
        asked = len(api.node.asked)
        assert (await api.ask("GET", "/me", "user")).status_code == 200
        assert len(api.node.asked) == asked, "it is remembered for a moment"
        del api.node.tokens["user"]
        monkeypatch.setattr("tidegate.api.callers.time", SimpleNamespace(monotonic=lambda: time.monotonic() + 1.01))
        assert (await api.ask("GET", "/me", "user")).status_code == 401


async def test_guessing_tokens_is_slow(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        assert (await api.ask("GET", "/me", "admin")).status_code == 200
        codes: list[int] = []
        while 429 not in codes:
            assert len(codes) < 2 * GUESSED
            codes.append((await api.ask("GET", "/me", f"guess-{len(codes)}")).status_code)
        assert codes[:-1] == [401] * (len(codes) - 1)
        assert len(codes) > GUESSED
        assert (await api.ask("GET", "/me", "admin")).status_code == 200, "a token that is known is not in the way"
