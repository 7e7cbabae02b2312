"""Proof per message (semantics, *Capabilities*): missing, wrong or replayed denies, and a repetition is no replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import Client
from processes import from_file, on_uvloop
from sockets.acts import asking, come, dismissed, go, inbox, payloads, policy, say, secure
from sockets.holding import DEVICE, OTHER, Holder, answer, denied, gated
from sockets.watchers import automaton, entering
from tidegate import wire

EACH: dict[str, Any] = {"proof": "per-message"}
QOS = [0, 1, 2]


async def reason(end: Client, topic: str, payload: bytes, *asks: tuple[str, str], **fields: Any) -> int:
    return await say(end, topic, payload, *asks, qos=1, **fields)


@pytest.mark.parametrize("by", ["capability", "node"])
@pytest.mark.parametrize("qos", QOS)
@on_uvloop
async def test_what_is_proven_passes_and_nothing_else(tmp_path: Path, qos: int, by: str) -> None:
    """*each PUBLISH … carries a signature by the confirmation key*, over every way that a message is read."""
    text = gated(tmp_path, **(EACH if by == "node" else {}))
    async with from_file(tmp_path, text) as node:
        holder = Holder(**(EACH if by == "capability" else {}))
        mary, bob = await holder.come(node), await come(node, "bob")
        await bob.subscribe("#", qos=qos)
        for number in range(3):
            body = b"good %d" % number
            assert await say(mary, "t", body, holder.write("t", body, qos=qos), qos=qos) == 0
            # the fast lane, the quick publishes, and those with properties of other kinds
            assert await say(mary, "t", b"bad", qos=qos) == (0x87 if qos else 0)
            assert await say(mary, "t", b"bad", ("own", "1"), qos=qos) == (0x87 if qos else 0)
            assert await say(mary, "t", b"bad", retain=True, qos=qos) == (0x87 if qos else 0)
        assert await payloads(bob) == [b"good 0", b"good 1", b"good 2"]
        assert await denied(node, holder.rule, "write", "no proof")
        carol = await come(node, "carol")
        await carol.subscribe("#")
        assert await inbox(carol) == []  # nothing was retained


@pytest.mark.parametrize("key", [DEVICE, OTHER], ids=["Ed25519", "P-256"])
@on_uvloop
async def test_wrong_proofs(tmp_path: Path, key: Any) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(key=key, **EACH)
        thief = Holder(key=OTHER if key is DEVICE else DEVICE, jti=holder.id)
        mary, bob = await holder.come(node), await come(node, "bob")
        await bob.subscribe("#")
        name, good = holder.write("t")
        wrong = [
            thief.write("t"),
            holder.write("u"),
            holder.write("t", b"y"),
            holder.proof("read", "t", b"x"),
            holder.proof("connect", "t", b"x"),
            Holder(key=key, **EACH).write("t"),
            Holder(key=key, subject="user:eve", jti=holder.id).write("t"),
            (name, good[:-1]),
            (name, ""),
            (name, "1" + good),
        ]
        for proof in wrong:
            assert await reason(mary, "t", b"x", proof) == 0x87
        assert await reason(mary, "t", b"x", (name, good), holder.write("t")) == 0x87  # several
        assert await inbox(bob) == []
        assert await reason(mary, "t", b"x", (name, good)) == 0
        assert len(await inbox(bob)) == 1


@on_uvloop
async def test_replayed_proofs(tmp_path: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(**EACH)
        mary, bob = await holder.come(node), await come(node, "bob")
        await bob.subscribe("#")
        first, second = holder.write("t"), holder.write("t")
        assert await reason(mary, "t", b"x", second) == 0
        assert await reason(mary, "t", b"x", second) == 0x87
        assert await reason(mary, "t", b"x", first) == 0  # older, never used
        assert await reason(mary, "t", b"x", first) == 0x87
        assert await denied(node, holder.rule, "write", "used before")
        # on another connection, by another client, too
        other = await holder.come(node, "other")
        for used in (first, second):
            assert await reason(other, "t", b"x", used) == 0x87
        assert len(await inbox(bob)) == 2


@on_uvloop
async def test_a_repetition_is_no_replay(tmp_path: Path) -> None:
    """*a DUP with the same counter and digest is no replay*"""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(**EACH)
        mary, bob = await holder.come(node, stays=True), await come(node, "bob")
        await bob.subscribe("#")
        one, two = holder.write("t", b"1"), holder.write("t", b"2")
        assert await reason(mary, "t", b"1", one) == 0
        assert await reason(mary, "t", b"2", two) == 0
        assert await reason(mary, "t", b"1", one, dup=True) == 0
        assert await reason(mary, "t", b"3", holder.write("t", b"3", int(one[1].partition(".")[0])), dup=True) == 0x87
        await go(node, mary)
        mary = await holder.come(node, stays=True)  # and on the next connection
        assert await reason(mary, "t", b"2", two, dup=True) == 0
        assert await reason(mary, "t", b"2", two) == 0x87
        assert await payloads(bob) == [b"1", b"2", b"1", b"2"]


@on_uvloop
async def test_qos_2_is_decided_once(tmp_path: Path) -> None:
    """A repeated PUBLISH that has been received is acknowledged again, and handed on once."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(**EACH)
        mary, bob = await holder.come(node, stays=True), await come(node, "bob")
        await bob.subscribe("#")
        sent = wire.Publish(
            topic="t", payload=b"x", qos=2, packet_id=7, properties=asking(holder.write("t", qos=2)), dup=False
        )
        await mary.send(sent)
        assert (await mary.expect(wire.Pubrec)).reason == 0
        sent.dup = True
        for _ in range(2):
            await mary.send(sent)
            assert (await mary.expect(wire.Pubrec)).reason == 0
        await go(node, mary)
        mary = await holder.come(node, stays=True)
        await mary.send(sent)
        assert (await mary.expect(wire.Pubrec)).reason == 0
        await mary.send(wire.Pubrel(packet_id=7))
        assert (await mary.expect(wire.Pubcomp)).reason == 0
        assert await payloads(bob) == [b"x"]


@pytest.mark.parametrize("first", ["password", "capability", "proven"])
@on_uvloop
async def test_qos_2_without_a_proof_is_not_signed_by_who_releases_it(tmp_path: Path, first: str) -> None:
    """*a missing … proof denies*: what was verified counts, not over which connection a message is released."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        bob, carol = await come(node, "bob"), await come(node, "carol")
        await bob.subscribe("#", qos=2, properties=asking(("require", "signed")))
        await carol.subscribe("#", qos=2)
        strict = Holder(**EACH)
        match first:
            case "password":
                before = await come(node, "mary", stays=True)
            case "capability":
                before = await Holder(key=strict.key).come(node, stays=True)
            case _:
                before = await strict.come(node, stays=True)
        for pid, asks in ((7, ()), (8, (("require", "plain"),))):
            proof = strict.write("t", b"early", qos=2, properties=asks)
            said = asking(*asks, *((proof,) if first == "proven" else ()))
            await before.send(wire.Publish(topic="t", payload=b"early", qos=2, packet_id=pid, properties=said))
            assert (await before.expect(wire.Pubrec)).reason == 0
        await go(node, before)
        mary = await strict.come(node, stays=True)
        assert mary.connack.session_present
        for pid in (7, 8):  # [MQTT-4.3.3-10] acknowledged, whatever is sent under an identifier that is in use
            said = asking(strict.write("t", b"late", qos=2))
            await mary.send(wire.Publish(topic="t", payload=b"late", qos=2, packet_id=pid, properties=said))
            assert (await mary.expect(wire.Pubrec)).reason == 0
            await mary.send(wire.Pubrel(packet_id=pid))
            assert (await mary.expect(wire.Pubcomp)).reason == 0
        expected = [b"early"] * 2 if first == "proven" else []
        assert (await payloads(bob), await payloads(carol)) == (expected, expected)
        assert await denied(node, strict.rule, "write") is (first != "proven")
        assert await say(mary, "t", b"own", strict.write("t", b"own", qos=2), qos=2) == 0
        assert (await payloads(bob), await payloads(carol)) == ([b"own"], [b"own"])


@on_uvloop
async def test_qos_2_is_denied_if_proofs_are_demanded_before_its_release(tmp_path: Path) -> None:
    """*policies decide at PUBLISH and again at PUBREL*, by the rules of then."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        bob, holder = await come(node, "bob"), Holder()
        mary = await holder.come(node, stays=True)
        await mary.send(wire.Publish(topic="t", payload=b"unproven", qos=2, packet_id=7))
        assert (await mary.expect(wire.Pubrec)).reason == 0
        await node.reload(gated(tmp_path, **EACH))
        await bob.subscribe("#", qos=2)
        await mary.send(wire.Pubrel(packet_id=7))
        assert (await mary.expect(wire.Pubcomp)).reason == 0
        assert await payloads(bob) == []
        assert await denied(node, holder.rule, "write")


@on_uvloop
async def test_an_alias_stands_for_its_topic(tmp_path: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(**EACH)
        mary, bob = await holder.come(node), await come(node, "bob")
        await bob.subscribe("#")
        properties = wire.Properties(topic_alias=1)
        assert await reason(mary, "t", b"x", holder.write("t"), properties=properties) == 0
        assert await reason(mary, "", b"x", holder.write("t"), properties=properties) == 0
        assert await reason(mary, "", b"x", holder.write(""), properties=properties) == 0x87
        assert [message.topic for message in await inbox(bob)] == ["t", "t"]


@on_uvloop
async def test_subscriptions_are_proven(tmp_path: Path) -> None:
    """*each PUBLISH and SUBSCRIBE*: one proof for all filters of a packet, in their order."""
    async with from_file(tmp_path, gated(tmp_path, subscribe="hold")) as node:
        holder = Holder(**EACH)
        mary, bob = await holder.come(node), await come(node, "bob")
        await say(bob, "a", b"kept", qos=1, retain=True)
        assert (await mary.subscribe("a", "b")).reasons == (0x87, 0x87)
        assert await denied(node, holder.rule, "read", "no proof")
        for properties in (holder.read("b", "a"), holder.read("a"), asking(holder.write("a\0b", b""))):
            assert (await mary.subscribe("a", "b", properties=properties)).reasons == (0x87, 0x87)
        await say(bob, "a", b"1", qos=1)
        assert await inbox(mary) == []
        good = holder.read("a", "b")
        assert (await mary.subscribe("a", "b", properties=good)).reasons == (0, 0)
        assert await payloads(mary) == [b"kept"]
        assert (await mary.subscribe("a", "b", properties=good)).reasons == (0x87, 0x87)
        await say(bob, "b", b"2", qos=1)
        assert await payloads(mary) == [b"2"]
        shared = "$share/g/a"
        assert (await mary.subscribe(shared, properties=holder.read(shared))).reasons == (0,)
        await mary.unsubscribe(shared)  # to want less needs no proof


@on_uvloop
async def test_rights_and_policies_count_as_well(tmp_path: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path, policy("a", "a"), policy("b", "b", "read"))) as node:
        holder = Holder("read,write:a", "write:b", **EACH)
        mary = await holder.come(node)
        for topic, expected in (("a", 0x10), ("b", 0x87), ("c", 0x87)):
            assert await reason(mary, topic, b"x", holder.write(topic)) == expected
        assert (await mary.subscribe("b", properties=holder.read("b"))).reasons == (0x87,)


@on_uvloop
async def test_the_will_brings_its_proof(tmp_path: Path) -> None:
    """*carries its proof in its own user properties and is verified at CONNECT*"""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder("write:w", **EACH)
        bob = await come(node, "bob")
        await bob.subscribe("#")

        def will(*pairs: tuple[str, str], delay: int | None = None) -> wire.Will:
            properties = wire.Properties(user_properties=pairs, will_delay_interval=delay)
            return wire.Will(topic="w", payload=b"x", qos=1, retain=False, properties=properties)

        await holder.come(node, will=will(), expect=0x87)
        await holder.come(node, will=will(holder.write("t")), expect=0x87)
        assert await denied(node, holder.rule, "write", "no proof")
        good = will(holder.write("w"), ("own", "1"))
        mary = await holder.come(node, will=good)
        await go(node, mary)
        (message,) = await inbox(bob)
        assert message.properties.user_properties == (("own", "1"),)
        await holder.come(node, will=good, expect=0x87)  # replayed
        # it does not open the door for others
        mary = await holder.come(node, will=will(holder.write("w")))
        assert await reason(mary, "w", b"x") == 0x87
        # nor does it end with the capability that proved it
        newer = Holder("write:w", **EACH)
        assert isinstance(await newer.again(mary), wire.Auth)
        await go(node, mary)
        assert await payloads(bob) == [b"x"]


@on_uvloop
async def test_the_connection_itself_is_proven(tmp_path: Path, certificates: Path) -> None:
    """Or whoever has seen the token could take the session over and be sent what waits there."""
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        holder, tls = Holder(**EACH), secure(certificates)
        await come(node, None, client="m", tls=tls, asks=holder.shows(), expect=0x87)
        assert await denied(node, holder.rule, "connect", "proven")
        end = await come(node, None, client="m", asks=holder.shows("m"))
        assert await reason(end, "t", b"x", holder.write("t")) == 0x10


@on_uvloop
async def test_mqtt_311_cannot_prove(tmp_path: Path, certificates: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        holder, tls = Holder(**EACH), secure(certificates)
        given = {"username": "mary", "password": holder.token.encode()}
        await come(node, None, client="m", version=wire.V311, tls=tls, **given, expect=4)
        assert await denied(node, holder.rule, "connect", "need MQTT 5")


@on_uvloop
async def test_counters_survive_a_restart(tmp_path: Path) -> None:
    """Written with the message: what was acknowledged before cannot be replayed after."""
    holder = Holder(**EACH)
    proofs = [holder.write("t"), holder.write("t")]
    async with from_file(tmp_path, gated(tmp_path, data=True)) as node:
        mary = await holder.come(node)
        assert await reason(mary, "t", b"x", proofs[1]) == 0x10
    async with from_file(tmp_path, gated(tmp_path, data=True)) as node:
        mary, bob = await holder.come(node), await come(node, "bob")
        await bob.subscribe("#")
        for proof in proofs:
            assert await reason(mary, "t", b"x", proof) == 0x87
        assert await reason(mary, "t", b"x", proofs[1], dup=True) == 0x87  # also this, then
        assert await reason(mary, "t", b"x", holder.write("t")) == 0
        assert await payloads(bob) == [b"x"]


@on_uvloop
async def test_proofs_that_nobody_asks_for_are_not_looked_at(tmp_path: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        mary, bob = await Holder().come(node), await come(node, "bob")
        await bob.subscribe("#")
        assert await reason(mary, "t", b"x", ("proof", "nonsense")) == 0
        (message,) = await inbox(bob)
        assert message.properties == wire.NONE


@on_uvloop
async def test_a_flood_of_proofs_is_worked_off_in_pieces(tmp_path: Path) -> None:
    """All of it is taken, in its order, though one turn verifies only a few."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(**EACH)
        mary, bob = await holder.come(node), await come(node, "bob")
        await bob.subscribe("#")
        many = range(200)
        packets = [
            wire.Publish(topic="t", payload=b"%d" % number, properties=asking(holder.write("t", b"%d" % number, qos=0)))
            for number in many
        ]
        await mary.raw(b"".join(wire.encode(packet, wire.V5) for packet in packets))
        await mary.silent()
        assert await payloads(bob) == [b"%d" % number for number in many]
        await bob.silent()


@on_uvloop
async def test_one_authentication_at_a_time(tmp_path: Path) -> None:
    """Each costs the node two signatures, so the next begins when the last has been answered."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder()
        mary = await holder.come(node)
        for _ in range(2):
            await answer(mary, holder.token.encode(), wire.Reason.RE_AUTHENTICATE)
        await mary.expect(wire.Auth)
        await dismissed(mary, 0x82)


# -- what is changed is not signed any more ----------------------------------------------------------------------

SIGNED = asking(("require", "signed"))


@pytest.mark.parametrize(
    "change",
    [
        {"map": {"door/status": "door/unlock"}},
        automaton("s", s=[{"on": "door/status", "emit": [{"topic": "door/unlock"}]}]),
        automaton("s", s=[{"on": "door/status", "emit": [{"topic": "door/status", "retain": True}]}]),
    ],
)
@on_uvloop
async def test_what_a_monitor_renames_is_not_signed(tmp_path: Path, change: dict[str, Any]) -> None:
    """*A node that changes the content (monitor, `keep`) removes them*: a proof covers topic, QoS and retain, too."""
    rules = policy("all"), policy("made", "#", "write", subject="monitor:change")
    text = gated(tmp_path, *rules, proof="per-message", monitors=[entering("change", **change)])
    async with from_file(tmp_path, text) as node:
        holder = Holder()
        mary, bob, carol = await holder.come(node), await come(node, "bob"), await come(node, "carol")
        await bob.subscribe("door/#", "other", properties=SIGNED)
        await carol.subscribe("door/#")
        for topic in ("door/status", "other"):
            await say(mary, topic, b"1", holder.write(topic, b"1", qos=1), qos=1)
        assert [message.topic for message in await inbox(bob)] == ["other"]
        assert len(await inbox(carol)) == 1


@on_uvloop
async def test_a_part_of_a_message_is_not_signed(tmp_path: Path) -> None:
    views = [
        {"id": "part", "topic": "cut", "for": "*", "keep": ["/a"]},
        {"id": "uncut", "topic": "whole", "for": "*", "keep": "all"},
    ]
    async with from_file(tmp_path, gated(tmp_path, policy("all"), proof="per-message", views=views, levels={})) as node:
        holder = Holder()
        mary, bob, carol = await holder.come(node), await come(node, "bob"), await come(node, "carol")
        await bob.subscribe("cut", "whole", properties=SIGNED)
        await carol.subscribe("cut", "whole")
        content = b'{"a":1,"b":2}'
        for topic in ("cut", "whole"):
            await say(mary, topic, content, holder.write(topic, content, qos=1), qos=1)
        assert [message.topic for message in await inbox(bob)] == ["whole"]
        floors = {one.topic: dict(one.properties.user_properties).get("floor", "") for one in await inbox(carol)}
        assert ("signed" in floors["whole"], "signed" in floors["cut"]) == (True, False)


@pytest.mark.parametrize("when", ["always", "by content"])
@pytest.mark.parametrize("renamed", [False, True])
@on_uvloop
async def test_a_part_that_crosses_a_link_is_not_signed_behind_it(tmp_path: Path, when: str, renamed: bool) -> None:
    """*A node that changes the content (monitor, `keep`) removes them*: also for a preference with `to`."""
    asked = {} if when == "always" else {"when": "o.payload.b == 2"}
    preference = {"id": "part", "user": "mary", "topic": "cut", "to": "b", "keep": ["/a"], **asked}
    whole = {"id": "whole", "user": "mary", "topic": "whole", "to": "b"}
    link = {"from": "a", "to": "b", **({"share": [{"topic": "#", "remote_prefix": "far/"}]} if renamed else {})}
    text = gated(
        tmp_path,
        proof="per-message",
        levels={},
        preferences=[preference, whole],
        scopes={"a": {}, "b": {}},
        links=[link],
        listeners=[
            {"url": f"mqtt://127.0.0.1:{port}", "anonymous": True, "scope": scope}
            for port, scope in (("PORT", "a"), ("B_PORT", "b"))
        ],
    )
    async with from_file(tmp_path, text) as node:
        holder = Holder()
        mary = await holder.come(node)
        bob, carol = [await come(node, name, port="B_PORT") for name in ("bob", "carol")]
        await bob.subscribe("#", qos=1, properties=SIGNED)
        await carol.subscribe("#", qos=1)
        content = b'{"a":1,"b":2}'
        for asks in ((), (("require", "signed"),)):
            for topic in ("cut", "whole"):
                proof = holder.write(topic, content, properties=asks)
                assert await say(mary, topic, content, *asks, proof, qos=1) in (0, 0x10)
        assert await payloads(bob) == [content] * 2
        got = [(one.payload, dict(one.properties.user_properties)["floor"]) for one in await inbox(carol)]
        assert [payload for payload, _ in got] == [b'{"a":1}', content, content]
        assert ["signed" in floor for _, floor in got] == [False, True, True]
