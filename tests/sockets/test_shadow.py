"""Shadow mode: with `enforce: false` every client gets what an open node gives it, and what the rules would deny is
audited: exactly what they deny when they are enforced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from processes import Served, from_file, on_uvloop
from sockets.acts import BOTH, Section, asking, come, door, go, inbox, policy, setting
from sockets.shadowing import denials
from sockets.watchers import automaton, entering, leaving
from tidegate import wire

Received = list[Any]
Traffic = Callable[[Served, int], Awaitable[Received]]

RULES = (
    policy("all", "+/#", subject=["*", "monitor:renamed", "monitor:reminder"]),
    policy("secret", "a/secret", "read", subject="user:bob", effect="deny"),
    policy("big", "a/big", "read", effect="deny", when="o.size > 3"),
    policy("sealed", "a/closed", "write", effect="deny"),
    policy("own", "own/{s.user}/#", "read", subject="user:bob", effect="deny", when="p.user != s.user"),
)
TOPICS = ("a/x", "a/secret", "a/big", "a/closed", "own/bob/1")


async def live_traffic(node: Served, version: int) -> Received:
    """Every QoS to several receivers, one of them a shared subscription."""
    mary, bob, carol = [await come(node, name, version=version) for name in ("mary", "bob", "carol")]
    received: Received = [await bob.subscribe("a/#", "own/#", "c", qos=2)]
    received.append(await carol.subscribe("$share/g/a/#", "$SYS/x", qos=1))
    for qos in (0, 1, 2):
        for topic in TOPICS:
            await mary.publish(topic, b"%d-long" % qos, qos=qos)
            await mary.publish(topic, b"%d" % qos, qos=qos)
    return [*received, await inbox(bob), await inbox(carol), await inbox(mary)]


async def retained_traffic(node: Served, version: int) -> Received:
    mary, bob = await come(node, "mary", version=version), await come(node, "bob", version=version)
    for topic in TOPICS:
        await mary.publish(topic, b"retained", qos=1, retain=True)
    received: Received = [await bob.subscribe("a/#", qos=1), await inbox(bob)]
    await mary.publish("a/secret", b"", qos=1, retain=True)
    return [*received, await inbox(bob)]


async def queued_traffic(node: Served, version: int) -> Received:
    """What waits for a client that is away."""
    mary, bob = await come(node, "mary", version=version), await come(node, "bob", version=version, stays=True)
    received: Received = [await bob.subscribe("a/#", qos=2)]
    await go(node, bob)
    for topic in TOPICS:
        for qos in (1, 2):
            await mary.publish(topic, b"%d-waits" % qos, qos=qos)
    bob = await come(node, "bob", version=version, stays=True)
    return [*received, await inbox(bob)]


async def will_traffic(node: Served, version: int) -> Received:
    bob = await come(node, "bob", version=version)
    received: Received = [await bob.subscribe("a/#", qos=1)]
    for topic in ("a/x", "a/secret", "a/big"):
        mary = await come(
            node, "mary", version=version, will=wire.Will(topic=topic, payload=b"gone-and-long", qos=1, retain=False)
        )
        await go(node, mary)
        received.append(await inbox(bob))
    return received


MONITORS: list[Section] = [
    entering("renamed", map={"old/#": "a/#"}),
    entering("closed", **automaton("s", s=[{"on": "shut", "emit": []}])),
    entering("twice", dedupe="10s", on="twice"),
    leaving("after", only="door", after=["knock"]),
]


async def monitored_traffic(node: Served, version: int) -> Received:
    mary, bob = await come(node, "mary", version=version), await come(node, "bob", version=version)
    received: Received = [await bob.subscribe("#", qos=1)]
    for qos in (0, 1, 2):
        for topic in ("old/secret", "shut", "twice", "door", "knock", "door", "door", "a/secret"):
            await mary.publish(topic, b"%d" % qos, qos=qos)
    return [*received, await inbox(bob), await inbox(mary)]


async def demanding_traffic(node: Served, version: int) -> Received:
    """Views, preferences and demands. Only MQTT 5 can demand."""
    mary, bob, carol = [await come(node, name, version=version) for name in ("mary", "bob", "carol")]
    received: Received = [await end.subscribe("a/#", "v/#", qos=1) for end in (bob, carol)]
    opened = node.node.config.built.rules.policies is None  # an open node obeys demands, and a plain broker would not
    demand = [("require", "tls")] * (not opened) + [("other", "1")]
    properties = asking(*demand) if version == wire.V5 else wire.NONE
    for topic in ("a/x", "a/mine", "v/1"):
        await mary.publish(topic, b'{"a": 1, "b": 2}', qos=1, properties=properties)
        await mary.publish(topic, b'{"a": 1, "b": 2}', qos=0)
        await mary.publish(topic, b"no JSON", qos=0)
    return [*received, await inbox(bob), await inbox(carol)]


DEMANDING: Section = {
    "levels": {},
    "views": [
        {"id": "part", "topic": "v/#", "for": "user:carol", "keep": ["/a"]},
        {"id": "whole", "topic": "v/#", "for": "user:mary", "keep": "all"},
    ],
    "preferences": [{"id": "mine", "user": "mary", "topic": "a/mine", "when": "s.user == 'carol'"}],
}
SEALED: Section = {"keys": {"protect": ["a/x", "a/secret", "a/closed"]}}


def undemanded(received: Received) -> Received:
    """Without what an open node does not pass on, because it is said to a node; a broker passes it on."""
    plain: Received = []
    for each in received:
        if isinstance(each, list):
            each = [  # noqa: PLW2901
                replace(one, properties=replace(one.properties, user_properties=one.properties.user_properties[-1:]))
                for one in each
            ]
        plain.append(each)
    return plain


async def played(folder: Path, traffic: Traffic, version: int, kind: str, *rules: Section, **sections: Any) -> Any:
    folder.mkdir()
    async with door(folder, *rules, **sections) as node:
        received = await traffic(node, version)
        return received, await denials(node, kind)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(
    ("traffic", "sections"),
    [
        pytest.param(live_traffic, {}, id="live"),
        pytest.param(retained_traffic, {}, id="retained"),
        pytest.param(queued_traffic, {}, id="queued"),
        pytest.param(will_traffic, {}, id="wills"),
        pytest.param(monitored_traffic, {"monitors": MONITORS}, id="monitors"),
        pytest.param(demanding_traffic, DEMANDING, id="views, preferences and demands"),
        pytest.param(live_traffic, SEALED, id="protected topics"),
    ],
)
@on_uvloop
async def test_shadow_shows_what_is_open_and_says_what_is_enforced(
    tmp_path: Path, traffic: Traffic, sections: Section, version: int
) -> None:
    opened, _ = await played(tmp_path / "open", traffic, version, "deny", policies="open")
    shown, would = await played(tmp_path / "shadow", traffic, version, "shadow", *RULES, enforce=False, **sections)
    _, denied = await played(tmp_path / "enforce", traffic, version, "deny", *RULES, **sections)
    assert (undemanded(shown) if traffic is demanding_traffic else shown) == opened
    assert would == denied
    assert denied


async def held_traffic(node: Served, version: int) -> Received:
    """What is retained, and subscriptions that nobody allows; with MQTT 5 also one that is refused as a whole."""
    mary, bob, carol = [await come(node, name, version=version) for name in ("mary", "bob", "carol")]
    for retain in (True, False):
        await mary.publish("b/x", b"1", qos=1, retain=retain)
    received: Received = [await bob.subscribe("b/#", qos=1)]
    opened = node.node.config.built.rules.policies is None  # it would refuse this, and a plain broker would not
    unknown = asking(("require", "nothing known")) if version == wire.V5 and not opened else wire.NONE
    received.append(await carol.subscribe("b/#", qos=1, properties=unknown))
    await mary.publish("b/x", b"2", qos=1)
    return [*received, await inbox(bob), await inbox(carol)]


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_what_would_be_held_gets_nothing_retained(tmp_path: Path, version: int) -> None:
    rules, held = [policy("said", "b/#", "write")], {"subscribe": "hold"}
    opened, _ = await played(tmp_path / "open", held_traffic, version, "deny", policies="open")
    shown, would = await played(tmp_path / "shadow", held_traffic, version, "shadow", *rules, enforce=False, **held)
    _, denied = await played(tmp_path / "enforce", held_traffic, version, "deny", *rules, **held)
    assert shown == opened
    assert would == denied
    assert denied


LINKED: Section = {
    "scopes": {"house": {"parents": ["street"]}, "street": {}},
    "listeners": [
        {"url": "mqtt://127.0.0.1:PORT", "anonymous": True, "scope": "house"},
        {"url": "mqtt://127.0.0.1:STREET_PORT", "anonymous": True, "scope": "street"},
    ],
    "monitors": [{"id": "edge", "link": "house->street", "filter": ["a/#"]}],
}
ACROSS = (
    policy("all", "+/#"),
    policy("no", "a/secret", "read", subject="user:bob", effect="deny"),
    policy("way", "a/inside", "write", subject="link:house->street", effect="deny"),
    policy("big", "a/big", "read", effect="deny", when="o.size > 3"),
)


async def linked_traffic(node: Served, version: int) -> Received:
    mary, bob = [
        await come(node, name, version=version, port=port) for name, port in (("mary", "PORT"), ("bob", "STREET_PORT"))
    ]
    received: Received = [await bob.subscribe("#", qos=2)]
    for qos in (0, 1, 2):
        for topic in ("a/x", "a/secret", "a/inside", "a/big", "b/x"):
            await mary.publish(topic, b"%d-long" % qos, qos=qos)
    return [*received, await inbox(bob)]


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_over_links_between_scopes(tmp_path: Path, version: int) -> None:
    spaces = {name: section for name, section in LINKED.items() if name != "monitors"}
    opened, _ = await played(tmp_path / "open", linked_traffic, version, "deny", policies="open", **spaces)
    shown, would = await played(
        tmp_path / "shadow", linked_traffic, version, "shadow", *ACROSS, enforce=False, **LINKED
    )
    _, denied = await played(tmp_path / "enforce", linked_traffic, version, "deny", *ACROSS, **LINKED)
    assert shown == opened
    assert would == denied
    assert len(denied) >= 3


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_one_rule_is_watched_and_the_others_count(tmp_path: Path, version: int) -> None:
    watched = [{**rule, "enforce": False} if rule["id"] == "secret" else rule for rule in RULES]
    shown, would = await played(tmp_path / "watched", live_traffic, version, "shadow", *watched)
    without, _ = await played(
        tmp_path / "without", live_traffic, version, "deny", *(rule for rule in RULES if rule["id"] != "secret")
    )
    _, denied = await played(tmp_path / "enforced", live_traffic, version, "deny", *RULES)
    assert shown == without
    assert would == {key: count for key, count in denied.items() if key[0] == "secret"}
    assert would


@on_uvloop
async def test_a_watched_monitor_moves_and_suppresses_nothing(tmp_path: Path) -> None:
    monitors = [{**monitor, "enforce": False} for monitor in MONITORS]
    opened, _ = await played(tmp_path / "open", monitored_traffic, wire.V5, "deny", policies="open")
    shown, would = await played(tmp_path / "watched", monitored_traffic, wire.V5, "shadow", monitors=monitors)
    _, denied = await played(tmp_path / "enforced", monitored_traffic, wire.V5, "deny", monitors=MONITORS)
    assert shown == opened
    assert would == denied


@on_uvloop
async def test_wrong_passwords_are_wrong(tmp_path: Path) -> None:
    async with door(tmp_path, *RULES, enforce=False) as node:
        end = await node.socket()
        await end.send(
            wire.Connect(version=5, client_id="x", username="mary", password=b"no", clean_start=True, keep_alive=0)
        )
        assert (await end.expect(wire.Connack)).reason in (0x86, 0x87)


@on_uvloop
async def test_it_is_switched_with_the_next_message(tmp_path: Path) -> None:
    async with from_file(tmp_path, setting(*RULES, enforce=False)) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob")
        await bob.subscribe("a/#", qos=1)
        for enforced in (False, True, False):
            await node.reload(setting(*RULES, enforce=enforced))
            for qos in (0, 1):
                await mary.publish("a/secret", b"1", qos=qos)
                await mary.publish("a/x", b"2", qos=qos)
            assert [message.payload for message in await inbox(bob)] == ([b"2"] * 2 if enforced else [b"1", b"2"] * 2)
        said = await denials(node, "shadow")
        assert sum(count for key, count in said.items() if key[0] == "secret") == 4
