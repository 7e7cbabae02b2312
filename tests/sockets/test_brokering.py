"""Brokering through sockets: by the types of both links, for everything that is delivered, at the moment of sending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import Client
from processes import Served, from_file, on_uvloop
from sockets.acts import (
    BOTH,
    PEOPLE,
    Section,
    asking,
    come,
    dismissed,
    door,
    go,
    inbox,
    marked,
    payloads,
    policy,
    say,
    setting,
    user,
)
from tidegate import wire
from tidegate.store.journal.rows import AuditRow

TYPES: Section = {
    "allow": [["sensor", "display"]],
    "assign": [{"client": "role:meter", "in": "sensor"}, {"client": "role:screen", "out": "display"}],
}
LABELS: Section = {
    "preset": "blp",
    "order": {"secret": ["nurses", "labs"], "nurses": ["public"], "labs": ["public"]},
    "assign": [
        {"client": "role:doctor", "in": "secret", "out": "secret"},
        {"client": "role:nurse", "in": "secret", "out": "nurses"},
        {"client": "role:lab", "in": "labs", "out": "public"},
    ],
}


def people(**roles: str) -> Section:
    """mary, alice, bob and carol, some with a role."""
    return {"users": {**PEOPLE, **{name: user(role) for name, role in roles.items()}}}


def rules(brokering: Section = TYPES, *, data: bool = False, **roles: str) -> str:
    """By default mary measures and alice has a screen; bob and carol have no types."""
    found = people(**(roles or {"mary": "meter", "alice": "screen"}))
    return setting(brokering=brokering, directory=found, data=data)


async def rows(node: Served) -> list[AuditRow]:
    return [AuditRow(*row) async for piece in node.node.audit.stream() for row in piece]


async def voices(node: Served, *names: str, version: int = wire.V5) -> list[Client]:
    """A second connection of each, which only publishes."""
    return [await come(node, name, client=f"{name}'s voice", version=version) for name in names]


async def subscribed(*ends: Client, filter: str = "t", qos: int = 2) -> None:
    """Everybody is granted it: only deliveries are decided."""
    for end in ends:
        assert (await end.subscribe(filter, qos=qos)).reasons == (qos,)


# -- own types -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_live(tmp_path: Path, version: int, qos: int) -> None:
    async with from_file(tmp_path, rules()) as node:
        mary, carol = await come(node, "mary", version=version), await come(node, "carol", version=version)
        screens = [await come(node, "alice", client=f"alice-{each}", version=each) for each in BOTH]
        others = [await come(node, "bob", client=f"bob-{each}", version=each) for each in BOTH]
        await subscribed(*screens, *others)
        for number in range(3):
            await say(mary, "t", b"%d" % number, qos=qos)
            await say(carol, "t", b"nobody's", qos=qos)
        for end in screens:
            assert await payloads(end) == [b"0", b"1", b"2"]
        for end in others:
            assert await payloads(end) == []
        found = {(row.stage, row.rule) for row in await rows(node) if row.kind == "deny"}
        assert found == {
            ("brokering", "brokering:sensor->untyped"),
            ("brokering", "brokering:untyped->display"),
            ("brokering", "brokering:untyped->untyped"),
        }


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_retained(tmp_path: Path, version: int) -> None:
    async with from_file(tmp_path, rules()) as node:
        mary, carol = await come(node, "mary", version=version), await come(node, "carol", version=version)
        await say(mary, "t/1", b"measured", qos=1, retain=True)
        await say(carol, "t/2", b"nobody's", qos=1, retain=True)
        alice, bob = await come(node, "alice", version=version), await come(node, "bob", version=version)
        await subscribed(alice, bob, filter="t/#")
        assert (await payloads(alice), await payloads(bob)) == ([b"measured"], [])


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_queued(tmp_path: Path, version: int, qos: int) -> None:
    """What waits for who is away; alice's role is gone when she comes back a second time."""
    async with from_file(tmp_path, rules()) as node:
        mary = await come(node, "mary", version=version)
        alice, bob = [await come(node, name, version=version, stays=True) for name in ("alice", "bob")]
        await subscribed(alice, bob)
        await go(node, alice, bob)
        await say(mary, "t", b"1", qos=qos)
        alice, bob = [await come(node, name, version=version, stays=True) for name in ("alice", "bob")]
        assert (await payloads(alice), await payloads(bob)) == ([b"1"], [])
        await go(node, alice)
        await say(mary, "t", b"2", qos=qos)
        await node.reload(rules(mary="meter", bob="screen"))
        await say(mary, "t", b"3", qos=qos)
        alice = await come(node, "alice", version=version, stays=True)
        assert alice.connack.session_present
        assert (await payloads(alice), await payloads(bob)) == ([], [b"3"])


@pytest.mark.parametrize("qos", [0, 1, 2])
@on_uvloop
async def test_behind_a_window(tmp_path: Path, qos: int) -> None:
    """What waits for somebody who is there is decided again when there is room."""
    async with from_file(tmp_path, rules()) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", properties=asking(receive_maximum=1))
        await subscribed(alice)
        for payload in (b"1", b"2", b"3"):
            await say(mary, "t", payload, qos=qos)
        await node.reload(rules(mary="meter", alice="guest"))
        found = await payloads(alice)
        assert found == ([b"1", b"2", b"3"] if qos == 0 else [b"1"])


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_shared(tmp_path: Path, version: int, qos: int) -> None:
    """The receiver is chosen among the members that are allowed this message."""
    async with from_file(tmp_path, rules()) as node:
        mary, alice, bob = [await come(node, name, version=version) for name in ("mary", "alice", "bob")]
        await subscribed(alice, bob, filter="$share/g/t")
        for number in range(4):
            await say(mary, "t", b"%d" % number, qos=qos)
        assert (await payloads(alice), await payloads(bob)) == ([b"0", b"1", b"2", b"3"], [])
        await node.reload(rules(mary="meter", bob="screen"))
        for number in range(4, 8):
            await say(mary, "t", b"%d" % number, qos=qos)
        assert (await payloads(alice), await payloads(bob)) == ([], [b"4", b"5", b"6", b"7"])


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_wills(tmp_path: Path, version: int) -> None:
    """A will comes over its client's link, by the type that has when it fires."""
    async with from_file(tmp_path, rules(mary="meter", alice="screen", bob="meter")) as node:
        alice = await come(node, "alice", version=version)
        await subscribed(alice, filter="gone/+")
        leaving = {
            name: await come(
                node,
                name,
                version=version,
                will=wire.Will(topic=f"gone/{name}", payload=name.encode(), qos=1, retain=False),
            )
            for name in ("mary", "carol", "bob")
        }
        await go(node, leaving["mary"], leaving["carol"])
        assert await payloads(alice) == [b"mary"]
        await node.reload(rules(mary="meter", alice="screen", bob="guest"))
        await go(node, leaving["bob"])
        assert await payloads(alice) == []


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_roles_and_pairs_that_change_while_everybody_is_there(tmp_path: Path, version: int) -> None:
    async with from_file(tmp_path, rules()) as node:
        mary, alice, bob = [await come(node, name, version=version) for name in ("mary", "alice", "bob")]
        await subscribed(mary, alice, bob)

        voice, other = await voices(node, "mary", "alice", version=version)

        async def heard(speaker: Client) -> list[str]:
            await say(speaker, "t", b"x", qos=1)
            return [name for name, end in (("mary", mary), ("alice", alice), ("bob", bob)) if await inbox(end)]

        assert await heard(voice) == ["alice"]
        await node.reload(rules(mary="meter", bob="screen"))
        assert await heard(voice) == ["bob"]
        await node.reload(rules(mary="screen", alice="meter", bob="screen"))
        assert await heard(voice) == []
        assert await heard(other) == ["mary", "bob"]
        await node.reload(rules({**TYPES, "allow": [["display", "sensor"]]}, alice="meter", bob="screen"))
        assert await heard(other) == []
        await node.reload(rules({}))
        assert await heard(other) == ["mary", "alice", "bob"]
        await node.reload(rules())
        assert await heard(voice) == ["alice"]


@on_uvloop
async def test_the_default_is_for_everybody_else(tmp_path: Path) -> None:
    types = {**TYPES, "allow": [*TYPES["allow"], ["guest", "guest"]], "default": {"in": "guest", "out": "guest"}}
    async with from_file(tmp_path, rules(types)) as node:
        mary, alice, bob = [await come(node, name) for name in ("mary", "alice", "bob")]
        nobody = await come(node, None, client="nobody")
        await subscribed(mary, alice, bob, nobody)
        greeting, measuring = await voices(node, "bob", "mary")
        await say(greeting, "t", b"hello")
        await say(measuring, "t", b"21")
        assert (await payloads(bob), await payloads(nobody)) == ([b"hello"], [b"hello"])
        assert (await payloads(mary), await payloads(alice)) == ([b"hello"], [b"21"])


@on_uvloop
async def test_stored_messages_keep_their_type_by_name_over_a_restart(tmp_path: Path) -> None:
    renamed = {
        "allow": [["meter", "display"]],
        "assign": [{"client": "role:meter", "in": "meter"}, {"client": "*", "out": "display"}],
    }
    marks: dict[str, Any] = {"allow": [["sensor", "display"]], "assign": [{"client": "*", "in": "sensor"}]}
    marks["default"] = {"out": "display"}
    async with from_file(tmp_path, rules(marks, data=True)) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        await subscribed(alice, filter="#")
        await go(node, alice)
        await say(mary, "t/queued", b"1", qos=2)
        await say(mary, "t/retained", b"2", qos=1, retain=True)
    async with from_file(tmp_path, rules(renamed, data=True, mary="meter", bob="meter")) as node:
        alice = await come(node, "alice", stays=True)
        assert alice.connack.session_present
        assert await marked(alice, node) == []
        await alice.subscribe("t/retained")
        assert await marked(alice, node) == []
        await say(await come(node, "mary"), "t/retained", b"3", qos=1)
        assert await marked(alice, node) == [b"3"]
    async with from_file(tmp_path, rules(marks, data=True)) as node:
        alice = await come(node, "alice", client="another")
        await alice.subscribe("t/#")
        assert await payloads(alice) == [b"2"]


@on_uvloop
async def test_statistics_of_the_node_are_of_no_type(tmp_path: Path) -> None:
    async with door(
        tmp_path, policy("sys", "$SYS/#", "read"), brokering=TYPES, directory=people(), sys={"interval": "1s"}
    ) as node:
        for version in BOTH:
            bob = await come(node, "bob", version=version, client=f"bob-{version}")
            await subscribed(bob, filter="$SYS/broker/version", qos=0)
            assert (await bob.message()).topic == "$SYS/broker/version"


# -- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_labels_never_fall(tmp_path: Path, version: int) -> None:
    text = rules(LABELS, mary="doctor", alice="nurse", bob="lab")
    async with from_file(tmp_path, text) as node:
        ends = {name: await come(node, name, version=version) for name in ("mary", "alice", "bob")}
        await subscribed(*ends.values())
        speakers = dict(zip(ends, await voices(node, *ends, version=version), strict=True))
        heard = {}
        for name, speaker in speakers.items():
            await say(speaker, "t", b"x", qos=1)
            heard[name] = [other for other, each in ends.items() if await payloads(each)]
        # what a lab says is no nurse's to read, and what nurses and doctors say is secret
        assert heard == {"mary": ["mary"], "alice": ["mary"], "bob": ["mary"]}
        lower = {**LABELS, "assign": [{"client": "role:lab", "in": "public", "out": "public"}, *LABELS["assign"]]}
        await node.reload(rules(lower, mary="doctor", alice="nurse", bob="lab"))
        await say(speakers["bob"], "t", b"y", qos=1)
        assert [name for name, end in ends.items() if await payloads(end)] == ["mary", "alice", "bob"]


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_without_a_label_nobody_connects(tmp_path: Path, version: int) -> None:
    async with from_file(tmp_path, rules(LABELS, mary="doctor")) as node:
        refused = wire.Reason.NOT_AUTHORIZED if version == wire.V5 else 5
        alice = await come(node, "alice", version=version, expect=refused)
        if version == wire.V5:
            assert alice.connack.properties.reason_string == "brokering: no label is assigned to you"
        assert await alice.closed() == b""
        await come(node, None, client="nobody", version=version, expect=refused)
        await come(node, "mary", version=version)
        found = [row for row in await rows(node) if row.detail and "no label" in row.detail]
        assert [(row.kind, row.user, row.client) for row in found] == [
            ("deny", "alice", "alice"),
            ("deny", None, "nobody"),
        ]


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_who_loses_its_label_has_to_go(tmp_path: Path, version: int) -> None:
    async with from_file(tmp_path, rules(LABELS, mary="doctor", alice="nurse")) as node:
        mary = await come(node, "mary", version=version)
        will = wire.Will(topic="t", payload=b"gone", qos=0, retain=False)
        alice = await come(node, "alice", version=version, will=will)
        await subscribed(mary)
        await node.reload(rules(LABELS, mary="doctor"))
        await dismissed(alice, wire.Reason.NOT_AUTHORIZED)
        assert await payloads(mary) == []
