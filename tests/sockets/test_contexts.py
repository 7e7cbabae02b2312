"""Several publishers drive one automaton, through real sockets: whoever may not read one of them learns nothing of it.

Each test quotes the sentence of the specification that it holds the node to.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness import Client
from processes import Served, from_file, on_uvloop
from sockets.acts import (
    PEOPLE,
    Section,
    allowing,
    come,
    content,
    door,
    inbox,
    marked,
    payloads,
    policy,
    say,
    secure,
    setting,
    user,
)
from sockets.watchers import automaton, denials, entering, gated, got, leaving, names, told

LABELS: Section = {
    "preset": "blp",
    "order": {"high": ["low"]},
    "assign": [
        {"client": "role:general", "in": "high", "out": "high"},
        {"client": "role:soldier", "in": "low", "out": "low"},
    ],
}
SOLDIERS: Section = {
    "users": {"mary": user("general"), "alice": user("general"), "bob": user("soldier"), "carol": user("soldier")}
}
each_qos = pytest.mark.parametrize("qos", [0, 1, 2])


def shared(id: str, **more: Any) -> Section:
    """A monitor with one state for everybody who publishes."""
    return entering(id, each="scope", **more)


def gate(id: str = "gate", **more: Any) -> Section:
    """What is said at the `door` passes between `key` and `lock`."""
    return shared(id, **gated("door", "key", "lock"), **more)


def ranks(*monitors: Section, **more: Any) -> str:
    """mary and alice are above, bob and carol below; monitors may write everything."""
    return setting(allowing(monitors), monitors=list(monitors), brokering=LABELS, directory=SOLDIERS, **more)


async def readers(node: Served, *people: str, filter: str = "#", qos: int = 2) -> list[Client]:
    """A second connection of each, which only reads."""
    ends = [await come(node, name, client=f"{name}'s eyes") for name in people]
    for end in ends:
        await end.subscribe(filter, qos=qos)
    return ends


# -- brokering -------------------------------------------------------------------------------------------------------


@each_qos
@on_uvloop
async def test_a_high_client_arms_a_low_one_triggers_and_the_low_reader_learns_nothing(
    tmp_path: Path, qos: int
) -> None:
    """*Its outputs carry them, and so does an event that another state would have suppressed or changed* and *Brokering
    must allow the link type of each*."""
    states = {
        "idle": [{"on": "arm", "go": "armed"}, {"on": "shot", "emit": [{"topic": "silence"}]}],
        "armed": [{"on": "safe", "go": "idle"}, {"on": "shot", "emit": [{"topic": "bang"}, "same"]}],
    }
    async with from_file(tmp_path, ranks(shared("gun", **automaton("idle", **states)), gate())) as node:
        general, soldier = await come(node, "mary"), await come(node, "bob")
        high, low = await readers(node, "alice", "carol")
        await say(soldier, "shot", b"1", qos=qos)
        assert await got(high) == await got(low) == [("silence", b"1")]
        await say(general, "arm", qos=qos)
        await say(soldier, "shot", b"2", qos=qos)
        assert await got(high) == [("arm", b"x"), ("bang", b"2"), ("shot", b"2")]
        assert await got(low) == []
        await say(general, "safe", qos=qos)  # it is back where it began, and has forgotten who was there
        await say(soldier, "shot", b"3", qos=qos)
        assert await got(high) == [("safe", b"x"), ("silence", b"3")]
        assert await got(low) == [("silence", b"3")]
        await say(soldier, "arm", qos=qos)
        await say(soldier, "shot", b"4", qos=qos)
        assert await names(high) == await names(low) == ["arm", "bang", "shot"]
        await say(soldier, "safe", qos=qos)
        # an event that passes as it is, but would not have in another state
        await say(general, "key", qos=qos)
        await say(soldier, "door", b"5", qos=qos)
        await say(soldier, "key", qos=qos)  # every state lets this one pass: it carries nothing more
        assert await got(high) == [("safe", b"x"), ("key", b"x"), ("door", b"5"), ("key", b"x")]
        assert await names(low) == ["safe", "key"]


@on_uvloop
async def test_what_one_automaton_puts_out_is_remembered_by_the_next(tmp_path: Path) -> None:
    """All contexts of a message are remembered where it moves another automaton."""
    first = shared("first", **gated("key", "arm", "never"))
    async with from_file(tmp_path, ranks(first, gate())) as node:
        general, soldier = await come(node, "mary"), await come(node, "bob")
        high, low = await readers(node, "alice", "carol")
        await say(general, "arm", qos=1)
        await say(soldier, "key", qos=1)  # it passes because of the general
        await say(soldier, "door", qos=1)  # and that is why this one does
        assert await names(high) == ["arm", "key", "door"]
        assert await names(low) == []


@on_uvloop
async def test_what_an_automaton_lets_pass_is_decided_again_when_it_is_stored(tmp_path: Path) -> None:
    """*Everything in egress is decided at sending*: retained and queued messages keep all contexts that they carry."""
    async with from_file(tmp_path, ranks(gate(), data=True)) as node:
        general, soldier = await come(node, "mary"), await come(node, "bob")
        high, low = [await come(node, name, client=f"{name}'s eyes", stays=True) for name in ("alice", "carol")]
        for end in (high, low):
            await end.subscribe("door", "mark", qos=1)
            await end.disconnect()
        await say(general, "key", qos=1)
        await say(soldier, "door", b"kept", qos=1, retain=True)
    async with from_file(tmp_path, ranks(gate(), data=True)) as node:
        # the state, what waited and what was retained have all been read from the disk
        soldier = await come(node, "bob")
        await say(soldier, "door", b"later", qos=1)
        for name, seen in (("alice", [b"kept", b"later"]), ("carol", [])):
            end = await come(node, name, client=f"{name}'s eyes", stays=True)
            assert await marked(end, node) == seen
            fresh = await come(node, name, client=f"{name}'s other eyes")
            await fresh.subscribe("door", "mark", qos=1)
            assert await marked(fresh, node) == seen[:1]


@on_uvloop
async def test_automata_of_links_between_scopes_and_of_readers(tmp_path: Path) -> None:
    """Wherever it acts, an automaton carries what it remembers. Over a link *the link type of each* must be allowed;
    behind it, it is the link's."""
    monitors = [
        {"id": "over", "link": "near->far", **gated("door", "key", "lock")},
        {"id": "out", "scope": "far", "direction": "im_sub", **gated("bell", "ring", "hush")},
    ]
    brokering = {**LABELS, "assign": [*LABELS["assign"], {"link": "near->far", "type": "high"}]}
    directory = {
        **SOLDIERS,
        "clients": {f"{name}'s eyes": {"user": name, "scopes": ["far"]} for name in ("alice", "mary")},
    }
    preferences = [{"id": "not-alice", "user": "mary", "topic": "key", "when": "s.user != 'alice'"}]
    text = setting(
        monitors=monitors,
        brokering=brokering,
        directory=directory,
        preferences=preferences,
        scopes={"near": {}, "far": {}},
        links=[{"from": "near", "to": "far", "direction": "out"}],
        listeners=[
            {"url": "mqtt://127.0.0.1:PORT", "scope": "near"},
            {"url": "mqtt://127.0.0.1:FAR_PORT", "scope": "far"},
        ],
    )
    async with from_file(tmp_path, text) as node:
        general, soldier = await come(node, "mary"), await come(node, "bob")
        eyes = []
        for name in ("alice", "mary"):
            end = await come(node, name, client=f"{name}'s eyes", port="FAR_PORT")
            await end.subscribe("#", qos=1)
            eyes.append(end)
        await say(general, "key", qos=1)
        await say(soldier, "door", qos=1)
        await say(soldier, "bell", qos=1)
        assert (await names(eyes[0]), await names(eyes[1])) == ([], ["key", "door"])
        await say(general, "lock", qos=1)
        await say(general, "ring", qos=1)
        await say(soldier, "bell", qos=1)
        assert await names(eyes[0]) == await names(eyes[1]) == ["lock", "ring", "bell"]
        await say(general, "key", qos=1)  # over the link it is one's own key; to alice nothing of it comes
        await say(soldier, "door", qos=1)
        assert (await names(eyes[0]), await names(eyes[1])) == ([], ["key", "door"])


# -- demands, preferences and views ----------------------------------------------------------------------------------


@each_qos
@on_uvloop
async def test_the_highest_demand_and_the_lowest_floor(tmp_path: Path, certificates: Path, qos: int) -> None:
    """*From several: … the highest demand, the lowest floor.*"""
    monitors = [gate()]
    async with door(
        tmp_path, allowing(monitors), certificates=certificates, monitors=monitors, levels={"implied": False}
    ) as node:
        over = secure(certificates)
        safe, plain = await come(node, "mary", tls=over), await come(node, "bob")
        eyes = {
            "plain": await come(node, "alice", client="a"),
            "tls": await come(node, "alice", client="b", tls=over),
            "demanding": await come(node, "alice", client="c", tls=over, asks=[("require", "tls")]),
        }
        for end in eyes.values():
            await end.subscribe("door", qos=qos)

        async def seen() -> dict[str, list[str]]:
            return {name: [told(one)["floor"] for one in await inbox(end)] for name, end in eyes.items()}

        await say(safe, "key", b"x", ("require", "tls"), qos=qos)
        await say(plain, "door", qos=qos)  # demands nothing, but comes from what does
        assert await seen() == {"plain": [], "tls": ["plain"], "demanding": []}
        await say(safe, "lock", qos=qos)
        await say(plain, "key", qos=qos)
        await say(safe, "door", qos=qos)
        assert await seen() == {"plain": ["plain"], "tls": ["plain"], "demanding": []}
        await say(plain, "lock", qos=qos)
        await say(safe, "key", qos=qos)
        await say(safe, "door", qos=qos)
        assert await seen() == {"plain": ["tls"], "tls": ["tls"], "demanding": ["tls"]}


@each_qos
@on_uvloop
async def test_all_owners_preferences(tmp_path: Path, qos: int) -> None:
    """*From several: all owners' preferences*, each for the topic that its owner published under."""
    preferences = [
        {"id": "not-carol", "user": "mary", "topic": "key", "when": "s.user != 'carol'"},
        {"id": "not-alice", "user": "bob", "topic": "door", "when": "s.user != 'alice'"},
    ]
    monitors = [gate()]
    people = {"users": {**PEOPLE, "dave": user()}}
    async with door(tmp_path, allowing(monitors), monitors=monitors, preferences=preferences, directory=people) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob")
        eyes = await readers(node, "alice", "carol", "dave", filter="door")

        async def seen() -> list[int]:
            return [len(await inbox(end)) for end in eyes]

        await say(mary, "key", qos=qos)
        await say(bob, "door", qos=qos)
        assert await seen() == [0, 0, 1]
        await say(mary, "door", qos=qos)  # her own, but it would not have passed without her key
        assert await seen() == [1, 0, 1]
        await say(mary, "lock", qos=qos)
        await say(bob, "key", qos=qos)
        await say(mary, "door", qos=qos)
        assert await seen() == [1, 1, 1]


@on_uvloop
async def test_the_intersection_of_views(tmp_path: Path) -> None:
    """*From several: … the intersection of views.*"""
    monitors = [gate()]
    table, other = '{"*": ["/a", "/b"]}', '{"user:alice": ["/b", "/c"], "user:carol": "all"}'
    async with door(tmp_path, allowing(monitors), monitors=monitors) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob")
        alice, carol, dave = await readers(node, "alice", "carol", "mary", filter="door")
        await say(mary, "key", b"x", ("view", table), qos=1)
        body = {"a": 1, "b": 2, "c": 3}
        await say(bob, "door", body, ("view", other), qos=1)
        assert (await content(alice), await content(carol), await content(dave)) == ([{"b": 2}], [{"a": 1, "b": 2}], [])
        await say(bob, "door", body, qos=1)
        assert [await content(end) for end in (alice, carol, dave)] == [[{"a": 1, "b": 2}]] * 3


@on_uvloop
async def test_a_policy_holds_for_each_publisher(tmp_path: Path) -> None:
    """A condition on `p` is asked of each whose events it comes from."""
    monitors = [gate()]
    team = policy("team", subject="*", action="read", when="p.user in ['mary', 'bob'] || s.user == 'alice'")
    writing = policy("write", subject=["*", "monitor:gate"], action="write")
    async with door(tmp_path, team, writing, monitors=monitors) as node:
        mary, bob, carol = await come(node, "mary"), await come(node, "bob"), await come(node, "carol")
        alice, other = await readers(node, "alice", "bob", filter="door")
        await say(mary, "key", qos=1)
        await say(bob, "door", b"1", qos=1)
        await say(mary, "lock", qos=1)
        await say(carol, "key", qos=1)
        await say(bob, "door", b"2", qos=1)
        assert (await payloads(alice), await payloads(other)) == ([b"1", b"2"], [b"1"])


# -- what is remembered ----------------------------------------------------------------------------------------------


@on_uvloop
async def test_at_most_sixteen(tmp_path: Path) -> None:
    """*at most 16; beyond that its outputs are not published*, which is audited, until it begins anew."""
    winding = shared(
        "gate",
        **automaton(
            "closed",
            closed=[{"on": "key", "go": "even"}, {"on": "door", "emit": []}],
            even=[{"on": "lock", "go": "closed"}, {"on": "key", "go": "odd"}],
            odd=[{"on": "lock", "go": "closed"}, {"on": "key", "go": "even"}],
        ),
    )
    async with door(tmp_path, allowing([winding]), monitors=[winding]) as node:
        (eyes,) = await readers(node, "alice", filter="door")
        ends = [await come(node, None, client=f"c{number}") for number in range(17)]
        for end in ends[:16]:
            await say(end, "key", qos=1)
        for number in range(20):
            await say(ends[0], "key", qos=1)  # it is remembered already
            assert await say(ends[number % 16], "door", b"%d" % number, qos=1) == 0
        assert len(await payloads(eyes)) == 20
        await say(ends[16], "key", qos=1)
        assert await say(ends[0], "door", b"too many", qos=1) == 0x10
        assert await payloads(eyes) == []
        assert any("16 publishers" in (row.detail or "") for row in await denials(node, "gate"))
        await say(ends[16], "lock", qos=1)
        await say(ends[0], "key", qos=1)
        await say(ends[16], "door", b"again", qos=1)
        assert await payloads(eyes) == [b"again"]


@on_uvloop
async def test_rate_dedupe_filter_and_map_remember_none(tmp_path: Path) -> None:
    """*`rate`, `dedupe`, `filter` and `map` remember none.*"""
    monitors = [
        shared("rate", on="t/#", rate="1000/s"),
        shared("dedupe", on="t/#", dedupe="1h"),
        shared("filter", filter=["t/#"]),
        shared("map", map={"t/old": "t/new"}),
    ]
    async with from_file(tmp_path, ranks(*monitors)) as node:
        general, soldier = await come(node, "mary"), await come(node, "bob")
        high, low = await readers(node, "alice", "carol")
        for number in range(3):
            await say(general, "t/old", b"g%d" % number, qos=1)
            await say(soldier, "t/old", b"s%d" % number, qos=1)
        assert len(await payloads(high)) == 6
        assert await payloads(low) == [b"s0", b"s1", b"s2"]


@on_uvloop
async def test_a_timer_puts_out_what_all_have_led_to(tmp_path: Path) -> None:
    """*a monitor's or timer's output*: of whoever led it into the state in which the timer runs."""
    states = {
        "idle": [{"on": "arm", "go": "armed"}],
        "armed": [
            {"on": "shot", "emit": ["same"]},
            {"silent": "50ms", "go": "idle", "emit": [{"topic": "quiet", "qos": 1}]},
        ],
    }
    async with from_file(tmp_path, ranks(shared("gun", **automaton("idle", **states)))) as node:
        general, soldier = await come(node, "mary"), await come(node, "bob")
        high, low = await readers(node, "alice", "carol", filter="quiet", qos=1)
        await say(general, "arm", qos=1)
        await say(soldier, "shot", qos=1)  # the last one that reached it, but not the only one
        assert (await high.message()).topic == "quiet"
        assert await names(low) == []
        await say(soldier, "arm", qos=1)
        assert (await high.message()).topic == (await low.message()).topic == "quiet"


@on_uvloop
async def test_python_that_lets_pass_carries_and_python_that_mixes_is_not_published(tmp_path: Path) -> None:
    """*Python that mixes differently restricted messages: its output is not published, and that is audited*; what it
    lets pass carries whose events it has seen."""
    keeper = shared("keeper", python="sockets.watchers:Keeper")
    async with from_file(tmp_path, ranks(keeper)) as node:
        general, soldier = await come(node, "mary"), await come(node, "bob")
        high, low = await readers(node, "alice", "carol")
        await say(general, "key", qos=1)
        await say(soldier, "door", b"1", qos=1)
        assert (await names(high), await names(low)) == (["key", "door", "said"], [])
        await say(general, "lock", qos=1)
        await say(soldier, "key", qos=1)
        await say(soldier, "door", b"2", qos=1)
        assert await names(high) == ["lock", "key", "door", "said"]
        assert await names(low) == ["key", "door", "said"]


@on_uvloop
async def test_the_fast_lane_stays_where_nothing_more_is_carried(tmp_path: Path) -> None:
    """*one that every state passes unchanged carries nothing more and keeps the fast lane.*"""
    monitors = [gate(), leaving("own", **gated("bell", "ring", "hush"))]
    async with door(tmp_path, allowing(monitors), monitors=monitors) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob")
        await readers(node, "alice", filter="#", qos=0)
        await say(mary, "key")
        await say(mary, "ring")
        session = node.node.scopes["main"].sessions["user:bob", "bob"]
        for topic in ("key", "door", "bell", "other"):
            await say(bob, topic)
        lane = session.connection.reader.lane
        calm = {
            topic: plan.fast is not None and (not plan.guarded or plan.calm(session))
            for topic in ("key", "door", "bell", "other")
            if (plan := lane.plans[topic.encode()])
        }
        assert calm == {"key": True, "door": False, "bell": False, "other": True}
        await asyncio.sleep(0)
