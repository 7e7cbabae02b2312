"""A guard between two environments: the broker of one bridges to the guard of the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from guard.guarded import HERE, around, broker, gathered, guarded
from harness import PATIENCE, Client
from processes import Served, on_uvloop
from sockets.acts import PEOPLE, come, policy, user
from tidegate import wire

ONE, TWO = "1" * 32, "2" * 32
BRIDGE = """allow_anonymous true
persistence false
connection edge
address 127.0.0.1:{port}
remote_username bridge
remote_password pw
restart_timeout 1
topic # both 2 {prefixes}
"""


@contextlib.asynccontextmanager
async def environments(
    folder: Path, *policies: Any, prefixes: str = "", share: Any = (), near: Any = None, **sections: Any
) -> AsyncIterator[tuple[Served, Served, int, int]]:
    """Two brokers, each with a guard for its clients; that of the first bridges to the guard of the second. `near`:
    what else the first guard has, and `sections` the second."""
    (folder / "one").mkdir()
    (folder / "two").mkdir()
    people = {"users": {**PEOPLE, "bridge": user()}}
    bridges = {"one": {"user": "bridge", "secret": ONE, **({"share": share} if share else {})}}
    sections = {"node": {"name": "far", "domain": "test"}, **sections}
    with broker() as second:
        scope = {**HERE, "secret": TWO, "bridges": bridges}
        listeners = [{"url": "mqtt://127.0.0.1:PORT", "anonymous": True, "scope": "two"}]
        scopes = {"two": {"backend": f"mqtt://127.0.0.1:{second}", **scope}}
        async with guarded(
            folder / "two", second, *policies, scopes=scopes, listeners=listeners, directory=people, **sections
        ) as two:
            with broker(BRIDGE.format(port=two.port, prefixes=prefixes)) as first:
                here = {"node": {"name": "near", "domain": "test"}, **(near or {})}
                async with guarded(folder / "one", first, policy("all"), scope={**HERE, "secret": ONE}, **here) as one:
                    await connected(two)
                    yield one, two, first, second


async def connected(two: Served) -> None:
    """The bridge is there, and has subscribed."""
    async with asyncio.timeout(PATIENCE):
        scope = two.node.scopes["two"]
        while not any(session.subscriptions for session in scope.sessions.values()):
            await asyncio.sleep(0.02)


async def crossed(publisher: Client, receiver: Client, topic: str, payload: bytes, qos: int) -> tuple[str, bytes, int]:
    """What becomes of a message; its publisher receives nothing of that topic."""
    await publisher.send(wire.Publish(topic=topic, payload=payload, qos=qos, packet_id=qos and 100 + qos))
    return (await gathered(1, receiver, publisher))[0]


@on_uvloop
async def test_messages_cross_in_both_directions(tmp_path: Path) -> None:
    rules = (
        policy("all", subject=["*", "link:one->two", "link:two->one"]),
        policy("stays", "private/#", effect="deny", subject="link:one->two"),
        policy("closed", "out/closed", "read", effect="deny", subject="link:two->one"),
    )
    async with environments(tmp_path, *rules) as (one, two, _, second):
        mary, bob = await come(one, "mary"), await come(two, "bob")
        outside = await around(two, second)
        await mary.subscribe("out/#", qos=2)
        await bob.subscribe("in/#", "private/#", qos=2)
        await outside.subscribe("in/#", qos=1)
        for qos in (0, 1, 2):
            await mary.publish("private/a", b"mine")
            assert await crossed(mary, bob, "in/a", b"%d" % qos, qos) == ("in/a", b"%d" % qos, qos)
            assert (await gathered(1, outside))[0][1].startswith(b"TG")
            await bob.publish("out/closed", b"no")
            assert await crossed(bob, mary, "out/a", b"%d" % qos, qos) == ("out/a", b"%d" % qos, qos)
        await bob.silent()


@on_uvloop
async def test_a_bridge_says_whether_it_is_connected(tmp_path: Path) -> None:
    """Under its own name, retained in the broker behind the guard; its will says when it is gone."""
    rules = (
        policy("all", subject=["*", "link:one->two", "link:two->one"]),
        policy("state", "$SYS/broker/connection/+/state"),
    )
    async with environments(tmp_path, *rules) as (_, two, _, _):
        bob = await come(two, "bob")
        await bob.subscribe("$SYS/broker/connection/+/state", qos=1)
        connected = await bob.message()
        assert connected.payload == b"1"
        scope = two.node.scopes["two"]
        bridge = next(each for each in scope.sessions.values() if each.subject.bridge)
        assert connected.topic == f"$SYS/broker/connection/{bridge.client}/state"
        assert bridge.connection is not None
        bridge.connection.shell.transport.abort()  # type: ignore[attr-defined]
        states = [(await bob.message()).payload for _ in range(2)]  # and it comes back
        assert states == [b"0", b"1"]


@on_uvloop
async def test_topics_are_renamed_by_the_bridge(tmp_path: Path) -> None:
    rules = (policy("all", subject=["*", "link:one->two", "link:two->one"]),)
    share = [{"topic": "#", "direction": "both", "local_prefix": "here/", "remote_prefix": "there/"}]
    async with environments(tmp_path, *rules, prefixes="here/ there/", share=share) as (one, two, _, _):
        mary, bob = await come(one, "mary"), await come(two, "bob")
        await mary.subscribe("#", qos=2)
        await bob.subscribe("#", qos=2)
        await mary.publish("here/a", b"1")
        assert await gathered(1, bob) == [("there/a", b"1", 0)]
        await bob.publish("there/b", b"2")
        assert await gathered(2, mary) == [("here/a", b"1", 0), ("here/b", b"2", 0)]


@on_uvloop
async def test_what_nobody_has_sealed_does_not_cross(tmp_path: Path) -> None:
    rules = (policy("all", subject=["*", "link:one->two", "link:two->one"]),)
    async with environments(tmp_path, *rules) as (one, two, first, second):
        mary, bob = await come(one, "mary"), await come(two, "bob")
        await bob.subscribe("#", qos=2)
        injector, thief = await around(one, first, "injector"), await around(two, second, "thief")
        await thief.subscribe("in/#", qos=1)
        await injector.publish("in/a", b"forged", qos=1)
        await mary.publish("in/a", b"1", qos=1)
        assert await gathered(1, bob) == [("in/a", b"1", 1)]
        lying = (await gathered(1, thief))[0][1]
        await injector.publish("in/a", lying, qos=1)  # sealed for the other side
        await mary.publish("in/a", b"2", qos=1)
        assert await gathered(1, bob) == [("in/a", b"2", 1)]


@on_uvloop
async def test_owners_say_to_whom_their_messages_are_forwarded(tmp_path: Path) -> None:
    rules = (policy("all", subject=["*", "link:one->two", "link:two->one"]),)
    says = [{"id": "p", "user": "mary", "topic": "in/#", "to": "two", "when": "o.payload > 1"}]
    async with environments(tmp_path, *rules, preferences=says) as (one, two, _, _):
        mary, bob, alice = await come(one, "mary"), await come(two, "bob"), await come(one, "alice")
        await bob.subscribe("in/#", qos=2)
        for payload in (b"1", b"2"):
            await mary.publish("in/a", payload, qos=1)
        assert await gathered(1, bob) == [("in/a", b"2", 1)]
        await alice.publish("in/a", b"1", qos=1)
        assert await gathered(1, bob) == [("in/a", b"1", 1)]
