"""Levels, demands, the floor, and who is trusted, over real plain and TLS sockets.

Each test quotes the sentence of the specification that it holds the node to.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import websockets
from websockets.typing import Subprotocol

from harness import Client
from processes import Served, from_file, on_uvloop
from sockets.acts import (
    ALL,
    BOTH,
    Section,
    asking,
    come,
    content,
    dismissed,
    door,
    go,
    inbox,
    payloads,
    policy,
    say,
    secure,
    setting,
    user,
)
from sockets.holding import Holder, denials, gated
from tidegate import wire
from tidegate.cli import certificates as cli

BODY = {"a": 1, "b": 1}
TLS = ("require", "tls")
LEVELS: Section = {"levels": {}}


async def floors(end: Client) -> list[str | None]:
    """Of everything it has been sent, the floor it was told."""
    return [dict(m.properties.user_properties).get("floor") for m in await inbox(end)]


# -- demands -----------------------------------------------------------------------------------------------------

DEMANDS: list[tuple[list[tuple[str, str]], list[tuple[str, str]], bool]] = [
    # on CONNECT, on PUBLISH, whether a plain subscriber gets it
    ([], [], True),
    ([TLS], [], False),
    ([], [TLS], False),
    ([TLS], [("require", "none")], True),
    ([("require", "none")], [TLS], False),
    ([], [("require", "plain")], True),
    ([TLS], [("require", "plain")], True),
    ([("s", "1")], [], False),
    ([], [("s", "1")], False),
    ([], [("s", "0")], True),
    ([], [("require", "none"), TLS], False),
    ([], [TLS, ("require", "none")], False),
    ([], [("require", "plain"), ("s", "1")], False),
    ([], [("require", "unknown")], False),
    ([], [("require", "unknown"), ("require", "none")], False),
    ([], [("require", "")], False),
    ([], [("require", "TLS")], False),
    ([], [("s", "4")], False),
    ([], [("s", "99999999999")], False),
    ([], [("s", "-1")], False),
    ([], [("s", "")], False),
    ([], [("s", "one")], False),
]


@pytest.mark.parametrize(("connect", "publish", "plain"), DEMANDS)
@on_uvloop
async def test_what_the_publisher_demands(
    tmp_path: Path,
    certificates: Path,
    connect: list[tuple[str, str]],
    publish: list[tuple[str, str]],
    plain: bool,
) -> None:
    """*`require` as MQTT 5 user property (short form `s` with the level's rank) on CONNECT = for everything after, on
    PUBLISH = for that message …; `none` relaxes.* *publisher demands D: the message crosses only links with level ≥ D*;
    *a name unknown there denies*"""
    async with door(tmp_path, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates), asks=connect)
        alice, bob = await come(node, "alice"), await come(node, "bob", tls=secure(certificates))
        for end in (alice, bob):
            await end.subscribe("t", qos=1)
        for qos in (0, 1, 2):
            await say(mary, "t", BODY, *publish, qos=qos)
        await say(mary, "kept", BODY, *publish, qos=1, retain=True)
        said = publish or connect
        met = plain or (all(value in ("tls", "plain", "none", "1") for _, value in said))
        for end, expected in ((alice, plain), (bob, met)):
            assert len(await payloads(end)) == (3 if expected else 0)
            await end.subscribe("kept")
            assert len(await payloads(end)) == (1 if expected else 0)


@pytest.mark.parametrize(
    ("connect", "subscribe", "plain"),
    [
        ([], [], True),
        ([TLS], [], False),
        ([], [TLS], False),
        ([TLS], [("require", "none")], True),
        ([], [("s", "1")], False),
        ([], [("require", "unknown")], None),
        ([("require", "unknown")], [], None),
        ([], [("s", "7")], None),
        ([], [TLS, ("require", "none")], False),
    ],
)
@on_uvloop
async def test_what_the_subscriber_demands(
    tmp_path: Path,
    certificates: Path,
    connect: list[tuple[str, str]],
    subscribe: list[tuple[str, str]],
    plain: bool | None,
) -> None:
    """*subscriber demands D: it receives only messages whose floor ≥ D*: live, retained and queued; on SUBSCRIBE *for
    that subscription*."""
    async with door(tmp_path, certificates=certificates) as node:
        low, high = await come(node, "mary"), await come(node, "bob", tls=secure(certificates))
        await say(low, "kept/low", b"low", qos=1, retain=True)
        await say(high, "kept/high", b"high", qos=1, retain=True)
        if connect == [("require", "unknown")]:  # a demand that names nothing known is refused, not granted
            await come(node, "alice", asks=connect, stays=True, expect=0x83)
            return
        alice = await come(node, "alice", asks=connect, stays=True)
        await alice.subscribe("+/+", qos=1, properties=asking(*subscribe))
        expected = {True: [b"high", b"low"], False: [b"high"], None: []}[plain]
        assert sorted(await payloads(alice)) == expected
        for end, body in ((low, b"low"), (high, b"high")):
            await say(end, "t/t", body, qos=0)
        assert sorted(await payloads(alice)) == expected
        await go(node, alice)
        for end, body in ((low, b"low"), (high, b"high")):
            await say(end, "t/t", body, qos=1)
        alice = await come(node, "alice", asks=connect, stays=True)
        assert sorted(await payloads(alice)) == expected
        await alice.subscribe("other/#", qos=1)  # another subscription demands nothing of its own
        await say(low, "other/x/y", b"low", qos=1)
        assert await payloads(alice) == ([b"low"] if not connect else [])


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_implied_covers_unchanged_clients(tmp_path: Path, certificates: Path, version: int) -> None:
    """*`levels.implied: true` makes each connection demand its own level unless relaxed, so unchanged clients are
    covered*: the four cases of plain and TLS, and both ways to relax."""
    async with door(tmp_path, certificates=certificates, levels={"implied": True}) as node:
        low = await come(node, "mary", version=version)
        high = await come(node, "bob", version=version, tls=secure(certificates))
        lower = await come(node, "alice", version=version)
        higher = await come(node, "carol", version=version, tls=secure(certificates))
        for end in (lower, higher):
            await end.subscribe("t", qos=1)
        for qos in (0, 1, 2):
            await say(low, "t", b"low", qos=qos)
            await say(high, "t", b"high", qos=qos)
        assert await payloads(lower) == [b"low"] * 3
        assert await payloads(higher) == [b"high"] * 3
        if version == wire.V5:
            await say(high, "t", b"relaxed", ("require", "none"))
            assert await payloads(lower) == await payloads(higher) == [b"relaxed"]
            await higher.subscribe("t", properties=asking(("require", "none")))
            await say(low, "t", b"low")
            assert await payloads(higher) == [b"low"]


@on_uvloop
async def test_none_on_connect_relaxes_what_is_implied(tmp_path: Path, certificates: Path) -> None:
    """*`none` relaxes*: on CONNECT for everything after, also for what is stored of it."""
    async with door(tmp_path, certificates=certificates, levels={"implied": True}) as node:
        mary = await come(node, "mary", tls=secure(certificates), asks=[("require", "none")])
        strict = await come(node, "mary", client="strict", tls=secure(certificates))
        await say(mary, "t/relaxed", BODY, qos=1, retain=True)
        await say(strict, "t/strict", BODY, qos=1, retain=True)
        alice = await come(node, "alice")
        await alice.subscribe("t/#")
        assert [m.topic for m in await inbox(alice)] == ["t/relaxed"]


@on_uvloop
async def test_configured_levels_and_their_ranks(tmp_path: Path, certificates: Path) -> None:
    """*further levels are configured by a predicate over the connection's facts*; `s` is the rank in their order."""
    levels = {
        "order": ["plain", "lab", "tls", "strong"],
        "define": {"lab": "cidr(s.address, '127.0.0.0/8')", "strong": "s.tls.version == 'TLSv1.3'"},
    }
    async with door(tmp_path, certificates=certificates, levels=levels) as node:
        weak = secure(certificates)
        weak.maximum_version = ssl.TLSVersion.TLSv1_2
        ends = [
            await come(node, "alice"),
            await come(node, "bob", tls=weak),
            await come(node, "carol", tls=secure(certificates)),
        ]
        for end in ends:
            await end.subscribe("t")
        mary = await come(node, "mary", tls=secure(certificates))
        for rank in range(5):
            await say(mary, "t", b"%d" % rank, ("s", str(rank)))
        assert [await payloads(end) for end in ends] == [
            [b"0", b"1"],
            [b"0", b"1", b"2"],
            [b"0", b"1", b"2", b"3"],
        ]


# -- the connection at the moment of sending ---------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_what_waited_is_sent_only_over_a_connection_that_is_good_enough(
    tmp_path: Path, certificates: Path, qos: int
) -> None:
    """*What counts is the connection actually used at the moment of sending (resumed session … included).* Queued for
    a session that was on TLS, it is not sent when that comes back over plain; and the other way round it is."""
    async with door(tmp_path, certificates=certificates, **LEVELS) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        for before, after, expected in ((True, False, []), (False, True, [BODY]), (True, True, [BODY])):
            contexts = {True: secure(certificates), False: None}
            client = f"{before} {after}"
            alice = await come(node, "alice", client=client, stays=True, tls=contexts[before])
            await alice.subscribe("t", qos=qos)
            await go(node, alice)
            await say(mary, "t", BODY, TLS, qos=qos)
            alice = await come(node, "alice", client=client, stays=True, tls=contexts[after])
            assert await content(alice) == expected
            await say(mary, "t", BODY, qos=0)
            assert await floors(alice) == ["tls"]
            await go(node, alice)


@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_what_was_on_its_way_is_not_sent_again_over_a_worse_connection(
    tmp_path: Path, certificates: Path, qos: int
) -> None:
    """*In-flight packets that are now denied are not sent again*, because the connection is another one."""
    async with door(tmp_path, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", stays=True, tls=secure(certificates))
        await alice.subscribe("t", qos=qos)
        await say(mary, "t", b"high", TLS, qos=qos)
        await say(mary, "t", b"any", qos=qos)
        assert [(await alice.expect(wire.Publish)).payload for _ in range(2)] == [b"high", b"any"]
        await go(node, alice)
        alice = await come(node, "alice", stays=True)
        assert [(m.payload, m.dup) for m in await inbox(alice)] == [(b"any", True)]


@pytest.mark.parametrize("take_over", [False, True])
@on_uvloop
async def test_live_messages_follow_the_connection(tmp_path: Path, certificates: Path, take_over: bool) -> None:
    """The same for a plan that was made while the session was on TLS: it is made anew for the next connection."""
    async with door(tmp_path, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", stays=True, tls=secure(certificates))
        await alice.subscribe("t", qos=1)
        for tls in (None, secure(certificates), None):
            for _ in range(2):
                await say(mary, "t", BODY, TLS)
            expected = 2 if alice.writer.get_extra_info("ssl_object") else 0
            assert len(await inbox(alice)) == expected
            if not take_over:
                await go(node, alice)
            alice = await come(node, "alice", stays=True, tls=tls)


@on_uvloop
async def test_retained_messages_follow_the_connection(tmp_path: Path, certificates: Path) -> None:
    """*The message crosses only links with level ≥ D … up to and including the subscriber's connection*; a demand stays
    with what is retained, whoever is gone."""
    async with door(tmp_path, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        await say(mary, "t", BODY, TLS, qos=1, retain=True)
        await go(node, mary)
        for tls, expected in ((None, []), (secure(certificates), [BODY])):
            alice = await come(node, "alice", tls=tls)
            await alice.subscribe("t")
            assert await content(alice) == expected


@on_uvloop
async def test_a_level_that_changes_with_the_rules_counts_at_once(tmp_path: Path, certificates: Path) -> None:
    """*Each connection has a level from facts*: with other levels another one, for connections that are there."""
    good = {"order": ["plain", "good"], "define": {"good": "s.address == '127.0.0.1'"}}
    bad = {"order": ["plain", "good"], "define": {"good": "s.address == '127.0.0.2'"}}
    async with door(tmp_path, levels=good) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t")
        await say(mary, "t", BODY, ("require", "good"))
        assert await floors(alice) == ["good"]
        await node.reload(setting(levels=bad))
        await say(mary, "t", BODY, ("require", "good"))
        await say(mary, "t", BODY)
        assert await floors(alice) == ["plain"]


# -- the floor ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_subscribers_are_told_the_floor(tmp_path: Path, certificates: Path, version: int) -> None:
    """*MQTT 5 subscribers are told the floor in the user property `floor`*, whichever way the message takes."""
    async with door(tmp_path, certificates=certificates, **LEVELS) as node:
        low = await come(node, "mary", version=version)
        high = await come(node, "bob", version=version, tls=secure(certificates))
        alice, old = await come(node, "alice"), await come(node, "carol", version=wire.V311)
        for end in (alice, old):
            await end.subscribe("t", qos=2)
        for publisher, floor in ((low, "plain"), (high, "tls")):
            for qos in (0, 0, 1, 2):
                await say(publisher, "t", BODY, qos=qos)
            assert await floors(alice) == [floor] * 4
            assert len(await inbox(old)) == 4


@pytest.mark.parametrize("place", ["publish", "will", "retained", "queued"])
@on_uvloop
async def test_a_publisher_cannot_forge_the_floor(tmp_path: Path, place: str) -> None:
    """*floor = min over the links crossed so far …; it never rises*: what a publisher says of it is not passed on."""
    forged = (("floor", "trusted"), ("a", "1"), ("floor", "tls"))
    async with door(tmp_path, **LEVELS) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        if place != "retained":
            await alice.subscribe("t", qos=1)
        if place == "queued":
            await go(node, alice)
        if place == "will":
            will = wire.Will(topic="t", payload=b"x", qos=1, retain=False, properties=asking(*forged))
            await go(node, await come(node, "bob", will=will))
        else:
            await say(mary, "t", BODY, *forged, qos=1, retain=place == "retained")
        if place == "queued":
            alice = await come(node, "alice", stays=True)
        if place == "retained":
            await alice.subscribe("t", qos=1)
        (found,) = await inbox(alice)
        assert found.properties.user_properties == (("a", "1"), ("floor", "plain"))


@pytest.mark.parametrize("where", ["o.properties.floor == 'trusted'", "p.floor == 'trusted'"])
@on_uvloop
async def test_a_forged_floor_convinces_no_policy(tmp_path: Path, where: str) -> None:
    """The same for conditions: `p.floor` is the node's."""
    rules = [policy("w", "#", "write"), policy("r", "#", "read", when=where)]
    async with door(tmp_path, *rules, **LEVELS) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t")
        await say(mary, "t", BODY, ("floor", "trusted"))
        assert await inbox(alice) == []


@on_uvloop
async def test_a_floor_forged_before_the_node_tells_it_is_not_believed_later(tmp_path: Path) -> None:
    """The same for what was stored before `levels:` was written into the configuration."""
    async with door(tmp_path) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        await alice.subscribe("queued", qos=1)
        await go(node, alice)
        for topic in ("kept", "queued"):
            await say(mary, topic, BODY, ("floor", "trusted"), qos=1, retain=topic == "kept")
        await node.reload(setting(**LEVELS))
        alice = await come(node, "alice", stays=True)
        found = await inbox(alice)
        await alice.subscribe("kept", qos=1)
        found += await inbox(alice)
        assert [m.topic for m in found] == ["queued", "kept"]
        said = {pair for message in found for pair in message.properties.user_properties}
        assert said <= {("floor", "plain")}


@on_uvloop
async def test_instructions_are_not_passed_on(tmp_path: Path) -> None:
    """User properties `require`, `s` and `view` are said to the node, not to the receivers."""
    async with door(tmp_path, **LEVELS) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t")
        await say(mary, "t", BODY, ("require", "plain"), ("own", "1"), ("s", "0"), ("view", '{"*": "all"}'))
        (found,) = await inbox(alice)
        assert found.properties.user_properties == (("own", "1"), ("floor", "plain"))


@on_uvloop
async def test_a_partial_view_leaves_the_nodes_floor_and_nothing_else(tmp_path: Path) -> None:
    """*user properties count as content*; the floor is not the publisher's."""
    views = [{"id": "v", "topic": "t", "for": "user:alice", "keep": ["/a"]}]
    async with door(tmp_path, views=views, **LEVELS) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t")
        await say(mary, "t", BODY, ("own", "1"), ("floor", "secret"))
        assert [m.properties.user_properties for m in await inbox(alice)] == [(("floor", "plain"),)]


@pytest.mark.parametrize("implied", [False, True])
@on_uvloop
async def test_links_inside_a_node_have_the_highest_level(tmp_path: Path, certificates: Path, implied: bool) -> None:
    """*Links inside a node have the highest level*: its statistics are good enough for anybody."""
    rules = [ALL, policy("sys", "$SYS/#", "read")]
    sections: Section = {"certificates": certificates, "levels": {"implied": implied}, "sys": {"interval": "1h"}}
    async with door(tmp_path, *rules, **sections) as node:
        alice = await come(node, "alice", tls=secure(certificates), asks=[] if implied else [TLS])
        await alice.subscribe("$SYS/broker/version")
        assert await floors(alice) == ["trusted"]


# -- trust -------------------------------------------------------------------------------------------------------


async def level_of(node: Served, end: Client) -> str:
    """The level of a connection, as its messages show it to others."""
    watcher = await come(node, "carol", client="watcher")
    await watcher.subscribe("level")
    await say(end, "level")
    (floor,) = await floors(watcher)
    await watcher.disconnect()
    assert floor is not None
    return floor


@pytest.mark.parametrize("otherwise", ["close", "degrade"])
@pytest.mark.parametrize("by", ["subject", "certificate"])
@on_uvloop
async def test_trusted_are_those_on_the_list(tmp_path: Path, certificates: Path, by: str, otherwise: str) -> None:
    """*Both: level `trusted`. … Otherwise the connection policy: `close`, or `degrade` (keeps the level its encryption
    alone gives, never `mtls` or `trusted`).*"""
    accept = "CN=sensor" if by == "subject" else str(certificates / "sensor.pem")
    trust = {"by": by, "accept": [accept], "otherwise": otherwise}
    async with door(tmp_path, certificates=certificates, trust=trust, **LEVELS) as node:
        assert await level_of(node, await come(node, None, tls=secure(certificates, "sensor"))) == "trusted"
        assert await level_of(node, await come(node, None)) == "plain"  # the list is of TLS peers
        for name in ("bob", None):
            end = await come(node, None, tls=secure(certificates, name), expect=0x87 if otherwise == "close" else 0)
            if otherwise == "degrade":
                assert await level_of(node, end) == "tls"


@on_uvloop
async def test_without_a_list_a_certificate_is_worth_mtls(tmp_path: Path, certificates: Path) -> None:
    """*Default order `plain < tls < mtls < trusted`*"""
    async with door(tmp_path, certificates=certificates, **LEVELS) as node:
        for name, level in ((None, "tls"), ("sensor", "mtls")):
            assert await level_of(node, await come(node, None, tls=secure(certificates, name))) == level


@on_uvloop
async def test_the_list_is_asked_however_somebody_authenticates(tmp_path: Path, certificates: Path) -> None:
    """*A TLS peer passes authentication … and authorization (its subject … is on the node's list)*: an authentication
    method of MQTT 5 is no way around the list, and the level comes from the connection there too."""
    sections: Section = {
        "certificates": certificates,
        "trust": {"accept": ["CN=sensor"]},
        "authentication": {"methods": {"HELLO": "sockets.wild:Welcome"}},
        **LEVELS,
    }
    hello = asking(authentication_method="HELLO")
    async with door(tmp_path, **sections) as node:
        await come(node, None, client="y", tls=secure(certificates, "bob"), properties=hello, expect=0x87)
        good = await come(node, None, client="x", tls=secure(certificates, "sensor"), properties=hello)
        assert await level_of(node, good) == "trusted"


@on_uvloop
async def test_a_method_keeps_the_level_of_the_connection(tmp_path: Path, certificates: Path) -> None:
    """*Each connection has a level from facts*, whoever says who it is."""
    sections: Section = {"authentication": {"methods": {"HELLO": "sockets.wild:Welcome"}}, **LEVELS}
    async with door(tmp_path, certificates=certificates, **sections) as node:
        for tls, level in ((None, "plain"), (secure(certificates), "tls"), (secure(certificates, "bob"), "mtls")):
            hello = asking(authentication_method="HELLO")
            end = await come(node, None, client="x", tls=tls, properties=hello)
            assert await level_of(node, end) == level


@on_uvloop
async def test_the_level_of_a_websocket(tmp_path: Path, certificates: Path) -> None:
    """The same over WebSocket: TLS below it counts."""
    listeners = [
        {"url": "mqtt://127.0.0.1:PORT", "anonymous": True},
        {
            "url": "wss://127.0.0.1:WSS_PORT/mqtt",
            "anonymous": True,
            "cert": str(certificates / "node.pem"),
            "key": str(certificates / "node.key"),
            "client_ca": str(certificates / "ca.pem"),
            "client_cert": "optional",
        },
    ]
    trust = {"accept": ["CN=sensor"], "otherwise": "degrade"}
    async with door(tmp_path, listeners=listeners, trust=trust, **LEVELS) as node:
        alice = await come(node, "alice")
        await alice.subscribe("t")
        for name, level in ((None, "tls"), ("bob", "tls"), ("sensor", "trusted")):
            async with websockets.connect(
                f"wss://127.0.0.1:{node.ports['WSS_PORT']}/mqtt",
                ssl=secure(certificates, name),
                subprotocols=[Subprotocol("mqtt")],
            ) as socket:
                hello = wire.Connect(version=wire.V5, client_id="w", clean_start=True, keep_alive=0)
                await socket.send(wire.encode(hello, wire.V5))
                await socket.recv()
                await socket.send(wire.encode(wire.Publish(topic="t", payload=b"x"), wire.V5))
                assert dict((await alice.message()).properties.user_properties) == {"floor": level}


@on_uvloop
async def test_who_is_taken_off_the_list_goes(tmp_path: Path, certificates: Path) -> None:
    """*Revoking a user or certificate also disconnects it*; with `degrade` it stays, and is worth less at once."""
    listed = {"accept": ["CN=sensor", "CN=bob"], "otherwise": "close"}
    async with door(tmp_path, certificates=certificates, trust=listed, **LEVELS) as node:
        mary = await come(node, "mary")
        sensor, bob = [
            await come(node, None, tls=secure(certificates, name), client=name) for name in ("sensor", "bob")
        ]
        for end in (sensor, bob):
            await end.subscribe("t")
        await node.reload(
            setting(certificates=certificates, trust={"accept": ["CN=sensor"], "otherwise": "close"}, **LEVELS)
        )
        await say(mary, "t", BODY)
        await dismissed(bob, 0x87)
        assert await content(sensor) == [BODY]
        await node.reload(
            setting(certificates=certificates, trust={"accept": ["CN=bob"], "otherwise": "degrade"}, **LEVELS)
        )
        assert await level_of(node, sensor) == "tls"
        await say(mary, "t", BODY, ("require", "mtls"))
        assert await inbox(sensor) == []


@on_uvloop
async def test_a_name_that_only_looks_like_one_on_the_list(tmp_path: Path, certificates: Path) -> None:
    """*its subject … is on the node's list*: the whole subject, not a part of it."""
    folder = tmp_path / "own"
    folder.mkdir()
    for name in ("ca.pem", "ca.key", "node.pem", "node.key"):
        (folder / name).write_bytes((certificates / name).read_bytes())
    names = ("sensor2", "xsensor", "sensor+O x")
    for name in names:
        cli.issue(folder, name, [], client=True, days=2)
    async with door(tmp_path, certificates=folder, trust={"accept": ["CN=sensor"]}, **LEVELS) as node:
        for name in names:
            await come(node, None, tls=secure(folder, name), expect=0x87)


# -- degraded ----------------------------------------------------------------------------------------------------

BY_CERTIFICATE: Section = {
    "directory": {
        "users": {"sensor": user("coach"), "mary": user("coach")},
        "clients": {"bob": {"user": "mary", "attributes": {"machine": "treadmill"}}},
    },
    **LEVELS,
}


@on_uvloop
async def test_who_is_degraded_is_nobodys_user_by_its_certificate(tmp_path: Path, certificates: Path) -> None:
    """*`degrade` (keeps the level its encryption alone gives, never `mtls` or `trusted`, and is nobody's user by its
    certificate; a password or capability still proves a name)*"""
    rules = [
        policy("user", "user", "write", when="has(s.user)"),
        policy("role", "role", "write", subject="role:coach"),
        policy("machine", "machine", "write", when="has(s.machine)"),
        policy("tls", "tls", "write", when="s.level == 'tls'"),
        policy("r", "#", "read"),
    ]
    lists = {name: {"accept": [f"CN={name}"], "otherwise": "degrade"} for name in ("sensor", "bob", "nobody")}

    async def may(end: Client) -> list[str]:
        return [topic for topic in ("user", "role", "machine", "tls") if await say(end, topic, qos=1) != 0x87]

    sections: Section = {"certificates": certificates, **BY_CERTIFICATE}
    async with door(tmp_path, *rules, trust=lists["sensor"], **sections) as node:
        sensor = await come(node, None, client="s", tls=secure(certificates, "sensor"))
        bob = await come(node, None, client="bob", tls=secure(certificates, "bob"))
        assert await may(sensor) == ["user", "role"]
        assert await may(bob) == ["tls"]
        mary = await come(node, "mary", client="bob", tls=secure(certificates, "bob"))
        assert await may(mary) == ["user", "role", "machine", "tls"]
        # the list changes: whoever was a user by its certificate goes, and may come back as nobody
        await node.reload(setting(*rules, trust=lists["nobody"], **sections))
        await dismissed(sensor, 0x87)
        assert await may(await come(node, None, client="s", tls=secure(certificates, "sensor"))) == ["tls"]
        assert await may(mary) == ["user", "role", "machine", "tls"]
        await node.reload(setting(*rules, trust=lists["bob"], **sections))
        client = await come(node, None, client="bob", tls=secure(certificates, "bob"))
        assert await may(client) == ["user", "role", "machine"]


@on_uvloop
async def test_a_degraded_client_needs_another_name_where_nobody_may_be_nobody(
    tmp_path: Path, certificates: Path
) -> None:
    """The same on a listener without `anonymous`: a certificate that is not on the list is no credential."""
    text = setting(certificates=certificates, trust={"accept": ["CN=sensor"], "otherwise": "degrade"}, **LEVELS)
    async with from_file(tmp_path, text.replace('"anonymous": true', '"anonymous": false')) as node:
        await come(node, None, client="b", tls=secure(certificates, "bob"), expect=0x87)
        await come(node, None, client="s", tls=secure(certificates, "sensor"))
        await come(node, "bob", client="b", tls=secure(certificates, "bob"))


@on_uvloop
async def test_a_capability_proves_a_name_over_a_degraded_connection(tmp_path: Path, certificates: Path) -> None:
    """*a password or capability still proves a name*, also another one than the certificate has."""
    trust = {"accept": ["CN=sensor"], "otherwise": "degrade"}
    rules = [policy("w", "t", "write", when="s.user == 'mary' && s.level == 'tls'")]
    text = gated(tmp_path, *rules, certificates=certificates, trust=trust, **LEVELS)
    async with from_file(tmp_path, text) as node:
        holder = Holder()
        end = await holder.come(node, tls=secure(certificates, "bob"))
        assert await say(end, "t", qos=1) == 0x10
        shown = await come(node, None, client="c", tls=secure(certificates, "bob"), asks=[("capability", holder.token)])
        assert await say(shown, "t", qos=1) == 0x10


# -- the audit ---------------------------------------------------------------------------------------------------


@on_uvloop
async def test_denials_for_levels_carry_the_demand_and_the_floor(tmp_path: Path, certificates: Path) -> None:
    """*In the audit: … and for levels the demand and the floor.*"""
    facts: Section = {"levels": {"facts": {"here": "s.address == '127.0.0.1'"}}}
    async with door(tmp_path, certificates=certificates, **facts) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", local="127.0.0.2")
        await alice.subscribe("t", qos=1)
        await alice.subscribe("u", qos=1, properties=asking(("require", "mtls,here")))
        await say(mary, "t", b"x", ("require", "here,tls"), qos=1)
        await say(mary, "t", b"x", ("require", "here,tls"), qos=0)
        await say(mary, "u", b"x", qos=1)
        await say(mary, "t", b"x", ("require", "warp"), qos=1)
        rows = await denials(node)
        for row in (
            ("levels", "read", "publisher's demand", "demand tls,here; floor plain"),
            ("levels", "read", "subscriber's demand", "demand mtls,here; floor tls,here"),
        ):
            assert row in rows, rows
        assert any(row[:3] == ("levels", "write", "require") and "`warp`" in (row[3] or "") for row in rows)


@on_uvloop
async def test_who_is_away_keeps_the_name_of_its_certificate_through_a_reload(
    tmp_path: Path, certificates: Path
) -> None:
    """A session of a certificate is not degraded because nobody is connected when the rules change."""
    rules = [policy("w", "#", "write"), policy("r", "#", "read", subject="client:sensor", when="s.machine == 'x'")]
    sections: Section = {
        "certificates": certificates,
        "trust": {"accept": ["CN=sensor"], "otherwise": "degrade"},
        "directory": {"users": {"mary": user()}, "clients": {"sensor": {"attributes": {"machine": "x"}}}},
        **LEVELS,
    }
    async with door(tmp_path, *rules, **sections) as node:
        sensor = await come(node, None, client="sensor", tls=secure(certificates, "sensor"), stays=True)
        assert (await sensor.subscribe("t", qos=1)).reasons == (1,)
        await go(node, sensor)
        await node.reload(setting(*rules, policy("more", "u"), **sections))
        mary = await come(node, "mary")
        assert await say(mary, "t", b"1", qos=1) == 0
        sensor = await come(node, None, client="sensor", tls=secure(certificates, "sensor"), stays=True)
        assert await payloads(sensor) == [b"1"]
