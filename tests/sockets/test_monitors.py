"""Monitors together with everything else at the door, through real sockets: levels, preferences, views, conditions,
retained messages, wills, shared subscriptions, No Local and sessions.

Each test quotes the sentence of the specification that it holds the node to.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from processes import on_uvloop
from sockets.acts import (
    BOTH,
    Section,
    asking,
    come,
    content,
    door,
    go,
    inbox,
    marked,
    payloads,
    policy,
    say,
    secure,
)
from sockets.watchers import (
    automaton,
    denials,
    emitting,
    entering,
    gated,
    got,
    leaving,
    names,
    states,
    tally,
    told,
    watching,
)
from tidegate import wire

both = pytest.mark.parametrize("version", BOTH, ids=["3.1.1", "5"])
each_qos = pytest.mark.parametrize("qos", [0, 1, 2])
BODY = {"a": 1, "b": 1}
LEVELS = {"implied": False}  # MQTT 5 subscribers are told the floor
ALARM = {"topic": "alarm", "payload": {"a": 1, "b": 1}, "qos": 1}


# -- levels ------------------------------------------------------------------------------------------------------


@each_qos
@on_uvloop
async def test_what_is_demanded_of_a_message_holds_for_what_monitors_make_of_it(
    tmp_path: Path, certificates: Path, qos: int
) -> None:
    """*Whatever is derived from messages keeps the context of what it came from*: the demand, and the floor."""
    monitors = [
        entering("in", **emitting("raw", {"topic": "new"}, {"topic": "also", "qos": 1})),
        leaving("out", map={"also": "last"}),
    ]
    async with door(tmp_path, certificates=certificates, monitors=monitors, levels=LEVELS) as node:
        mary, plain = await come(node, "mary", tls=secure(certificates)), await come(node, "alice")
        safe = await come(node, "bob", tls=secure(certificates))
        for end in (plain, safe):
            await end.subscribe("#", qos=2)
        await say(mary, "raw", b"1", ("require", "tls"), qos=qos)
        assert await inbox(plain) == []
        found = await inbox(safe)
        assert [(one.topic, one.qos) for one in found] == [("new", qos), ("last", 1)]
        assert [told(one)["floor"] for one in found] == ["tls", "tls"]
        await say(mary, "raw", b"2", qos=qos)
        assert await names(plain) == await names(safe) == ["new", "last"]


@both
@on_uvloop
async def test_implied_demands_hold_for_what_monitors_make(tmp_path: Path, certificates: Path, version: int) -> None:
    """*`levels.implied: true` makes each connection demand its own level*, so unchanged clients are covered."""
    monitors = [entering("in", map={"raw": "new"}), leaving("out", map={"new": "last"})]
    async with door(tmp_path, certificates=certificates, monitors=monitors, levels={"implied": True}) as node:
        over = secure(certificates)
        mary, bob = await come(node, "mary", tls=over, version=version), await come(node, "bob", version=version)
        plain, safe = await come(node, "alice", version=version), await come(node, "carol", tls=over, version=version)
        for end in (plain, safe):
            await end.subscribe("#", qos=1)
        await say(mary, "raw", b"tls", qos=1)
        await say(bob, "raw", b"plain", qos=1)
        assert await got(plain) == [("last", b"plain")]
        assert await got(safe) == [("last", b"tls")]


@on_uvloop
async def test_what_a_subscriber_demands_holds_for_what_monitors_make(tmp_path: Path, certificates: Path) -> None:
    """*subscriber demands D: it receives only messages whose floor ≥ D*; the automaton sees no more than that."""
    monitors = [entering("in", map={"raw": "new"}), leaving("out", **gated("new", "key", "lock"))]
    async with door(tmp_path, certificates=certificates, monitors=monitors) as node:
        plain, safe = await come(node, "mary"), await come(node, "bob", tls=secure(certificates))
        alice = await come(node, "alice", tls=secure(certificates), asks=[("require", "tls")])
        await alice.subscribe("new", qos=1)
        await say(plain, "key", qos=1)  # its floor is too low: it may not cross the link, and is not seen there
        await say(safe, "raw", b"1", qos=1)
        assert await inbox(alice) == []
        await say(safe, "key", qos=1)
        await say(plain, "raw", b"2", qos=1)
        await say(safe, "raw", b"3", qos=1)
        assert await got(alice) == [("new", b"3")]


@pytest.mark.parametrize("side", ["in", "out"])
@on_uvloop
async def test_what_a_timer_makes_has_the_context_of_what_set_it(tmp_path: Path, certificates: Path, side: str) -> None:
    """*a monitor's or timer's output … keeps the context of what it came from*: owner, demand, floor and view."""
    monitors = [watching(side, "quiet", silence="50ms", on="beat", emit=ALARM)]
    preferences = [{"id": "mine", "user": "mary", "topic": "beat", "when": "s.user != 'carol'", "keep": ["/a"]}]
    sections: Section = {"monitors": monitors, "preferences": preferences, "levels": LEVELS}
    async with door(tmp_path, certificates=certificates, **sections) as node:
        over = secure(certificates)
        mary, plain = await come(node, "mary", tls=over), await come(node, "alice")
        bob, carol = await come(node, "bob", tls=over), await come(node, "carol", tls=over)
        for end in (plain, bob, carol):
            await end.subscribe("alarm", qos=1)
        await say(mary, "beat", BODY, ("require", "tls"), qos=1)
        if side == "in":
            await go(node, mary)  # it is gone when its silence is told
        alarm = await bob.message()
        assert (alarm.topic, json.loads(alarm.payload)) == ("alarm", {"a": 1})
        assert told(alarm).get("floor") == "tls"
        assert await inbox(plain) == await inbox(carol) == []


# -- preferences -------------------------------------------------------------------------------------------------


@both
@each_qos
@pytest.mark.parametrize("side", ["in", "out"])
@on_uvloop
async def test_preferences_bind_under_the_name_it_was_published_under(
    tmp_path: Path, side: str, qos: int, version: int
) -> None:
    """*some preference of u without `to` that matches the original topic*: renaming shakes nothing off."""
    preferences = [
        {"id": "mine", "user": "mary", "topic": "raw/#", "when": "s.user == 'alice' && p.topic == 'raw/t'"},
        {"id": "none", "user": "mary", "topic": "new/#", "when": "false"},
    ]
    monitors = [watching(side, "names", map={"raw/t": "new/t"})]
    async with door(tmp_path, monitors=monitors, preferences=preferences) as node:
        mary = await come(node, "mary", version=version)
        alice, bob = await come(node, "alice", version=version), await come(node, "bob", version=version)
        for end in (alice, bob):
            await end.subscribe("#", qos=2)
        await say(mary, "raw/t", b"1", qos=qos, retain=True)
        assert await got(alice) == [("new/t", b"1")]
        assert await inbox(bob) == []
        for end in (alice, bob):  # and what is retained, under whatever name
            await end.unsubscribe("#")
            await end.subscribe("#", qos=2)
        assert await got(alice) == [("new/t", b"1")]
        assert await inbox(bob) == []


@both
@on_uvloop
async def test_what_an_owner_keeps_is_all_that_a_monitor_on_the_way_out_sees(tmp_path: Path, version: int) -> None:
    """*with `keep` the receiver gets only those parts*, of the original topic, also of what was renamed."""
    preferences = [{"id": "mine", "user": "mary", "topic": "raw", "keep": ["/a"]}]
    monitors = [
        entering("in", map={"raw": "new"}),
        leaving("out", **automaton("s", s=[{"on": "new", "when": "has(o.payload.b)", "emit": [{"topic": "leak"}]}])),
    ]
    async with door(tmp_path, monitors=monitors, preferences=preferences) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
        await alice.subscribe("#", qos=1)
        for qos in (0, 1, 2):
            await say(mary, "raw", BODY, qos=qos)
        assert [(one.topic, json.loads(one.payload)) for one in await inbox(alice)] == [("new", {"a": 1})] * 3
        bob = await come(node, "bob", version=version)
        await say(bob, "raw", BODY, qos=1)  # nobody's preference
        assert [(one.topic, json.loads(one.payload)) for one in await inbox(alice)] == [("leak", BODY)]


# -- views and conditions ----------------------------------------------------------------------------------------


@both
@each_qos
@on_uvloop
async def test_a_monitor_on_the_way_out_sees_what_the_view_leaves(tmp_path: Path, qos: int, version: int) -> None:
    """Step 11 comes after 9: *what of the content this subject may see*. What it makes goes through 9 again."""
    views = [
        {"id": "part", "topic": "t", "for": "user:alice", "keep": ["/a"]},
        {"id": "new", "topic": "new", "for": "user:alice", "keep": ["/a", "/b"]},
        {"id": "whole", "topic": "#", "for": "user:bob", "keep": "all"},
    ]
    machine = automaton(
        "s",
        s=[
            {"on": "t", "when": "has(o.payload.b)", "emit": [{"topic": "new"}]},
            {"on": "t", "emit": ["same", {"topic": "new"}, {"topic": "new", "payload": {"b": 2, "c": 3}}]},
        ],
    )
    async with door(tmp_path, monitors=[leaving("m", **machine)], views=views) as node:
        mary = await come(node, "mary", version=version)
        alice, bob = await come(node, "alice", version=version), await come(node, "bob", version=version)
        for end in (alice, bob):
            await end.subscribe("#", qos=2)
        await say(mary, "t", BODY, qos=qos)
        found = [(one.topic, json.loads(one.payload)) for one in await inbox(alice)]
        assert found == [("t", {"a": 1}), ("new", {"a": 1}), ("new", {"b": 2})]
        assert [(one.topic, json.loads(one.payload)) for one in await inbox(bob)] == [("new", BODY)]


@pytest.mark.parametrize("side", ["in", "out"])
@on_uvloop
async def test_the_publishers_view_holds_for_what_monitors_make(tmp_path: Path, side: str) -> None:
    """*a table of visibility from the publisher*: it is part of the context of what is derived."""
    view = ("view", json.dumps({"user:alice": ["/a"]}))
    monitors = [watching(side, "m", **emitting("t", {"topic": "new"}, {"topic": "made", "payload": {"a": 2, "b": 2}}))]
    async with door(tmp_path, monitors=monitors) as node:
        mary, alice, bob = [await come(node, name) for name in ("mary", "alice", "bob")]
        for end in (alice, bob):
            await end.subscribe("#", qos=2)
        for qos in (0, 1, 2):
            await say(mary, "t", BODY, view, qos=qos)
            assert await content(alice) == [{"a": 1}, {"a": 2}]
        assert await inbox(bob) == []


@each_qos
@on_uvloop
async def test_what_is_not_wanted_is_seen_by_the_automaton(tmp_path: Path, qos: int) -> None:
    """*A link that has a monitor receives every event that 6 to 9 permit, whether or not anybody behind it
    subscribes*; where is 10. What it makes of that needs a subscription, and passes 10."""
    machine = automaton("closed", closed=[{"on": "t", "when": "o.payload.a == 2", "go": "open"}, {"emit": []}], open=[])
    copies = leaving("copy", **emitting("t", "same", {"topic": "copy"}))
    async with door(tmp_path, monitors=[leaving("m", **machine), copies]) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t", qos=2, properties=asking(("where", "o.payload.a != 2")))
        await alice.subscribe("copy", qos=2, properties=asking(("where", "o.payload.a != 3")))
        for number in (1, 2, 3, 4):
            await say(mary, "t", {"a": number}, qos=qos)
        found = [(one.topic, json.loads(one.payload)["a"]) for one in await inbox(alice)]
        assert found == [("copy", 2), ("t", 3), ("t", 4), ("copy", 4)]


@both
@each_qos
@on_uvloop
async def test_what_may_not_be_read_is_not_seen_by_the_automaton(tmp_path: Path, qos: int, version: int) -> None:
    """*… every event that 6 to 9 permit*, and no other: what is denied to the client cannot move its monitor."""
    policies = [policy("w", "#", "write"), policy("r", "t", "read"), policy("k", "key", "read", when="p.user == 'bob'")]
    async with door(tmp_path, *policies, monitors=[leaving("m", **gated("t", "key", "lock"))]) as node:
        mary, bob, alice = [await come(node, name, version=version) for name in ("mary", "bob", "alice")]
        await alice.subscribe("t", qos=2)
        await say(mary, "key", qos=qos)
        await say(mary, "t", b"1", qos=qos)
        assert await inbox(alice) == []
        await say(bob, "key", qos=qos)
        await say(mary, "t", b"2", qos=qos)
        await say(bob, "lock", qos=qos)  # nobody may read it, so nothing closes
        await say(mary, "t", b"3", qos=qos)
        assert await payloads(alice) == [b"2", b"3"]


# -- outputs -----------------------------------------------------------------------------------------------------


@both
@each_qos
@on_uvloop
async def test_outputs_that_nobody_may_write(tmp_path: Path, qos: int, version: int) -> None:
    """*an event changed or added at ingress must be writable by `monitor:ID`*; the others go on."""
    policies = [
        policy("r", "#", "read"),
        policy("in", "raw", "write", subject="user:mary"),
        policy("mon", "new/#", "write", subject="monitor:m", when="o.qos < 2 && s.kind == 'monitor'"),
    ]
    outputs = ({"topic": "new/1"}, {"topic": "old"}, "same", {"payload": "changed"}, {"topic": "new/2", "qos": 2})
    monitors = [entering("m", **emitting("raw", *outputs))]
    async with door(tmp_path, *policies, monitors=monitors) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
        await alice.subscribe("#", qos=2)
        assert await say(mary, "raw", b"1", qos=qos) == 0
        wanted = [("new/1", b"1")] if qos < 2 else []
        assert await got(alice) == [*wanted, ("raw", b"1")]
        rows = await denials(node, "default")
        refused = {("write", row.topic) for row in rows if row.client == "m"}
        assert refused == {("write", topic) for topic in ("old", "raw", "new/2", *(() if qos < 2 else ("new/1",)))}
        assert await say(mary, "new/1", b"2", qos=qos) == (0x87 if version == wire.V5 and qos else 0)
        assert await inbox(alice) == []  # what the monitor may write its publisher may not


@on_uvloop
async def test_a_publish_of_which_nothing_may_go_on_is_acknowledged_like_one_that_nobody_wants(tmp_path: Path) -> None:
    policies = [policy("r", "#", "read"), policy("in", "raw", "write"), policy("deny", "new", "write", effect="deny")]
    async with door(tmp_path, *policies, monitors=[entering("m", map={"raw": "new"})]) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#", qos=2)
        for qos in (1, 2):
            assert await say(mary, "raw", qos=qos) == (0x10 if qos == 1 else 0)  # monitors see QoS 2 at PUBREL
        assert await inbox(alice) == []
        assert {(row.client, row.topic, row.stage) for row in await denials(node, "deny")} == {("m", "new", "write")}


@each_qos
@on_uvloop
async def test_at_egress_an_output_needs_a_subscription_and_passes_6_to_10(tmp_path: Path, qos: int) -> None:
    """*at egress it needs a matching subscription and passes 6 to 10 again, never 11 on the same link*"""
    policies = [policy("w", "#", "write"), policy("r", "+", "read"), policy("no", "secret", "read", effect="deny")]
    outputs = [{"topic": topic} for topic in ("a", "b", "secret", "deep/c", "unwanted")]
    async with door(tmp_path, *policies, monitors=[leaving("m", **emitting("a", *outputs))]) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        for filter in ("a", "b", "secret", "deep/c"):
            await alice.subscribe(filter, qos=2)
        await say(mary, "a", b"1", qos=qos)
        assert await got(alice) == [("a", b"1"), ("b", b"1")]  # `a` is not shown again
        assert tally(node, "m")[2] == 10  # for mary's link and alice's
        assert {row.topic for row in await denials(node, "no")} == {"secret"}


@both
@on_uvloop
async def test_no_local_holds_for_what_monitors_make(tmp_path: Path, version: int) -> None:
    """*for clients MQTT's No Local decides*, by who published, not by what it is called now."""
    monitors = [entering("in", map={"raw": "mid"}), leaving("out", map={"mid": "new"})]
    async with door(tmp_path, monitors=monitors) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob", version=version)
        await mary.subscribe("new", qos=1, no_local=True)
        await mary.subscribe("mid", qos=1, no_local=True)
        for qos in (0, 1, 2):
            await say(mary, "raw", b"1", qos=qos)
        assert await inbox(mary) == []
        await say(bob, "raw", b"2", qos=1)
        assert await got(mary) == [("new", b"2")]


# -- retained messages -------------------------------------------------------------------------------------------


@both
@each_qos
@on_uvloop
async def test_a_suppressed_retained_publish_neither_sets_nor_clears(tmp_path: Path, qos: int, version: int) -> None:
    """*A denied retained publish neither sets nor clears*; a renamed one is retained under its new name."""
    monitors = [
        entering("open", **gated("t", "key", "lock")),
        entering("names", map={"raw": "new"}),
        entering("keeps", **emitting("k", {"retain": True}, {"topic": "once", "retain": False})),
    ]
    async with door(tmp_path, monitors=monitors) as node:
        mary = await come(node, "mary", version=version)

        async def kept() -> dict[str, bytes]:
            later = await come(node, "alice", version=version)
            await later.subscribe("#", qos=2)
            return {one.topic: one.payload for one in await inbox(later)}

        await say(mary, "t", b"1", qos=qos, retain=True)
        assert await kept() == {}
        await say(mary, "key", qos=qos)
        await say(mary, "t", b"2", qos=qos, retain=True)
        await say(mary, "lock", qos=qos)
        await say(mary, "t", b"", qos=qos, retain=True)
        await say(mary, "t", b"3", qos=qos, retain=True)
        assert await kept() == {"t": b"2"}
        await say(mary, "raw", b"4", qos=qos, retain=True)
        await say(mary, "k", b"5", qos=qos)
        assert await kept() == {"t": b"2", "new": b"4", "k": b"5"}
        await say(mary, "new", b"", qos=qos, retain=True)
        await say(mary, "raw", b"6", qos=qos, retain=True)
        await say(mary, "raw", b"", qos=qos, retain=True)  # clears what it is called now
        assert await kept() == {"t": b"2", "k": b"5"}


@both
@on_uvloop
async def test_retained_messages_go_through_the_monitors_of_who_subscribes(tmp_path: Path, version: int) -> None:
    """*Everything in egress is decided at sending … for live, queued, retained and resumed messages alike.*"""
    monitors = [leaving("names", map={"old": "new"}), leaving("open", **gated("t", "key", "lock"))]
    async with door(tmp_path, monitors=monitors) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
        for topic in ("t", "old"):
            await say(mary, topic, topic.encode(), qos=1, retain=True)
        await alice.subscribe("t", "old", qos=1)
        assert await inbox(alice) == []
        await alice.subscribe("new", qos=1)
        await say(mary, "key", qos=1)
        await alice.subscribe("t", "old", qos=1)
        found = {one.topic: (one.payload, one.retain) for one in await inbox(alice)}
        assert found == {"t": (b"t", True), "new": (b"old", True)}


# -- wills -------------------------------------------------------------------------------------------------------


@both
@each_qos
@on_uvloop
async def test_wills_go_through_the_monitors(tmp_path: Path, qos: int, version: int) -> None:
    """A will enters like any other publish: suppressed, renamed, retained under its new name, and seen."""
    monitors = [
        entering("names", map={"gone/#": "left/#"}),
        entering("no", filter=["left/#", "ask"]),
        leaving("out", only="left/door", after=["ask"]),
    ]
    async with door(tmp_path, monitors=monitors) as node:
        alice = await come(node, "alice", version=version)
        await alice.subscribe("left/#", qos=2)
        for client, topic in (("a", "gone/a"), ("b", "other"), ("c", "gone/door"), ("d", "ask"), ("e", "gone/door")):
            left = wire.Will(topic=topic, payload=client.encode(), qos=qos, retain=True)
            await go(node, await come(node, "mary", client=client, version=version, will=left))
        found = await inbox(alice)
        assert [(one.topic, one.payload, one.qos) for one in found] == [("left/a", b"a", qos), ("left/door", b"e", qos)]
        bob = await come(node, "bob", version=version)
        await bob.subscribe("#", qos=2)
        assert {one.topic for one in await inbox(bob)} == {"left/a", "ask"}  # the door waits for another `ask`


# -- shared subscriptions ----------------------------------------------------------------------------------------


@both
@each_qos
@on_uvloop
async def test_shared_subscriptions(tmp_path: Path, qos: int, version: int) -> None:
    """One member gets it, through the monitor of its own link; the automata of the others see it all the same."""
    monitors = [
        {"id": "a", "link": "main->client:alice", **gated("t", "key", "lock")},
        {"id": "b", "link": "main->client:bob", **gated("t", "key", "lock")},
    ]
    async with door(tmp_path, monitors=monitors) as node:
        mary, alice, bob = [await come(node, name, version=version) for name in ("mary", "alice", "bob")]
        for end in (alice, bob):
            await end.subscribe("$share/g/t", "$share/g/key", qos=2)
        await say(mary, "t", b"1", qos=qos)
        assert await payloads(alice) == await payloads(bob) == []
        await say(mary, "key", b"k", qos=qos)  # to one of them, and seen by both
        assert sorted(await payloads(alice) + await payloads(bob)) == [b"k"]
        for number in (b"2", b"3"):
            await say(mary, "t", number, qos=qos)
        assert sorted(await payloads(alice) + await payloads(bob)) == [b"2", b"3"]


# -- sessions ----------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "on disk"])
@on_uvloop
async def test_what_waits_is_seen_once_when_it_is_sent(tmp_path: Path, version: int, kept: bool) -> None:
    """Queued: seen at sending. In flight at the end of a connection: sent again, and not shown again."""
    monitors = [leaving("count", map={"first": "renamed"}), leaving("hears", use="hsup_em")]
    async with door(tmp_path, monitors=monitors, data=kept) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version, stays=True)
        await alice.subscribe("+", qos=2)
        await go(node, alice)
        for number, topic in enumerate(("first", "t", "t", "t")):
            await say(mary, topic, b"%d" % number, qos=1 + number % 2)
        whose = "user:alice scope:main->client:alice"
        assert states(node, "hears")[whose] == "allow"  # a link that is down sees nothing
        alice = await come(node, "alice", version=version, stays=True)
        sent = [await alice.expect(wire.Publish) for _ in range(2)]
        assert [(one.topic, one.payload) for one in sent] == [("renamed", b"0"), ("t", b"2")]
        await alice.settled()
        assert states(node, "hears")[whose] == "allow"
        await go(node, alice)
        alice = await come(node, "alice", version=version, stays=True)
        again = await inbox(alice) if not kept else []
        while len(again) < 2:
            again += await inbox(alice)
        assert [(one.topic, one.payload, one.dup) for one in again] == [("renamed", b"0", True), ("t", b"2", True)]
        assert states(node, "hears")[whose] == "allow"


@both
@on_uvloop
async def test_a_session_that_comes_back_after_a_restart(tmp_path: Path, version: int) -> None:
    """*State survives a restart*, and so does that something was seen; what waits is seen when it is sent."""
    monitors = [leaving("open", **gated("t", "key", "lock")), entering("in", use="hsup_em")]
    fields: dict[str, Any] = {"version": version, "stays": True}
    async with door(tmp_path, data=True, monitors=monitors) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", **fields)
        await alice.subscribe("t", "mark", qos=1)
        for topic in ("key", "lost", "t", "lost"):
            await say(mary, topic, b"1", qos=1)
        assert (await alice.expect(wire.Publish)).payload == b"1"  # not acknowledged
        await go(node, alice)
        await say(mary, "t", b"2", qos=1)
        await say(mary, "lost", b"2", qos=1)
        inner = states(node, "in")
    async with door(tmp_path, data=True, monitors=monitors) as node:
        assert {key: state for key, state in states(node, "in").items() if state != "allow"} == {
            key: state for key, state in inner.items() if state != "allow"
        }
        alice = await come(node, "alice", **fields)
        assert await marked(alice, node) == [b"1", b"2"]
        assert states(node, "open")["user:alice scope:main->client:alice"] == "open"


@on_uvloop
async def test_a_client_cannot_shake_off_its_state(tmp_path: Path) -> None:
    """State is of the principal's link: coming back, with a new session or another version, does not reset it."""
    monitors = [entering("calm", rate="1/h", burst=3), entering("client", each="client", rate="1/h", burst=4)]
    async with door(tmp_path, monitors=monitors) as node:
        alice = await come(node, "alice")
        await alice.subscribe("#", qos=1)
        for version in (*BOTH, *BOTH):
            mary = await come(node, "mary", client="x", version=version)
            await say(mary, "t", b"mary", qos=1)
            await go(node, mary)
        bob = await come(node, "bob", client="x")  # another principal's client of that name
        await say(bob, "t", b"bob", qos=1)
        assert await payloads(alice) == [b"mary"] * 3 + [b"bob"]


@on_uvloop
async def test_expiry_goes_on_in_what_monitors_make(tmp_path: Path) -> None:
    """The rest of the life of a message is the rest of the life of what is made of it."""
    monitors = [entering("in", map={"raw": "mid"}), leaving("out", **emitting("mid", {"topic": "new"}, "same"))]
    async with door(tmp_path, monitors=monitors) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        await alice.subscribe("#", qos=1)
        await say(mary, "raw", b"1", qos=1, properties=wire.Properties(message_expiry_interval=100))
        found = await inbox(alice)
        assert [one.topic for one in found] == ["new", "mid"]
        assert all(98 <= (one.properties.message_expiry_interval or 0) <= 100 for one in found)
        await go(node, alice)
        await say(mary, "raw", b"2", qos=1, properties=wire.Properties(message_expiry_interval=1))
        await asyncio.sleep(1.1)  # what expires does so by the clock
        alice = await come(node, "alice", stays=True)
        assert await inbox(alice) == []


@on_uvloop
async def test_a_small_window_keeps_the_order(tmp_path: Path) -> None:
    """What several outputs become waits in their order, each decided when it is sent."""
    outputs: list[Section] = [{"topic": "b"}, {"topic": "c", "qos": 2}]
    monitors = [leaving("m", **emitting("a", outputs[0], "same", outputs[1]))]
    async with door(tmp_path, monitors=monitors) as node:
        mary = await come(node, "mary")
        alice = await come(node, "alice", properties=wire.Properties(receive_maximum=1))
        await alice.subscribe("#", qos=2)
        for number in (b"1", b"2"):
            await say(mary, "a", number, qos=1)
        found = [await alice.message() for _ in range(6)]
        assert [(one.topic, one.payload) for one in found] == [(t, n) for n in (b"1", b"2") for t in ("b", "a", "c")]
        await alice.silent()
