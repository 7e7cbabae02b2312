"""What an acknowledgement tells a publisher of its readers, and what a retained message keeps of its ways, through real
sockets.

Each test quotes the sentence of the specification that it holds the node to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import Served, from_file, on_uvloop
from sockets.acts import ALL, BOTH, asking, come, door, policy, say, setting, user
from sockets.watchers import entering, gated, names
from tidegate import wire

NOBODY = 0x10


async def retained(node: Served, name: str, filter: str, port: str) -> list[str]:
    """What somebody is sent who subscribes."""
    end = await come(node, name, port=port)
    await end.subscribe(filter)
    return await names(end)


@on_uvloop
async def test_that_nobody_has_subscribed_is_told_unless_it_is_switched_off(tmp_path: Path) -> None:
    """*PUBACK's 0x10 can be switched off (`tell_no_subscribers: false`)*, for what a monitor suppresses too."""
    monitors = [entering("gate", **gated("door", "key", "lock"))]
    async with door(tmp_path, monitors=monitors, explain=True) as node:
        mary = await come(node, "mary")
        assert [await say(mary, topic, qos=1) for topic in ("t", "door")] == [NOBODY, NOBODY]
        await node.reload(setting(monitors=monitors, explain=True, tell_no_subscribers=False))
        assert [await say(mary, topic, qos=1) for topic in ("t", "door")] == [0, 0]
        refusing = [{**monitors[0], "suppressed": "refuse"}]
        await node.reload(setting(monitors=refusing, tell_no_subscribers=False))
        assert await say(mary, "door", qos=1) == 0x87  # what somebody chose to say is said


@on_uvloop
async def test_under_labels_it_is_never_told(tmp_path: Path) -> None:
    """*and is, under `blp`*: it would be one bit that comes down from above."""
    labels = {
        "preset": "blp",
        "labels": ["low", "high"],
        "assign": [{"client": "role:general", "in": "high", "out": "high"}],
        "default": {"in": "low", "out": "low"},
    }
    people = {"users": {"mary": user("general"), "bob": user()}}
    async with from_file(tmp_path, setting(brokering=labels, directory=people, tell_no_subscribers=True)) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob")
        assert await say(bob, "t", qos=1) == 0
        await mary.subscribe("t")
        assert await say(bob, "t", qos=1) == 0


@pytest.mark.parametrize("where", ["o.payload.a > 1", "o.topic == 'other'"], ids=["each message", "every message"])
@pytest.mark.parametrize("filter", ["t", "$share/g/t"], ids=["own", "shared"])
@on_uvloop
async def test_what_a_subscriber_wants_is_not_told(tmp_path: Path, where: str, filter: str) -> None:
    """*and for private `where`*: what somebody may have and does not want is no business of its publisher."""
    async with door(tmp_path, policy("not-bob", subject="user:bob", effect="deny", action="read"), ALL) as node:
        mary, alice, bob = await come(node, "mary"), await come(node, "alice"), await come(node, "bob")
        await bob.subscribe(filter, qos=1)
        assert await say(mary, "t", {"a": 1}, qos=1) == NOBODY  # he may not have it, and that is policy
        await alice.subscribe(filter, qos=1, properties=asking(("where", where)))
        assert await say(mary, "t", {"a": 1}, qos=1) == 0
        assert await names(alice) == await names(bob) == []


# -- retained messages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
@on_uvloop
async def test_a_retained_message_keeps_the_types_of_all_links_it_came_over(tmp_path: Path, restart: bool) -> None:
    """*A retained message that came over several links keeps all of their types and may leave if one of them allows
    it*: alice reads what came from the left, carol what came from the right, and bob neither."""
    ways = [("start", "left"), ("start", "right"), ("left", "end"), ("right", "end")]
    kinds = {"start->left": "over", "start->right": "over", "left->end": "left", "right->end": "right"}
    brokering = {
        "allow": [["said", "over"], ["over", "left"], ["over", "right"], ["left", "one"], ["right", "other"]],
        "assign": [
            {"client": "user:mary", "in": "said"},
            {"client": "user:alice", "out": "one"},
            {"client": "user:carol", "out": "other"},
            *({"link": link, "type": kind} for link, kind in kinds.items()),
        ],
    }
    text = setting(
        brokering=brokering,
        scopes={name: {} for name in ("start", "left", "right", "end")},
        links=[{"from": source, "to": target, "direction": "out"} for source, target in ways],
        listeners=[
            {"url": "mqtt://127.0.0.1:PORT", "scope": "start"},
            {"url": "mqtt://127.0.0.1:END_PORT", "scope": "end"},
        ],
        data=True,
    )
    seen = {}
    async with from_file(tmp_path, text) as node:
        mary = await come(node, "mary")
        await say(mary, "t", b"kept", qos=1, retain=True)
        if not restart:
            seen = {name: await retained(node, name, "t", "END_PORT") for name in ("alice", "bob", "carol")}
    if restart:
        async with from_file(tmp_path, text) as node:
            seen = {name: await retained(node, name, "t", "END_PORT") for name in ("alice", "bob", "carol")}
    assert seen == {"alice": ["t"], "bob": [], "carol": ["t"]}


# -- what monitors may write -----------------------------------------------------------------------------------------


@on_uvloop
async def test_what_everybody_may_write_a_monitor_may_not(tmp_path: Path) -> None:
    """*must be writable by `monitor:ID` by name (`*` does not count for monitors; under `policies: open` they may
    write)*, and what is denied to everybody is denied to monitors."""
    monitors = [entering("names", map={"raw/+": "new/+"})]
    named = policy("named", "new/#", "write", subject="monitor:names")
    async with door(tmp_path, ALL, monitors=monitors) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#")
        await say(mary, "raw/1", qos=1)
        assert await names(alice) == []
        await node.reload(setting(ALL, named, monitors=monitors))
        await say(mary, "raw/1", qos=1)
        assert await names(alice) == ["new/1"]
        nobody = policy("nobody", "new/1", "write", effect="deny")
        await node.reload(setting(ALL, named, nobody, monitors=monitors))
        await say(mary, "raw/1", qos=1)
        await say(mary, "raw/2", qos=1)
        assert await names(alice) == ["new/2"]
        await node.reload(setting(monitors=monitors, policies="open"))
        await say(mary, "raw/1", qos=1)
        assert await names(alice) == ["new/1"]


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_a_view_takes_response_topic_and_correlation_data_with_it(tmp_path: Path, version: int) -> None:
    """*user properties, response topic and correlation data count as content*: they come only with `all`."""
    views = [{"topic": "t", "for": "user:alice", "keep": ["/a"]}, {"topic": "t", "for": "user:bob", "keep": "all"}]
    async with door(tmp_path, views=views) as node:
        mary, alice, bob = await come(node, "mary"), await come(node, "alice", version=version), await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("t", qos=1)
        request = wire.Properties(response_topic="answers", correlation_data=b"17", content_type="json")
        await say(mary, "t", {"a": 1, "b": 2}, properties=request, qos=1)
        part, whole = (await alice.message()).properties, (await bob.message()).properties
        assert (part.response_topic, part.correlation_data) == (None, None)
        assert (whole.response_topic, whole.correlation_data, whole.content_type) == ("answers", b"17", "json")
        assert part.content_type == (None if version == wire.V311 else "json")
