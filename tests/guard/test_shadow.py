"""A guarded Mosquitto in shadow mode: clients see what it alone would show them, and the audit what the rules deny."""

from __future__ import annotations

from pathlib import Path

import pytest

from guard.guarded import HERE, around, broker, drained, guarded, guarding
from processes import on_uvloop
from sockets.acts import BOTH, come, policy
from sockets.shadowing import denials
from tidegate import wire

RULES = (
    policy("open", "open/#"),
    policy("mary", "mary/#", subject="user:mary"),
    policy("big", "open/big", "read", effect="deny", when="o.size > 3"),
    policy("own", "open/own", "read", effect="deny", when="p.user != s.user"),
)
SHADOW = {**HERE, "enforce": False}


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_everything_passes_and_what_would_be_denied_is_known(tmp_path: Path, version: int) -> None:
    seen: dict[bool, dict[tuple[str, ...], int]] = {}
    delivered: dict[bool, list[tuple[str, bytes, int]]] = {}
    for enforced in (False, True):
        folder = tmp_path / str(enforced)
        folder.mkdir()
        with broker() as port:
            async with guarded(folder, port, *RULES, scope={**HERE, "enforce": enforced}) as node:
                mary, alice, bob = [await come(node, name, version=version) for name in ("mary", "alice", "bob")]
                await bob.subscribe("open/#", "mary/#", qos=2)
                for qos in (0, 1, 2):
                    for topic in ("open/a", "open/big", "open/own", "mary/a"):
                        await mary.publish(topic, b"%d-long" % qos, qos=qos)
                    await alice.publish("mary/b", b"%d" % qos, qos=qos)
                await drained(mary)
                delivered[enforced] = await drained(bob)
                seen[enforced] = await denials(node, "deny" if enforced else "shadow")
    assert len(delivered[False]) == 15
    assert len(delivered[True]) == 3
    assert seen[False] == seen[True]
    assert len(seen[True]) == 4


@on_uvloop
async def test_nothing_is_written_into_messages(tmp_path: Path) -> None:
    said = wire.Properties(
        user_properties=(("require", "mtls"), ("floor", "x")), content_type="text", response_topic="r"
    )
    with broker() as port:
        async with guarded(tmp_path, port, *RULES, scope=SHADOW) as node:
            bob, mary, outside = await come(node, "bob"), await come(node, "mary"), await around(node, port)
            for reader in (outside, bob):
                await reader.subscribe("#", qos=2)
            for qos in (0, 1, 2):
                await mary.publish("open/a", b"content", qos=qos, properties=said)
                plain, guarded_one = await outside.message(), await bob.message()
                assert plain.payload == guarded_one.payload == b"content"
                assert plain.properties == guarded_one.properties == said


@on_uvloop
async def test_what_came_around_the_guard_is_from_nobody_known(tmp_path: Path) -> None:
    with broker() as port:
        async with guarded(tmp_path, port, *RULES, scope=SHADOW) as node:
            bob, outside = await come(node, "bob"), await around(node, port)
            await bob.subscribe("open/#", qos=1)
            await outside.publish("open/own", b"1", qos=1)
            assert (await bob.message()).payload == b"1"
            assert node.node.guards.status()[0]["unknown_publishers"] == 1


@on_uvloop
async def test_enforcing_can_be_switched_while_it_runs(tmp_path: Path) -> None:
    with broker() as port:
        async with guarded(tmp_path, port, *RULES, scope=SHADOW) as node:
            bob, mary = await come(node, "bob"), await come(node, "mary")
            await bob.subscribe("open/#", qos=1)
            await mary.publish("open/big", b"1-long", qos=1)
            assert (await bob.message()).payload == b"1-long"
            await node.reload(guarding(port, *RULES, scope=HERE))
            await mary.publish("open/big", b"2-long", qos=1)
            await mary.publish("open/a", b"3", qos=1)
            assert (await bob.message()).payload == b"3"
            await node.reload(guarding(port, *RULES, scope=SHADOW))
            await mary.publish("open/big", b"4-long", qos=1)
            assert (await bob.message()).payload == b"4-long"
