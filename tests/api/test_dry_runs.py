"""What a change would do to what was decided before, asked over HTTP of a real node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api.real import administering
from processes import on_uvloop
from tidegate.keys import Kem, PrivateKey

FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
store: sqlite
sys: {interval: 0s}
record: decisions
directory:
  users: {mary: {password: "plain:mary"}, tom: {password: "plain:tom"}, bob: {password: "plain:bob"}}
policies:
  - {id: all, subject: "*", topic: "#", action: [read, write], when: "o.size < 100"}
"""

PUBLIC = str(PrivateKey(kem=Kem.X25519, seed=bytes(range(32))).public)


async def come(served: Any, user: str) -> Any:
    return await served.connect(user[0], username=user, password=user.encode())


@on_uvloop
async def test_a_preference_counts_retained_deliveries(tmp_path: Path) -> None:
    async with administering(tmp_path, FILE) as admin:
        for user in ("mary", "tom"):
            sender = await come(admin.served, user)
            await sender.publish(f"heart/{user}", b"1", qos=1, retain=True)
            await sender.disconnect()
        for _ in range(3):
            bob = await come(admin.served, "bob")
            await bob.subscribe("heart/#")
            assert {(await bob.message()).topic for _ in range(2)} == {"heart/mary", "heart/tom"}
            await bob.disconnect()
        stop = {"user": "mary", "topic": "heart/#", "when": "false"}
        tried = await admin.ask("PUT", "/preferences/stop?dry_run=true", json=stop)
        assert tried.status_code == 200, tried.text
        effect = tried.json()["effect"]
        [change] = effect["changes"]
        assert {name: change[name] for name in ("as", "action", "topic", "from", "count")} == {
            "as": "user:bob/client:b",
            "action": "read",
            "topic": "heart/mary",
            "from": "user:mary/client:m",
            "count": 3,
        }
        assert change["after"].startswith("DENY by stop ")
        assert (effect["different"], effect["undecided"]) == (1, 0)
        assert not any("who published" in each for each in effect["not_covered"])
        page = (await admin.ask("GET", "/audit?kind=allowed&topic=heart/mary")).json()["items"]
        read = [row for row in page if row["action"] == "read"]
        assert {row["publisher"] for row in read} == {"user:mary/client:m"}
        assert sum(row["count"] for row in read) == 3


LINKED = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", scope: home}]
scopes: {home: {}, net: {}}
links: [{from: home, to: net}]
store: sqlite
sys: {interval: 0s}
directory:
  users: {mary: {password: "plain:mary", roles: [sender]}, tom: {password: "plain:tom", roles: [sender]}}
policies:
  - {id: sends, subject: "role:sender", topic: "#", action: write}
  - {id: into, subject: "scope:net", topic: "#", action: read}
"""


@on_uvloop
async def test_what_a_link_was_denied_is_asked_again_for_its_publisher(tmp_path: Path) -> None:
    async with administering(tmp_path, LINKED) as admin:
        for user, times in (("mary", 2), ("tom", 3)):
            sender = await come(admin.served, user)
            for _ in range(times):
                await sender.publish("heart/1", b"1", qos=1)
        out = {"subject": "scope:home", "topic": "heart/#", "action": "write", "when": "p.user == 'mary'"}
        effect = (await admin.ask("PUT", "/policies/out?dry_run=true", json=out)).json()["effect"]
        [change] = effect["changes"]
        assert (change["as"], change["from"], change["count"]) == ("link:home->net", "user:mary/client:m", 2)
        assert (effect["questions"], effect["undecided"]) == (2, 0)
        page = (await admin.ask("GET", "/audit?kind=deny")).json()["items"]
        assert {(row["action"], row["link"], row["publisher"], row["stage"]) for row in page} == {
            ("forward", "scope:home->scope:net", "user:mary/client:m", "write"),
            ("forward", "scope:home->scope:net", "user:tom/client:t", "write"),
        }


@on_uvloop
async def test_a_user_is_not_told_of_readers(tmp_path: Path) -> None:
    file = FILE.replace('bob: {password: "plain:bob"}', 'bob: {password: "plain:bob", attributes: {salary: 7000}}')
    async with administering(tmp_path, file) as admin:
        token = (await admin.make("/tokens", {"role": "user", "user": "mary"}))["token"]
        bob, mary = await come(admin.served, "bob"), await come(admin.served, "mary")
        await bob.subscribe("heart/#")
        await mary.publish("heart/mary", b"1", qos=1)
        assert (await bob.message()).payload == b"1"
        own = await admin.make("/me/preferences", {"topic": "other"}, token)
        told = []
        for when in ("s.salary > 6000", "s.salary > 8000", "false"):
            body, path = {"topic": "#", "when": when}, "/me/preferences"
            for method, target in (("POST", path), ("PUT", f"{path}/{own['id']}")):
                headers = {"If-Match": "*"} if method == "PUT" else {}
                tried = await admin.ask(method, f"{target}?dry_run=true", token, json=body, headers=headers)
                assert (tried.status_code, tried.json()["dry_run"]) == (200, True), tried.text
                told.append({key: value for key, value in tried.json().items() if key != "id"})
                assert told[-1]["effect"] is None
        assert all(each == told[0] for each in told), "whatever readers have"
        gone = await admin.ask("DELETE", f"/me/preferences/{own['id']}?dry_run=true", token, headers={"If-Match": "*"})
        assert (gone.status_code, gone.json()["effect"]) == (200, None)
        anna = (await admin.make("/users", {"name": "anna"}))["token"]
        for method, target in (("POST", "/me/credentials"), ("PUT", "/me/key")):
            body = {"public_key": PUBLIC} if method == "PUT" else None
            tried = await admin.ask(method, f"{target}?dry_run=true", anna, json=body)
            assert (tried.status_code, tried.json()["effect"]) == (200, None), tried.text

        # what is wrong is still told, and an administrator sees everything
        wrong = await admin.ask("POST", "/me/preferences?dry_run=true", token, json={"topic": "#", "when": "s."})
        assert wrong.status_code == 422
        body = {"user": "mary", "topic": "#", "when": "s.salary > 8000"}
        [change] = (await admin.ask("POST", "/preferences?dry_run=true", json=body)).json()["effect"]["changes"]
        assert change["as"] == "user:bob/client:b"
