"""The broker is gone, and back: nothing passes undecided, and what was acknowledged is there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from guard.guarded import HERE, guarded, restartable
from harness import PATIENCE
from processes import Served, on_uvloop, until
from sockets.acts import BOTH, come
from tidegate import wire
from tidegate.guard import GuardedScope

WAIT = {**HERE, "gone": "wait"}


def service(node: Served) -> bool:
    """Whether the guard has its own connection to the broker."""
    scope = node.node.scopes["legacy"]
    assert isinstance(scope, GuardedScope)
    return scope.service.upstream is not None and scope.service.upstream.opened


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_clients_are_refused_while_the_broker_is_gone(tmp_path: Path, version: int) -> None:
    with restartable(tmp_path) as broker:
        async with guarded(tmp_path, broker.port) as node:
            mary = await come(node, "mary", version=version)
            broker.stop()
            if version == wire.V5:
                assert (await mary.expect(wire.Disconnect)).reason == 0x8B
            assert not await mary.closed()
            await come(node, "mary", version=version, expect=0x88 if version == wire.V5 else 3)
            broker.start()
            async with asyncio.timeout(PATIENCE):
                while not service(node):
                    await asyncio.sleep(0.02)
            await come(node, "mary", version=version)


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_clients_that_wait_go_on_when_it_is_back(tmp_path: Path, version: int) -> None:
    with restartable(tmp_path) as broker:
        async with guarded(tmp_path, broker.port, scope=WAIT) as node:
            mary, bob = await come(node, "mary", version=version, stays=True), await come(node, "bob", version=version)
            await mary.subscribe("open/#", qos=2)
            broker.stop()
            scope = node.node.scopes["legacy"]
            assert isinstance(scope, GuardedScope)
            await until(lambda: all(session.upstream is None for session in scope.owners.values()))
            await mary.silent()  # the guard answers PING
            for pid, qos in ((1, 1), (2, 2)):
                await bob.send(wire.Publish(topic="open/a", payload=b"%d" % qos, qos=qos, packet_id=pid))
            await mary.send(wire.Subscribe(packet_id=9, subscriptions=(wire.Subscription(filter="open/b", qos=1),)))
            waiting = asyncio.ensure_future(come(node, "carol", version=version))
            broker.start()
            assert (await bob.expect(wire.Puback)).packet_id == 1
            first, second = await mary.receive(), await mary.receive()  # in either order
            subscribed, message = (first, second) if isinstance(first, wire.Suback) else (second, first)
            assert isinstance(subscribed, wire.Suback)
            assert isinstance(message, wire.Publish)
            assert (subscribed.packet_id, message.payload) == (9, b"1")
            await mary.send(wire.Puback(packet_id=message.packet_id))
            assert (await bob.expect(wire.Pubrec)).packet_id == 2
            await bob.send(wire.Pubrel(packet_id=2))
            await bob.expect(wire.Pubcomp)
            assert (await mary.message()).payload == b"2"
            carol = await waiting
            await carol.publish("open/b", b"3", qos=1)
            assert (await mary.message()).payload == b"3"


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_what_the_broker_had_acknowledged_is_there(tmp_path: Path, version: int) -> None:
    with restartable(tmp_path) as broker:
        async with guarded(tmp_path, broker.port) as node:
            mary, bob = await come(node, "mary", version=version, stays=True), await come(node, "bob")
            await mary.subscribe("open/#", qos=2)
            await mary.disconnect()
            for qos in (1, 2):
                await bob.publish("open/a", b"%d" % qos, qos=qos)
            broker.stop()
            broker.start()
            async with asyncio.timeout(PATIENCE):
                while not service(node):
                    await asyncio.sleep(0.02)
            mary = await come(node, "mary", version=version, stays=True)
            assert mary.connack.session_present
            assert [(await mary.message()).payload for _ in range(2)] == [b"1", b"2"]


@on_uvloop
async def test_wills_wait_for_the_broker(tmp_path: Path) -> None:
    with restartable(tmp_path) as broker:
        async with guarded(tmp_path, broker.port) as node:
            will = wire.Will(topic="open/will", payload=b"gone", qos=2, retain=False)
            mary = await come(node, "mary", stays=True)
            await mary.subscribe("open/#", qos=2)
            await come(node, "bob", will=will)
            broker.stop()
            await mary.closed()
            broker.start()
            async with asyncio.timeout(PATIENCE):
                while not service(node):
                    await asyncio.sleep(0.02)
            mary = await come(node, "mary", stays=True)
            assert (await mary.message()).payload == b"gone"
