"""Conditions of subscribers, views, and errors in all of them.

Each test quotes the sentence of the specification that it holds the node to, and tries to make a forbidden message
pass or an allowed one be lost.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processes import on_uvloop
from sockets.acts import (
    Section,
    asking,
    come,
    content,
    door,
    go,
    inbox,
    payloads,
    policy,
    say,
    setting,
    user,
)
from sockets.wild import FUNCTIONS
from tidegate import wire
from tidegate.gate.stages import view
from tidegate.policy import views as policy_views
from tidegate.scope.subscribing import WHERE_SUBSCRIPTIONS

PART: Section = {"id": "part", "topic": "t", "for": "user:alice", "keep": ["/a"]}
WHOLE: Section = {"id": "whole", "topic": "t", "for": ["user:mary", "user:bob"], "keep": "all"}
BODY = {"a": 1, "b": 1}
SECRET = ("secret", "x")


def where(condition: str) -> wire.Properties:
    return asking(("where", condition))


# -- where, after the view ---------------------------------------------------------------------------------------

PROBES = [
    "o.payload.b == 1",
    "has(o.payload.b)",
    "'b' in o.payload",
    "size(o.payload) == 2",
    "o.payload == {'a': 1, 'b': 1}",
    "o.payload.exists(key, key == 'b')",
    "o.size != 7",
    "o.properties.secret == 'x'",
    "has(o.properties.secret)",
    "'secret' in o.properties",
    "size(o.properties) > 0",
    "!has(o.payload.a) || o.payload.b > 0",
]


@pytest.mark.parametrize("condition", PROBES)
@on_uvloop
async def test_where_cannot_probe_hidden_parts(tmp_path: Path, condition: str) -> None:
    """*where: the subscription's own condition, on what is left after the view (so it cannot probe hidden parts)*"""
    async with door(tmp_path, views=[PART, WHOLE]) as node:
        mary = await come(node, "mary")
        alice, bob = await come(node, "alice", stays=True), await come(node, "bob", stays=True)
        await say(mary, "t", BODY, SECRET, qos=1, retain=True)
        for end in (alice, bob):
            assert (await end.subscribe("t", qos=1, properties=where(condition))).reasons == (1,)
        assert await content(alice) == []  # retained
        assert await content(bob) == [BODY]
        for qos in (0, 1, 2):
            await say(mary, "t", BODY, SECRET, qos=qos)
        assert await content(alice) == []
        assert await content(bob) == [BODY] * 3
        await go(node, alice, bob)
        await say(mary, "t", BODY, SECRET, qos=1)
        alice, bob = await come(node, "alice", stays=True), await come(node, "bob", stays=True)
        assert await content(alice) == []  # queued
        assert await content(bob) == [BODY]


@pytest.mark.parametrize("condition", ["o.payload.a == 1", "!has(o.payload.b)", "o.size == 7", "o.properties == {}"])
@on_uvloop
async def test_where_is_asked_of_what_is_left(tmp_path: Path, condition: str) -> None:
    """*… on what is left after the view*: what is true of that is delivered, live, retained, queued and shared."""
    async with door(tmp_path, views=[PART, WHOLE]) as node:
        mary = await come(node, "mary")
        alice = await come(node, "alice", stays=True)
        await say(mary, "t", BODY, SECRET, qos=1, retain=True)
        await alice.subscribe("t", qos=1, properties=where(condition))
        await say(mary, "t", BODY, SECRET, qos=0)
        assert await content(alice) == [{"a": 1}] * 2
        await go(node, alice)
        await say(mary, "t", BODY, SECRET, qos=1)
        alice = await come(node, "alice", stays=True)
        assert await content(alice) == [{"a": 1}]
        await alice.unsubscribe("t")
        await alice.subscribe("$share/g/t", qos=1, properties=where(condition))
        await say(mary, "t", BODY, SECRET, qos=1)
        assert await content(alice) == [{"a": 1}]


@on_uvloop
async def test_where_of_somebody_away_is_asked_of_what_will_be_left(tmp_path: Path) -> None:
    """*Everything in egress is decided at sending*: while nobody is connected, the view may not be known yet."""
    preference = {"id": "k", "user": "mary", "topic": "t", "when": "s.level == 'plain'", "keep": ["/a"]}
    async with door(tmp_path, preferences=[preference]) as node:
        mary = await come(node, "mary")
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("t", qos=1, properties=where("!has(o.payload.b)"))
        await say(mary, "t", BODY, qos=1)
        assert await content(alice) == [{"a": 1}]
        await go(node, alice)
        await say(mary, "t", BODY, qos=1)
        alice = await come(node, "alice", stays=True)
        assert await content(alice) == [{"a": 1}]


@pytest.mark.parametrize(
    "condition",
    ["p.user == 'mary'", "s.user == 'alice'", "nobody == 1", "o.payload.a ==", "1", "", "true" + " " * 3000],
)
@on_uvloop
async def test_where_sees_nothing_of_people(tmp_path: Path, condition: str) -> None:
    """`where` is *a CEL condition on the message*: it can speak of nobody, and a text that is none is refused."""
    async with door(tmp_path) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        answer = await alice.subscribe("t", "u", properties=where(condition))
        assert answer.reasons == (0x83, 0x83)
        assert answer.properties.reason_string is not None
        assert answer.properties.reason_string.startswith("where: ")
        await say(mary, "t", BODY)
        assert await inbox(alice) == []


@on_uvloop
async def test_each_subscription_is_decided_by_itself(tmp_path: Path) -> None:
    """*the subscription's own condition*: one that is met does not open another, nor close it."""
    async with door(tmp_path) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        one = asking(("where", "o.payload.a == 1"), subscription_identifiers=(1,))
        two = asking(("where", "o.payload.a == 2"), subscription_identifiers=(2,))
        await alice.subscribe("t", qos=2, properties=one)
        await alice.subscribe("+", qos=1, properties=two)
        for value in (1, 2, 3):
            await say(mary, "t", {"a": value}, qos=2)
        found = await inbox(alice)
        assert [(m.qos, m.properties.subscription_identifiers) for m in found] == [(2, (1,)), (1, (2,))]


@on_uvloop
async def test_conditions_of_one_client_do_not_hold_the_node(tmp_path: Path) -> None:
    """*Work is bounded*: also that of one message, whatever one subscriber asks for with thousands of filters."""
    levels = "abcdefghijkl"
    heavy = where("o.payload.l.all(x, o.payload.l.exists(y, y == x - 0))")
    async with door(tmp_path) as node:
        mary, alice, bob = await come(node, "mary"), await come(node, "alice"), await come(node, "bob")
        await bob.subscribe("#")
        filters = ["/".join("+" if n >> at & 1 else name for at, name in enumerate(levels)) for n in range(4096)]
        reasons: list[int] = []
        for start in range(0, 4096, 512):
            reasons += (await alice.subscribe(*filters[start : start + 512], properties=heavy)).reasons
        # thousands of conditions, each within its bounds, would take seconds for each message
        assert reasons == [0] * WHERE_SUBSCRIPTIONS + [0x97] * (4096 - WHERE_SUBSCRIPTIONS)
        await say(mary, "/".join(levels), {"l": list(range(9))})
        assert len(await inbox(bob)) == len(await inbox(alice)) == 1


@on_uvloop
async def test_only_services_score(tmp_path: Path) -> None:
    """`o.scores`: a device cannot vouch for itself with a user property."""
    async with door(tmp_path) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t", properties=where("o.scores.timeliness >= 0.8"))
        await say(mary, "t", BODY, ("scores", '{"timeliness": 1.0}'))
        assert await inbox(alice) == []


# -- views -------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_rows_of_overlapping_groups_unite(tmp_path: Path) -> None:
    """*Rows of one table that apply to a subject unite*"""
    users = {
        "mary": user(),
        "alice": user(groups=["one", "two"]),
        "bob": user(groups=["two"]),
        "carol": user(groups=["one", "all"]),
    }
    views = [
        {"id": "v1", "topic": "t/#", "for": "group:one", "keep": ["/a", "/c/x"]},
        {"id": "v2", "topic": "t/+", "for": "group:two", "keep": ["/b", "/c"]},
        {"id": "v3", "topic": "#", "for": "group:all", "keep": "all"},
    ]
    body = {"a": 1, "b": 2, "c": {"x": 3, "y": 4}, "d": 5}
    async with door(tmp_path, views=views, directory={"users": users}) as node:
        ends = {name: await come(node, name) for name in users}
        for end in ends.values():
            await end.subscribe("t/1")
        await say(ends["mary"], "t/1", body)
        assert await content(ends["alice"]) == [{"a": 1, "b": 2, "c": {"x": 3, "y": 4}}]
        assert await content(ends["bob"]) == [{"b": 2, "c": {"x": 3, "y": 4}}]
        assert await content(ends["carol"]) == [body]
        assert await content(ends["mary"]) == []  # *A table without an applicable row shows nothing*


BROAD = {"a": 1, "b": 2, "c": {"x": 3, "y": 4}}
TABLES: list[tuple[Any, Any, Any, Any]] = [  # administrator, publisher, owner, what is left
    (None, None, None, BROAD),
    (["/a", "/c"], None, None, {"a": 1, "c": {"x": 3, "y": 4}}),
    (["/a", "/c"], {"user:alice": ["/c/x", "/b"]}, None, {"c": {"x": 3}}),
    (["/a", "/c"], {"user:alice": ["/c/x", "/b"]}, ["/c", "/a"], {"c": {"x": 3}}),
    (["/a", "/c"], {"user:alice": "all"}, ["/c/y"], {"c": {"y": 4}}),
    ("all", {"user:alice": ["/a"], "*": ["/b"]}, ["/b", "/c"], {"b": 2}),
    ("all", {"user:bob": "all"}, None, None),
    (["/a"], {"user:alice": ["/b"]}, None, None),
    (["/a"], {"user:alice": "all"}, ["/b"], None),
    ([], {"user:alice": "all"}, None, None),
    (["/nowhere"], None, None, None),
    (None, {}, None, None),
    (None, "no table", None, None),
]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("admin", "publisher", "owner", "left"), TABLES)
@on_uvloop
async def test_tables_intersect(
    tmp_path: Path, admin: Any, publisher: Any, owner: Any, left: Any, stored: bool
) -> None:
    """*Rows of one table that apply to a subject unite; the tables intersect. A table without an applicable row shows
    nothing*"""
    sections: Section = {}
    if admin is not None:
        sections["views"] = [{"id": "v", "topic": "t", "for": "user:alice", "keep": admin}]
    if owner is not None:
        sections["preferences"] = [{"id": "p", "user": "mary", "topic": "t", "keep": owner}]
    asks = [] if publisher is None else [("view", json.dumps(publisher))]
    async with door(tmp_path, **sections) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        if not stored:
            await alice.subscribe("t")
        await say(mary, "t", BROAD, *asks, retain=stored)
        if stored:
            await alice.subscribe("t")
        assert await content(alice) == ([] if left is None else [left])


@on_uvloop
async def test_two_tables_of_a_publisher_are_none(tmp_path: Path) -> None:
    """*a table of visibility from the publisher in the user property `view`*: of two, neither may win."""
    async with door(tmp_path) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t")
        await say(mary, "t", BODY, ("view", '{"*": "all"}'), ("view", '{"*": ["/a"]}'))
        assert await content(alice) == []


@on_uvloop
async def test_a_long_table_is_read_once(tmp_path: Path) -> None:
    """*Work is bounded*: a publisher's table is not gone through again for each of hundreds of subscribers."""
    async with door(tmp_path) as node:
        mary = await come(node, "mary")
        for number in range(200):
            await (await come(node, None, client=f"c{number}")).subscribe("t")
        before = view._table.cache_info().misses
        for attempt in range(3):  # each with a table that the node has not seen
            table = json.dumps({f"user:u{attempt}-{row}": "all" for row in range(250)})
            await say(mary, "t", BODY, ("view", table))
        assert view._table.cache_info().misses - before == 3  # and not once for each subscriber


@pytest.mark.parametrize("name", ["secret", "floor", "view", "require"])
@on_uvloop
async def test_user_properties_are_hidden_by_a_partial_view(tmp_path: Path, name: str) -> None:
    """*user properties count as content*"""
    async with door(tmp_path, views=[PART, WHOLE]) as node:
        mary, alice, bob = await come(node, "mary"), await come(node, "alice"), await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("t")
        told = {"view": '{"*": "all"}', "require": "none"}.get(name, "patient 17")
        await say(mary, "t", BODY, ("first", "1"), (name, told))
        assert [m.properties.user_properties for m in await inbox(alice)] == [()]
        (whole,) = await inbox(bob)
        assert ("first", "1") in whole.properties.user_properties
        assert ((name, told) in whole.properties.user_properties) == (name == "secret") or name == "floor"


@pytest.mark.parametrize("payload", [b"plain text", b"", b'{"a": 1', b"\xff\x00", b'"a"', b"[1]", b'{"a": NaN}'])
@on_uvloop
async def test_content_that_is_not_json_is_all_or_nothing(tmp_path: Path, payload: bytes) -> None:
    """*Content that is not JSON is all or nothing*; and of JSON without the kept parts nothing is left either."""
    async with door(tmp_path, views=[PART, WHOLE]) as node:
        mary, alice, bob = await come(node, "mary"), await come(node, "alice"), await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("t")
        await say(mary, "t", payload)
        assert await payloads(alice) == []
        assert await payloads(bob) == [payload]


@on_uvloop
async def test_topic_aliases_both_ways_with_a_view(tmp_path: Path) -> None:
    """*view: what of the content this subject may see*, whatever the topic is called on the wire."""
    async with door(tmp_path, views=[PART, WHOLE]) as node:
        mary = await come(node, "mary")
        alice = await come(node, "alice", properties=asking(topic_alias_maximum=5))
        bob = await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("t", qos=1)
        body = json.dumps(BODY).encode()
        await mary.publish("t", body, qos=1, properties=asking(SECRET, topic_alias=1))
        await mary.publish("", body, qos=1, properties=asking(topic_alias=1))
        await mary.publish("", body, properties=asking(("view", '{"user:alice": "all"}'), topic_alias=1))
        await mary.silent()
        found = await inbox(alice)
        assert [(m.topic, m.properties.topic_alias) for m in found] == [("t", 1), ("", 1), ("", 1)]
        assert [json.loads(m.payload) for m in found] == [{"a": 1}] * 3
        assert [m.properties.user_properties for m in found] == [()] * 3
        assert await content(bob) == [BODY] * 2


@on_uvloop
async def test_message_expiry_with_a_view(tmp_path: Path) -> None:
    """A part of a message expires as the whole does; expired, it is not sent at all."""
    async with door(tmp_path, views=[PART, WHOLE]) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        await alice.subscribe("t", qos=1)
        await say(mary, "t", BODY, qos=1, retain=True, properties=asking(message_expiry_interval=100))
        (found,) = await inbox(alice)
        assert json.loads(found.payload) == {"a": 1}
        assert found.properties.message_expiry_interval in (99, 100)
        await go(node, alice)
        await say(mary, "t", BODY, qos=1, properties=asking(message_expiry_interval=0))
        await say(mary, "t", BODY, qos=1, properties=asking(message_expiry_interval=100))
        alice = await come(node, "alice", stays=True)
        (found,) = await inbox(alice)
        assert json.loads(found.payload) == {"a": 1}


@on_uvloop
async def test_request_and_response_with_views(tmp_path: Path) -> None:
    """*user properties, response topic and correlation data count as content*: who sees a part cannot answer."""
    async with door(tmp_path, views=[PART]) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t")
        await mary.subscribe("answers/mary")
        request = asking(SECRET, response_topic="answers/mary", correlation_data=b"17")
        await say(mary, "t", BODY, properties=request)
        (found,) = await inbox(alice)
        assert json.loads(found.payload) == {"a": 1}
        assert found.properties.user_properties == ()
        assert (found.properties.response_topic, found.properties.correlation_data) == (None, None)
        await node.reload(setting())  # who sees all can answer
        await say(mary, "t", BODY, properties=request)
        (found,) = await inbox(alice)
        assert found.properties.response_topic == "answers/mary"
        await say(alice, "answers/mary", b"done", properties=asking(correlation_data=b"17"))
        (answer,) = await inbox(mary)
        assert (answer.payload, answer.properties.correlation_data) == (b"done", b"17")


@on_uvloop
async def test_no_local_with_wishes(tmp_path: Path) -> None:
    """*for clients MQTT's No Local decides*, also for a message that asks for something of its own."""
    async with door(tmp_path) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await mary.subscribe("t", no_local=True)
        await alice.subscribe("t", no_local=True)
        for asks in ((), (("view", '{"*": ["/a"]}'),), (("require", "plain"),)):
            for qos in (0, 1, 2):
                await say(mary, "t", BODY, *asks, qos=qos)
        assert await inbox(mary) == []
        assert len(await inbox(alice)) == 9
        await say(mary, "t", BODY, ("view", '{"*": "all"}'), retain=True)
        await mary.subscribe("t", no_local=True)
        assert await inbox(mary) == []


# -- errors ------------------------------------------------------------------------------------------------------

BROKEN = [
    "s.nothing == 1",
    "o.payload.nothing == 1",
    "o.payload.a + 'x' == 'x'",
    "1 / (o.qos - o.qos) == 1",
    "explodes(o.payload.a)",
    "explodes_now()",
    "lies(o.topic)",
]


@pytest.mark.parametrize("combining", ["deny-overrides", "permit-overrides", "first-applicable"])
@pytest.mark.parametrize("effect", ["allow", "deny"])
@pytest.mark.parametrize("when", BROKEN)
@on_uvloop
async def test_an_error_in_an_applicable_policy_denies(tmp_path: Path, combining: str, effect: str, when: str) -> None:
    """*An unknown attribute, a type error or an exception: in an applicable policy denies, whatever the combining
    algorithm*"""
    rules = [
        policy("all-r", "#", "read"),
        policy("all-w", "#", "write"),
        policy("bad-r", "read", "read", effect=effect, when=when),
        policy("bad-w", "write", "write", effect=effect, when=when),
    ]
    async with door(tmp_path, *rules, combining=combining, functions=FUNCTIONS, explain=True) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#")
        await mary.send(wire.Publish(topic="write", payload=b'{"a": 1}', qos=1, packet_id=1))
        refused = await mary.expect(wire.Puback)
        assert (refused.reason, refused.properties.reason_string) == (0x87, "denied by bad-w")
        assert await say(mary, "read", BODY, qos=1) == 0x10
        assert await say(mary, "other", BODY, qos=1) == 0
        assert [m.topic for m in await inbox(alice)] == ["other"]


@pytest.mark.parametrize("when", BROKEN)
@on_uvloop
async def test_an_error_in_a_preference_counts_as_false(tmp_path: Path, when: str) -> None:
    """*… in a preference or publisher rule counts as false*: it neither allows by itself nor stands in the way."""
    preferences = [
        {"id": "bad", "user": "mary", "topic": "#", "when": when},
        {"id": "good", "user": "mary", "topic": "good", "when": "s.user == 'alice'"},
    ]
    async with door(tmp_path, preferences=preferences, functions=FUNCTIONS) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#")
        for qos in (0, 1):
            await say(mary, "bad", BODY, qos=qos)
            await say(mary, "good", BODY, qos=qos)
        assert [m.topic for m in await inbox(alice)] == ["good", "good"]
        await alice.unsubscribe("#")
        await say(mary, "bad", BODY, retain=True)
        await say(mary, "good", BODY, retain=True)
        await alice.subscribe("#")
        assert (await alice.message()).topic == "good"
        assert await inbox(alice) == []


@pytest.mark.parametrize("when", [text for text in BROKEN if "s." not in text])
@on_uvloop
async def test_an_error_in_a_subscribers_condition_is_not_met_and_hurts_nobody(tmp_path: Path, when: str) -> None:
    """*where: the subscription's own condition*: one that fails is not met; publisher and others go on."""
    async with door(tmp_path, functions=FUNCTIONS) as node:
        mary, alice, bob = await come(node, "mary"), await come(node, "alice"), await come(node, "bob")
        assert (await alice.subscribe("t", properties=where(when))).reasons == (0,)
        await bob.subscribe("t")
        for qos in (0, 1, 2):
            assert await say(mary, "t", BODY, qos=qos) == 0
        assert await inbox(alice) == []
        assert await content(bob) == [BODY] * 3


@pytest.mark.parametrize(
    "condition", ["s.nothing == 1", "explodes(s.address)", "explodes_now()", "s.tls.version == '1'"]
)
@on_uvloop
async def test_an_error_in_a_level_makes_a_connection_no_better(tmp_path: Path, condition: str) -> None:
    """*further levels are configured by a predicate over the connection's facts*: one that fails is not met."""
    levels = {"order": ["plain", "lab"], "define": {"lab": condition}}
    async with door(tmp_path, levels=levels, functions=FUNCTIONS) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t")
        await say(mary, "t", BODY)
        await say(mary, "t", BODY, ("require", "lab"))
        assert [m.properties.user_properties for m in await inbox(alice)] == [(("floor", "plain"),)]


@pytest.mark.parametrize(
    ("when", "payload", "passes"),
    [
        ("has(o.payload)", b"{}", True),
        ("has(o.payload)", b"no json", False),
        ("!has(o.payload)", b"no json", True),
        ("has(o.category)", b"{}", False),
        ("has(p.user) && has(e.hour) && has(s.level)", b"{}", True),
        ("o.payload.list.all(x, x < 3)", b'{"list": [1, 2]}', True),
        ("o.payload.list.all(x, x < 3)", b'{"list": [1, 2, "3"]}', False),
        ("o.payload.n == 9007199254740993", b'{"n": 9007199254740993}', True),
        ("o.payload.matches('^a+$')", b'"aaa"', True),
        ("o.payload.matches('^(a+)+$')", b'"' + b"a" * 5000 + b'!"', False),
    ],
)
@on_uvloop
async def test_what_conditions_read_of_a_message(tmp_path: Path, when: str, payload: bytes, passes: bool) -> None:
    """*`o.payload` (JSON, parsed only if read; absent if not JSON or protected)*"""
    async with door(tmp_path, policy("w", "#", "write"), policy("r", "#", "read", when=when)) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t")
        await say(mary, "t", payload)
        assert await payloads(alice) == ([payload] if passes else [])


@on_uvloop
async def test_content_is_taken_apart_once(tmp_path: Path) -> None:
    """Else a publisher's table with a row for each of many receivers holds everybody up for seconds."""
    async with door(tmp_path) as node:
        receivers = [await come(node, None, client=f"r{number}") for number in range(5)]
        for receiver in receivers:
            await receiver.subscribe("parts", qos=1)
        before = policy_views._document.cache_info().misses
        content = json.dumps({f"p{number}": number for number in range(5)}).encode()
        table = json.dumps({f"client:r{number}": [f"/p{number}"] for number in range(5)})
        await say(await come(node, "mary"), "parts", content, ("view", table))
        for number, receiver in enumerate(receivers):
            assert await payloads(receiver) == [b'{"p%d":%d}' % (number, number)]
        assert policy_views._document.cache_info().misses - before == 1  # and not once for each view
