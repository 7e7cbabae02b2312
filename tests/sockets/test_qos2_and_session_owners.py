"""What a publisher has begun and not ended, and whose a session is.

Each test quotes the sentence of the specification that it holds the node to.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Client
from processes import Served, on_uvloop
from sockets.acts import (
    ALL,
    BOTH,
    PEOPLE,
    Section,
    asking,
    come,
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
from sockets.changes import NO_ALICE
from tidegate import wire

BODY = {"a": 1, "b": 1}
WITHOUT_MARY = {name: entry for name, entry in PEOPLE.items() if name != "mary"}
NO_MARY = policy("no-mary", subject="user:mary", effect="deny", action="write")


def will(*asks: tuple[str, str], topic: str = "will", payload: bytes = b'{"a":1,"b":1}', **fields: Any) -> wire.Will:
    delay = fields.pop("delay", None)
    fields = {"qos": 1, "retain": False, **fields}
    return wire.Will(topic=topic, payload=payload, properties=asking(*asks, will_delay_interval=delay), **fields)


# -- QoS 2 on the way in -----------------------------------------------------------------------------------------


async def begun(node: Served, *asks: tuple[str, str], **fields: Any) -> Client:
    """mary has published with QoS 2 and not released it."""
    mary = await come(node, "mary", **fields)
    await mary.send(
        wire.Publish(topic="t", payload=b"m", qos=2, packet_id=7, retain=True, properties=asking(*asks)),
    )
    assert (await mary.expect(wire.Pubrec)).reason == 0
    return mary


@pytest.mark.parametrize("asks", [(), (("view", '{"*": "all"}'),)])
@on_uvloop
async def test_qos_2_is_decided_again_at_pubrel(tmp_path: Path, asks: tuple[tuple[str, str], ...]) -> None:
    """*policies decide at PUBLISH, so that PUBREC can say no, and once more at PUBREL … PUBCOMP cannot say no: a denial
    then is audited*: nothing is delivered, live or retained, if its publisher may not write any more."""
    async with door(tmp_path) as node:
        alice = await come(node, "alice")
        await alice.subscribe("t")
        mary = await begun(node, *asks)
        await node.reload(setting(ALL, NO_MARY))
        await mary.send(wire.Pubrel(packet_id=7))
        assert (await mary.expect(wire.Pubcomp)).reason == 0
        bob = await come(node, "bob")
        await bob.subscribe("t")
        assert await payloads(bob) == []  # retained
        assert await payloads(alice) == []  # live


@on_uvloop
async def test_qos_2_is_decided_by_the_clock_of_its_release(tmp_path: Path, clock: Callable[[str], None]) -> None:
    """The same when it is the clock that goes on between PUBLISH and PUBREL."""
    rules = [policy("r", "#", "read"), policy("w", "#", "write", when="e.hour < 13")]
    async with door(tmp_path, *rules) as node:
        alice = await come(node, "alice")
        await alice.subscribe("t")
        mary = await begun(node)
        clock("2026-02-11T13:00:00")
        await mary.send(wire.Pubrel(packet_id=7))
        assert (await mary.expect(wire.Pubcomp)).reason == 0
        assert await payloads(alice) == []


@pytest.mark.parametrize("asks", [(), (("view", '{"*": "all"}'),)])
@on_uvloop
async def test_qos_2_of_somebody_removed_is_not_handed_on(tmp_path: Path, asks: tuple[tuple[str, str], ...]) -> None:
    """*Revoking a user … also disconnects it*: its PUBREL comes over a connection that is no more."""
    async with door(tmp_path) as node:
        alice = await come(node, "alice")
        await alice.subscribe("t")
        mary = await begun(node, *asks)
        await node.reload(setting(directory={"users": WITHOUT_MARY}))
        await mary.send(wire.Pubrel(packet_id=7))
        await dismissed(mary, 0x87)
        assert await payloads(alice) == []


@on_uvloop
async def test_qos_2_is_read_by_the_rules_of_its_release(tmp_path: Path) -> None:
    """*Egress … decided when it is sent*: that is at PUBREL."""
    async with door(tmp_path) as node:
        alice, bob = await come(node, "alice"), await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("t")
        mary = await begun(node)
        await node.reload(setting(ALL, NO_ALICE))
        await mary.send(wire.Pubrel(packet_id=7))
        await mary.expect(wire.Pubcomp)
        assert await payloads(alice) == []
        assert await payloads(bob) == [b"m"]


@on_uvloop
async def test_qos_2_has_the_context_of_its_release(tmp_path: Path, certificates: Path) -> None:
    """*A QoS 2 message is published when it is released … `p.time` and floor are PUBREL's*: it was sent over TLS by a
    doctor, and is released over plain by a guest."""
    rules = [policy("w", "#", "write"), policy("r", action="read", when="p.role == 'guest' && p.level == 'plain'")]
    before = {**PEOPLE, "mary": user("doctor")}
    sections: Section = {"certificates": certificates, "levels": {}}
    async with door(tmp_path, *rules, directory={"users": before}, **sections) as node:
        alice = await come(node, "alice")
        await alice.subscribe("t")
        careful = await come(node, "alice", client="careful")
        await careful.subscribe("t", properties=asking(("require", "tls")))
        mary = await begun(node, tls=secure(certificates), stays=True)
        await go(node, mary)
        await node.reload(setting(*rules, directory={"users": {**PEOPLE, "mary": user("guest")}}, **sections))
        mary = await come(node, "mary", stays=True)
        await mary.send(wire.Pubrel(packet_id=7))
        await mary.expect(wire.Pubcomp)
        (found,) = await inbox(alice)
        assert (found.payload, found.properties.user_properties) == (b"m", (("floor", "plain"),))
        assert await inbox(careful) == []


@on_uvloop
async def test_qos_2_has_the_role_of_its_release(tmp_path: Path) -> None:
    """The same on one connection: *p* is of the release, whichever comes first, the review of sessions or PUBREL."""
    rules = [policy("w", "#", "write"), policy("r", action="read", when="p.role == 'guest'")]
    async with door(tmp_path, *rules, directory={"users": {**PEOPLE, "mary": user("doctor")}}) as node:
        alice = await come(node, "alice")
        await alice.subscribe("t")
        mary = await begun(node)
        await node.reload(setting(*rules, directory={"users": {**PEOPLE, "mary": user("guest")}}))
        await mary.send(wire.Pubrel(packet_id=7))
        await mary.expect(wire.Pubcomp)
        assert await payloads(alice) == [b"m"]


# -- sessions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("thief", ["bob", None])
@on_uvloop
async def test_another_principal_cannot_take_a_session_over(tmp_path: Path, version: int, thief: str | None) -> None:
    """*a session belongs to (principal, client id), another principal cannot take it over*"""
    async with door(tmp_path) as node:
        mary = await come(node, "mary")
        alice = await come(node, "alice", client="same", version=version, stays=True)
        await alice.subscribe("t", qos=1)
        await go(node, alice)
        await say(mary, "t", b"1", qos=1)
        other = await come(node, thief, client="same", version=version, stays=True)
        assert not other.connack.session_present
        assert await inbox(other) == []
        alice = await come(node, "alice", client="same", version=version, stays=True)
        assert alice.connack.session_present
        assert await payloads(alice) == [b"1"]
        await other.silent()  # and neither has closed the other
        await say(mary, "t", b"2", qos=1)
        assert await payloads(alice) == [b"2"]
        assert await inbox(other) == []
        await (await come(node, thief, client="same", version=version)).disconnect()  # a clean start is its own
        await say(mary, "t", b"3", qos=1)
        assert await payloads(alice) == [b"3"]


@on_uvloop
async def test_a_will_is_not_fired_as_somebody_else_of_the_same_name(tmp_path: Path) -> None:
    """The same for the will: it is published by whoever left it."""
    rules = [policy("r", "#", "read"), policy("w", "#", "write", subject="user:alice")]
    async with door(tmp_path, *rules) as node:
        watcher = await come(node, "carol")
        await watcher.subscribe("#")
        alice = await come(node, "alice", client="same", will=will(payload=b"of alice"))
        await come(node, "bob", client="same", will=will(payload=b"of bob"), expect=0x87)
        bob = await come(node, "bob", client="same")
        await go(node, bob)
        assert await inbox(watcher) == []
        await go(node, alice)
        assert await payloads(watcher) == [b"of alice"]
