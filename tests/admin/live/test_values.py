"""Values are shown as deliveries: steps 6 to 11 for whoever looks, over their connection, and audited as such."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import Client
from processes import Served, from_file
from tidegate.errors import Problem
from tidegate.net.control_socket import ask
from tidegate.policy import Demand

FILE = """
version: 1
node: {name: n, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", scope: gym}]
scopes: {gym: {}, hidden: {}}
links: [{from: gym, to: hidden, share: [{topic: "gym/#"}]}]
sys: {interval: 0s}
directory:
  users:
    mary: {password: "plain:m", roles: [member]}
    alice: {password: "plain:a", roles: [coach]}
    bob: {password: "plain:b", roles: [visitor]}
    nora: {password: "plain:n"}
policies:
  - {id: own, subject: "role:member", topic: "gym/#", action: write}
  - {id: staff, subject: ["role:coach", "role:visitor"], topic: "gym/#", action: read}
  - {id: out, subject: "link:gym->hidden", topic: "gym/#", action: [read, write]}
  - {id: maps, subject: "monitor:rounded", topic: "gym/#", action: write}
  - {id: other, subject: "user:nora", topic: "other/#", action: read}
preferences: [{id: heart, user: mary, topic: "gym/heart", when: "s.user == 'alice'"}]
views: [{topic: "gym/parts", for: "role:visitor", keep: ["/speed"]}, {topic: "gym/parts", for: "role:coach", keep: all}]
monitors:
  - {id: quiet, scope: gym, direction: im_sub, each: link, filter: [gym/power, gym/heart, gym/parts]}
"""


class Node:
    def __init__(self, served: Served) -> None:
        self.served = served

    async def ask(self, command: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(ask, self.served.node.config.control_socket, command, **arguments)

    def identity(self, user: str) -> str:
        return self.served.node.identities.owner(user)

    async def read(self, user: str, topic: str, **more: Any) -> list[dict[str, Any]]:
        """What the first scope says; with the payload as a value."""
        told = await self.ask("topic_read", topic=topic, user=user, **{"identity": self.identity(user), **more})
        return [
            {**each, "sent": [json.loads(b64decode(one["payload"])) for one in each.get("sent", ())]}
            for each in told["values"]
            if each["scope"] == "gym"
        ]

    async def publish(self, *packets: tuple[str, dict[str, Any]]) -> None:
        client: Client = await self.served.connect("strap", username="mary", password=b"m")
        for topic, value in packets:
            await client.publish(topic, json.dumps(value).encode(), qos=1, retain=True)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with from_file(tmp_path, FILE) as served:
        node = Node(served)
        await node.publish(
            ("gym/power", {"w": 90}), ("gym/heart", {"bpm": 70}), ("gym/parts", {"speed": 3, "place": "hall"}),
            ("gym/quiet", {"x": 1}),
        )  # fmt: skip
        yield node


async def test_who_would_receive_it_sees_it(node: Node) -> None:
    for user in ("alice", "bob"):
        [told] = await node.read(user, "gym/power")
        assert told["sent"] == [{"w": 90}]
    assert await node.read("alice", "gym/nothing") == []


@pytest.mark.parametrize(
    ("user", "topic", "step", "rule"),
    [
        ("nora", "gym/power", "read", "default"),
        ("mary", "gym/power", "read", "default"),
        ("bob", "gym/heart", "read", "heart"),
        ("alice", "gym/quiet", "monitor out", ""),
        ("nobody", "gym/power", "connect", "only people of the directory of this node are sent anything here"),
    ],
)
async def test_who_would_not_does_not(node: Node, user: str, topic: str, step: str, rule: str) -> None:
    """Policies, the owner's preferences, a monitor of their link, and whoever is not known."""
    [told] = await node.read(user, topic, identity="" if user == "nobody" else node.identity(user))
    assert (told["sent"], told["denied"]) == ([], {"step": step, "rule": rule})


async def test_a_view_shows_parts(node: Node) -> None:
    assert (await node.read("bob", "gym/parts"))[0]["sent"] == [{"speed": 3}]
    assert (await node.read("alice", "gym/parts"))[0]["sent"] == [{"speed": 3, "place": "hall"}]


async def test_the_connection_of_the_browser_counts(node: Node) -> None:
    """What its publisher wants over TLS alone is not shown over less."""
    scope = node.served.node.scopes["gym"]
    message = scope.retained.get("gym/power")
    assert message is not None
    context = replace(scope.gate.attributes.context(message), demand=Demand(names=("tls",)))
    stricter = message.across(message.topic, message.qos, context.encode(), message.link, message.properties)
    scope.retained.restore(stricter)
    [told] = await node.read("alice", "gym/power", level="plain")
    assert told["denied"]["step"] == "levels"
    [told] = await node.read("alice", "gym/power", level="tls")
    assert told["sent"] == [{"w": 90}]


async def test_another_rule_counts_at_once(node: Node) -> None:
    assert (await node.read("bob", "gym/power"))[0]["sent"]
    await node.served.reload(
        node.served.file.path.read_text().replace('["role:coach", "role:visitor"]', '"role:coach"')
    )
    assert (await node.read("bob", "gym/power"))[0]["denied"]["rule"] == "default"
    assert (await node.read("alice", "gym/power"))[0]["sent"]


async def test_whoever_had_the_name_before_sees_nothing(node: Node) -> None:
    [told] = await node.read("alice", "gym/power", identity="somebody-else")
    assert told["denied"]["step"] == "connect"


async def test_nobody_connects_to_a_scope_without_a_listener(node: Node) -> None:
    told = await node.ask("topic_read", topic="gym/power", user="alice", identity=node.identity("alice"))
    [hidden] = [each for each in told["values"] if each["scope"] == "hidden"]
    assert hidden["denied"] == {"step": "connect", "rule": "nobody connects to the scope hidden"}


async def test_it_is_audited_as_a_delivery(node: Node) -> None:
    await node.read("alice", "gym/power")
    await node.read("bob", "gym/heart")
    rows = node.served.node.audit.sink.recent()
    [shown] = [row for row in rows if row.kind == "allowed" and row.user == "alice"]
    assert (shown.action, shown.topic, shown.detail) == ("read", "gym/power", "shown in the console")
    assert shown.publisher == "user:mary/client:strap"
    [denied] = [row for row in rows if row.kind == "deny" and row.user == "bob"]
    assert (denied.topic, denied.rule, denied.publisher) == ("gym/heart", "heart", "user:mary/client:strap")


async def test_nothing_is_left_of_looking(node: Node) -> None:
    """No session, no usage, no state of a monitor."""
    site, scope = node.served.node.site, node.served.node.scopes["gym"]
    before = (len(scope.sessions), len(site.accounts.users), len(scope.path.monitoring.states.instances))
    for topic in ("gym/power", "gym/quiet", "gym/heart"):
        await node.read("alice", topic)
    assert (len(scope.sessions), len(site.accounts.users), len(scope.path.monitoring.states.instances)) == before


async def test_owners_see_what_each_reader_would_be_sent(node: Node) -> None:
    own = {"user": "mary", "identity": node.identity("mary")}
    listed = await node.ask("me_retained", **own)
    assert [each["topic"] for each in listed["items"]] == ["gym/heart", "gym/parts", "gym/power", "gym/quiet"]
    first = await node.ask("me_retained", limit=1, **own)
    assert (len(first["items"]), first["complete"]) == (1, False)
    topics, readers = ["gym/heart", "gym/parts", "gym/nothing"], ["alice", "bob", "nora", "nobody"]
    told = await node.ask("me_shown", topics=topics, readers=readers, **own)
    rows = {
        each["topic"]: {
            name: None if one is None else json.loads(b64decode(one["payload"])) for name, one in each["sent"].items()
        }
        for each in told["items"]
        if each["scope"] == "gym"
    }
    assert rows == {
        "gym/heart": {"alice": {"bpm": 70}, "bob": None, "nora": None},
        "gym/parts": {"alice": {"speed": 3, "place": "hall"}, "bob": {"speed": 3}, "nora": None},
    }
    stranger = {"user": "alice", "identity": node.identity("alice")}
    assert (await node.ask("me_shown", topics=topics, readers=readers, **stranger))["items"] == []
    assert (await node.ask("me_retained", **stranger))["items"] == []


async def test_names_are_not_told_where_they_are_not(node: Node) -> None:
    await node.served.reload(node.served.file.path.read_text() + "me: {names: roles}\n")
    own = {"user": "mary", "identity": node.identity("mary")}
    with pytest.raises(Problem, match="names of others"):
        await node.ask("me_shown", topics=["gym/heart"], readers=["alice"], **own)
    assert (await node.ask("me_shown", topics=["gym/heart"], **own))["items"]


async def test_many_questions_at_once(node: Node) -> None:
    ways = [{"subject": f"user:{user}", "action": "write", "topic": "gym/x"} for user in ("mary", "bob", "stranger")]
    told = (await node.ask("explain_many", questions=ways))["answers"]
    assert [each["verdict"] for each in told] == ["allow", "deny", None]
    assert "stranger" in told[2]["note"]
    with pytest.raises(Problem):
        await node.ask("explain_many", questions=[])
