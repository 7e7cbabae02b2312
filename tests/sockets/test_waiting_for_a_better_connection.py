"""QoS 1 and 2 wait for a connection that is good enough, over real plain and TLS sockets.

*a QoS ≥ 1 message that the present connection of a session (or link) is too weak for waits, if the session outlives the
connection, until a connection is good enough or it expires. Later messages of the same publisher and topic wait behind
it, others pass. What waits has a bound of its own (a quarter of the queue); at it the oldest goes, counted*
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Client
from processes import Served, on_uvloop, until
from sockets.acts import ALL, Section, asking, come, door, go, inbox, marked, payloads, policy, say, secure, setting
from tidegate import wire

TLS = ("require", "tls")
TRUSTED = ("require", "trusted")
PASS: Section = {"monitors": [{"id": "m", "scope": "main", "direction": "im_sub", "filter": ["#"]}]}
SEEN: Section = {
    "monitors": [{"id": "m", "scope": "main", "direction": "im_sub", "only": "never", "after": ["t", "other", "u"]}]
}


async def again(node: Served, end: Client, tls: object = None) -> Client:
    """It comes back over another connection."""
    await go(node, end)
    return await come(node, "alice", stays=True, tls=tls)  # type: ignore[arg-type]


@pytest.mark.parametrize("sections", [{}, PASS, SEEN], ids=["alone", "filter", "automaton"])
@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_what_comes_while_the_connection_is_too_weak_waits(
    tmp_path: Path, certificates: Path, qos: int, sections: Section
) -> None:
    """Live messages, in their order; what has another publisher or topic passes, and so does QoS 0."""
    async with door(tmp_path, certificates=certificates, **sections) as node:
        mary, bob = await come(node, "mary", tls=secure(certificates)), await come(node, "bob")
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("t", "other", "u", qos=qos)
        assert await say(mary, "t", b"1", qos=qos) == 0
        assert await say(mary, "t", b"2", TLS, qos=qos) == 0  # somebody is owed it: no 0x10
        await say(mary, "t", b"3", qos=qos)
        await say(mary, "t", b"4", TLS, qos=qos)
        await say(mary, "other", b"passes", qos=qos)
        await say(bob, "t", b"passes too", qos=qos)
        await say(mary, "t", b"not acknowledged", qos=0)
        await say(mary, "t", b"lost", TLS, qos=0)
        assert await payloads(alice) == [b"1", b"passes", b"passes too", b"not acknowledged"]
        alice = await again(node, alice)
        assert await payloads(alice) == []
        await say(mary, "t", b"5", qos=qos)
        assert await payloads(alice) == []
        alice = await again(node, alice, secure(certificates))
        assert [(message.payload, message.dup) for message in await inbox(alice)] == [
            (b"2", False),
            (b"3", False),
            (b"4", False),
            (b"5", False),
        ]
        await say(mary, "t", b"6", TLS, qos=qos)
        assert await payloads(alice) == [b"6"]


@pytest.mark.parametrize("sections", [{}, SEEN], ids=["alone", "automaton"])
@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_what_was_queued_waits_at_a_resume_over_a_weaker_connection(
    tmp_path: Path, certificates: Path, qos: int, sections: Section
) -> None:
    """*instead of being lost at a resume over a weaker one*"""
    async with door(tmp_path, certificates=certificates, **sections) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", stays=True, tls=secure(certificates))
        await alice.subscribe("t", "u", "other", qos=qos)
        await go(node, alice)
        for topic, payload, asks in (("t", b"1", [TLS]), ("t", b"2", []), ("u", b"3", []), ("t", b"4", [TRUSTED])):
            await say(mary, topic, payload, *asks, qos=qos)
        alice = await come(node, "alice", stays=True)
        assert await payloads(alice) == [b"3"]
        alice = await again(node, alice, secure(certificates))
        assert await payloads(alice) == [b"1", b"2"]
        alice = await again(node, alice)
        assert await payloads(alice) == []


@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_what_was_on_its_way_waits_under_its_identifier(tmp_path: Path, certificates: Path, qos: int) -> None:
    """Sent over TLS and not acknowledged: it is not sent again over plain, and it is sent again over TLS, once more
    under the identifier that the client may know. Nothing else uses that meanwhile."""
    async with door(tmp_path, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", stays=True, tls=secure(certificates))
        await alice.subscribe("t", "u", qos=qos)
        await say(mary, "t", b"high", TLS, qos=qos)
        first = await alice.expect(wire.Publish)
        alice = await again(node, alice)
        await say(mary, "t", b"behind", qos=qos)
        await say(mary, "u", b"any", qos=qos)
        (other,) = await inbox(alice)
        assert other.payload == b"any"
        assert other.packet_id != first.packet_id
        alice = await again(node, alice, secure(certificates))
        assert [(m.payload, m.dup) for m in await inbox(alice)] == [(b"high", True), (b"behind", False)]
        await alice.silent()
        assert node.node.scopes["main"].sessions["user:alice", "alice"].window == 1000


@on_uvloop
async def test_a_session_that_ends_with_its_connection_does_not_wait(tmp_path: Path, certificates: Path) -> None:
    """*if the session outlives the connection*; else the message is denied, which the publisher and the audit see."""
    async with door(tmp_path, certificates=certificates) as node:
        mary, alice = await come(node, "mary", tls=secure(certificates)), await come(node, "alice")
        await alice.subscribe("t", qos=1)
        assert await say(mary, "t", b"x", TLS, qos=1) == 0x10
        assert await say(mary, "t", b"y", qos=1) == 0
        assert await payloads(alice) == [b"y"]


@on_uvloop
async def test_what_expires_does_not_wait_longer(tmp_path: Path, certificates: Path) -> None:
    """*until a connection is good enough or it expires*"""
    async with door(tmp_path, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("t", qos=1)
        await say(mary, "t", b"short", TLS, qos=1, properties=wire.Properties(message_expiry_interval=1))
        await say(mary, "t", b"long", TLS, qos=1, properties=wire.Properties(message_expiry_interval=1000))
        session = node.node.scopes["main"].sessions["user:alice", "alice"]
        expires = next(iter(session.deferred)).message.expires  # type: ignore[arg-type]
        await until(lambda: node.node.loop.time() > expires)
        alice = await again(node, alice, secure(certificates))
        assert await payloads(alice) == [b"long"]


@pytest.mark.parametrize("limits", [{"queue": {"messages": 12}}, {"queue": {"bytes": 2000}, "max_packet": 2000}])
@on_uvloop
async def test_what_waits_has_a_bound_of_its_own(tmp_path: Path, certificates: Path, limits: Section) -> None:
    """*a quarter of the queue; at it the oldest goes, counted*: the queue itself is not touched."""
    packet = limits.pop("max_packet", None)
    async with door(tmp_path, certificates=certificates, limits=limits) as node:
        assert packet is None or packet
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("t", "u", qos=1)
        before = node.node.site.counters.dropped
        size = 100 if "bytes" in limits["queue"] else 1
        for number in range(6):
            await say(mary, "t", b"%d" % number * size, TLS, qos=1)
        assert node.node.site.counters.dropped - before == 3
        for number in range(3):
            await say(mary, "u", b"%d" % number, qos=1)
        assert await payloads(alice) == [b"0", b"1", b"2"]
        alice = await again(node, alice, secure(certificates))
        assert await payloads(alice) == [b"%d" % number * size for number in (3, 4, 5)]


@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_what_waits_survives_a_restart(tmp_path: Path, certificates: Path, qos: int) -> None:
    """It is owed to the session: in the store, before its publisher has its acknowledgement."""
    async with door(tmp_path, certificates=certificates, data=True) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("t", "mark", qos=qos)
        await say(mary, "t", b"1", TLS, qos=qos)
        await say(mary, "t", b"2", qos=qos)
        assert await marked(alice, node) == []
    async with door(tmp_path, certificates=certificates, data=True) as node:
        alice = await come(node, "alice", stays=True)
        assert await marked(alice, node) == []
        alice = await come(node, "alice", stays=True, tls=secure(certificates))
        assert [(await alice.expect(wire.Publish)).payload for _ in range(2)] == [b"1", b"2"]


@on_uvloop
async def test_other_rules_make_the_same_connection_good_enough(tmp_path: Path) -> None:
    """*until a connection is good enough*: also if the level of the present one rises with the rules."""
    bad, good = ({"facts": {"near": f"s.address == '127.0.0.{host}'"}} for host in (9, 1))
    async with door(tmp_path, levels=bad) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        await alice.subscribe("t", qos=1)
        await say(mary, "t", b"1", ("require", "near"), qos=1)
        await say(mary, "t", b"2", qos=1)
        assert await payloads(alice) == []
        await node.reload(setting(levels=good))
        assert [(await alice.message()).payload for _ in range(2)] == [b"1", b"2"]


@on_uvloop
async def test_retained_messages_wait_too(tmp_path: Path, certificates: Path) -> None:
    """A retained message that a new subscription would get, over a connection that is good enough for it."""
    async with door(tmp_path, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        await say(mary, "t", b"kept", TLS, qos=1, retain=True)
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("t", qos=1)
        assert await payloads(alice) == []
        alice = await again(node, alice, secure(certificates))
        assert [(message.payload, message.retain) for message in await inbox(alice)] == [(b"kept", True)]


@on_uvloop
async def test_a_shared_subscription_prefers_who_is_connected_well_enough(tmp_path: Path, certificates: Path) -> None:
    """*the receiver is chosen among the members that are allowed this message*; it waits only if nobody is."""
    async with door(tmp_path, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("$share/g/t", qos=1)
        await say(mary, "t", b"1", TLS, qos=1)
        assert await payloads(alice) == []
        bob = await come(node, "bob", tls=secure(certificates))
        await bob.subscribe("$share/g/t", qos=1)
        await say(mary, "t", b"2", TLS, qos=1)
        assert await payloads(bob) == [b"2"]
        await go(node, bob)
        alice = await again(node, alice, secure(certificates))
        assert await payloads(alice) == [b"1"]


@on_uvloop
async def test_what_is_denied_for_good_does_not_wait(tmp_path: Path, certificates: Path) -> None:
    """What waits is decided again when it is sent; a policy that denies it now, whatever connection comes, denies."""
    rules = [policy("w", "#", "write"), policy("r", "#", "read", when="o.topic != 'no' && s.level == 'tls'")]
    async with door(tmp_path, *rules, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", stays=True)
        assert (await alice.subscribe("+", qos=1)).reasons in ((1,), (0x87,))
        alice = await again(node, alice, secure(certificates))
        await alice.subscribe("+", qos=1)
        alice = await again(node, alice)
        await say(mary, "no", b"no", TLS, qos=1)
        await say(mary, "yes", b"yes", TLS, qos=1)
        alice = await again(node, alice, secure(certificates))
        assert await payloads(alice) == [b"yes"]


@on_uvloop
async def test_the_subscribers_own_demand_does_not_wait(tmp_path: Path, certificates: Path) -> None:
    """A message whose floor is too low stays so: nothing waits for that."""
    async with door(tmp_path, ALL, certificates=certificates) as node:
        low = await come(node, "mary")
        alice = await come(node, "alice", stays=True, tls=secure(certificates))
        await alice.subscribe("t", qos=1, properties=asking(TLS))
        assert await say(low, "t", b"x", qos=1) == 0x10
        alice = await again(node, alice, secure(certificates))
        assert await payloads(alice) == []
