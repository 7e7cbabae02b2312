"""Time. Wills, retained, queued and resumed messages, the clock.

*Everything in egress is decided at sending, with the policies, clock and newest known preferences of that moment, for
live, queued, retained and resumed messages alike.* Each test quotes the sentence that it holds the node to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from processes import from_file, on_uvloop, until
from sockets.acts import (
    ALL,
    BOTH,
    PEOPLE,
    Section,
    asking,
    come,
    content,
    dismissed,
    door,
    go,
    inbox,
    payloads,
    policy,
    say,
    secure,
    setting,
    user,
)
from sockets.changes import CHANGES, NO_ALICE, SPARES_BOB, changed
from tidegate import wire
from tidegate.session import Session

BODY = {"a": 1, "b": 1}
WITHOUT_MARY = {name: entry for name, entry in PEOPLE.items() if name != "mary"}
NO_MARY = policy("no-mary", subject="user:mary", effect="deny", action="write")


def will(*asks: tuple[str, str], topic: str = "will", payload: bytes = b'{"a":1,"b":1}', **fields: Any) -> wire.Will:
    delay = fields.pop("delay", None)
    fields = {"qos": 1, "retain": False, **fields}
    return wire.Will(topic=topic, payload=payload, properties=asking(*asks, will_delay_interval=delay), **fields)


# -- wills -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("retain", [False, True])
@on_uvloop
async def test_a_will_is_decided_when_it_fires_under_the_policies_then(
    tmp_path: Path, version: int, retain: bool
) -> None:
    """*A will is checked against what is static at CONNECT and decided when it fires, under the policies and directory
    then*; *a denied retained publish neither sets nor clears*."""
    async with door(tmp_path) as node:
        alice = await come(node, "alice")
        await alice.subscribe("will", qos=1)
        first = await come(node, "mary", version=version, will=will(retain=retain))
        await go(node, first)
        assert await content(alice) == [BODY]
        mary = await come(node, "mary", version=version, will=will(payload=b"two", retain=retain))
        await node.reload(setting(ALL, NO_MARY))
        await go(node, mary)
        assert await inbox(alice) == []
        bob = await come(node, "bob")
        await bob.subscribe("will")
        assert await content(bob) == [BODY] * retain


@pytest.mark.parametrize(("version", "refusal"), [(wire.V311, 5), (wire.V5, 0x87)])
@pytest.mark.parametrize("rules", [(ALL, NO_MARY), (policy("r", "#", "read"),), (policy("w", when="s.none == 1"),)])
@on_uvloop
async def test_a_will_that_is_denied_whatever_comes_refuses_the_connection(
    tmp_path: Path, rules: tuple[Section, ...], version: int, refusal: int
) -> None:
    """*A will is checked against what is static at CONNECT*"""
    async with door(tmp_path, *rules) as node:
        await come(node, "mary", version=version, will=will(), expect=refusal)
        await come(node, "mary", version=version)


@on_uvloop
async def test_a_will_denied_by_its_content_or_the_clock_waits_for_its_time(
    tmp_path: Path, clock: Callable[[str], None]
) -> None:
    """*checked against what is static*: content and clock are not."""
    rules = [
        policy("r", "#", "read"),
        policy("size", "size", "write", when="o.size < 3"),
        policy("hour", "hour", "write", when="e.hour >= 14"),
        policy("now", "now", "write", when="within(e.now, '14:00-15:00')"),
    ]
    async with door(tmp_path, *rules) as node:
        alice = await come(node, "alice")
        await alice.subscribe("#", qos=1)
        for topic in ("size", "hour", "now"):
            await go(node, await come(node, "mary", will=will(topic=topic, payload=b"long")))
        assert await inbox(alice) == []
        ends = [
            await come(node, "mary", client=topic, will=will(topic=topic, payload=b"ok"))
            for topic in ("size", "hour", "now")
        ]
        clock("2026-02-11T14:30:00")
        await go(node, *ends)
        assert sorted(m.topic for m in await inbox(alice)) == ["hour", "now", "size"]


@on_uvloop
async def test_the_will_of_somebody_removed_is_dropped(tmp_path: Path) -> None:
    """*a revoked or expired subject's will is dropped. Revoking a user or certificate also disconnects it.*"""
    async with door(tmp_path) as node:
        alice = await come(node, "alice")
        await alice.subscribe("will", qos=1)
        there = await come(node, "mary", client="there", will=will())
        gone = await come(node, "mary", client="gone", will=will(delay=1), stays=True)
        await go(node, gone)
        await node.reload(setting(directory={"users": WITHOUT_MARY}))
        await dismissed(there, 0x87)
        timers = node.node.site.timers
        fire = set()
        while (timer := timers.due(node.node.site.now + 900)) is not None:
            fire.add(timer.callback.__qualname__)
        assert fire <= {"NumberHistory._take"}  # nothing else, unless the session's own end
        assert await inbox(alice) == []


@on_uvloop
async def test_a_will_is_decided_under_the_directory_of_its_time(tmp_path: Path) -> None:
    """*decided when it fires, under the policies and directory then*"""
    rules = [policy("r", "#", "read"), policy("w", "#", "write", subject="role:sender")]
    before = {**PEOPLE, "mary": user("sender"), "bob": user("sender")}
    async with door(tmp_path, *rules, directory={"users": before}) as node:
        alice = await come(node, "alice")
        await alice.subscribe("#", qos=1)
        mary = await come(node, "mary", will=will(topic="mary"))
        bob = await come(node, "bob", will=will(topic="bob"))
        await node.reload(setting(*rules, directory={"users": {**before, "mary": user("guest")}}))
        await go(node, mary, bob)
        assert [m.topic for m in await inbox(alice)] == ["bob"]


@on_uvloop
async def test_what_a_will_asks_for_is_heeded(tmp_path: Path, certificates: Path) -> None:
    """One door: a will's `view` and `require` bind as those of any publish, and its owner's preferences too."""
    preferences = [{"id": "mine", "user": "mary", "topic": "private", "when": "s.user == 'bob'"}]
    async with door(tmp_path, certificates=certificates, preferences=preferences) as node:
        alice = await come(node, "alice")
        bob = await come(node, "bob", tls=secure(certificates))
        for end in (alice, bob):
            await end.subscribe("#", qos=1)
        table = ("view", '{"user:alice": ["/a"], "user:bob": "all"}')
        for asks, topic in (((table,), "view"), ((("require", "tls"),), "require"), ((), "private")):
            await go(node, await come(node, "mary", will=will(*asks, ("own", "1"), topic=topic)))
        found = await inbox(alice)
        assert [(m.topic, m.payload, m.properties.user_properties) for m in found] == [("view", b'{"a":1}', ())]
        assert [(m.topic, m.properties.user_properties) for m in await inbox(bob)] == [
            (topic, (("own", "1"),)) for topic in ("view", "require", "private")
        ]


@on_uvloop
async def test_a_will_that_waits_for_the_next_start_is_decided_by_the_rules_then(tmp_path: Path) -> None:
    """*decided when it fires*, also if the node was restarted with other rules before."""
    for rules, expected in (((), [b"gone"]), ((ALL, NO_MARY), [])):
        folder = tmp_path / str(len(rules))
        folder.mkdir()
        async with door(folder, data=True) as node:
            await come(node, "mary", stays=True, will=will(payload=b"gone"))
            alice = await come(node, "alice", stays=True)
            await alice.subscribe("#", qos=1)
        async with from_file(folder, setting(*rules, data=True)) as node:
            alice = await come(node, "alice", stays=True)
            bob = await come(node, "bob")
            sessions = node.node.scopes["main"].sessions
            await until(partial(_no_will_is_left, sessions))
            await say(bob, "last", b"last", qos=1)
            found: list[bytes] = []
            while not found or found[-1] != b"last":
                found.append((await alice.message()).payload)
            assert found[:-1] == expected


def _no_will_is_left(sessions: dict[tuple[str, str], Session]) -> bool:
    return not any(session.will for session in sessions.values())


# -- stored messages after a change ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHANGES)
@on_uvloop
async def test_retained_messages_are_decided_when_they_are_sent(tmp_path: Path, name: str) -> None:
    """*Everything in egress is decided at sending … for live, queued, retained and resumed messages alike.*"""
    before, after = changed(name)
    async with from_file(tmp_path, before) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await say(mary, "t", BODY, qos=1, retain=True)
        await alice.subscribe("t")
        assert await content(alice) == [BODY]
        await node.reload(after)
        await alice.unsubscribe("t")
        await alice.subscribe("t", "other")
        assert await inbox(alice) == []
        await node.reload(before)
        await alice.unsubscribe("t")
        await alice.subscribe("t")
        assert await content(alice) == [BODY]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("name", CHANGES)
@on_uvloop
async def test_queued_messages_are_decided_when_they_are_sent(tmp_path: Path, name: str, qos: int) -> None:
    """The same for what waited while the client was away, and while it was there but did not acknowledge."""
    before, after = changed(name)
    async with from_file(tmp_path, before) as node:
        mary = await come(node, "mary")
        alice = await come(node, "alice", stays=True)
        slow = await come(node, "alice", client="slow", properties=asking(receive_maximum=1))
        for end in (alice, slow):
            await end.subscribe("t", qos=qos)
        await go(node, alice)
        for _ in range(3):
            await say(mary, "t", BODY, qos=qos)
        sent = await slow.expect(wire.Publish)
        await node.reload(after)
        alice = await come(node, "alice", stays=True)
        assert await inbox(alice) == []
        await slow.send((wire.Puback if qos == 1 else wire.Pubrec)(packet_id=sent.packet_id))
        if qos == 2:
            await slow.expect(wire.Pubrel)
            await slow.send(wire.Pubcomp(packet_id=sent.packet_id))
        assert await inbox(slow) == []
        await node.reload(before)
        await say(mary, "t", BODY, qos=qos)  # what is allowed again flows again
        assert await content(alice) == [BODY]
        assert await content(slow) == [BODY]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("name", CHANGES)
@on_uvloop
async def test_in_flight_packets_that_are_now_denied_are_not_sent_again(tmp_path: Path, name: str, qos: int) -> None:
    """*In-flight packets that are now denied are not sent again.*"""
    before, after = changed(name)
    async with from_file(tmp_path, before) as node:
        mary = await come(node, "mary")
        alice = await come(node, "alice", stays=True)
        bob = await come(node, "bob", stays=True)
        for end in (alice, bob):
            await end.subscribe("t", qos=qos)
        await say(mary, "t", BODY, qos=qos)
        for end in (alice, bob):
            await end.expect(wire.Publish)
        await go(node, alice, bob)
        await node.reload(after)
        alice, bob = await come(node, "alice", stays=True), await come(node, "bob", stays=True)
        assert await inbox(alice) == []
        again = await inbox(bob)
        assert [(m.dup, m.qos) for m in again] == ([(True, qos)] if name in SPARES_BOB else [])


@on_uvloop
async def test_a_released_message_completes_though_it_is_denied_now(tmp_path: Path) -> None:
    """A QoS 2 message that the client has acknowledged has been received: its exchange ends as it should."""
    async with door(tmp_path) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        await alice.subscribe("t", qos=2)
        await say(mary, "t", BODY, qos=2)
        sent = await alice.expect(wire.Publish)
        await alice.send(wire.Pubrec(packet_id=sent.packet_id))
        await alice.expect(wire.Pubrel)
        await go(node, alice)
        await node.reload(setting(ALL, NO_ALICE))
        alice = await come(node, "alice", stays=True)
        assert (await alice.expect(wire.Pubrel)).packet_id == sent.packet_id
        await alice.send(wire.Pubcomp(packet_id=sent.packet_id))
        assert await inbox(alice) == []


@on_uvloop
async def test_what_is_sent_again_shows_what_may_be_seen_now(tmp_path: Path) -> None:
    """*view: what of the content this subject may see*, decided when it is sent, also for the second time."""
    async with door(tmp_path) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        await alice.subscribe("t", qos=1)
        await say(mary, "t", BODY, ("own", "1"), qos=1)
        assert (await alice.expect(wire.Publish)).properties.user_properties == (("own", "1"),)
        await go(node, alice)
        keep = {"id": "k", "user": "mary", "topic": "t", "keep": ["/a"]}
        await node.reload(setting(preferences=[keep]))
        alice = await come(node, "alice", stays=True)
        (again,) = await inbox(alice)
        assert (again.dup, again.payload, again.properties.user_properties) == (True, b'{"a":1}', ())


@on_uvloop
async def test_a_denied_retained_publish_neither_sets_nor_clears(tmp_path: Path) -> None:
    """*A denied retained publish neither sets nor clears.*"""
    async with door(tmp_path) as node:
        mary = await come(node, "mary")
        old = await come(node, "mary", client="old", version=wire.V311)
        await say(mary, "t", b"good", qos=1, retain=True)
        await node.reload(setting(ALL, NO_MARY))
        for end in (mary, old):
            for body in (b"bad", b""):
                for qos in (0, 1, 2):
                    expected = 0x87 if qos and end is mary else 0
                    assert await say(end, "t", body, qos=qos, retain=True) == expected
        alice = await come(node, "alice")
        await alice.subscribe("t")
        assert await payloads(alice) == [b"good"]


@on_uvloop
async def test_what_is_denied_is_not_queued_and_does_not_come_later(tmp_path: Path) -> None:
    """A message that was denied to somebody away, whatever its connection, is not waiting when that changes."""
    async with door(tmp_path, ALL, NO_ALICE, policy("other", "other")) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        assert (await alice.subscribe("t", qos=1)).reasons == (1,)
        await go(node, alice)
        await say(mary, "t", BODY, qos=1)
        await node.reload(setting())
        alice = await come(node, "alice", stays=True)
        assert await inbox(alice) == []


# -- the publish context -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("removed", [False, True])
@on_uvloop
async def test_the_publish_context_stays_as_it_was(tmp_path: Path, removed: bool) -> None:
    """*`p` … stored with the message*: who published has other roles meanwhile, or is nobody any more."""
    rules = [policy("w", "#", "write"), policy("r", action="read", when="p.role == 'doctor' && p.ward == 1")]
    before = {**PEOPLE, "mary": user("doctor", ward=1)}
    after = WITHOUT_MARY if removed else {**PEOPLE, "mary": user("guest", ward=2)}
    async with door(tmp_path, *rules, directory={"users": before}) as node:
        mary = await come(node, "mary")
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("#", qos=1)
        await go(node, alice)
        await say(mary, "t", b"kept", qos=1, retain=True)
        await node.reload(setting(*rules, directory={"users": after}))
        if removed:
            await dismissed(mary, 0x87)
        else:
            await say(mary, "t", b"as guest", qos=1)
            await say(mary, "u", b"as guest", qos=1, retain=True)
        alice = await come(node, "alice", stays=True)
        assert await payloads(alice) == [b"kept"]
        bob = await come(node, "bob")
        await bob.subscribe("#")
        assert await payloads(bob) == [b"kept"]


@on_uvloop
async def test_the_owners_newest_preference_binds_what_was_stored_when_there_was_none(tmp_path: Path) -> None:
    """*A changed preference binds from the next message on in its own node*; *newest known preferences*: also for
    messages of an owner who is gone."""
    async with door(tmp_path) as node:
        mary = await come(node, "mary")
        await say(mary, "t", BODY, qos=1, retain=True)
        keep = {"id": "k", "user": "mary", "topic": "t", "when": "s.user == 'alice'", "keep": ["/a"]}
        await node.reload(setting(preferences=[keep], directory={"users": WITHOUT_MARY}))
        for name, expected in (("alice", [{"a": 1}]), ("bob", []), (None, [])):
            end = await come(node, name)
            await end.subscribe("t")
            assert await content(end) == expected


@on_uvloop
async def test_the_publishers_table_binds_stored_messages(tmp_path: Path) -> None:
    """*a table of visibility from the publisher* belongs to the context, which stays with the message."""
    async with door(tmp_path, data=True) as node:
        mary = await come(node, "mary")
        await say(mary, "t", BODY, ("view", '{"user:alice": ["/a"]}'), qos=1, retain=True)
    async with from_file(tmp_path, setting(data=True)) as node:
        alice, bob = await come(node, "alice"), await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("t")
        assert await content(alice) == [{"a": 1}]
        assert await content(bob) == []


# -- the clock ---------------------------------------------------------------------------------------------------

HOURS = [
    "e.hour < 13",
    "e.minute < 30 && e.hour == 12",
    "within(e.now, '11:00-12:45')",
    "e.now < timestamp('2026-02-11T12:50:00Z')",
]


@pytest.mark.parametrize("when", HOURS)
@on_uvloop
async def test_the_clock_decides_at_the_moment_of_sending(
    tmp_path: Path, when: str, clock: Callable[[str], None]
) -> None:
    """*decided at sending, with the policies, clock and newest known preferences of that moment*"""
    async with door(tmp_path, policy("w", "#", "write"), policy("r", action="read", when=when)) as node:
        mary = await come(node, "mary")
        alice, bob = await come(node, "alice"), await come(node, "bob", stays=True)
        for end in (alice, bob):
            await end.subscribe("t", qos=1)
        for qos in (0, 0, 1, 2):
            await say(mary, "t", BODY, qos=qos)
        assert len(await inbox(alice)) == len(await inbox(bob)) == 4
        await go(node, bob)
        await say(mary, "t", BODY, qos=1, retain=True)
        assert len(await inbox(alice)) == 1
        clock("2026-02-11T13:00:01")
        for qos in (0, 0, 1, 2):
            await say(mary, "t", BODY, qos=qos)
        assert await inbox(alice) == []
        bob = await come(node, "bob", stays=True)
        assert await inbox(bob) == []  # what was queued at noon
        await bob.subscribe("t")
        assert await inbox(bob) == []  # and retained
        clock("2026-02-11T12:10:00")  # put back
        await say(mary, "t", BODY)
        assert len(await inbox(alice)) == len(await inbox(bob)) == 1


@pytest.mark.parametrize("when", HOURS)
@on_uvloop
async def test_somebody_away_gets_what_the_clock_allows_when_it_is_sent(
    tmp_path: Path, when: str, clock: Callable[[str], None]
) -> None:
    """The same the other way: queued at night, allowed by day, for policies and for the owner's preferences."""
    sections: dict[str, Section] = {
        "policy": {"policies": [policy("w", "#", "write"), policy("r", action="read", when=when)]},
        "preference": {"preferences": [{"id": "up", "user": "mary", "topic": "#", "when": when}]},
    }
    for name, rules in sections.items():
        folder = tmp_path / name
        folder.mkdir()
        clock("2026-02-11T12:00:00")
        async with from_file(folder, setting(**rules)) as node:
            mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
            await alice.subscribe("t", qos=1)
            await go(node, alice)
            clock("2026-02-11T20:00:00")
            await say(mary, "t", BODY, qos=1)
            clock("2026-02-11T12:05:00")
            alice = await come(node, "alice", stays=True)
            assert await content(alice) == [BODY], name
