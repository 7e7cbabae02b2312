"""Levels by rank, facts besides levels, what CONNACK tells, and demands that nobody can meet, over real sockets.

Each test quotes the sentence of the specification that it holds the node to.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import Client
from processes import on_uvloop
from sockets.acts import ALL, Section, asking, come, door, go, inbox, payloads, policy, say, secure, setting
from tidegate import wire
from tidegate.config import parse
from tidegate.config.problems import ConfigErrors

INSIDE, OUTSIDE = "127.0.0.1", "127.0.0.2"
FACTS: Section = {"levels": {"facts": {"inside": f"s.address == '{INSIDE}'", "new": "s.tls.version == 'TLSv1.3'"}}}
UNKNOWN = 0x83


def told(end: Client) -> str | None:
    """The level and facts that CONNACK told."""
    return dict(end.connack.properties.user_properties).get("level")


# -- rank --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("s.level >= 'mtls'", [False, False, True, True]),
        ("s.level > 'tls'", [False, False, True, True]),
        ("s.level < 'mtls'", [True, True, False, False]),
        ("'tls' <= s.level", [False, True, True, True]),
        ("!(s.level <= 'plain')", [False, True, True, True]),
        ("s['level'] >= 'trusted'", [False, False, False, True]),
        ("s.level >= ['plain', 'mtls'][1]", [False, False, True, True]),
        ("['tls', 'mtls'].all(name, s.level >= name)", [False, False, True, True]),
        ("s.level in ['mtls', 'trusted']", [False, False, True, True]),
        ("s.level == 'tls'", [False, True, False, False]),
        ("'inside' in s.facts", [True, True, True, True]),
        ("has(s.facts) && size(s.facts) == 1", [True, False, False, False]),
    ],
)
@on_uvloop
async def test_levels_compare_by_rank_in_conditions(
    tmp_path: Path, certificates: Path, when: str, expected: list[bool]
) -> None:
    """*levels compare by rank, in conditions too: `s.level >= 'mtls'` means at least that rank*; `in` and `==` compare
    names."""
    trust = {"accept": ["CN=sensor"], "otherwise": "degrade"}
    rules = [policy("w", "#", "write", when=when), policy("r", "#", "read")]
    async with door(tmp_path, *rules, certificates=certificates, **FACTS) as node:
        ends = [
            await come(node, None, client="plain"),
            await come(node, None, client="tls", tls=secure(certificates)),
            await come(node, None, client="mtls", tls=secure(certificates, "sensor")),
        ]
        assert [await say(end, "t", qos=1) != 0x87 for end in ends] == expected[:3]
        await node.reload(setting(*rules, certificates=certificates, trust=trust, **FACTS))
        trusted = await come(node, None, client="trusted", tls=secure(certificates, "sensor"))
        assert (await say(trusted, "t", qos=1) != 0x87) is expected[3]


@on_uvloop
async def test_the_floor_compares_by_rank_for_readers_and_owners(tmp_path: Path, certificates: Path) -> None:
    """*levels compare by rank, in conditions too*: `p.floor` and `p.level`, in policies and preferences."""
    rules = [policy("w", "#", "write"), policy("r", "#", "read", when="p.floor >= 'tls'")]
    own = [{"id": "up", "user": "mary", "topic": "own", "when": "p.level >= 'mtls' || s.level >= p.level"}]
    async with door(tmp_path, *rules, certificates=certificates, preferences=own) as node:
        low, high = await come(node, "mary"), await come(node, "mary", client="m2", tls=secure(certificates))
        alice = await come(node, "alice")
        bob = await come(node, "bob", tls=secure(certificates))
        for end in (alice, bob):
            await end.subscribe("#")
        for end, name in ((low, b"low"), (high, b"high")):
            await say(end, "t", name)
            await say(end, "own", b"own " + name)
        assert await payloads(alice) == [b"high"]
        assert await payloads(bob) == [b"high", b"own high"]


@pytest.mark.parametrize(
    "section",
    [
        {"policies": [policy("p", when="s.level >= 'mtsl'")]},
        {"policies": [policy("p", when="s.level == 'mtsl'")]},
        {"policies": [policy("p", when="s.level in ['tls', 'mtsl']")]},
        {"policies": [policy("p", when="p.floor < 'mtsl'")]},
        {"preferences": [{"id": "u", "user": "mary", "topic": "t", "when": "p.level != 'mtsl'"}]},
        {
            "monitors": [
                {
                    "id": "m",
                    "scope": "main",
                    "direction": "im_pub",
                    "only": "a",
                    "after": ["b"],
                    "payload": "s.level > 'mtsl'",
                }
            ]
        },
    ],
)
def test_a_name_that_is_no_level_is_an_error_when_the_file_is_loaded(section: Section) -> None:
    """*a name that is no level is an error when the file is loaded*, with its place and what there is."""
    with pytest.raises(ConfigErrors) as caught:
        parse(setting(**section).replace("PORT", "1883"), "t.yaml")
    assert "'mtsl' is no level; there is plain, tls, mtls, trusted" in str(caught.value)
    levels = {"order": ["plain", "tls", "mtsl"], "define": {"mtsl": "true"}}
    config = parse(setting(**section, levels=levels).replace("PORT", "1883"), "t.yaml")
    assert config.built.rules.levels.order == ("plain", "tls", "mtsl")


@on_uvloop
async def test_publisher_rules_compare_by_rank_and_know_the_names(tmp_path: Path, certificates: Path) -> None:
    """The same for rules that a publisher sends: by rank, and a wrong name refuses the publication."""
    rules = [policy("w", "#", "write"), policy("w2", "$tidegate/rules", "write")]
    async with door(tmp_path, *rules, certificates=certificates, rules={"allow": ["#"]}, explain=True) as node:
        mary = await come(node, "mary")
        ends = await come(node, "alice"), await come(node, "bob", tls=secure(certificates))
        wrong = [{"id": "r", "topic": "t", "subject": "*", "when": "s.level >= 'warp'"}]
        right = [{"id": "r", "topic": "t", "subject": "*", "when": "s.level >= 'tls'"}]
        await mary.send(wire.Publish(topic="$tidegate/rules", payload=json.dumps(wrong).encode(), qos=1, packet_id=7))
        refused = await mary.expect(wire.Puback)
        assert refused.reason == 0x87
        assert "'warp' is no level" in (refused.properties.reason_string or "")
        await mary.send(wire.Publish(topic="$tidegate/rules", payload=json.dumps(right).encode(), qos=1, packet_id=8))
        assert (await mary.expect(wire.Puback)).reason < 0x80
        for end in ends:
            await end.subscribe("t")
        await say(mary, "t", b"x")
        assert [await payloads(end) for end in ends] == [[], [b"x"]]


# -- facts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        ("inside", {"in", "in tls"}),
        ("tls", {"in tls", "out tls"}),
        ("tls,inside", {"in tls"}),
        ("inside, tls", {"in tls"}),
        ("new,inside", {"in tls"}),
        ("plain,tls", {"in tls", "out tls"}),
        ("inside,none", {"in", "in tls"}),
        ("none", {"in", "out", "in tls", "out tls"}),
    ],
)
@on_uvloop
async def test_a_demand_is_a_list_of_levels_and_facts(
    tmp_path: Path, certificates: Path, demand: str, expected: set[str]
) -> None:
    """*`require` takes a list of levels and facts, all of which must hold on every link*: the publisher's against the
    connections of receivers, the subscriber's against the floor. TLS from outside does not meet `inside`."""
    async with door(tmp_path, certificates=certificates, **FACTS) as node:
        ends = {}
        for address, place in ((INSIDE, "in"), (OUTSIDE, "out")):
            ends[place] = await come(node, None, client=place, local=address)
            name = f"{place} tls"
            ends[name] = await come(node, None, client=name, local=address, tls=secure(certificates))
        picky = await come(node, "alice")
        assert (await picky.subscribe("up", qos=1, properties=asking(("require", demand)))).reasons == (1,)
        for name, end in ends.items():
            await end.subscribe("down", qos=1)
            await say(end, "up", name.encode(), qos=1)
        assert {payload.decode() for payload in await payloads(picky)} == expected
        mary = await come(node, "mary", tls=secure(certificates))
        for qos in (0, 1, 2):
            await say(mary, "down", b"x", ("require", demand), qos=qos)
        got = {name: len(await payloads(end)) for name, end in ends.items()}
        assert got == {name: 3 if name in expected else 0 for name in ends}


@on_uvloop
async def test_connack_and_the_floor_tell_level_and_facts(tmp_path: Path, certificates: Path) -> None:
    """*CONNACK tells an MQTT 5 client its level*; *`floor` [is a] comma-separated list*: the level, then the facts."""
    async with door(tmp_path, certificates=certificates, **FACTS) as node:
        alice = await come(node, "alice")
        await alice.subscribe("t", qos=1)
        for tls, local, expected in (
            (None, INSIDE, "plain,inside"),
            (None, OUTSIDE, "plain"),
            (secure(certificates), INSIDE, "tls,inside,new"),
            (secure(certificates, "sensor"), OUTSIDE, "mtls,new"),
        ):
            end = await come(node, None, client="c", tls=tls, local=local)
            assert told(end) == expected
            for qos in (0, 1):
                await say(end, "t", qos=qos)
            floors = [dict(message.properties.user_properties)["floor"] for message in await inbox(alice)]
            assert floors == [expected] * 2
            await go(node, end)
        old = await come(node, None, client="old", version=wire.V311)
        assert old.connack.properties == wire.NONE


@on_uvloop
async def test_a_connack_that_would_be_too_long_leaves_the_level_out(tmp_path: Path) -> None:
    """[MQTT-3.2.2-20] user properties are left out where the packet would be longer than the client takes."""
    async with door(tmp_path) as node:
        end = await come(node, None, client="c", properties=wire.Properties(maximum_packet_size=24))
        assert end.connack.reason == 0
        assert told(end) is None
        assert told(await come(node, None, client="d")) == "plain"


@on_uvloop
async def test_conditions_read_the_facts(tmp_path: Path) -> None:
    """*`p.floor` is the floor's level, `p.facts` its facts*; `s.facts` those of the reader's connection."""
    rules = [
        policy("w", "#", "write"),
        policy("r", "p", "read", when="'inside' in p.facts && p.floor == 'plain'"),
        policy("r2", "s", "read", when="'inside' in s.facts"),
    ]
    async with door(tmp_path, *rules, **FACTS) as node:
        near, far = [await come(node, None, client=at, local=at) for at in (INSIDE, OUTSIDE)]
        readers = [await come(node, None, client=f"to {at}", local=at) for at in (INSIDE, OUTSIDE)]
        for end in readers:
            await end.subscribe("#", qos=1)
        for end, name in ((near, b"near"), (far, b"far")):
            await say(end, "p", name)
            await say(end, "s", b"x")
        assert [await payloads(end) for end in readers] == [[b"near", b"x", b"x"], [b"near"]]


@on_uvloop
async def test_links_inside_a_node_have_all_facts(tmp_path: Path) -> None:
    """*links inside a node have the highest level and all facts*; `signed` is a fact of messages, not of links."""
    rules = [ALL, policy("sys", "$SYS/#", "read")]
    async with door(tmp_path, *rules, **FACTS, sys={"interval": "1h"}) as node:
        alice = await come(node, "alice")
        await alice.subscribe("$SYS/broker/version", properties=asking(("require", "trusted,inside,new")))
        (message,) = await inbox(alice)
        assert message.properties.user_properties == (("floor", "trusted,inside,new"),)


@on_uvloop
async def test_facts_stay_with_what_is_queued_and_retained(tmp_path: Path) -> None:
    """*floor = min over the links crossed so far*, also for what waits: facts that are known no more are not held."""
    async with door(tmp_path, **FACTS) as node:
        near, far = [await come(node, None, client=at, local=at) for at in (INSIDE, OUTSIDE)]
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("q", qos=1, properties=asking(("require", "inside")))
        await go(node, alice)
        for end, name in ((near, b"near"), (far, b"far")):
            await say(end, "q", name, qos=1)
            await say(end, f"kept/{name.decode()}", name, qos=1, retain=True)
        alice = await come(node, "alice", stays=True)
        assert await payloads(alice) == [b"near"]
        await alice.subscribe("kept/+", properties=asking(("require", "inside")))
        assert await payloads(alice) == [b"near"]
        await node.reload(setting(levels={"facts": {"other": "true"}}))
        await say(near, "q", b"now", qos=1)
        assert await payloads(alice) == []  # its own demand names nothing any more: nothing meets it


# -- demands that name nothing known -----------------------------------------------------------------------------

WRONG = [("require", "warp"), ("require", "tls,warp"), ("require", ""), ("require", "tls,,"), ("s", "9"), ("s", "tls")]


@pytest.mark.parametrize("demand", WRONG)
@on_uvloop
async def test_a_demand_that_names_nothing_known_is_refused(tmp_path: Path, demand: tuple[str, str]) -> None:
    """*a demand that names nothing known is refused, not granted*: in CONNECT, in its will, in PUBLISH and in
    SUBSCRIBE, with a reason that says what there is."""
    async with door(tmp_path) as node:
        will = wire.Will(topic="t", payload=b"x", qos=0, retain=False, properties=asking(demand))
        for refused in (
            await come(node, None, client="c", asks=[demand], expect=UNKNOWN),
            await come(node, None, client="c", will=will, expect=UNKNOWN),
        ):
            assert "is no level and no fact here; require one of plain, tls" in (
                refused.connack.properties.reason_string or ""
            )
        mary, alice = await come(node, "mary"), await come(node, "alice")
        granted = await alice.subscribe("t", "u", qos=1, properties=asking(demand))
        assert granted.reasons == (UNKNOWN, UNKNOWN)
        assert "is no level and no fact here" in (granted.properties.reason_string or "")
        assert (await alice.subscribe("t", qos=2)).reasons == (2,)
        for qos in (0, 1, 2):
            reason = await say(mary, "t", b"x", demand, qos=qos)
            assert reason == (UNKNOWN if qos else 0)
        await mary.send(wire.Publish(topic="t", payload=b"x", qos=1, packet_id=99, properties=asking(demand)))
        answer = await mary.expect(wire.Puback)
        assert "is no level and no fact here" in (answer.properties.reason_string or "")
        assert await say(mary, "t", b"kept", demand, qos=1, retain=True) == UNKNOWN
        assert await payloads(alice) == []
        late = await come(node, "bob")
        await late.subscribe("t")
        assert await payloads(late) == []
