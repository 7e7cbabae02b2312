"""Revoking somebody's access during traffic stops the very next message: counted, not slept for.

Messages are numbered. The change is acknowledged by the control socket between number K - 1 and number K: the one has
arrived, the other never does, live, retained, queued and shared. A file that is broken changes nothing at all.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from harness import Client
from processes import Served, from_file, on_uvloop, until
from sockets.acts import (
    ALL,
    BOTH,
    PEOPLE,
    Section,
    asking,
    come,
    dismissed,
    go,
    inbox,
    payloads,
    policy,
    say,
    secure,
    setting,
    user,
)
from sockets.changes import CHANGES, SPARES_BOB, WRITERS, changed
from tidegate import wire
from tidegate.errors import TidegateError
from tidegate.net.control_socket import ask

K = 5
NUMBERS = list(range(2 * K))


async def reload(node: Served, text: str) -> dict[str, Any]:
    """The file is changed, and the node told over its control socket; returns with its answer."""
    node.file.write(text)
    answer = await asyncio.to_thread(ask, node.node.config.control_socket, "reload")
    assert isinstance(answer, dict)
    return answer


def numbered(number: int) -> Section:
    return {"a": 1, "n": number}


async def numbers(end: Client) -> list[int]:
    """Of the messages it has been sent."""
    return [json.loads(payload)["n"] for payload in await payloads(end)]


# -- who reads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("name", CHANGES)
@on_uvloop
async def test_live(tmp_path: Path, name: str, qos: int) -> None:
    """The next message is decided by the new version, for subscriptions that exist; 3.1.1 and 5."""
    before, after = changed(name)
    async with from_file(tmp_path, before) as node:
        mary = await come(node, "mary")
        ends = [await come(node, "alice", client=f"alice-{version}", version=version) for version in BOTH]
        bob = await come(node, "bob")
        for end in (*ends, bob):
            await end.subscribe("t", qos=qos)
        for number in NUMBERS:
            if number == K:
                for end in (*ends, bob):  # it is sent: on a busy machine it would be decided a moment later
                    assert await numbers(end) == NUMBERS[:K]
                await reload(node, after)
            await say(mary, "t", numbered(number), qos=qos)
        for end in ends:
            assert await numbers(end) == []
        assert await numbers(bob) == (NUMBERS[K:] if name in SPARES_BOB else [])


@pytest.mark.parametrize("name", CHANGES)
@on_uvloop
async def test_retained(tmp_path: Path, name: str) -> None:
    """The same for retained messages: the change comes between two subscriptions, and in the middle of one."""
    before, after = changed(name)
    async with from_file(tmp_path, before) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await say(mary, "t", numbered(0), qos=1, retain=True)
        await alice.subscribe("t", qos=1)
        assert await numbers(alice) == [0]
        await reload(node, after)
        await alice.unsubscribe("t")
        await alice.subscribe("t", qos=1)
        assert await numbers(alice) == []


@on_uvloop
async def test_retained_in_the_middle(tmp_path: Path) -> None:
    """Of hundreds of retained messages the client has taken K when the rules change."""
    async with from_file(tmp_path, setting(WRITERS, policy("r", "t/#", "read"))) as node:
        mary = await come(node, "mary")
        alice = await come(node, "alice", properties=asking(receive_maximum=K))
        for number in range(300):
            await mary.publish(f"t/{number}", b"%d" % number, retain=True, qos=1)
        await alice.send(
            wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter="t/#", qos=1),)),
        )
        await alice.expect(wire.Suback)
        sent = [await alice.expect(wire.Publish) for _ in range(K)]
        await reload(node, setting(WRITERS, policy("r", "other", "read")))
        for message in sent:
            await alice.send(wire.Puback(packet_id=message.packet_id))
        assert await inbox(alice) == []
        await until(lambda: not node.node.site.unfinished)
        assert await inbox(alice) == []


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("name", CHANGES)
@on_uvloop
async def test_queued(tmp_path: Path, name: str, qos: int) -> None:
    """The same for what waits: for somebody away, and behind a window of K messages of somebody who is there."""
    before, after = changed(name)
    async with from_file(tmp_path, before) as node:
        mary, away = await come(node, "mary"), await come(node, "alice", client="away", stays=True)
        slow = await come(node, "alice", client="slow", properties=asking(receive_maximum=K))
        for end in (away, slow):
            await end.subscribe("t", qos=qos)
        await go(node, away)
        for number in NUMBERS:
            await say(mary, "t", numbered(number), qos=qos)
        sent = [await slow.expect(wire.Publish) for _ in range(K)]
        assert [json.loads(message.payload)["n"] for message in sent] == NUMBERS[:K]
        await reload(node, after)
        for message in sent:
            if qos == 1:
                await slow.send(wire.Puback(packet_id=message.packet_id))
            else:
                await slow.send(wire.Pubrec(packet_id=message.packet_id))
                await slow.expect(wire.Pubrel)
                await slow.send(wire.Pubcomp(packet_id=message.packet_id))
        assert await numbers(slow) == []
        away = await come(node, "alice", client="away", stays=True)
        assert away.connack.session_present
        assert await numbers(away) == []


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("name", SPARES_BOB)
@on_uvloop
async def test_shared(tmp_path: Path, name: str, qos: int) -> None:
    """The same in a group: what alice may not have any more goes to bob, and nothing is lost."""
    before, after = changed(name)
    async with from_file(tmp_path, before) as node:
        mary, alice, bob = await come(node, "mary"), await come(node, "alice"), await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("$share/g/t", qos=qos)
        for number in NUMBERS:
            if number == K:
                await reload(node, after)
            await say(mary, "t", numbered(number), qos=qos)
        taken, others = await numbers(alice), await numbers(bob)
        assert sorted(taken + others) == NUMBERS
        assert max(taken) < K
        assert others[-K:] == NUMBERS[K:]


@pytest.mark.parametrize("name", ["policy denies", "preference", "role", "view"])
@on_uvloop
async def test_during_traffic(tmp_path: Path, name: str) -> None:
    """Nobody stops for the change: what is published after its acknowledgement does not arrive, and who keeps access
    misses nothing."""
    before, after = changed(name)
    async with from_file(tmp_path, before) as node:
        mary, alice, bob = await come(node, "mary"), await come(node, "alice"), await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("t")
        published = 0
        done = False

        async def talk() -> None:
            nonlocal published
            while not done:
                for _ in range(10):
                    body = json.dumps(numbered(published)).encode()
                    mary.writer.write(wire.encode(wire.Publish(topic="t", payload=body), wire.V5))
                    published += 1
                await mary.writer.drain()
                await asyncio.sleep(0)

        talking = asyncio.create_task(talk())
        await until(lambda: published > 50)
        await reload(node, after)
        acknowledged = published
        await until(lambda: published > acknowledged + 200)
        done = True
        await talking
        await mary.silent()
        taken = await numbers(alice)
        assert taken == list(range(len(taken)))
        assert 50 <= len(taken) <= acknowledged
        assert await numbers(bob) == list(range(published))


# -- who writes --------------------------------------------------------------------------------------------------

NO_MARY = policy("no-mary", subject="user:mary", effect="deny", action="write")
SENDERS = [policy("r", "#", "read"), policy("w", "#", "write", subject="role:sender")]
WRITING: dict[str, tuple[Section, Section]] = {
    "policy removed": ({}, {"policies": [policy("r", "#", "read")]}),
    "policy denies": ({}, {"policies": [ALL, NO_MARY]}),
    "policy in error": ({}, {"policies": [ALL, policy("bad", action="write", when="s.nothing == 1")]}),
    "role": (
        {"policies": SENDERS, "directory": {"users": {**PEOPLE, "mary": user("sender")}}},
        {"policies": SENDERS, "directory": {"users": {**PEOPLE, "mary": user("guest")}}},
    ),
    "content": (
        {"policies": [policy("r", "#", "read"), policy("w", "#", "write", when="o.payload.a == 1")]},
        {"policies": [policy("r", "#", "read"), policy("w", "#", "write", when="o.payload.a == 2")]},
    ),
}


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("name", WRITING)
@on_uvloop
async def test_writing(tmp_path: Path, name: str, qos: int, version: int) -> None:
    """The same for who publishes: number K is refused, or acknowledged and dropped."""
    before, after = WRITING[name]
    async with from_file(tmp_path, setting(**before)) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice")
        await alice.subscribe("t", qos=qos)
        codes = []
        for number in NUMBERS:
            if number == K:
                await reload(node, setting(**after))
            codes.append(await say(mary, "t", numbered(number), qos=qos))
        assert await numbers(alice) == NUMBERS[:K]
        assert codes == [0] * K + [0x87 if qos and version == wire.V5 else 0] * K


# -- who is gone -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
@on_uvloop
async def test_a_removed_reader(tmp_path: Path, qos: int, version: int) -> None:
    """*a removed user is disconnected*, with 0x87, and has exactly K messages."""
    others = {name: entry for name, entry in PEOPLE.items() if name != "alice"}
    async with from_file(tmp_path, setting()) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", version=version)
        await alice.subscribe("t", qos=qos)
        for number in NUMBERS[:K]:
            await say(mary, "t", numbered(number), qos=qos)
        assert await numbers(alice) == NUMBERS[:K]
        await reload(node, setting(directory={"users": others}))
        for number in NUMBERS[K:]:
            await say(mary, "t", numbered(number), qos=qos)
        await dismissed(alice, 0x87)
        await come(node, "alice", version=version, expect=4 if version == wire.V311 else 0x86)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
@on_uvloop
async def test_a_removed_writer(tmp_path: Path, qos: int, version: int) -> None:
    """The same for who publishes: its next message is not even acknowledged."""
    others = {name: entry for name, entry in PEOPLE.items() if name != "mary"}
    async with from_file(tmp_path, setting()) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice")
        await alice.subscribe("t", qos=qos)
        for number in NUMBERS[:K]:
            await say(mary, "t", numbered(number), qos=qos)
        await reload(node, setting(directory={"users": others}))
        body = json.dumps(numbered(K)).encode()
        mary.writer.write(
            wire.encode(wire.Publish(topic="t", payload=body, qos=qos, packet_id=99 if qos else 0), version),
        )
        await dismissed(mary, 0x87)
        assert await numbers(alice) == NUMBERS[:K]


@on_uvloop
async def test_a_removed_user_gets_nothing_of_what_waited_when_it_is_back(tmp_path: Path) -> None:
    """A session ends with its user: who is in the directory again has a new one, and what came meanwhile is gone."""
    others = {name: entry for name, entry in PEOPLE.items() if name != "alice"}
    async with from_file(tmp_path, setting()) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        await alice.subscribe("t", qos=1)
        await reload(node, setting(directory={"users": others}))
        await dismissed(alice, 0x87)
        for number in NUMBERS[:K]:
            await say(mary, "t", numbered(number), qos=1)
        await reload(node, setting())
        alice = await come(node, "alice", stays=True)
        assert not alice.connack.session_present
        await say(mary, "t", numbered(K - 1), qos=1)
        assert await numbers(alice) == []
        await alice.subscribe("t", qos=1)
        await say(mary, "t", numbered(K), qos=1)
        assert await numbers(alice) == [K]


@on_uvloop
async def test_a_certificate_off_the_list(tmp_path: Path, certificates: Path) -> None:
    """*Revoking a user or certificate also disconnects it*: exactly K messages, each way."""
    both, one = {"accept": ["CN=sensor", "CN=bob"]}, {"accept": ["CN=bob"]}
    async with from_file(tmp_path, setting(certificates=certificates, trust=both)) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        sensor = await come(node, None, client="sensor", tls=secure(certificates, "sensor"))
        await sensor.subscribe("to")
        await alice.subscribe("from")
        for end, topic in ((sensor, "from"), (mary, "to")):
            for number in NUMBERS[:K]:
                await say(end, topic, numbered(number))
        assert await numbers(sensor) == NUMBERS[:K]
        await reload(node, setting(certificates=certificates, trust=one))
        sensor.writer.write(wire.encode(wire.Publish(topic="from", payload=b'{"n": 99}'), wire.V5))
        for number in NUMBERS[K:]:
            await say(mary, "to", numbered(number))
        await dismissed(sensor, 0x87)
        await come(node, None, client="sensor", tls=secure(certificates, "sensor"), expect=0x87)
        assert await numbers(alice) == NUMBERS[:K]


@on_uvloop
async def test_a_listener_that_wants_to_know(tmp_path: Path) -> None:
    """Nobody in particular has no access any more where that is not allowed any more."""
    closed = [{"url": "mqtt://127.0.0.1:PORT", "anonymous": False}]
    async with from_file(tmp_path, setting()) as node:
        mary, nobody = await come(node, "mary"), await come(node, None)
        await nobody.subscribe("t")
        await say(mary, "t", numbered(0))
        assert await numbers(nobody) == [0]
        await reload(node, setting(listeners=closed))
        await say(mary, "t", numbered(1))
        await dismissed(nobody, 0x87)
        await mary.silent()


# -- a broken file -----------------------------------------------------------------------------------------------

BROKEN: dict[str, Section] = {
    "condition": {"policies": [policy("w", "#", "write", when="s.user ==")]},
    "unknown function": {"policies": [policy("w", "#", "write", when="nosuch(1)")]},
    "two of one id": {"policies": [policy("w", "#", "write"), policy("w", "x", "read")]},
    "unknown key": {"polices": []},
    "preference": {"preferences": [{"id": "u", "user": "mary", "topic": "t/#/x"}]},
    "view": {"views": [{"id": "v", "topic": "t", "for": "user:bob", "keep": ["no pointer"]}]},
    "level": {"levels": {"order": ["plain", "mystery"]}},
    "trust": {"trust": {"by": "certificate", "accept": ["missing.pem"]}},
    "function": {"functions": ["sockets.wild:nosuch"]},
    "built-in attribute": {"directory": {"users": {"mary": user(level="trusted")}}},
    "what cannot change": {"node": {"name": "other"}},
}


@pytest.mark.parametrize("name", BROKEN)
@on_uvloop
async def test_a_broken_file_is_refused_whole(tmp_path: Path, name: str) -> None:
    """*a broken version is refused whole and said why*: the old one stays in force, also what was not broken."""
    async with from_file(tmp_path, setting(ALL, policy("no", "secret", effect="deny"))) as node:
        mary, alice, bob = await come(node, "mary"), await come(node, "alice"), await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("#", qos=1)
        version = node.node.scopes["main"].gate.rules.version
        others = {person: entry for person, entry in PEOPLE.items() if person != "alice"}
        # nobody may read anything, alice is gone, and something is wrong
        text = setting(**{"policies": [WRITERS], "directory": {"users": others}, **BROKEN[name]})
        with pytest.raises(TidegateError) as refused:
            await reload(node, text)
        if name != "what cannot change":
            assert f"{node.file.path}:" in str(refused.value)
        for number in NUMBERS:
            await say(mary, "t", numbered(number), qos=1)
            assert await say(mary, "secret", numbered(number), qos=1) == 0x87
        assert await numbers(alice) == await numbers(bob) == NUMBERS
        assert node.node.scopes["main"].gate.rules.version == version
        assert (await reload(node, setting(WRITERS)))["version"] != version
        await say(mary, "t", numbered(0), qos=1)
        assert await numbers(alice) == []


@on_uvloop
async def test_a_change_that_changes_nothing(tmp_path: Path) -> None:
    """The same rules keep their version, and nobody is disturbed."""
    async with from_file(tmp_path, setting()) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t", qos=1)
        first = node.node.scopes["main"].gate.rules.version
        for number in NUMBERS:
            answer = await reload(node, setting())
            assert answer == {"reloaded": True, "version": first}
            await say(mary, "t", numbered(number), qos=1)
        assert await numbers(alice) == NUMBERS
