"""QoS 0 messages that are only looked up: what changes counts from the next one on."""

from __future__ import annotations

from pathlib import Path

import pytest

from guard.guarded import broker, guarded, guarding
from processes import Served, on_uvloop
from sockets.acts import BOTH, come, policy
from tidegate import wire
from tidegate.guard.guarded_session import GuardedSession


def quick(node: Served, name: str) -> bool:
    """Whether the next message to a client just passes."""
    session = node.node.scopes["legacy"].sessions[f"user:{name}", name]
    assert isinstance(session, GuardedSession)
    epoch = node.node.scopes["legacy"].gate.stored.epoch
    return any(last.head and last.epoch == epoch for last in (session.last or {}).values())


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("other", BOTH)
@on_uvloop
async def test_a_change_counts_for_the_next_message(tmp_path: Path, version: int, other: int) -> None:
    with broker() as port:
        async with guarded(tmp_path, port, policy("all", "open/#")) as node:
            mary, bob = await come(node, "mary", version=version), await come(node, "bob", version=other)
            await mary.subscribe("open/#")
            for number in range(5):
                await bob.publish("open/a", b"%d" % number)
                assert (await mary.message()).payload == b"%d" % number
            assert quick(node, "mary")
            rules = (policy("write", "open/#", "write"), policy("read", "open/#", "read", when="o.payload == 1"))
            await node.reload(guarding(port, *rules))
            assert not quick(node, "mary")
            await bob.publish("open/a", b"0")
            await bob.publish("open/a", b"1")
            assert (await mary.message()).payload == b"1"
            assert not quick(node, "mary")


@on_uvloop
async def test_what_reads_the_message_is_asked_each_time(tmp_path: Path) -> None:
    views = [{"id": "v", "topic": "open/#", "for": "*", "keep": ["/a"]}]
    with broker() as port:
        async with guarded(tmp_path, port, policy("all", "open/#"), views=views) as node:
            mary, bob = await come(node, "mary"), await come(node, "bob")
            await mary.subscribe("open/#")
            for qos in (0, 0, 1, 2):
                await bob.publish("open/a", b'{"a": 1, "b": 2}', qos=qos)
                assert (await mary.message()).payload == b'{"a":1}'
            assert not quick(node, "mary")


@on_uvloop
async def test_conditions_of_subscribers_are_asked_each_time(tmp_path: Path) -> None:
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            mary, bob = await come(node, "mary"), await come(node, "bob")
            where = wire.Properties(user_properties=(("where", "o.payload > 1"),))
            await mary.subscribe("open/#", properties=where)
            for payload in (b"1", b"2", b"0", b"3"):
                await bob.publish("open/a", payload)
            assert [(await mary.message()).payload for _ in range(2)] == [b"2", b"3"]
            await mary.unsubscribe("open/#")
            await mary.subscribe("open/#")
            await bob.publish("open/a", b"0")
            assert (await mary.message()).payload == b"0"
