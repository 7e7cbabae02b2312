"""A name is not an identity, seen over HTTP: tokens, preferences, and who may have which name."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from api.real import Administrator, administering
from harness import Client
from tidegate.admin.control_commands import MakeToken

BOB = 'bob: {password: "plain:first", roles: [coach]}'
NEXT_BOB = 'bob: {password: "plain:second", roles: [coach]}'
FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
store: sqlite
sys: {interval: 0s}
sources: {registration: open}
directory:
  users:
    alice: {password: "plain:wonder"}
    BOB
policies:
  - {id: write, subject: "*", topic: "#", action: write}
  - {id: read, subject: ["user:alice", "user:expected"], topic: "#", action: read}
  - {id: conditional, subject: "*", topic: "#", action: read, when: "s.user in ['awaited', 'app.awaited']"}
preferences:
  - {id: filed, user: dora, topic: "of/dora", when: "s.user == 'elsa'"}
"""
WITH, WITHOUT, AGAIN = FILE.replace("BOB", BOB), FILE.replace("BOB", ""), FILE.replace("BOB", NEXT_BOB)
SENSOR = {"NodeType": "sensor", "CommunicationMode": "discrete"}


@contextlib.asynccontextmanager
async def node(folder: Path, text: str = WITH) -> AsyncIterator[Administrator]:
    async with administering(folder, text, sources={"registration_open": True}) as admin:
        yield admin


async def token_of(admin: Administrator, user: str) -> str:
    administration = admin.served.node.administration
    assert administration is not None
    made = await administration.tokens.make(MakeToken(role="user", user=user, by="test"))
    return str(made["token"])


async def counts(admin: Administrator, token: str) -> bool:
    answer = await admin.ask("POST", "/me/preferences?dry_run=true", token, json={"topic": "x"})
    assert answer.status_code in (200, 401), answer.text
    return answer.status_code == 200


# -- tokens ------------------------------------------------------------------------------------------------------------


async def test_a_token_of_who_was_removed_from_the_file_is_revoked(tmp_path: Path) -> None:
    """It does not work again for the next bob, and cannot reset his password."""
    async with node(tmp_path) as admin:
        token = await token_of(admin, "bob")
        assert await counts(admin, token)
        await admin.served.reload(WITHOUT)
        assert not await counts(admin, token)
        listed = (await admin.ask("GET", "/tokens")).json()["items"]
        assert [each["revoked_by"] for each in listed if each["user"] == "bob"] == ["file"]
        await admin.served.reload(AGAIN)
        assert not await counts(admin, token)
        assert (await admin.ask("POST", "/me/credentials", token)).status_code == 401
        assert (await admin.ask("GET", "/me/preferences", token)).status_code == 401


async def test_nor_if_the_file_changed_while_the_node_was_down(tmp_path: Path) -> None:
    async with node(tmp_path) as admin:
        token, hers = await token_of(admin, "bob"), await token_of(admin, "alice")
    async with node(tmp_path, WITHOUT) as admin:
        assert not await counts(admin, token)
    async with node(tmp_path, AGAIN) as admin:
        assert not await counts(admin, token)
        assert await counts(admin, hers)


async def test_nor_if_the_next_one_is_registered_over_http(tmp_path: Path) -> None:
    async with node(tmp_path) as admin:
        token = await token_of(admin, "bob")
        await admin.served.reload(WITHOUT)
        made = await admin.make("/users", {"name": "bob"})
        assert not await counts(admin, token)
        assert (await admin.ask("POST", "/me/credentials", token)).status_code == 401
        assert await admin.logs_in("bob", made["password"])


async def test_nor_one_of_a_document_that_was_deleted_and_made_again(tmp_path: Path) -> None:
    async with node(tmp_path) as admin:
        first = await admin.make("/users", {"name": "zoe"})
        extra = await token_of(admin, "zoe")
        assert (await admin.ask("DELETE", "/directory/users/zoe")).status_code == 200
        second = await admin.make("/users", {"name": "zoe"})
        assert [await counts(admin, each) for each in (first["token"], extra, second["token"])] == [False, False, True]


async def test_a_token_stays_with_who_is_renamed(tmp_path: Path) -> None:
    named = FILE.replace("BOB", 'bob: {id: b1, password: "plain:first"}')
    async with node(tmp_path, named) as admin:
        token = await token_of(admin, "bob")
        await admin.served.reload(named.replace("bob:", "robert:"))
        assert (await admin.ask("POST", "/me/preferences", token, json={"topic": "x"})).status_code == 201
        assert (await admin.ask("GET", "/me", token)).json()["user"] == "robert"


# -- preferences -------------------------------------------------------------------------------------------------------


async def test_preferences_belong_to_who_made_them(tmp_path: Path) -> None:
    """Those of the last bob bind what he published; the next bob neither sees them nor is bound by them."""
    async with node(tmp_path) as admin:
        token = await token_of(admin, "bob")
        made = await admin.make("/me/preferences", {"topic": "of/bob", "when": "false"}, token)
        bob = await connected(admin, "bob", "first")
        await bob.publish("of/bob", b"first", qos=1, retain=True)
        await admin.served.reload(WITHOUT)
        alice = await connected(admin, "alice", "wonder")
        await alice.subscribe("of/bob", qos=1)
        await alice.silent()  # a removed owner's preferences keep binding
        await admin.served.reload(AGAIN)
        second = await token_of(admin, "bob")
        assert (await admin.ask("GET", "/me/preferences", second)).json()["items"] == []
        path = f"/me/preferences/{made['id']}"
        for method, options in (("GET", {}), ("DELETE", {"headers": {"If-Match": "*"}})):
            assert (await admin.ask(method, path, second, **options)).status_code == 404
        await alice.subscribe("of/bob", qos=1)
        await alice.silent()
        bob = await connected(admin, "bob", "second")
        await bob.publish("of/bob", b"second", qos=0)
        assert (await alice.message()).payload == b"second"


async def test_nobody_makes_a_preference_for_another_identity(tmp_path: Path) -> None:
    async with node(tmp_path) as admin:
        token = await token_of(admin, "bob")
        answer = await admin.ask("POST", "/me/preferences", token, json={"topic": "x", "owner": "somebody-else"})
        assert answer.status_code == 403


# -- names that rules mention ------------------------------------------------------------------------------------------


async def test_a_stranger_cannot_have_a_name_that_rules_mention(tmp_path: Path) -> None:
    async with node(tmp_path) as admin:
        names = {
            "expected": 403,
            "awaited": 403,
            "dora": 403,
            "elsa": 403,
            "stranger": 201,
            "expect": 201,
            "alice": 409,
        }
        for name, status in names.items():
            answer = await admin.request("POST", "/registration", json={"NodeId": name, **SENSOR})
            assert answer.status_code == status, (name, answer.text)
        # an administrator may: who wrote the rules knows whom they mean
        answer = await admin.ask("POST", "/registration", json={"NodeId": "expected", **SENSOR})
        assert answer.status_code == 201


async def test_nor_the_name_of_somebody_whose_preferences_still_bind(tmp_path: Path) -> None:
    async with node(tmp_path) as admin:
        await admin.make("/me/preferences", {"topic": "of/bob"}, await token_of(admin, "bob"))
        await admin.served.reload(WITHOUT)
        answer = await admin.request("POST", "/registration", json={"NodeId": "bob", **SENSOR})
        assert answer.status_code == 403, answer.text


async def test_an_application_is_a_stranger_too(tmp_path: Path) -> None:
    async with node(tmp_path) as admin:
        app = await admin.make("/applications", {"id": "app"})
        for name, status in {"app.awaited": 403, "app.other": 201}.items():
            answer = await admin.ask("POST", "/applications/app/users", app["token"], json={"name": name})
            assert answer.status_code == status, answer.text


async def test_a_source_that_registers_again_is_the_same(tmp_path: Path) -> None:
    async with node(tmp_path) as admin:
        first = (await admin.request("POST", "/registration", json={"NodeId": "s1", **SENSOR})).json()
        table = admin.served.node.identities.table
        before = table.id("user", "s1")
        headers = {"Authorization": f"Bearer {first['token']}"}
        answer = await admin.request("POST", "/registration", json={"NodeId": "s1", **SENSOR}, headers=headers)
        assert answer.status_code == 201, answer.text
        assert table.id("user", "s1") == before
        assert (await admin.ask("DELETE", "/sources/s1")).status_code == 200
        assert table.name(before) is None
        assert (await admin.request("POST", "/registration", json={"NodeId": "s1", **SENSOR})).status_code == 201
        assert table.id("user", "s1") not in ("", before)


# -- documents ---------------------------------------------------------------------------------------------------------


async def test_a_deletion_that_is_taken_back_brings_back_the_same(tmp_path: Path) -> None:
    """With preferences that bind again; its tokens were revoked, and stay so."""
    async with node(tmp_path) as admin:
        first = await admin.make("/users", {"name": "zoe"})
        table = admin.served.node.identities.table
        before = table.id("user", "zoe")
        gone = await admin.ask("DELETE", "/directory/users/zoe")
        answer = await admin.ask("POST", "/directory/users/zoe/revert", json={"sequence": gone.json()["version"]})
        assert answer.status_code in (200, 201), answer.text
        assert table.id("user", "zoe") == before
        assert not await counts(admin, first["token"])


async def test_a_document_cannot_give_itself_an_id(tmp_path: Path) -> None:
    async with node(tmp_path) as admin:
        answer = await admin.ask("PUT", "/directory/users/zoe", json={"id": "b1"})
        assert answer.status_code == 422, answer.text


async def connected(admin: Administrator, user: str, password: str) -> Client:
    return await admin.served.connect(user, username=user, password=password.encode())


async def test_rules_of_a_source_hold_for_what_it_sends_over_http(tmp_path: Path) -> None:
    """They belong to its identity, however its messages come."""
    text = FILE.replace(
        "sources: {registration: open}",
        'sources: {registration: open, topic: "raw/{source}"}\nrules: {allow: ["raw/#"]}',
    )
    text = text.replace("BOB", BOB).replace(
        "policies:\n", 'policies:\n  - {id: raw, subject: "*", topic: "raw/#", action: [read, write]}\n'
    )
    async with node(tmp_path, text) as admin:
        made = (await admin.ask("POST", "/registration", json={"NodeId": "device", **SENSOR})).json()
        device = await admin.served.connect("device", username="device", password=made["password"].encode())
        alice = await admin.served.connect("a", username="alice", password=b"wonder")
        bob = await admin.served.connect("b", username="bob", password=b"first")
        for client in (alice, bob):
            await client.subscribe("raw/#", qos=1)
        rule = b'[{"id": "r", "topic": "raw/#", "subject": "user:bob", "effect": "deny"}]'
        await device.publish("$tidegate/rules", rule, qos=1)
        answer = await admin.ask("POST", "/data", made["token"], json={"value": 1})
        assert answer.status_code == 202, answer.text
        assert (await alice.message()).payload == b'{"value":1}'
        await bob.silent()
