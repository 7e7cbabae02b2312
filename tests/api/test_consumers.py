"""Registration over HTTP, on a real node: who can do what for whom, and what is there afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from api.real import Administrator, administering
from tidegate.keys import Kem, PrivateKey

PUBLIC = str(PrivateKey(kem=Kem.X25519, seed=bytes(range(32))).public)
OTHER = str(PrivateKey(kem=Kem.X25519, seed=bytes(32)).public)


@pytest.fixture(autouse=True)
def asks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is believed for a second, and nobody here waits for that."""
    monkeypatch.setattr("tidegate.api.callers.TRUSTED", 0.0)


async def me(admin: Administrator, token: str) -> int:
    return (await admin.ask("GET", "/me", token)).status_code


def readers(admin: Administrator) -> dict[str, str]:
    return {name: str(key) for name, key in admin.served.node.config.built.readers.items()}


async def test_a_user_registers_and_comes_in(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        body = {"name": "mary", "roles": ["coach"], "attributes": {"shift": "day"}, "public_key": PUBLIC}
        answer = await admin.ask("POST", "/users?why=new", json=body)
        assert answer.status_code == 201
        made = answer.json()
        assert made["trouble"] is None
        assert made["expires"].endswith("Z")
        assert answer.headers["etag"] == f'"{made["version"]}"'
        assert readers(admin) == {"user:mary": PUBLIC}
        shown = (await admin.ask("GET", "/directory/users/mary")).json()
        assert shown["value"] == {
            "roles": ["coach"],
            "groups": [],
            "attributes": {"shift": "day"},
            "public_key": PUBLIC,
        }
        assert shown["why"] == "new"
        assert await admin.logs_in("mary", made["password"])
        assert (await admin.ask("GET", "/me", made["token"])).json()["user"] == "mary"
        assert (await admin.ask("POST", "/me/preferences", made["token"], json={"topic": "a"})).status_code == 201
        own = await admin.make("/users", {"name": "bob", "password": "of my own"})
        assert "password" not in own
        assert await admin.logs_in("bob", "of my own")


async def test_what_is_shown_once_is_stored_nowhere(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        made = await admin.make("/users", {"name": "mary"})
        own = await admin.make("/users", {"name": "bob", "password": "of my own"})
        listed = (await admin.ask("GET", "/directory/users/mary/history")).text
        told = (await admin.ask("GET", "/audit")).text
        kept = b"".join(file.read_bytes() for file in (tmp_path / "data").rglob("*") if file.is_file())
        for secret in (made["password"], made["token"], own["token"], "of my own"):
            assert secret not in listed + told
            assert secret.encode() not in kept


async def test_registered_twice(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        made = await admin.make("/users", {"name": "mary"})
        for path, body in (("/users", {"name": "mary"}), ("/applications", {"id": "mary"})):
            again = await admin.ask("POST", path, json=body)
            assert again.status_code == 409, again.text
            assert "exists already" in again.json()["detail"]
        filed = await admin.ask("POST", "/users", json={"name": "filed"})
        assert (filed.status_code, filed.json()["type"]) == (403, "urn:tidegate:problem:readonly")
        assert await me(admin, made["token"]) == 200, "what there was stays"
        assert (await admin.ask("GET", "/applications")).json()["items"] == [], "nothing half done"
        tokens = (await admin.ask("GET", "/tokens")).json()["items"]
        assert len(tokens) == 2, "no token for who was refused"


async def test_only_tried(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        app = await admin.make("/applications", {"id": "app"})
        before = await admin.ask("GET", "/directory/users")
        for method, path, body in (
            ("POST", "/users", {"name": "mary"}),
            ("POST", "/applications", {"id": "other"}),
            ("POST", "/applications/app/users", {"name": "mary"}),
            ("POST", "/users/app/credentials", None),
            ("PUT", "/users/app/key", {"public_key": PUBLIC}),
            ("DELETE", "/applications/app", None),
        ):
            answer = await admin.ask(method, f"{path}?dry_run=true", json=body)
            assert answer.status_code == 200, answer.text
            said = answer.json()
            assert said["dry_run"] is True
            assert "different" in said["effect"]
            assert "token" not in said
        wrong = await admin.ask("POST", "/users?dry_run=true", json={"name": "app"})
        assert wrong.status_code == 409
        assert (await admin.ask("GET", "/directory/users")).json() == before.json()
        assert await me(admin, app["token"]) == 200


WRONG: tuple[tuple[dict[str, Any], int], ...] = (
    ({}, 422),
    ({"name": ""}, 422),
    ({"name": 7}, 422),
    ({"name": "a@b"}, 422),
    ({"name": "a\nb"}, 422),
    ({"name": "ü" * 150}, 422),
    ({"name": "x" * 201}, 422),
    ({"name": "m", "password": ""}, 422),
    ({"name": "m", "roles": "coach"}, 422),
    ({"name": "m", "roles": [7]}, 422),
    ({"name": "m", "roles": ["a\x00b"]}, 422),
    ({"name": "m", "attributes": {"user": "filed"}}, 422),
    ({"name": "m", "attributes": {"no name": 1}}, 422),
    ({"name": "m", "attributes": {"application": "app"}}, 422),
    ({"name": "m", "public_key": "x25519:AAAA"}, 422),
    ({"name": "m", "public_key": "x25519-private:AAAA"}, 422),
    ({"name": "m", "public_key": 7}, 422),
    ({"name": "m", "admin": True}, 422),
    ({"name": "m", "id": "m"}, 422),
    ({"name": "m", "attributes": {"a": "x" * 300_000}}, 422),
    ({"name": "m", "attributes": {"a": "x" * 600_000}}, 413),
)


async def test_what_cannot_be_registered(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        for body, status in WRONG:
            answer = await admin.ask("POST", "/users", json=body)
            assert answer.status_code == status, (body, answer.text)
            assert answer.json()["detail"]
        left = (await admin.ask("GET", "/directory/users")).json()["items"]
        assert [each["id"] for each in left] == ["filed"]
        assert len((await admin.ask("GET", "/tokens")).json()["items"]) == 1


async def test_an_application_and_its_users(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        app = await admin.make("/applications", {"id": "app", "description": "a gym", "roles": ["coach"]})
        assert (await admin.ask("GET", "/applications")).json()["items"][0]["value"] == {"description": "a gym"}
        assert await admin.logs_in("app", app["password"])
        under = await admin.make("/applications/app/users", {"name": "mary", "roles": ["coach"]})
        own = await admin.make("/applications/app/users", {"name": "app.bob"}, app["token"])
        await admin.make("/users", {"name": "zoe"})
        for name, of in (("app", "app"), ("mary", "app"), ("app.bob", "app"), ("zoe", None)):
            value = (await admin.ask("GET", f"/directory/users/{name}")).json()["value"]
            assert value.get("attributes", {}).get("application") == of
        for token in (None, app["token"]):
            listed = (await admin.ask("GET", "/applications/app/users", token)).json()
            assert [each["id"] for each in listed["items"]] == ["app.bob", "mary"]
        client = await admin.served.connect("c1", username="app.bob", password=own["password"].encode())
        answer = await client.publish("of/x", qos=1)
        assert answer is not None
        assert answer.reason < 0x80, "s.application is what policies see"
        for token in (under["token"], own["token"]):
            assert await me(admin, token) == 200
        gone = await admin.ask("DELETE", "/applications/app?why=closed")
        assert gone.status_code == 200, gone.text
        assert gone.json()["trouble"] is None
        left = (await admin.ask("GET", "/directory/users")).json()["items"]
        assert [each["id"] for each in left] == ["filed", "zoe"]
        assert (await admin.ask("GET", "/applications/app")).status_code == 404
        assert (await admin.ask("GET", "/applications/app/users")).status_code == 404
        assert (await admin.ask("DELETE", "/applications/app")).status_code == 404
        await client.closed()
        await admin.make("/applications", {"id": "app"})
        for token in (app["token"], under["token"], own["token"]):
            assert await me(admin, token) == 401, "who is called the same later has not their tokens"


async def test_an_application_gives_nothing_that_it_has_not(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        body = {"id": "app", "roles": ["coach"], "groups": ["g"], "attributes": {"city": "rome"}}
        app = (await admin.make("/applications", body))["token"]
        path = "/applications/app/users"
        for token, more in (
            (None, {"roles": ["doctor"]}),
            (app, {"roles": ["coach", "doctor"]}),
            (None, {"groups": ["h"]}),
            (app, {"groups": ["h"]}),
            (app, {"attributes": {"city": "milan"}}),
            (app, {"attributes": {"clearance": "secret"}}),
            (app, {"name": "bob"}),
            (app, {"name": "app."}),
            (app, {"name": "application"}),
        ):
            answer = await admin.ask("POST", path, token, json={"name": "app.bob", **more})
            assert answer.status_code == 403, more
        answer = await admin.ask("POST", path, app, json={"name": "app.bob", "attributes": {"application": "x"}})
        assert answer.status_code == 422
        assert (await admin.ask("GET", path)).json()["items"] == []
        made = {"name": "app.bob", "roles": ["coach"], "groups": ["g"], "attributes": {"city": "rome"}}
        await admin.make(path, made, app)
        await admin.make(path, {"name": "anna", "attributes": {"city": "milan"}})
        assert (await admin.ask("POST", "/applications/none/users", json={"name": "x"})).status_code == 404


async def test_an_application_acts_for_its_own_users_only(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        app = (await admin.make("/applications", {"id": "app"}))["token"]
        other = (await admin.make("/applications", {"id": "other"}))["token"]
        mary = await admin.make("/applications/app/users", {"name": "mary"})
        zoe = await admin.make("/users", {"name": "zoe"})
        key = {"public_key": PUBLIC}
        for token, name in (
            (other, "mary"),
            (mary["token"], "mary"),
            (mary["token"], "app"),
            (zoe["token"], "mary"),
            (app, "zoe"),
            (app, "app"),
            (app, "other"),
            (app, "filed"),
            (app, "nobody"),
        ):
            renewed = await admin.ask("POST", f"/users/{name}/credentials", token)
            keyed = await admin.ask("PUT", f"/users/{name}/key", token, json=key)
            assert (renewed.status_code, keyed.status_code) == (403, 403), name
            assert renewed.text.replace(name, "") == keyed.text.replace(name, "")
        for token in (other, mary["token"], zoe["token"]):
            assert (
                await admin.ask("POST", "/applications/app/users", token, json={"name": "app.x"})
            ).status_code == 403
            assert (await admin.ask("GET", "/applications/app/users", token)).status_code == 403
            assert (await admin.ask("GET", "/applications/app", token)).status_code == 403
        mine = await admin.ask("POST", "/applications/zoe/users", zoe["token"], json={"name": "zoe.x"})
        assert mine.status_code == 404, "a user is no application"
        assert readers(admin) == {}
        assert (await admin.ask("PUT", "/users/mary/key", app, json=key)).status_code == 200
        assert (await admin.ask("POST", "/users/mary/credentials", app)).status_code == 201
        await admin.ask("PUT", "/directory/users/mary", json=await _with(admin, "mary", roles=["coach"]), headers=ANY)
        more = await admin.ask("POST", "/users/mary/credentials", app)
        assert more.status_code == 403, "she can more than the application by now"
        known = {"name": "vip", "attributes": {"ward": "icu"}}
        await admin.make("/applications/app/users", known)  # an administrator gives what the application has not
        assert (await admin.ask("POST", "/users/vip/credentials", app)).status_code == 403
        assert (await admin.ask("PUT", "/users/vip/key", app, json=key)).status_code == 403


ANY = {"If-Match": "*"}


async def _with(admin: Administrator, name: str, **more: Any) -> dict[str, Any]:
    value: dict[str, Any] = (await admin.ask("GET", f"/directory/users/{name}")).json()["value"]
    return {**value, **more}


async def test_credentials_are_renewed(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        first = await admin.make("/users", {"name": "mary", "roles": ["coach"], "public_key": PUBLIC})
        answer = await admin.ask("POST", "/me/credentials", first["token"])
        assert answer.status_code == 201, answer.text
        second = answer.json()
        third = (await admin.ask("POST", "/users/mary/credentials", json={})).json()
        value = (await admin.ask("GET", "/directory/users/mary")).json()["value"]
        assert (value["roles"], value["public_key"]) == (["coach"], PUBLIC), "the rest stays"
        assert not await admin.logs_in("mary", first["password"])
        assert not await admin.logs_in("mary", second["password"])
        assert await admin.logs_in("mary", third["password"])
        codes = [await me(admin, each["token"]) for each in (first, second, third)]
        assert codes == [401, 401, 200]
        for _ in range(5):
            assert (await admin.ask("POST", "/users/mary/credentials")).status_code == 201
        tokens = [each for each in (await admin.ask("GET", "/tokens")).json()["items"] if each["user"] == "mary"]
        assert len(tokens) == 2, "who renews them for ever does not fill the store"
        assert (await admin.ask("POST", "/users/filed/credentials")).status_code == 403
        assert (await admin.ask("POST", "/users/nobody/credentials")).status_code == 404
        assert (await admin.ask("POST", "/users/mary/credentials", json={"password": "x"})).status_code == 422


async def test_a_public_key_is_registered(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        mary = await admin.make("/users", {"name": "mary"})
        rules = admin.served.node.config.built.policy_version
        answer = await admin.ask("PUT", "/me/key", mary["token"], json={"public_key": PUBLIC})
        assert answer.status_code == 200, answer.text
        assert readers(admin) == {"user:mary": PUBLIC}
        assert admin.served.node.config.built.policy_version == rules, "a key is no policy"
        assert await admin.logs_in("mary", mary["password"])
        late = {"If-Match": f'"{mary["version"]}"'}
        refused = await admin.ask("PUT", "/users/mary/key", json={"public_key": OTHER}, headers=late)
        assert refused.status_code == 412
        seen = {"If-Match": answer.headers["etag"]}
        assert (await admin.ask("PUT", "/users/mary/key", json={"public_key": OTHER}, headers=seen)).status_code == 200
        assert readers(admin) == {"user:mary": OTHER}
        for body in ({}, {"public_key": ""}, {"public_key": None}, {"public_key": "x25519:AAAA"}, {"key": PUBLIC}):
            assert (await admin.ask("PUT", "/me/key", mary["token"], json=body)).status_code == 422
        assert (await admin.ask("PUT", "/users/filed/key", json={"public_key": OTHER})).status_code == 403
        assert (await admin.ask("PUT", "/users/nobody/key", json={"public_key": OTHER})).status_code == 404
        assert readers(admin) == {"user:mary": OTHER}


async def test_who_is_removed_has_no_token_any_more(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        mary = await admin.make("/users", {"name": "mary"})
        assert (await admin.ask("DELETE", "/directory/users/mary")).status_code == 200
        again = await admin.make("/users", {"name": "mary"})
        assert [await me(admin, each["token"]) for each in (mary, again)] == [401, 200]


async def test_one_user_of_an_application_is_removed(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        app = await admin.make("/applications", {"id": "app"})
        other = await admin.make("/applications", {"id": "other"})
        users = {name: await admin.make("/applications/app/users", {"name": name}) for name in ("app.a", "app.b", "c")}
        await admin.make("/applications/other/users", {"name": "other.a"})
        await admin.make("/users", {"name": "mary"})
        own = {"topic": "a"}
        assert (await admin.ask("POST", "/me/preferences", users["app.a"]["token"], json=own)).status_code == 201

        # Whose it is not.
        for path, token, status in (
            ("app/users/app.a", other["token"], 403),
            ("app/users/app.a", users["app.a"]["token"], 403),
            ("app/users/other.a", app["token"], 403),
            ("app/users/mary", app["token"], 403),
            ("app/users/nobody", app["token"], 403),
            ("app/users/app", app["token"], 403),
            ("app/users/other.a", None, 404),
            ("app/users/mary", None, 404),
            ("app/users/app", None, 404),
            ("app/users/filed", None, 404),
            ("nothing/users/app.a", None, 404),
        ):
            answer = await admin.ask("DELETE", f"/applications/{path}", token)
            assert answer.status_code == status, (path, answer.text)
        late = {"If-Match": '"1"'}
        assert (await admin.ask("DELETE", "/applications/app/users/app.a", headers=late)).status_code == 412
        tried = await admin.ask("DELETE", "/applications/app/users/app.a?dry_run=true", app["token"])
        assert (tried.status_code, tried.json()["dry_run"]) == (200, True)
        assert await me(admin, users["app.a"]["token"]) == 200
        assert len((await admin.ask("GET", "/directory/users")).json()["items"]) == 8

        removed = await admin.ask("DELETE", "/applications/app/users/app.a?why=gone", app["token"])
        assert (removed.status_code, removed.json()["id"], removed.json()["trouble"]) == (200, "app.a", None)
        assert (await admin.ask("DELETE", "/applications/app/users/c")).status_code == 200
        assert [await me(admin, each["token"]) for each in users.values()] == [401, 200, 401]
        left = (await admin.ask("GET", "/applications/app/users")).json()["items"]
        assert [each["id"] for each in left] == ["app.b"]
        assert (await admin.ask("GET", "/directory/users/app.a/history")).json()["items"][-1]["why"] == "gone"
        stay = (await admin.ask("GET", "/preferences")).json()["items"]
        assert [each["value"]["user"] for each in stay] == ["app.a"], "preferences stay"


async def test_many_at_once(tmp_path: Path) -> None:
    async with administering(tmp_path) as admin:
        await admin.make("/applications", {"id": "app"})
        asked = [admin.ask("POST", "/applications/app/users", json={"name": f"u{number % 6}"}) for number in range(12)]
        codes = sorted(answer.status_code for answer in await asyncio.gather(*asked))
        assert codes == [201] * 6 + [409] * 6
        pages: list[str] = []
        after = None
        while True:
            query: dict[str, Any] = {"limit": 4} if after is None else {"limit": 4, "after": after}
            found = (await admin.ask("GET", "/applications/app/users", params=query)).json()
            pages += [each["id"] for each in found["items"]]
            after = found["next"]
            if after is None:
                break
        assert pages == [f"u{number}" for number in range(6)]
