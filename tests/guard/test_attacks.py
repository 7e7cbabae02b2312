"""A client that goes around the guard: what it puts into the broker reaches no client of the guard as authorised.

It may do at the broker whatever Mosquitto lets anybody do: read all, publish anything, keep messages and repeat them.
What it can do is bounded: a client gets a message that it has had not again, and one that it has not had at most once,
within `max_age`; one that is repeated as a retained message at most once for each of its subscriptions. That is why the
broker must be closed to everybody but the guard (docs/reference/envelope.md).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from guard.guarded import HERE, around, broker, guarded
from harness import Client
from processes import Served, on_uvloop
from sockets.acts import BOTH, come, inbox, policy
from tidegate import wire
from tidegate.guard import GuardedScope
from tidegate.wire.envelope import MessageId, Static, encode_static, seal

TOPIC = "mary/a"
OTHER_SECRET = b"another secret than that of the guards"
SECRET = "what the guards of this scope share"
GENUINE = b'{"speed": 11}'
ASKING = wire.Properties(content_type="text/plain", response_topic="mary/answers", user_properties=(("a", "b"),))


async def captured(node: Served, attacker: Client, **fields: object) -> wire.Publish:
    """What lies in the broker of a message that mary publishes."""
    mary = await come(node, "mary", client="treadmill")
    assert (await attacker.subscribe("#", qos=2, retain_as_published=True)).reasons == (2,)
    await mary.publish(TOPIC, GENUINE, qos=1, **fields)  # type: ignore[arg-type]
    message = await attacker.message()
    assert message.payload.endswith(GENUINE)
    assert message.payload.startswith(b"TG")
    await attacker.unsubscribe("#")
    return message


async def injects(attacker: Client, topic: str, payload: bytes, **fields: object) -> None:
    """At every QoS, and as a retained message."""
    for qos in (0, 1, 2):
        await attacker.publish(topic, payload, qos=qos, **fields)  # type: ignore[arg-type]
    await attacker.publish(topic, payload, qos=1, retain=True, **fields)  # type: ignore[arg-type]
    await attacker.silent()


async def received(*clients: Client) -> list[tuple[str, bytes, int]]:
    messages = [message for client in clients for message in await inbox(client)]
    return [(message.topic, message.payload, message.qos) for message in messages]


def forged(key: bytes | None) -> bytes:
    """An envelope as a guard makes it, by somebody who does not have the secret."""
    static = Static(
        origin="0" * 16,
        owner="",
        publisher={"kind": "client", "client": "mary", "user": "mary", "scope": "legacy", "node": "test"},
        topic=TOPIC,
        floor="trusted",
    )
    id = MessageId(origin=bytes(14), number=1 << 40)
    return seal(encode_static(static), id.origin, id.number, 0, 4e9, None, 0, False, b"forged", key)


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_what_is_not_from_a_guard_reaches_nobody(tmp_path: Path, version: int) -> None:
    """Without an envelope, with one of one's own, with a genuine one that was changed, under another topic."""
    with broker() as port:
        async with guarded(tmp_path, port, scope={**HERE, "secret": SECRET}) as node:
            mary = await come(node, "mary", version=version)
            await mary.subscribe("#", qos=2)
            attacker = await around(node, port, version=version)
            genuine = (await captured(node, attacker)).payload
            assert [payload for _, payload, _ in await received(mary)] == [GENUINE]
            for payload in (b"plain", b"TG", genuine[:40], forged(None), forged(OTHER_SECRET)):
                await injects(attacker, TOPIC, payload)
            for at in (*range(0, len(genuine) - len(GENUINE), 7), len(genuine) - 3):  # envelope, MAC, payload
                changed = genuine[:at] + bytes((genuine[at] ^ 1,)) + genuine[at + 1 :]
                await attacker.publish(TOPIC, changed, qos=1)
            await injects(attacker, "mary/b", genuine)
            await injects(attacker, "open/b", genuine)
            late = await come(node, "mary", client="late", version=version)
            assert await received(mary, late) == []
            await late.subscribe("#", qos=2)
            assert await received(late) == []  # nor is anything retained
            rows = node.node.site.counters.denied
            assert rows > 0


@on_uvloop
async def test_plain_messages_may_pass_but_no_forged_envelope(tmp_path: Path) -> None:
    """`unenveloped: plain`: what looks like an envelope and is none is never passed as plain."""
    rules = (policy("all", "open/#"), policy("mary", "mary/#", subject="user:mary"))
    with broker() as port:
        scope = {**HERE, "unenveloped": "plain", "secret": SECRET}
        async with guarded(tmp_path, port, *rules, scope=scope) as node:
            mary = await come(node, "mary")
            await mary.subscribe("open/#", "mary/#", qos=2)
            attacker = await around(node, port)
            for payload in (b"TG", forged(None), forged(OTHER_SECRET)):
                await injects(attacker, "open/a", payload)
            assert await received(mary) == []
            await attacker.publish("open/a", b"plain", qos=1)
            assert await received(mary) == [("open/a", b"plain", 1)]


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_a_message_that_is_repeated_comes_once(tmp_path: Path, version: int) -> None:
    """To who has had it not again, to who has not had it once."""
    with broker() as port:
        async with guarded(tmp_path, port, scope={**HERE, "secret": SECRET}) as node:
            mary = await come(node, "mary", version=version)
            await mary.subscribe("mary/#", qos=2)
            attacker = await around(node, port)
            genuine = (await captured(node, attacker)).payload
            assert len(await received(mary)) == 1
            late = await come(node, "mary", client="late", version=version)
            await late.subscribe("mary/#", qos=2)
            for _ in range(10):
                for qos in (0, 1, 2):
                    await attacker.publish(TOPIC, genuine, qos=qos)
            assert await received(mary) == []
            assert len(await received(late)) <= 1


@on_uvloop
async def test_a_message_that_is_repeated_as_a_retained_one_comes_once(tmp_path: Path) -> None:
    """To who wants to know what was published as a retained message; and once more when it subscribes again."""
    with broker() as port:
        async with guarded(tmp_path, port, scope={**HERE, "secret": SECRET}) as node:
            mary = await come(node, "mary")
            await mary.subscribe("mary/#", qos=2, retain_as_published=True, retain_handling=2)
            attacker = await around(node, port)
            genuine = (await captured(node, attacker)).payload
            assert len(await received(mary)) == 1
            for _ in range(10):
                await attacker.publish(TOPIC, genuine, qos=1, retain=True)
            assert len(await received(mary)) == 1
            await mary.subscribe("mary/a", qos=2, retain_as_published=True, retain_handling=2)
            for _ in range(10):
                await attacker.publish(TOPIC, genuine, qos=1, retain=True)
            assert len(await received(mary)) <= 2  # it has two subscriptions


@on_uvloop
async def test_a_message_that_is_too_old_comes_to_nobody(tmp_path: Path) -> None:
    with broker() as port:
        async with guarded(tmp_path, port, scope={**HERE, "secret": SECRET, "max_age": "1h"}) as node:
            mary = await come(node, "mary")
            attacker = await around(node, port)
            genuine = (await captured(node, attacker)).payload
            scope = node.node.scopes["legacy"]
            assert isinstance(scope, GuardedScope)
            scope.settings = dataclasses.replace(scope.settings, max_age=-1.0)  # as if time had passed
            await mary.subscribe("mary/#", qos=2)
            await attacker.publish(TOPIC, genuine, qos=1)
            assert await received(mary) == []


@on_uvloop
async def test_properties_of_a_message_cannot_be_changed(tmp_path: Path) -> None:
    """They are content: a repeated message with another response topic or other user properties reaches nobody."""
    with broker() as port:
        async with guarded(tmp_path, port, scope={**HERE, "secret": SECRET}) as node:
            mary = await come(node, "mary")
            attacker = await around(node, port)
            plain = await captured(node, attacker)
            asking = await captured(node, attacker, properties=ASKING)
            await mary.subscribe("mary/#", qos=2)
            wrong = dataclasses.replace(ASKING, response_topic="attacker/answers")
            await attacker.publish(TOPIC, plain.payload, qos=1, properties=wrong)
            await attacker.publish(TOPIC, asking.payload, qos=1, properties=wrong)
            wrong = dataclasses.replace(ASKING, user_properties=(("a", "c"),))
            await attacker.publish(TOPIC, asking.payload, qos=1, properties=wrong)
            assert await received(mary) == []
            other = await come(node, "mary", client="other")
            await other.publish(TOPIC, b"2", qos=1, properties=ASKING)
            message = await mary.message()
            assert (message.payload, message.properties.response_topic) == (b"2", "mary/answers")
            await attacker.publish(TOPIC, asking.payload, qos=1, properties=asking.properties)
            old = await come(node, "mary", client="old", version=wire.V311)
            await old.subscribe("mary/#", qos=1)
            await other.publish(TOPIC, b"3", qos=1, properties=ASKING)
            assert (await old.message()).payload == b"3"  # it has no properties at all


@on_uvloop
async def test_what_is_retained_can_be_cleared_but_nobody_is_told(tmp_path: Path) -> None:
    """An empty message has no envelope: it clears at the broker, whoever sends it, and no client sees one."""
    with broker() as port:
        async with guarded(tmp_path, port, scope={**HERE, "secret": SECRET}) as node:
            mary = await come(node, "mary")
            await mary.publish(TOPIC, b"kept", qos=1, retain=True)
            await mary.subscribe("mary/#", qos=2)
            assert (await mary.message()).payload == b"kept"
            attacker = await around(node, port)
            await attacker.publish(TOPIC, b"", qos=1, retain=True)
            assert await received(mary) == []


@on_uvloop
async def test_the_broker_is_not_spoken_for_where_it_lets_nobody(tmp_path: Path) -> None:
    """What is below `$SYS/` comes without envelopes, as `service:backend`. Mosquitto lets anybody publish there, unless
    it has an ACL."""
    rules = (policy("sys", "$SYS/#", "read"), policy("all", "open/#"))
    lines = "allow_anonymous true\npersistence false\nsys_interval 0\nacl_file {acl}\n"
    with broker(lines, acl="topic readwrite #\ntopic read $SYS/#\n") as port:
        async with guarded(tmp_path, port, *rules, scope={**HERE, "secret": SECRET}) as node:
            mary = await come(node, "mary")
            await mary.subscribe("$SYS/#", qos=2)
            await received(mary)
            attacker = await around(node, port)
            for topic in ("$SYS/broker/version", "$SYS/broker/connection/edge/state"):
                await attacker.send(wire.Publish(topic=topic, payload=b"forged", qos=0))
            await attacker.silent()
            assert b"forged" not in [payload for _, payload, _ in await received(mary)]
