"""Nobody can fill the node: what one user and the whole node may hold, and what whoever reaches a bound is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness import Client, Live, live
from tidegate import wire
from tidegate.node.statistics import StatusCommands

USERS = """
listeners: [{{url: "mqtt://127.0.0.1:PORT"}}]
directory:
  users: {{ann: {{password: "plain:a"}}, bob: {{password: "plain:b"}}}}
limits: {{{limits}}}
"""
PASSWORDS = {"ann": b"a", "bob": b"b"}
STAY = wire.Properties(session_expiry_interval=600)


async def come(node: Live, user: str, client: str, **fields: Any) -> Client:
    return await node.connect(client, username=user, password=PASSWORDS[user], **fields)


def used(node: Live, name: str, user: str | None = None) -> int:
    accounts = node.node.site.accounts
    usage = accounts.node if user is None else accounts.users.get(f"user:{user}")
    return 0 if usage is None else int(getattr(usage, name))


async def until(node: Live, name: str, amount: int, user: str | None = None) -> None:
    async with asyncio.timeout(10):
        while used(node, name, user) != amount:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("whose", ["user", "node"])
async def test_a_session_too_many_is_refused_and_those_there_go_on(whose: str) -> None:
    async with live(USERS.format(limits=f"{whose}: {{sessions: 2}}")) as node:
        kept = await come(node, "ann", "one", properties=STAY)
        second = await come(node, "ann", "two")
        refused = await come(node, "ann", "three", expect=0x97)
        assert "sessions" in (refused.connack.properties.reason_string or "")
        assert await refused.closed() == b""
        assert (await come(node, "ann", "old", version=wire.V311, expect=3)).connack.reason == 3
        if whose == "user":
            bob = await come(node, "bob", "one")
            await bob.disconnect()
            await until(node, "sessions", 0, "bob")
        await kept.disconnect()
        back = await come(node, "ann", "one", clean_start=False, properties=STAY)
        assert back.connack.session_present, "whoever has a session comes back to it"
        await come(node, "ann", "one", properties=STAY)
        assert used(node, "sessions") == 2, "one that is replaced does not count twice"
        await second.disconnect()
        await until(node, "sessions", 1)
        await come(node, "ann", "three")
        status = node.node.status()
        assert status["limits"]["sessions"]["reached"] == 2


async def test_anonymous_clients_together_are_one_user() -> None:
    text = """
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
directory: {users: {ann: {password: "plain:a"}}}
limits: {user: {sessions: 2}}
"""
    async with live(text) as node:
        await node.connect("one")
        await node.connect("two")
        await node.connect("three", expect=0x97)
        await come(node, "ann", "four")


async def test_subscriptions_of_a_user() -> None:
    async with live(USERS.format(limits="user: {subscriptions: 3}")) as node:
        one, two, bob = await come(node, "ann", "1"), await come(node, "ann", "2"), await come(node, "bob", "1")
        assert (await one.subscribe("a", "b")).reasons == (0, 0)
        assert (await two.subscribe("a", "$share/g/b")).reasons == (0, 0x97)
        assert (await two.subscribe("a", qos=1)).reasons == (1,), "one that is there may change"
        assert (await bob.subscribe("a", "b", "c")).reasons == (0, 0, 0)
        old = await come(node, "ann", "3", version=wire.V311)
        assert (await old.subscribe("x")).reasons == (0x80,)
        await one.unsubscribe("b")
        assert (await two.subscribe("$share/g/b")).reasons == (0,)
        await one.disconnect()
        await until(node, "subscriptions", 2, "ann")


async def fill(node: Live, *clients: str, count: int, user: str = "ann") -> None:
    """Messages wait for sessions that are away."""
    for client in clients:
        sub = await come(node, user, client, properties=STAY)
        await sub.subscribe(f"{user}/{client}", qos=1)
        await sub.disconnect()
    publisher = await come(node, "bob", "filler")
    for client in clients:
        for number in range(count):
            await publisher.publish(f"{user}/{client}", b"%d" % number, qos=1)
    await publisher.disconnect()


@pytest.mark.parametrize("bound", ["queued_messages: 15", "queued_bytes: 1100"])
async def test_what_waits_for_all_sessions_of_a_user_is_bounded(bound: str) -> None:
    """Each message counts for 64 bytes, its topic and its payload: 70 of them."""
    async with live(USERS.format(limits=f"user: {{{bound}}}")) as node:
        await fill(node, "1", "2", count=10)
        assert used(node, "queued_messages", "ann") == 15
        await fill(node, "1", count=10, user="bob")
        assert used(node, "queued_messages", "bob") == 10, "it is not for bob to suffer"
        assert node.node.site.counters.dropped == 5
        back = await come(node, "ann", "2", clean_start=False)
        assert [(await back.message()).payload for _ in range(5)] == [b"%d" % number for number in range(5)]
        await back.silent()
        await back.disconnect()
        await until(node, "sessions", 2)
        assert (used(node, "queued_messages", "ann"), used(node, "queued_messages")) == (10, 20)


async def test_the_oldest_of_the_own_queue_goes() -> None:
    async with live(USERS.format(limits="queue: {full: drop-oldest}, user: {queued_messages: 4}")) as node:
        await fill(node, "1", count=8)
        back = await come(node, "ann", "1", clean_start=False)
        assert [(await back.message()).payload for _ in range(4)] == [b"4", b"5", b"6", b"7"]


async def test_what_is_under_way_counts_and_a_reader_is_never_cut_off() -> None:
    """Somebody who acknowledges nothing is owed no more than the bound; another who does gets everything."""
    async with live(USERS.format(limits="user: {queued_bytes: 200KiB}")) as node:
        lazy, busy = await come(node, "ann", "lazy"), await come(node, "bob", "busy")
        for sub in (lazy, busy):
            await sub.subscribe("t", qos=1)
        publisher = await come(node, "bob", "p")
        for _ in range(30):
            await publisher.publish("t", bytes(20_000), qos=1)
            await busy.message()
        assert used(node, "queued_bytes", "ann") <= 220 << 10
        assert node.node.site.counters.dropped > 10
        for _ in range(30 - node.node.site.counters.dropped):
            await lazy.message()
        await lazy.silent()
        assert used(node, "queued_bytes") == 0


@pytest.mark.parametrize("bound", ["unreleased: 3", "unreleased_bytes: 300"])
async def test_unreleased_messages_of_a_user(bound: str) -> None:
    async with live(USERS.format(limits=f"user: {{{bound}}}")) as node:
        one, two, bob = await come(node, "ann", "1"), await come(node, "ann", "2"), await come(node, "bob", "1")

        async def say(client: Client, pid: int) -> int:
            await client.send(wire.Publish(topic="t", payload=b"x" * 20, qos=2, packet_id=pid))
            return (await client.expect(wire.Pubrec)).reason

        assert [await say(one, 1), await say(one, 2), await say(two, 1), await say(two, 2)] == [0, 0, 0, 0x97]
        assert [await say(bob, pid) for pid in range(1, 4)] == [0, 0, 0]
        await one.send(wire.Pubrel(packet_id=1))
        assert (await one.expect(wire.Pubcomp)).reason == 0
        assert await say(two, 2) == 0
        await two.disconnect()
        await until(node, "unreleased", 1, "ann")
        old = await come(node, "ann", "3", version=wire.V311)
        assert [await say(old, 1), await say(old, 2)] == [0, 0]
        await old.send(wire.Publish(topic="t", payload=b"x" * 20, qos=2, packet_id=3))
        assert await old.closed() == b"", "3.1.1 cannot be told otherwise, and keeps the message"


async def test_what_is_not_released_in_time_is_let_go_and_its_sender_told() -> None:
    async with live(USERS.format(limits="unreleased_time: 100ms")) as node:
        sub = await come(node, "bob", "sub")
        await sub.subscribe("t")
        away = await come(node, "ann", "away", properties=STAY)
        await away.send(wire.Publish(topic="t", payload=b"later", qos=2, packet_id=5))
        assert (await away.expect(wire.Pubrec)).reason == 0
        away.abort()
        lazy = await come(node, "ann", "lazy", properties=STAY)
        await lazy.send(wire.Publish(topic="t", payload=b"never", qos=2, packet_id=5))
        assert (await lazy.expect(wire.Pubrec)).reason == 0
        told = await lazy.expect(wire.Disconnect)
        assert (told.reason, "released" in (told.properties.reason_string or "")) == (0x97, True)
        assert used(node, "unreleased", "ann") == 1, "the time of one who is away does not pass"
        back = await come(node, "ann", "lazy", clean_start=False, properties=STAY)
        await back.send(wire.Pubrel(packet_id=5))
        assert (await back.expect(wire.Pubcomp)).reason == 0x92
        await back.publish("t", b"now", qos=2)
        again = await come(node, "ann", "away", clean_start=False, properties=STAY)
        await again.send(wire.Pubrel(packet_id=5))
        assert (await again.expect(wire.Pubcomp)).reason == 0
        assert [(await sub.message()).payload for _ in range(2)] == [b"now", b"later"]
        assert used(node, "unreleased") == 0


@pytest.mark.parametrize("bound", ["user: {retained: 2}", "node: {retained_bytes: 150}", "retained: 2"])
async def test_a_retained_message_that_cannot_be_kept_is_delivered(bound: str) -> None:
    async with live(USERS.format(limits=bound)) as node:
        sub, ann = await come(node, "bob", "sub"), await come(node, "ann", "1")
        await sub.subscribe("#", retain_as_published=True, qos=2)
        for topic in ("a", "b"):
            assert (await ann.publish(topic, retain=True, qos=1)).reason == 0  # type: ignore[union-attr]
            assert (await sub.message()).retain
        told = await ann.publish("c", retain=True, qos=1)
        assert isinstance(told, wire.Puback)
        assert (told.reason, "not kept" in (told.properties.reason_string or "")) == (0x97, True)
        got = await sub.message()
        assert (got.topic, got.retain) == ("c", False)
        assert (await ann.publish("c", retain=True, qos=2)).reason == 0  # type: ignore[union-attr]
        assert (await sub.message()).topic == "c"
        await ann.publish("c", retain=True)
        assert (await sub.message()).topic == "c"
        assert (await ann.publish("a", b"y", retain=True, qos=1)).reason == 0, "one can be replaced"  # type: ignore[union-attr]
        assert (await sub.message()).retain
        if bound.startswith("user"):
            bob = await come(node, "bob", "writer")
            assert (await bob.publish("c", retain=True, qos=1)).reason == 0  # type: ignore[union-attr]
            assert (used(node, "retained", "ann"), used(node, "retained", "bob")) == (2, 1)
            assert (await bob.publish("a", b"z", retain=True, qos=1)).reason == 0  # type: ignore[union-attr]
            assert (used(node, "retained", "ann"), used(node, "retained", "bob")) == (1, 2), "whoever wrote it last"
        assert (await ann.publish("a", b"", retain=True, qos=1)).reason == 0  # type: ignore[union-attr]
        await ann.publish("b", b"", retain=True, qos=1)
        assert used(node, "retained", "ann") == 0


async def test_everything_is_counted_again_after_a_restart(tmp_path: Path) -> None:
    text = USERS.format(limits="user: {sessions: 3, retained: 2}")
    names = (
        "sessions",
        "queued_messages",
        "queued_bytes",
        "unreleased",
        "unreleased_bytes",
        "retained",
        "subscriptions",
    )
    async with live(text, data=tmp_path) as node:
        await fill(node, "1", "2", count=3)
        half = await come(node, "ann", "half", properties=STAY)
        await half.send(wire.Publish(topic="t", payload=b"x", qos=2, packet_id=5))
        await half.expect(wire.Pubrec)
        for topic in ("a", "b"):
            await half.publish(topic, retain=True, qos=1)
        await half.disconnect()
        await until(node, "sessions", 3)
        before = {name: (used(node, name), used(node, name, "ann")) for name in names}
        assert all(all(pair) for pair in before.values()), before
    async with live(text, data=tmp_path) as node:
        assert {name: (used(node, name), used(node, name, "ann")) for name in names} == before
        await come(node, "ann", "new", expect=0x97)
        for client in ("1", "2", "half"):
            gone = await come(node, "ann", client)
            await gone.disconnect()
        await until(node, "sessions", 0)
        bob = await come(node, "bob", "1")
        for topic in ("a", "b"):
            await bob.publish(topic, b"", retain=True, qos=1)
        await bob.disconnect()
        await until(node, "sessions", 0)
        assert {name: used(node, name) for name in names} == dict.fromkeys(names, 0)
        assert not node.node.site.accounts.users, "nobody is remembered who holds nothing"


async def test_sessions_are_not_kept_for_ever_unless_somebody_says_so() -> None:
    forever = wire.Properties(session_expiry_interval=0xFFFFFFFF)
    async with live() as node:
        client = await node.connect("c", properties=forever)
        assert client.connack.properties.session_expiry_interval == 30 * 86400
    async with live("limits: {session_expiry: null}") as node:
        client = await node.connect("c", properties=forever)
        assert client.connack.properties.session_expiry_interval is None


async def test_refused_connections_of_one_address_do_not_fill_the_audit() -> None:
    """Each comes with another name, so each would be a row of its own."""
    text = USERS.format(limits="") + "audit: {address_rate: 0.2, rate: 1000}\n"
    async with live(text) as node:
        for number in range(30):
            await node.connect(f"made-up-{number}", expect=0x87)
        auditor = node.node.audit
        await auditor.counted()
        rows = [row for row in auditor.sink.recent() if row.rule == "connect" and row.kind == "deny"]
        assert sum(row.count for row in rows) == 30, "nothing is lost"
        named = [row for row in rows if row.client]
        assert 1 <= len(named) < 10
        assert [row.detail for row in rows if not row.client] == ["more refused connections, from 127.0.0.1"]
        told = node.node.status()["limits"]["refused_connects"]
        assert (told["used"], told["reached"]) == (1, 30 - len(named))


async def test_status_tells_who_holds_most() -> None:
    async with live(USERS.format(limits="user: {sessions: 5}")) as node:
        for client in ("1", "2"):
            await come(node, "ann", client)
        await come(node, "bob", "1")
        told = (await StatusCommands(node.node).status(users=True))["limits"]["sessions"]
        assert told == {
            "used": 3,
            "limit": 200_000,
            "user_limit": 5,
            "reached": 0,
            "largest": {"user": "user:ann", "used": 2},
        }


# -- what strangers choose the size of -----------------------------------------------------------------------------


async def test_conditions_of_a_user() -> None:
    """Each is asked of every message that matches, whoever publishes it."""
    asking = wire.Properties(user_properties=(("where", "o.size > 1"),))
    async with live(USERS.format(limits="user: {conditions: 3}")) as node:
        one, two, bob = await come(node, "ann", "1"), await come(node, "ann", "2"), await come(node, "bob", "1")
        assert (await one.subscribe("a", "b", properties=asking)).reasons == (0, 0)
        assert (await two.subscribe("a", "b", properties=asking)).reasons == (0, 0x97)
        assert (await two.subscribe("b")).reasons == (0,), "without a condition it may"
        assert (await bob.subscribe("a", properties=asking)).reasons == (0,)
        assert node.node.status()["limits"]["conditions"]["reached"] == 1
        await one.unsubscribe("a")
        assert used(node, "conditions", "ann") == 2
        assert (await two.subscribe("c", properties=asking)).reasons == (0,)
        await one.disconnect()
        await until(node, "conditions", 2, "ann")


async def test_long_filters_and_client_identifiers_count_for_more() -> None:
    async with live(USERS.format(limits="user: {subscriptions: 10, sessions: 10}")) as node:
        ann = await come(node, "ann", "1")
        assert (await ann.subscribe("f" * 1000)).reasons == (0,)
        assert used(node, "subscriptions", "ann") == 4
        assert (await ann.subscribe("g" * 1600, "h")).reasons == (0x97, 0)
        await ann.unsubscribe("f" * 1000)
        assert used(node, "subscriptions", "ann") == 1
        long = await come(node, "ann", "c" * 2000)
        assert used(node, "sessions", "ann") == 9
        await come(node, "ann", "d" * 300, expect=0x97)
        await come(node, "bob", "d" * 300)
        await long.disconnect()
        await until(node, "sessions", 1, "ann")


async def test_wills_and_tables_of_visibility_count() -> None:
    will = wire.Will(topic="w", payload=b"x" * 5000, qos=0, retain=False)
    async with live(USERS.format(limits="user: {queued_bytes: 8KiB, retained_bytes: 8KiB}")) as node:
        first = await come(node, "ann", "1", will=will, properties=STAY)
        assert used(node, "queued_bytes", "ann") == 5001
        refused = await come(node, "ann", "2", will=will, expect=0x97)
        assert "wills" in (refused.connack.properties.reason_string or "")
        await come(node, "ann", "3")
        await come(node, "ann", "1", clean_start=False, properties=STAY)  # without its will
        assert used(node, "queued_bytes", "ann") == 0
        await first.closed()
        bob = await come(node, "bob", "1")
        table = wire.Properties(user_properties=(("view", '{"user:ann": ["/' + "p" * 5000 + '"]}'),))
        assert (await bob.publish("r/1", b"{}", qos=1, retain=True, properties=table)).reason != 0x97
        assert used(node, "retained_bytes", "bob") > 5000
        assert (await bob.publish("r/2", b"{}", qos=1, retain=True, properties=table)).reason == 0x97
