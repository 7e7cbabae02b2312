"""What is administered while the node runs: in force at once, whole or not at all, and after a restart."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import pytest

import postgres
from admin.registries import FILE, OPEN, SQLITE, Administered, administered
from processes import on_uvloop, until
from tidegate import wire
from tidegate.admin.administration import Administration
from tidegate.authentication.passwords import hash_password
from tidegate.config import ConfigErrors
from tidegate.errors import StoreError, TidegateError
from tidegate.wire import Reason


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> str:
    """The line of the file that says where administration is kept."""
    if request.param == "sqlite":
        return SQLITE
    found: postgres.Server = request.getfixturevalue("server")
    return on(found, found.schema())


def on(server: postgres.Server, schema: str) -> str:
    return f'store: "{server.address(schema=schema)}"'


def audited(node: Administered) -> list[tuple[str | None, str | None, str | None]]:
    return [(row.action, row.user, row.detail) for row in node.node.audit.sink.recent() if row.user]


# -- documents -----------------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_policy_is_in_force_when_it_is_answered_and_after_a_restart(tmp_path: Path, store: str) -> None:
    async with administered(tmp_path, store) as node:
        assert not await node.passes("t/1")
        before = node.node.audit.version
        done = await node.put("policy", "p1", OPEN, why="we are open")
        assert done["rules"] == node.node.audit.version != before
        assert await node.passes("t/1")
        assert ("change", "token:test", "policy/p1: we are open") in audited(node)
        shown = await node.ask("admin_get", kind="policy", id="p1")
        assert (shown["body"], shown["version"], shown["source"]) == (OPEN, done["sequence"], "api")
        assert (shown["changed_by"], shown["why"]) == ("token:test", "we are open")
    async with administered(tmp_path, store) as node:
        assert await node.passes("t/1")
        assert not await node.passes("u")
        assert await node.ask("admin_get", kind="policy", id="p1") == shown
        await node.put("policy", "p1", {**OPEN, "topic": "u/#"}, done["sequence"])
        assert not await node.passes("t/1")
        assert await node.passes("u/1")
        await node.put("policy", "p1", None)
        assert not await node.passes("u/1")
    async with administered(tmp_path, store) as node:
        assert not await node.passes("u/1")


@on_uvloop
async def test_users_come_and_go(tmp_path: Path, store: str) -> None:
    async with administered(tmp_path, store) as node:
        await node.connect("c", username="bob", password=b"x", expect=Reason.BAD_USER_NAME_OR_PASSWORD)
        done = await node.put("user", "bob", {"password": hash_password("x"), "roles": ["coach"]})
        bob = await node.connect("c", username="bob", password=b"x")
        shown = await node.ask("admin_get", kind="user", id="bob")
        assert shown["body"] == {"roles": ["coach"]}
        # sent back as it was shown: the password stays
        done = await node.put("user", "bob", {"roles": ["boss"]}, done["sequence"])
        await (await node.connect("d", username="bob", password=b"x")).silent()
        history = (await node.ask("admin_history", kind="user", id="bob"))["entries"]
        assert [each["body"] for each in history] == [{"roles": ["coach"]}, {"roles": ["boss"]}]
        await node.put("user", "bob", None, done["sequence"])
        assert (await bob.expect(wire.Disconnect)).reason >= 0x80
        await node.connect("c", username="bob", password=b"x", expect=Reason.BAD_USER_NAME_OR_PASSWORD)


@on_uvloop
async def test_a_password_of_mosquitto_becomes_argon2_at_the_first_login(tmp_path: Path, store: str) -> None:
    salt, digest = "dHdlbHZlIGJ5dGVz", pbkdf2_hmac("sha512", b"x", b"twelve bytes", 101)
    written = f"$7$101${salt}${b64encode(digest).decode()}"
    async with administered(tmp_path, store) as node:
        before = await node.put("user", "bob", {"password": written, "roles": ["coach"]})
        bob = await node.connect("c", username="bob", password=b"x")
        await node.connect("d", username="bob", password=b"y", expect=Reason.BAD_USER_NAME_OR_PASSWORD)
        administration = node.node.administration
        assert administration is not None
        await until(lambda: _password(administration, "bob").startswith("$argon2id$"))
        await until(lambda: administration.status()["in_force"])
        await bob.silent()  # nobody has to log in again
        await (await node.connect("e", username="bob", password=b"x")).silent()
        shown = await node.ask("admin_get", kind="user", id="bob")
        assert (shown["body"], shown["changed_by"]) == ({"roles": ["coach"]}, "node")
        assert shown["version"] > before["sequence"]
    async with administered(tmp_path, store) as node:
        await (await node.connect("c", username="bob", password=b"x")).silent()


def _password(administration: Administration, user: str) -> str:
    body = administration.document_body("user", user)
    assert body is not None
    return str(body["password"])


@on_uvloop
async def test_the_file_comes_first_and_is_read_only(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        await node.put("policy", "z", OPEN)
        await node.put("policy", "a", OPEN)
        listed = (await node.ask("admin_list", kind="policy"))["documents"]
        assert [(each["id"], each["source"]) for each in listed] == [("filed", "file"), ("z", "api"), ("a", "api")]
        await node.put("policy", "z", {**OPEN, "effect": "deny"}, listed[1]["version"])
        listed = (await node.ask("admin_list", kind="policy"))["documents"]
        assert [each["id"] for each in listed] == ["filed", "z", "a"]
        policies = node.node.config.policies
        assert isinstance(policies, tuple)
        assert [each.id for each in policies] == ["filed", "z", "a"]
        for kind, id in (("policy", "filed"), ("user", "keeper")):
            problem = await node.refused(kind, id, {"x": 1})
            assert (problem.problem, problem.details[0]["at"]) == ("readonly", f"{kind}/{id}")
            assert (await node.refused(kind, id, None)).problem == "readonly"
        assert "password" not in (await node.ask("admin_get", kind="user", id="keeper"))["body"]


@on_uvloop
async def test_a_broken_change_is_refused_whole(tmp_path: Path, store: str) -> None:
    async with administered(tmp_path, store) as node:
        version = node.node.audit.version
        changes = [
            {"kind": "policy", "id": "good", "body": OPEN},
            {"kind": "policy", "id": "bad", "body": {**OPEN, "when": "s.x =="}},
        ]
        problem = await node.problem("admin_apply", changes=changes, by="token:test")
        assert problem.problem == "invalid"
        assert [each["at"] for each in problem.details] == ["policy/bad"]
        assert "is no condition" in problem.details[0]["error"]
        assert not await node.passes("t/1")
        assert (await node.ask("admin_list", kind="policy"))["documents"][1:] == []
        assert node.node.audit.version == version
        assert any(action == "refused" and user == "token:test" for action, user, _ in audited(node))
        # the same, mended
        changes[1]["body"] = {**OPEN, "topic": "u/#"}
        await node.ask("admin_apply", changes=changes, by="token:test")
        assert await node.passes("t/1")
        assert await node.passes("u/1")


@on_uvloop
async def test_what_is_needed_elsewhere_cannot_be_removed(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        await node.put("user", "bob", {})
        await node.put("client", "tr1", {"user": "bob"})
        problem = await node.refused("user", "bob", None)
        assert (problem.problem, problem.details[0]["at"]) == ("invalid", "client/tr1")


@on_uvloop
async def test_conflicts(tmp_path: Path, store: str) -> None:
    async with administered(tmp_path, store) as node:
        first = (await node.put("policy", "p", OPEN))["sequence"]
        problem = await node.refused("policy", "p", OPEN)
        assert (problem.problem, problem.details[0]) == (
            "conflict",
            {"at": "policy/p", "error": "exists already", "version": first},
        )
        second = (await node.put("policy", "p", {**OPEN, "effect": "deny"}, first))["sequence"]
        assert (await node.refused("policy", "p", OPEN, first)).details[0]["version"] == second
        assert (await node.refused("policy", "p", None, first)).problem == "conflict"
        assert (await node.refused("policy", "q", OPEN, first)).problem == "conflict"
        assert (await node.refused("policy", "q", None)).problem == "unknown"
        assert (await node.refused("polisy", "q", OPEN)).problem == "unknown"
        assert (await node.problem("admin_get", kind="policy", id="q")).problem == "unknown"
        assert (await node.refused("view", "p", {"topic": "a", "for": "*", "keep": "all"})).problem == "invalid"


@pytest.mark.parametrize(
    "arguments",
    [
        {"changes": [], "by": "x"},
        {"changes": 7, "by": "x"},
        {"changes": [7], "by": "x"},
        {"changes": [{"kind": "policy", "id": 7, "body": {}}], "by": "x"},
        {"changes": [{"kind": "policy", "id": "p", "body": []}], "by": "x"},
        {"changes": [{"kind": "policy", "id": "p", "body": OPEN, "expected": "1"}], "by": "x"},
        {"changes": [{"kind": "policy", "id": "p", "body": OPEN, "more": 1}], "by": "x"},
        {"changes": [{"kind": "policy", "id": "p", "body": OPEN}], "by": ""},
        {"changes": [{"kind": "policy", "id": "p", "body": OPEN}], "by": "x", "why": 7},
        {"changes": [{"kind": "policy", "id": "p\n", "body": OPEN}], "by": "x"},
        {"changes": [{"kind": "policy", "id": "p", "body": OPEN}] * 2, "by": "x"},
        {"changes": [{"kind": "policy", "id": "p", "body": {**OPEN, "id": "q"}}], "by": "x"},
    ],
)
def test_nonsense_is_told_apart(tmp_path: Path, arguments: dict[str, Any]) -> None:
    @on_uvloop
    async def test() -> None:
        async with administered(tmp_path) as node:
            assert (await node.problem("admin_apply", **arguments)).problem == "invalid"
            assert len((await node.ask("admin_list", kind="policy"))["documents"]) == 1

    test()


@on_uvloop
async def test_going_back(tmp_path: Path, store: str) -> None:
    async with administered(tmp_path, store) as node:
        made = (await node.put("policy", "p", OPEN))["sequence"]
        await node.put("policy", "q", {**OPEN, "topic": "q"})
        changed = (await node.put("policy", "p", {**OPEN, "topic": "u/#"}, made))["sequence"]
        assert (await node.problem("admin_revert", sequence=made, by="x")).problem == "conflict"
        assert (await node.problem("admin_revert", sequence=1000, by="x")).problem in ("unknown", "invalid")
        undone = (await node.ask("admin_revert", sequence=changed, by="token:test", why="a mistake"))["sequence"]
        assert await node.passes("t/1")
        deleted = (await node.put("policy", "p", None, undone))["sequence"]
        assert not await node.passes("t/1")
        await node.ask("admin_revert", sequence=deleted, by="token:test")
        assert await node.passes("t/1")
        listed = (await node.ask("admin_list", kind="policy"))["documents"]
        assert [each["id"] for each in listed] == ["filed", "p", "q"]  # in its old place
        entries = (await node.ask("admin_history", kind="policy", id="p"))["entries"]
        assert [None if each["body"] is None else each["body"]["topic"] for each in entries] == [
            "t/#",
            "u/#",
            "t/#",
            None,
            "t/#",
        ]
        assert entries[2]["why"] == "a mistake"


# -- trying things first ---------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_dry_run_tells_what_would_be_decided_differently(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        version = node.node.audit.version
        assert not await node.passes("t/1")
        assert not await node.passes("u/1")
        done = await node.put("policy", "p", OPEN, dry_run=True)
        effect = done["effect"]
        assert effect["different"] == 1
        [change] = effect["changes"]
        assert (change["action"], change["topic"], change["allowed_before"], change["allowed_after"]) == (
            "write",
            "t/1",
            False,
            True,
        )
        assert change["after"].startswith("ALLOW by p ")
        assert effect["decisions"] >= 2
        assert any("only denials are recorded" in each for each in effect["not_covered"])
        assert (await node.refused("policy", "p", {}, dry_run=True)).problem == "invalid"
        assert not await node.passes("t/1")
        assert node.node.audit.version == version
        assert (await node.problem("admin_get", kind="policy", id="p")).problem == "unknown"


@on_uvloop
async def test_a_dry_run_over_what_was_allowed(tmp_path: Path) -> None:
    text = FILE + "record: decisions\n"
    async with administered(tmp_path, text=text) as node:
        reader = await node.connect("reader", username="keeper", password=b"kept")
        await reader.subscribe("filed/#")
        writer = await node.connect("writer")
        await writer.publish("filed/1", qos=1)
        await reader.message()
        await node.ask("audit_written")
        deny = {"subject": "user:keeper", "topic": "filed/1", "action": "read", "effect": "deny"}
        effect = (await node.put("policy", "no", deny, dry_run=True))["effect"]
        told = {(each["action"], each["as"]): each["after"] for each in effect["changes"]}
        assert told["read", "user:keeper/client:reader"].startswith("DENY by no ")
        assert effect["undecided"] == 0


@on_uvloop
async def test_a_dry_run_of_removing_somebody(tmp_path: Path) -> None:
    async with administered(tmp_path, text=FILE + "record: decisions\n") as node:
        made = await node.put("user", "bob", {"password": hash_password("x")})
        bob = await node.connect("b", username="bob", password=b"x")
        await bob.subscribe("filed/#")
        await node.ask("audit_written")
        effect = (await node.put("user", "bob", None, made["sequence"], dry_run=True))["effect"]
        [change] = effect["changes"]
        assert (change["as"], change["allowed_before"], change["allowed_after"]) == ("user:bob/client:b", True, False)
        assert "no user `bob`" in change["after"]
        assert effect["undecided"] == 0


# -- the file and the registry -----------------------------------------------------------------------------------------


@on_uvloop
async def test_a_reload_keeps_what_is_administered(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        await node.put("policy", "p", OPEN)
        text = node.file.path.read_text()
        node.file.path.write_text(text.replace("filed/#", "other/#"))
        # a change over the API does not read the file again
        await node.put("policy", "q", {**OPEN, "topic": "q"})
        assert await node.passes("filed/1")
        await node.node.reload()
        assert await node.passes("other/1")
        assert await node.passes("t/1")
        assert not await node.passes("filed/1")
        # an id of the file that a document has
        node.file.path.write_text(text.replace("id: filed", "id: p"))
        with pytest.raises(ConfigErrors, match="policy/p: `id` is `p`, and so is that of"):
            await node.node.reload()
        assert await node.passes("other/1")


@on_uvloop
async def test_a_preference_cannot_keep_the_node_from_starting(tmp_path: Path) -> None:
    mine = {"user": "keeper", "topic": "later/#", "when": "o.payload.x == 1"}
    protecting = FILE + 'keys: {protect: ["later/#"]}\n'
    async with administered(tmp_path) as node:
        await node.put("preference", "mine", mine)
        owned = {**mine, "owner": node.node.identities.table.id("user", "keeper")}
        node.file.write(protecting.replace("NAME", "test").replace("STORE", SQLITE))
        await node.node.reload()
        receiving = node.node.realm.rules.preferences.receiving("keeper", "test", "later/1")
        assert [each.text for each in receiving.preferences] == ["false"], "nobody receives what it is about"
        problem = await node.refused("preference", "another", mine)
        assert "differs from message to message" in str(problem), "one that is being written must be right"
    async with administered(tmp_path, text=protecting) as node:
        shown = await node.ask("admin_get", kind="preference", id="mine")
        assert shown["body"] == owned
        await node.put("preference", "mine", {**mine, "when": "true"}, shown["version"])
        receiving = node.node.realm.rules.preferences.receiving("keeper", "test", "later/1")
        assert [each.text for each in receiving.preferences] == ["true"]


@on_uvloop
async def test_a_node_does_not_start_without_its_registry(tmp_path: Path, server: postgres.Server) -> None:
    async with administered(tmp_path) as node:
        await node.put("policy", "p", {**OPEN, "effect": "deny"})
    database = tmp_path / "data" / "admin.db"
    # also if the file does not speak of it any more
    async with administered(tmp_path, "") as node:
        assert (await node.ask("admin_get", kind="policy", id="p"))["source"] == "api"
    whole = database.read_bytes()
    database.write_bytes(b"nonsense" * 512)
    for left in tmp_path.glob("data/admin.db-*"):
        left.unlink()
    with pytest.raises(StoreError, match="Remedy"):
        async with administered(tmp_path):
            pass
    database.write_bytes(whole)
    async with administered(tmp_path) as node:
        assert (await node.ask("admin_get", kind="policy", id="p"))["source"] == "api"
    away = f'store: "{server.address(schema="public", port=1)}"'
    with pytest.raises(StoreError, match="cannot be reached"):
        async with administered(tmp_path / "away", away):
            pass


@on_uvloop
async def test_a_node_without_a_place_for_it(tmp_path: Path) -> None:
    async with administered(tmp_path, "") as node:
        problem = await node.problem("admin_list", kind="policy")
        assert problem.problem == "unavailable"
        assert "`http`" in str(problem)
        assert not (tmp_path / "data" / "admin.db").exists()
        assert node.node.status()["registry"] is None


# -- several nodes -----------------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_change_on_one_node_is_in_force_on_the_other_within_a_second(
    tmp_path: Path, server: postgres.Server
) -> None:
    store = on(server, server.schema())
    async with (
        administered(tmp_path / "a", store, name="a") as a,
        administered(tmp_path / "b", store, name="b") as b,
    ):
        done = await a.put("policy", "p", OPEN, why="because")
        await b.until_passes("t/1", seconds=1.0)
        assert ("followed", "token:test", "policy/p: because") in audited(b)
        # b has seen it, and may change it
        await b.put("policy", "p", {**OPEN, "topic": "u/#"}, done["sequence"])
        await a.until_passes("u/1", seconds=1.0)
        assert not await a.passes("t/1")
        await a.put("user", "bob", {"password": hash_password("x")})
        await until(lambda: "bob" in b.node.config.directory.users, 1.0)
        await (await b.connect("c", username="bob", password=b"x")).silent()
        token = await a.ask("token_make", role="auditor", by="test")
        await until(lambda: b.node.administration.tokens._tokens.check(token["token"], 0.0) is not None, 1.0)  # type: ignore[union-attr]
        await b.ask("token_revoke", id=token["id"], by="test")
        await until(lambda: a.node.administration.tokens._tokens.check(token["token"], 0.0) is None, 1.0)  # type: ignore[union-attr]


@on_uvloop
async def test_changes_on_both_at_once_are_all_made(tmp_path: Path, server: postgres.Server) -> None:
    store = on(server, server.schema())
    async with (
        administered(tmp_path / "a", store, name="a") as a,
        administered(tmp_path / "b", store, name="b") as b,
    ):
        both = [
            node.put("policy", f"{name}{number}", OPEN) for number in range(4) for name, node in (("a", a), ("b", b))
        ]
        done = await asyncio.gather(*both)
        assert len({each["sequence"] for each in done}) == 8

        def ids(node: Administered) -> list[str | None]:
            policies = node.node.config.policies
            assert isinstance(policies, tuple)
            return [each.id for each in policies]

        await until(lambda: len(ids(a)) == len(ids(b)) == 9, 2.0)
        assert ids(a) == ids(b)


@on_uvloop
async def test_two_that_do_not_go_together_are_not_both_made(tmp_path: Path, server: postgres.Server) -> None:
    """Each would be good alone: ids are unique among rules of all kinds."""
    store = on(server, server.schema())
    async with (
        administered(tmp_path / "a", store, name="a") as a,
        administered(tmp_path / "b", store, name="b") as b,
    ):
        view = {"topic": "a", "for": "*", "keep": "all"}
        both = await asyncio.gather(a.put("policy", "x", OPEN), b.put("view", "x", view), return_exceptions=True)
        assert sum(isinstance(each, TidegateError) for each in both) == 1
        assert a.node.administration is not None
        assert a.node.administration.trouble is None


@on_uvloop
async def test_what_is_impossible_on_another_node_is_said_there(tmp_path: Path, server: postgres.Server) -> None:
    store = on(server, server.schema())
    other = FILE.replace("id: filed", "id: taken")
    async with (
        administered(tmp_path / "a", store, name="a") as a,
        administered(tmp_path / "b", store, name="b", text=other) as b,
    ):
        await a.put("policy", "taken", OPEN)
        await until(lambda: b.node.status()["registry"]["trouble"] is not None, 2.0)
        assert "policy/taken: `id` is `taken`" in b.node.status()["registry"]["trouble"]
        assert not b.node.status()["registry"]["in_force"]
        assert await b.passes("filed/1")
        assert not await b.passes("t/1")
        assert (await b.refused("policy", "more", OPEN)).problem == "invalid"
        await a.put("policy", "taken", None)
        await until(lambda: b.node.status()["registry"]["in_force"], 2.0)


# -- trouble -----------------------------------------------------------------------------------------------------------


def test_a_registry_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    with postgres.running() as server:
        store = on(server, server.schema())

        @on_uvloop
        async def test() -> None:
            async with (
                administered(tmp_path / "a", store, name="a") as a,
                administered(tmp_path / "b", store, name="b") as b,
            ):
                await a.put("policy", "p", OPEN)
                await b.until_passes("t/1", seconds=1.0)
                await asyncio.to_thread(server.stop)
                await until(lambda: not a.node.status()["registry"]["reachable"])
                problem = await a.refused("policy", "q", {**OPEN, "topic": "q"})
                assert problem.problem in ("unavailable", "uncertain")
                assert await a.passes("t/1")  # it goes on with what it has
                assert await b.passes("t/1")
                assert (await a.ask("admin_get", kind="policy", id="p"))["body"] == OPEN
                await a.node.reload()  # the file can be read again meanwhile
                assert await a.passes("t/1")
                await asyncio.to_thread(server.start)
                await until(lambda: a.node.status()["registry"]["reachable"])
                await until(lambda: b.node.status()["registry"]["reachable"])
                await a.put("policy", "r", {**OPEN, "topic": "r"})
                await b.until_passes("r", seconds=2.0)

        test()
