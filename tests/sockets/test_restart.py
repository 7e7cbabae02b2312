"""A restart of the node, with other rules than it had before.

*Everything in egress is decided at sending … for live, queued, retained and resumed messages alike*: what was stored is
decided by the rules that the node starts with. Each test quotes the sentence that it holds the node to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import from_file, on_uvloop
from sockets.acts import (
    PEOPLE,
    Section,
    asking,
    come,
    door,
    go,
    inbox,
    marked,
    payloads,
    policy,
    say,
    secure,
    setting,
    user,
)
from sockets.changes import changed
from tidegate import wire

BODY = {"a": 1, "b": 1}
MARK = policy("mark", "mark")


@pytest.mark.parametrize("name", ["policy removed", "preference", "view", "role", "attribute", "level", "function"])
@on_uvloop
async def test_what_was_stored_is_decided_by_the_rules_of_the_next_start(tmp_path: Path, name: str) -> None:
    """*decided at sending, with the policies … of that moment*: retained, queued and on its way."""
    before, after = changed(name, data=True)
    async with from_file(tmp_path, before) as node:
        mary = await come(node, "mary")
        away, there = [await come(node, "alice", client=one, stays=True) for one in ("away", "there")]
        for end in (away, there):
            await end.subscribe("t", "mark", qos=2)
        await go(node, away)
        for qos in (1, 2):
            await say(mary, "t", BODY, qos=qos, retain=qos == 1)
            await there.expect(wire.Publish)  # and not acknowledged
    async with from_file(tmp_path, after) as node:
        for one in ("away", "there"):
            end = await come(node, "alice", client=one, stays=True)
            assert end.connack.session_present
            assert await marked(end, node) == []
            await end.subscribe("t")
            assert await inbox(end) == []
    async with from_file(tmp_path, before) as node:
        bob = await come(node, "bob")
        await bob.subscribe("t")
        assert len(await inbox(bob)) == 1


@on_uvloop
async def test_what_a_subscription_asks_for_survives(tmp_path: Path, certificates: Path) -> None:
    """`where` and `require` are *for that subscription*, as long as it lasts."""
    text = setting(certificates=certificates, data=True)
    async with from_file(tmp_path, text) as node:
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("where", qos=1, properties=asking(("where", "o.payload.a == 1")))
        await alice.subscribe("require", qos=1, properties=asking(("require", "tls")))
        await alice.subscribe("mark", qos=1)
        await go(node, alice)
    async with from_file(tmp_path, text) as node:
        low, high = await come(node, "mary"), await come(node, "carol", tls=secure(certificates))
        for topic, end, body in (
            ("where", low, {"a": 1}),
            ("where", low, {"a": 2}),
            ("require", low, {"a": 3}),
            ("require", high, {"a": 4}),
        ):
            await say(end, topic, body, qos=1)
        alice = await come(node, "alice", stays=True)
        assert await marked(alice, node) == [b'{"a": 1}', b'{"a": 4}']
        await say(low, "where", {"a": 2})
        await say(low, "require", {"a": 3})
        assert await inbox(alice) == []


@on_uvloop
async def test_the_context_of_a_message_survives(tmp_path: Path, certificates: Path) -> None:
    """*`p` and the source link's type are stored with the message for that*, and so are its demand and its floor."""
    rules = [
        MARK,
        policy("w", "#", "write"),
        policy(
            "r",
            "t",
            "read",
            when="p.role == 'doctor' && p.ward == 1 && p.level == 'tls' && p.user == 'mary' && p.e.place == 'lab'"
            " && p.qos == 1 && p.topic == 't' && age(p.time) < duration('1h')",
        ),
    ]
    people = {**PEOPLE, "mary": user("doctor", ward=1)}
    sections: Section = {"certificates": certificates, "data": True, "levels": {}}
    first = setting(*rules, directory={"users": people}, environment={"place": "lab"}, **sections)
    then = setting(*rules, environment={"place": "street"}, **sections)
    async with from_file(tmp_path, first) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("t", "mark", qos=1)
        await go(node, alice)
        await say(mary, "t", b"any", qos=1)
        await say(mary, "t", b"tls only", ("require", "tls"), qos=1, retain=True)
    async with from_file(tmp_path, then) as node:
        alice = await come(node, "alice", stays=True)
        assert await marked(alice, node) == [b"any"]
        for tls, expected in ((None, []), (secure(certificates), [b"tls only"])):
            bob = await come(node, "bob", tls=tls)
            await bob.subscribe("t")
            found = await inbox(bob)
            assert [message.payload for message in found] == expected
            assert all(("floor", "tls") in message.properties.user_properties for message in found)


@on_uvloop
async def test_qos_2_is_released_after_a_restart(tmp_path: Path) -> None:
    """*QoS 2 is decided once, at the first PUBLISH, and released at PUBREL*: also by a node that was started since."""
    text = setting(data=True)
    async with from_file(tmp_path, text) as node:
        mary = await come(node, "mary", stays=True)
        await mary.send(
            wire.Publish(
                topic="t", payload=b'{"a":1,"b":1}', qos=2, packet_id=7, properties=asking(("view", '{"*": ["/a"]}'))
            )
        )
        await mary.expect(wire.Pubrec)
        await go(node, mary)
    async with from_file(tmp_path, text) as node:
        alice = await come(node, "alice")
        await alice.subscribe("t")
        mary = await come(node, "mary", stays=True)
        await mary.send(wire.Pubrel(packet_id=7))
        await mary.expect(wire.Pubcomp)
        assert await payloads(alice) == [b'{"a":1}']


@on_uvloop
async def test_a_session_belongs_to_its_principal_after_a_restart(tmp_path: Path) -> None:
    """*a session belongs to (principal, client id), another principal cannot take it over*"""
    text = setting(data=True)
    async with from_file(tmp_path, text) as node:
        alice = await come(node, "alice", client="same", stays=True)
        await alice.subscribe("t", "mark", qos=1)
        await go(node, alice)
        await say(await come(node, "mary"), "t", b"1", qos=1)
    async with from_file(tmp_path, text) as node:
        bob = await come(node, "bob", client="same", stays=True)
        assert not bob.connack.session_present
        alice = await come(node, "alice", client="same", stays=True)
        assert alice.connack.session_present
        assert await marked(alice, node) == [b"1"]
        assert await inbox(bob) == []


@on_uvloop
async def test_an_owner_is_remembered_when_the_node_is_renamed(tmp_path: Path) -> None:
    """*a preference … that says `alice` means alice of its own domain*, which by default has the node's name: what its
    people have said of what is stored here still binds when the node is called otherwise."""
    preferences = [{"id": "up", "user": "mary", "topic": "t", "when": "s.user == 'alice'"}]
    text = setting(data=True, preferences=preferences)
    async with from_file(tmp_path, text) as node:
        await say(await come(node, "mary"), "t", b"private", qos=1, retain=True)
    async with from_file(tmp_path, text.replace('"name": "test"', '"name": "renamed"')) as node:
        for name, expected in (("alice", [b"private"]), ("bob", [])):
            end = await come(node, name)
            await end.subscribe("t")
            assert await payloads(end) == expected


@on_uvloop
async def test_the_policy_version_increases_over_restarts(tmp_path: Path) -> None:
    """*an increasing number and the first 12 hex digits* (formats); the same rules have the same version."""
    versions = []
    for policies in ([], [], [MARK], []):
        async with door(tmp_path, *policies, data=True) as node:
            versions.append(node.node.scopes["main"].gate.rules.version)
    numbers = [int(version.partition("-")[0]) for version in versions]
    assert numbers == [1, 1, 2, 3]
    assert versions[0].partition("-")[2] == versions[3].partition("-")[2] != versions[2].partition("-")[2]
