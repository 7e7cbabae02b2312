"""Monitors on both sides of a guarded broker, and shared subscriptions whose members may not have the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guard.guarded import around, broker, drained, gathered, guarded
from processes import on_uvloop
from sockets.acts import BOTH, come, policy
from sockets.watchers import gated
from tidegate import wire


def twice(direction: str) -> dict[str, Any]:
    """Lets pass what is said of the door, and says it again elsewhere."""
    copies: list[Any] = ["same", {"topic": "open/copy", "payload": "copy"}]
    states = {"s": [{"on": "open/door", "emit": copies}, {"on": "open/shut", "emit": []}]}
    automaton = {"start": "s", "states": states}
    return {"id": "twice", "scope": "legacy", "direction": direction, "each": "client", "automaton": automaton}


RULES = policy("all", "open/#", subject=["*", "monitor:twice"])


@pytest.mark.parametrize("direction", ["im_pub", "im_sub"])
@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_monitors_see_each_message_once(tmp_path: Path, version: int, direction: str) -> None:
    with broker() as port:
        async with guarded(tmp_path, port, RULES, monitors=[twice(direction)]) as node:
            mary, bob = await come(node, "mary", version=version), await come(node, "bob", version=version)
            await mary.subscribe("open/#", qos=2)
            for qos in (0, 1, 2):
                await bob.publish("open/shut", qos=qos)
                await bob.publish("open/door", b"door", qos=qos)
                assert sorted(await gathered(2, mary)) == [("open/copy", b"copy", qos), ("open/door", b"door", qos)]
            await bob.publish("open/other", b"last", qos=1)
            assert await gathered(1, mary) == [("open/other", b"last", 1)]


@on_uvloop
async def test_pubcomp_of_what_monitors_saw_waits_for_the_broker(tmp_path: Path) -> None:
    with broker() as port:
        async with guarded(tmp_path, port, RULES, monitors=[twice("im_pub")]) as node:
            outside = await around(node, port)
            await outside.subscribe("open/#", qos=2)
            bob = await come(node, "bob", stays=True)
            await bob.send(wire.Publish(topic="open/door", payload=b"x", qos=2, packet_id=5))
            assert (await bob.expect(wire.Pubrec)).packet_id == 5
            await outside.silent()  # nobody has it before it is released
            await bob.send(wire.Pubrel(packet_id=5))
            await bob.send(wire.Pubrel(packet_id=5))  # in a hurry
            assert (await bob.expect(wire.Pubcomp)).packet_id == 5
            assert len(await gathered(2, outside)) == 2


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_a_shared_message_goes_to_a_member_that_may_have_it(tmp_path: Path, version: int) -> None:
    rules = (
        policy("write", "open/#", "write"),
        policy("read", "open/#", "read", when="s.user == 'mary' || o.payload > 10"),
    )
    with broker() as port:
        async with guarded(tmp_path, port, *rules) as node:
            mary, bob = await come(node, "mary", version=version), await come(node, "bob", version=version)
            alice = await come(node, "alice")
            for member in (mary, bob):
                await member.subscribe("$share/g/open/#", qos=2)
            sent = []
            for number in range(1, 7):
                for qos in (0, 1, 2):
                    sent.append((b"%d" % number, qos))
                    await alice.publish("open/a", b"%d" % number, qos=qos)
            got = [(payload, qos) for _, payload, qos in await gathered(len(sent), mary)]
            assert sorted(got) == sorted(sent)
            assert not await drained(bob)
            await alice.publish("open/a", b"11", qos=1)
            await alice.publish("open/a", b"12", qos=1)
            assert sorted(payload for _, payload, _ in await gathered(2, mary, bob)) == [b"11", b"12"]


@on_uvloop
async def test_a_shared_message_that_no_member_may_have_is_audited(tmp_path: Path) -> None:
    rules = (policy("write", "open/#", "write"), policy("read", "open/#", "read", when="o.payload > 10"))
    with broker() as port:
        async with guarded(tmp_path, port, *rules) as node:
            mary, bob = await come(node, "mary"), await come(node, "bob")
            for member in (mary, bob):
                await member.subscribe("$share/g/open/#", qos=2)
            alice = await come(node, "alice")
            denied = node.node.site.counters.denied
            await alice.publish("open/a", b"1", qos=1)
            await alice.publish("open/a", b"11", qos=1)
            assert [payload for _, payload, _ in await gathered(1, mary, bob)] == [b"11"]
            assert node.node.site.counters.denied == denied + 1


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_what_several_publishers_led_to_is_for_whom_all_of_them_allow_it(
    tmp_path: Path, version: int, qos: int
) -> None:
    """Context and derived messages: also where it has been in the broker."""
    passes = {
        "id": "gate",
        "scope": "legacy",
        "direction": "im_pub",
        "each": "scope",
        **gated("open/door", "open/key", "x"),
    }
    rules = (policy("all", "open/#", subject=["*", "monitor:gate"]),)
    preference = {"id": "own", "user": "mary", "topic": "open/#", "when": "s.user == 'alice'"}
    with broker() as port:
        async with guarded(tmp_path, port, *rules, monitors=[passes], preferences=[preference]) as node:
            mary, carol = await come(node, "mary", version=version), await come(node, "carol", version=version)
            alice, bob = await come(node, "alice", version=version), await come(node, "bob", version=version)
            for reader in (alice, bob):
                await reader.subscribe("open/#", qos=2)
            await mary.publish("open/key", b"mary's", qos=qos)
            assert await gathered(1, alice) == [("open/key", b"mary's", qos)]
            for payload in (b"1", b"2"):  # because mary has turned the key: bob must not learn that she has
                await carol.publish("open/door", payload, qos=qos)
                assert await gathered(1, alice) == [("open/door", payload, qos)]
            await carol.publish("open/other", b"carol's", qos=qos)
            assert await gathered(1, bob) == [("open/other", b"carol's", qos)]
