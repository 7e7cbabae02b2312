"""What a change would do to what was decided before, asked over HTTP of a real node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api.real import administering
from processes import on_uvloop

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
