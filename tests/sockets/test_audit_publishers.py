"""Who published what was denied or passed on, in the audit of a node, over real sockets.

semantics, *What a denial looks like*: *In the audit: time, link, subject, the publisher it came from, action, topic,
stage, rule id, policy version, and for levels the demand and the floor. … Allows are counted per (source, topic,
target); `record: decisions` journals subscriptions and allows too*
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness import Client, Live, free_port, live
from processes import Served, from_file, on_uvloop
from tidegate import wire
from tidegate.gate import Lane
from tidegate.store.journal.rows import AuditRow

PEOPLE = """
directory:
  users:
    mary: {password: "plain:mary", roles: [sender]}
    tom: {password: "plain:tom", roles: [sender]}
    bob: {password: "plain:bob"}
    eve: {password: "plain:eve"}
"""
SENDS = '- {id: sends, subject: "role:sender", topic: "a/#", action: write}'
READS = '- {id: reads, subject: "*", topic: "a/#", action: read}'
FEW = '- {id: few, subject: "*", topic: "a/open", action: read}'
LARGE = '- {id: large, subject: "*", topic: "a/#", action: read, when: "o.size > 1"}'

Rows = Counter[tuple[Any, ...]]


async def come(node: Live | Served, user: str, client: str = "", **fields: Any) -> Client:
    return await node.connect(client or user[0], username=user, password=user.encode(), **fields)


async def rows(node: Live | Served, kind: str) -> list[AuditRow]:
    return [AuditRow(*row) async for piece in node.node.audit.stream(kinds=[kind]) for row in piece]


async def told(node: Live | Served, kind: str, *columns: str) -> Rows:
    """How often, by these columns."""
    found: Rows = Counter()
    for row in await rows(node, kind):
        found[tuple(getattr(row, column) for column in columns)] += row.count
    return found


def text(policies: str, more: str = "") -> str:
    return f"""
version: 1
node: {{name: test, data: data}}
listeners: [{{url: "mqtt://127.0.0.1:PORT"}}]
sys: {{interval: 0s}}
store: sqlite
{PEOPLE}
policies:
{policies}
{more}
"""


# -- live ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
@on_uvloop
async def test_publishers_that_share_their_rights_are_told_apart(version: int) -> None:
    """They are decided alike, and take the fast lane; each is counted by itself."""
    async with live(PEOPLE, policies=f"\n{SENDS}\n{FEW}") as node:
        mary, tom = await come(node, "mary", version=version), await come(node, "tom", version=version)
        twin = await come(node, "tom", "t2", version=version)
        bob = await come(node, "bob")
        await bob.subscribe("a/#")
        for sender, topic, times in ((mary, "shut", 3), (tom, "shut", 5), (twin, "shut", 2), (tom, "other", 4)):
            for _ in range(times):
                await sender.publish(f"a/{topic}")
        await mary.publish("a/open")
        await tom.publish("a/open", qos=1)
        assert [(await bob.message()).topic for _ in range(2)] == ["a/open"] * 2
        expected = {
            ("user:mary/client:m", "bob", "read", "a/shut"): 3,
            ("user:tom/client:t", "bob", "read", "a/shut"): 5,
            ("user:tom/client:t2", "bob", "read", "a/shut"): 2,
            ("user:tom/client:t", "bob", "read", "a/other"): 4,
        }
        assert await told(node, "deny", "publisher", "user", "action", "topic") == expected
        assert node.node.site.counters.denied == 14


@on_uvloop
async def test_a_denied_topic_keeps_the_fast_lane() -> None:
    """What the audit has to know costs a message nothing: a plan is found, and nobody is asked."""
    async with live(PEOPLE, policies=f"\n{SENDS}\n{FEW}") as node:
        mary, tom, bob = await come(node, "mary"), await come(node, "tom"), await come(node, "bob")
        await bob.subscribe("a/#")
        for sender in (mary, tom):
            await sender.publish("a/shut")
            await sender.publish("a/open")
            await sender.publish("a/open", qos=1)
        gate = node.node.scopes["main"].gate
        plans = {session.client: lane_of(session).plans for session in node.node.scopes["main"].sessions.values()}
        assert plans["m"][b"a/shut"].fast == plans["t"][b"a/shut"].fast == ()
        assert plans["m"][b"a/open"].fast
        assert plans["m"] is not plans["t"]
        assert len(gate.cache) == len(gate.cache.plans())


def lane_of(session: Any) -> Lane:
    lane: Lane = session.connection.reader.lane
    return lane


@on_uvloop
async def test_those_who_are_denied_nothing_share_their_plans() -> None:
    async with live(PEOPLE, policies=f"\n{SENDS}\n{READS}") as node:
        mary, tom, bob = await come(node, "mary"), await come(node, "tom"), await come(node, "bob")
        await bob.subscribe("a/#")
        for sender in (mary, tom):
            await sender.publish("a/1", qos=1)
        scope = node.node.scopes["main"]
        one, two, _ = scope.sessions.values()
        assert lane_of(one) is lane_of(two)
        assert len(scope.gate.cache) == 1


@on_uvloop
async def test_a_subscription_that_comes_and_goes() -> None:
    """Plans are removed with it, also those that one publisher has for itself."""
    async with live(PEOPLE, policies=f"\n{SENDS}\n{FEW}") as node:
        mary, tom, bob, eve = [await come(node, user) for user in ("mary", "tom", "bob", "eve")]
        for reader in (bob, eve):
            await reader.subscribe("a/#")
            for sender in (mary, tom):
                await sender.publish("a/x", qos=1)
        await bob.unsubscribe("a/#")
        await mary.publish("a/x", qos=1)
        await eve.unsubscribe("a/#")
        await mary.publish("a/x", qos=1)
        found = await told(node, "deny", "publisher", "user")
        assert found == {
            ("user:mary/client:m", "bob"): 2,
            ("user:tom/client:t", "bob"): 2,
            ("user:mary/client:m", "eve"): 2,
            ("user:tom/client:t", "eve"): 1,
        }


@on_uvloop
async def test_what_depends_on_the_message() -> None:
    async with live(PEOPLE, policies=f"\n{SENDS}\n{LARGE}") as node:
        mary, tom, bob = await come(node, "mary"), await come(node, "tom"), await come(node, "bob")
        await bob.subscribe("a/#", "$share/g/a/#")
        for sender, times in ((mary, 1), (tom, 2)):
            for _ in range(times):
                await sender.publish("a/1", b"", qos=1)
        found = await told(node, "deny", "publisher", "user", "stage")
        assert found == {("user:mary/client:m", "bob", "read"): 2, ("user:tom/client:t", "bob", "read"): 4}


@on_uvloop
async def test_writing_names_the_publisher_too() -> None:
    async with live(PEOPLE, policies=f"\n{SENDS}\n{READS}") as node:
        mary = await come(node, "mary")
        await mary.publish("b", qos=1)
        bob = await come(node, "bob")
        await bob.subscribe("b")
        found = await told(node, "deny", "action", "publisher", "user")
        assert found == {("write", "user:mary/client:m", "mary"): 1, ("subscribe", None, "bob"): 1}


@on_uvloop
async def test_a_will_names_who_has_died() -> None:
    async with live(PEOPLE, policies=f"\n{SENDS}\n{FEW}") as node:
        bob = await come(node, "bob")
        await bob.subscribe("a/#")
        for user in ("mary", "tom"):
            will = wire.Will(topic="a/will", payload=b"gone", qos=0, retain=False)
            dying = await come(node, user, will=will)
            await dying.disconnect(reason=0x04)
            await dying.closed()
        expected = {("user:mary/client:m", "bob"): 1, ("user:tom/client:t", "bob"): 1}
        assert await told(node, "deny", "publisher", "user") == expected


# -- stored --------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_what_was_retained_queued_or_resumed(tmp_path: Path) -> None:
    """Decided again when it is sent, by other rules; its publisher is long gone."""
    async with from_file(tmp_path, text(f"{SENDS}\n{READS}")) as node:
        forever = wire.Properties(session_expiry_interval=0xFFFFFFFF)
        bob = await come(node, "bob", properties=forever)
        await bob.subscribe("a/queued", "a/resumed", qos=1)
        mary, tom = await come(node, "mary"), await come(node, "tom")
        await tom.publish("a/resumed", b"1", qos=1)
        sent = await bob.expect(wire.Publish)  # and not acknowledged
        assert sent.topic == "a/resumed"
        await bob.disconnect()
        await mary.publish("a/queued", b"1", qos=1)
        await tom.publish("a/queued", b"2", qos=1)
        await mary.publish("a/kept", b"1", qos=1, retain=True)
        await mary.disconnect()
        await tom.disconnect()
        await node.reload(text(f"{SENDS}\n{FEW}"))
        bob = await come(node, "bob", properties=forever, clean_start=False)
        eve = await come(node, "eve")
        await eve.subscribe("a/#")
        await bob.silent()
        await eve.silent()
        assert await told(node, "deny", "publisher", "user", "action", "topic") == {
            ("user:tom/client:t", "bob", "read", "a/resumed"): 1,
            ("user:mary/client:m", "bob", "read", "a/queued"): 1,
            ("user:tom/client:t", "bob", "read", "a/queued"): 1,
            ("user:mary/client:m", "eve", "read", "a/kept"): 1,
        }


# -- links between scopes ------------------------------------------------------------------------------------------

SCOPES = (
    PEOPLE
    + """
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: home}
scopes: {home: {}, net: {}}
links: [{from: home, to: net}]
"""
)
OPEN = """
- {id: sends, subject: "role:sender", topic: "#", action: write}
- {id: out, subject: "scope:home", topic: "#", action: write}
- {id: into, subject: "scope:net", topic: "#", action: read}
"""


@pytest.mark.parametrize(
    ("policies", "more", "rule", "stage"),
    [
        ('- {id: no, subject: "scope:home", topic: "#", action: write, effect: deny}', "", "no", "write"),
        ('- {id: no, subject: "scope:net", topic: "#", action: read, effect: deny}', "", "no", "read"),
        (
            '- {id: no, subject: "link:home->net", topic: "#", action: write, effect: deny, when: "o.size < 9"}',
            "",
            "no",
            "write",
        ),
        ("", 'preferences: [{id: stay, user: [mary, tom], topic: "#", to: net, when: "false"}]', "stay", "read"),
        ("", 'preferences: [{id: stay, user: [mary, tom], topic: "#", to: "*", when: "o.size > 9"}]', "stay", "read"),
        ("", 'monitors: [{id: stop, link: "home->net", filter: [none]}]', "stop", "monitor in"),
        ("", "monitors: [{id: stop, link: home->net, only: 'p', after: [q]}]", "stop", "monitor in"),
    ],
    ids=["sender", "receiver", "content", "preference", "preference with content", "filter", "automaton"],
)
@on_uvloop
async def test_a_link_forwards_for_somebody(policies: str, more: str, rule: str, stage: str) -> None:
    if "user: [mary, tom]" in more:
        one = more.removeprefix("preferences: [").removesuffix("]")
        both = [one.replace("[mary, tom]", user).replace("id: stay", f"id: stay-{user}") for user in ("mary", "tom")]
        more = f"preferences: [{', '.join(both)}]"
    async with live(SCOPES + more, policies=f"\n{OPEN}{policies}") as node:
        mary, tom = await come(node, "mary"), await come(node, "tom")
        for sender, times in ((mary, 2), (tom, 3)):
            for number in range(times):
                await sender.publish("p", b"x", qos=number % 2)
        await tom.silent()
        found = await told(node, "deny", "action", "link", "publisher", "topic", "stage")
        link = "scope:home->scope:net"
        assert found == {
            ("forward", link, "user:mary/client:m", "p", stage): 2,
            ("forward", link, "user:tom/client:t", "p", stage): 3,
        }
        assert all((row.rule or "").startswith(rule) for row in await rows(node, "deny"))


@on_uvloop
async def test_who_is_denied_behind_a_link() -> None:
    """The plan there is reached by those of several publishers."""
    listeners = SCOPES.replace("  - {url:", '  - {url: "mqtt://127.0.0.1:NEXT", scope: net}\n  - {url:')
    port = free_port()
    few = '- {id: few, subject: "user:bob", topic: "p/open", action: read}'
    async with live(listeners.replace("NEXT", str(port)), policies=f"\n{OPEN}{few}") as node:
        mary, tom = await come(node, "mary"), await come(node, "tom")
        here, node.port = node.port, port
        bob = await come(node, "bob")
        node.port = here
        await bob.subscribe("p/#")
        for sender, times in ((mary, 2), (tom, 3)):
            for number in range(times):
                await sender.publish("p/shut", b"x", qos=number % 2)
        await tom.silent()
        link = "scope:net->client:b"
        found = await told(node, "deny", "link", "action", "publisher")
        assert {key: count for key, count in found.items() if key[0] == link} == {
            (link, "read", "user:mary/client:m"): 2,
            (link, "read", "user:tom/client:t"): 3,
        }


# -- levels --------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_levels_have_the_demand_and_the_floor() -> None:
    async with live(PEOPLE + "levels: {}\n") as node:
        mary, tom, bob, eve = [await come(node, user) for user in ("mary", "tom", "bob", "eve")]
        await bob.subscribe("a/#")
        await eve.subscribe("b/#", properties=wire.Properties(user_properties=(("require", "mtls"),)))
        tls, warp = (wire.Properties(user_properties=(("require", name),)) for name in ("tls", "warp"))
        await mary.publish("a/1", properties=tls)
        await tom.publish("a/1", properties=tls)
        await tom.publish("b/1")
        await mary.publish("a/2", qos=1, properties=warp)
        found = await told(node, "deny", "stage", "publisher", "user", "rule", "detail")
        unknown = next(key[-1] for key in found if key[3] == "require")
        assert found == {
            ("levels", "user:mary/client:m", "bob", "publisher's demand", "demand tls; floor plain"): 1,
            ("levels", "user:tom/client:t", "bob", "publisher's demand", "demand tls; floor plain"): 1,
            ("levels", "user:tom/client:t", "eve", "subscriber's demand", "demand mtls; floor plain"): 1,
            ("levels", "user:mary/client:m", "mary", "require", unknown): 1,
        }
        assert unknown.endswith("; demand warp; floor plain")


# -- what is allowed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reads", [READS, LARGE], ids=["by the plan", "by the message"])
@on_uvloop
async def test_allows_are_counted_by_source_topic_and_target(reads: str) -> None:
    async with live(PEOPLE + "record: decisions\n", policies=f"\n{SENDS}\n{reads}") as node:
        mary, tom, bob, eve = [await come(node, user) for user in ("mary", "tom", "bob", "eve")]
        await bob.subscribe("a/#")
        for sender, times in ((mary, 2), (tom, 3)):
            for number in range(times):
                await sender.publish("a/1", b"xx", qos=number % 2)
                await bob.message()
        await mary.publish("a/kept", b"xx", qos=1, retain=True)
        await tom.publish("a/held", b"xx", qos=1, retain=True)
        await eve.subscribe("a/+")
        assert {(await eve.message()).topic for _ in range(2)} == {"a/kept", "a/held"}
        found = await told(node, "allowed", "action", "publisher", "user", "topic")
        assert {key: count for key, count in found.items() if key[0] == "read"} == {
            ("read", "user:mary/client:m", "bob", "a/1"): 2,
            ("read", "user:tom/client:t", "bob", "a/1"): 3,
            ("read", "user:mary/client:m", "bob", "a/kept"): 1,
            ("read", "user:tom/client:t", "bob", "a/held"): 1,
            ("read", "user:mary/client:m", "eve", "a/kept"): 1,
            ("read", "user:tom/client:t", "eve", "a/held"): 1,
        }


@on_uvloop
async def test_a_shared_subscription_is_counted() -> None:
    async with live(PEOPLE + "record: decisions\n", policies=f"\n{SENDS}\n{READS}") as node:
        mary, bob = await come(node, "mary"), await come(node, "bob")
        await bob.subscribe("$share/g/a/#")
        for _ in range(3):
            await mary.publish("a/1")
            await bob.message()
        found = await told(node, "allowed", "action", "publisher", "user", "topic")
        assert found["read", "user:mary/client:m", "bob", "a/1"] == 3


# -- several publishers --------------------------------------------------------------------------------------------


@on_uvloop
async def test_what_comes_from_several_names_all_of_them() -> None:
    monitor = 'monitors: [{id: pair, scope: main, direction: im_pub, only: "a/2", after: ["a/1"], each: scope}]'
    async with live(PEOPLE + monitor, policies=f"\n{SENDS}\n{FEW}") as node:
        mary, tom, bob = [await come(node, user) for user in ("mary", "tom", "bob")]
        await bob.subscribe("a/#")
        await mary.publish("a/1", qos=1)
        await tom.publish("a/2", qos=1)
        found = await told(node, "deny", "publisher", "user", "topic")
        assert found["user:tom/client:t, user:mary/client:m", "bob", "a/2"] == 1
