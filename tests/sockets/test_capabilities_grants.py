"""What a proof covers besides topic and payload, the fact `signed`, and roles and groups that an issuer grants.

Each test quotes the sentence of the specification that it holds the node to.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processes import from_file, on_uvloop
from sockets.acts import Section, asking, come, content, dismissed, inbox, payloads, policy, say
from sockets.holding import Holder, denials, denied, gated
from tidegate import wire

EACH: Section = {"proof": "per-message"}
TABLE = ("view", '{"*": ["/a"]}')
OTHER_TABLE = ("view", '{"*": "all"}')
TLS, NONE = ("require", "tls"), ("require", "none")

PUBLISHED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    # what was signed for, and what is sent
    ("qos", {"qos": 1}, {"qos": 2}),
    ("retain", {"retain": False}, {"retain": True}),
    ("not retain", {"retain": True}, {"retain": False}),
    ("expiry", {"expiry": 60}, {"expiry": 6000}),
    ("no expiry", {"expiry": 60}, {"expiry": None}),
    ("an expiry", {"expiry": None}, {"expiry": 0}),
    ("view", {"properties": (TABLE,)}, {"properties": (OTHER_TABLE,)}),
    ("no view", {"properties": (TABLE,)}, {"properties": ()}),
    ("an empty view", {"properties": ()}, {"properties": (("view", ""),)}),
    ("require", {"properties": (("require", "plain"),)}, {"properties": (NONE,)}),
    ("no require", {"properties": (("require", "plain"),)}, {"properties": ()}),
    ("a short one", {"properties": ()}, {"properties": (("s", "0"),)}),
]


@pytest.mark.parametrize(("signed", "sent"), [row[1:] for row in PUBLISHED], ids=[row[0] for row in PUBLISHED])
@on_uvloop
async def test_a_proof_covers_what_a_message_asks_for(
    tmp_path: Path, signed: dict[str, Any], sent: dict[str, Any]
) -> None:
    """*a signature … over (subject, action, topic, payload digest, QoS, retain, expiry, view, require, counter), as
    published*: the same message with anything of this changed is refused."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(**EACH)
        mary = await holder.come(node)

        async def publish(proven: dict[str, Any], asked: dict[str, Any]) -> int:
            proof = holder.write("t", b'{"a":1}', **{"qos": 1, **proven})
            return await say(
                mary,
                "t",
                b'{"a":1}',
                *asked.get("properties", ()),
                proof,
                qos=asked.get("qos", 1),
                retain=asked.get("retain", False),
                properties=wire.Properties(message_expiry_interval=asked.get("expiry")),
            )

        assert await publish(signed, sent) == 0x87
        assert await denied(node, holder.rule, "write", "the proof is not of this")
        for same in (signed, sent):
            assert await publish(same, same) in (0, 0x10)


@on_uvloop
async def test_a_proof_of_a_subscription_covers_its_qos_and_demand(tmp_path: Path) -> None:
    """*each PUBLISH and SUBSCRIBE*: the QoS of each filter, and what is required of messages."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(**EACH)
        mary = await holder.come(node)
        for qos, properties in (
            (2, holder.read("a", "b", qos=1)),
            (0, asking(*holder.read("a", "b").user_properties, TLS)),
            (0, asking(holder.read("a", "b", properties=(TLS,)).user_properties[-1])),
        ):
            assert (await mary.subscribe("a", "b", qos=qos, properties=properties)).reasons == (0x87, 0x87)
        good = holder.read("a", "b", qos=1, properties=(TLS,))
        assert (await mary.subscribe("a", "b", qos=1, properties=good)).reasons == (1, 1)


@on_uvloop
async def test_a_proof_of_connect_and_will_covers_what_they_ask_for(tmp_path: Path) -> None:
    """The demand of CONNECT, and QoS, retain and expiry of a will."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(**EACH)
        await come(node, None, client="c", asks=[*holder.shows("c"), NONE], expect=0x87)
        right = wire.Will(topic="w", payload=b"x", qos=1, retain=True, properties=wire.NONE)
        for wrong in ({"qos": 0, "retain": True}, {"retain": False}, {"retain": True, "expiry": 9}):
            proof = holder.write("w", **wrong)
            will = wire.Will(topic="w", payload=b"x", qos=1, retain=True, properties=asking(proof))
            await holder.come(node, will=will, expect=0x87)
        proof = holder.write("w", retain=True)
        await holder.come(node, will=wire.Will(**{**fields(right), "properties": asking(proof)}))


def fields(will: wire.Will) -> dict[str, Any]:
    return {name: getattr(will, name) for name in ("topic", "payload", "qos", "retain", "properties")}


@on_uvloop
async def test_a_message_whose_proof_was_verified_has_the_fact_signed(tmp_path: Path) -> None:
    """*a message whose proof was verified has the fact `signed`*: it can be demanded, read as `p.facts`, and is told.
    What a monitor makes of it is not its publisher's."""
    monitor = {
        "id": "m",
        "scope": "main",
        "direction": "im_pub",
        "automaton": {
            "start": "s",
            "states": {"s": [{"on": "t", "emit": ["same", {"topic": "made", "payload": "mine"}]}]},
        },
    }
    rules = [policy("all"), policy("made", subject="monitor:m", action="write")]
    text = gated(tmp_path, *rules, levels={"facts": {"here": "true"}}, monitors=[monitor])
    async with from_file(tmp_path, text) as node:
        picky, bob = await come(node, "alice"), await come(node, "bob")
        await picky.subscribe("#", qos=1, properties=asking(("require", "signed")))
        await bob.subscribe("#", qos=1)
        holder, other = Holder(**EACH), Holder(subject="user:carol")
        mary, carol = await holder.come(node), await other.come(node, "carol")
        await say(mary, "t", b"1", holder.write("t", b"1"), qos=1)
        await say(carol, "t", b"2", other.write("t", b"2"), qos=1)  # it need not be proven, and is not verified
        assert await payloads(picky) == [b"1"]
        told = {m.payload: dict(m.properties.user_properties)["floor"] for m in await inbox(bob)}
        assert told == {b"1": "plain,here,signed", b"mine": "plain,here", b"2": "plain,here"}
        pairs = (("require", "signed"),)
        proof = holder.write("u", b"3", properties=pairs)
        assert await say(mary, "u", b"3", *pairs, proof, qos=1) == 0
        assert await payloads(bob) == [b"3"]


GRANTS: Section = {"grants": {"roles": ["doctor"], "groups": ["cardiologists"]}}


@on_uvloop
async def test_an_issuer_grants_groups_and_roles_where_the_configuration_says_so(tmp_path: Path) -> None:
    """*An issuer may grant groups and roles to holders where the configuration says so (`…grants`);
    view tables, policies and preferences then see them.*"""
    rules = [
        policy("w", "#", "write"),
        policy("r", "angina", "read", subject="group:cardiologists"),
        policy("r2", "ward", "read", subject="role:doctor", when="s.role == 'doctor' && s.pager == 7"),
        policy("r3", "own", "read"),
    ]
    sections: Section = {
        **GRANTS,
        "directory": {
            "users": {"bob": {"password": "plain:pw"}},
            "roles": {"doctor": {"attributes": {"pager": 7}}},
        },
        "views": [{"id": "v", "topic": "angina", "for": "group:cardiologists", "keep": ["/illness"]}],
        "preferences": [{"id": "up", "user": "bob", "topic": "own", "when": "'cardiologists' in s.groups"}],
    }
    async with from_file(tmp_path, gated(tmp_path, *rules, **sections)) as node:
        plain, granted = Holder(), Holder(subject="user:eve", groups=["cardiologists"], roles=["doctor"])
        ends = await plain.come(node), await granted.come(node, "eve")
        for end in ends:
            for filter in ("angina", "ward", "own"):
                await end.subscribe(filter)
        bob = await come(node, "bob")
        body = {"illness": "x", "name": "y"}
        await say(bob, "angina", body)
        await say(bob, "angina", body, ("view", json.dumps({"group:cardiologists": "all"})))
        await say(bob, "ward", {"n": 1})
        await say(bob, "own", {"n": 2})
        assert await content(ends[0]) == []
        assert await content(ends[1]) == [{"illness": "x"}, {"illness": "x"}, {"n": 1}, {"n": 2}]


@pytest.mark.parametrize("claims", [{"roles": ["admin"]}, {"groups": ["cardiologists", "staff"]}])
@on_uvloop
async def test_what_an_issuer_may_not_grant_refuses_the_capability(tmp_path: Path, claims: Section) -> None:
    """*where the configuration says so*: a token that grants more is not half accepted; nor is one any more when the
    configuration takes a grant back."""
    async with from_file(tmp_path, gated(tmp_path, **GRANTS)) as node:
        await Holder(**claims).come(node, expect=0x87)
        assert any("which its issuer may not grant here" in (row[3] or "") for row in await denials(node))
        good = Holder(groups=["cardiologists"])
        end = await good.come(node)
        await node.reload(gated(tmp_path, grants={"roles": ["doctor"]}))
        await dismissed(end, 0x87)
        await good.come(node, expect=0x87)


@pytest.mark.parametrize("claims", [{"roles": "doctor"}, {"roles": [1]}, {"groups": ["a@b"]}, {"groups": [""]}])
@on_uvloop
async def test_grants_that_cannot_be_understood(tmp_path: Path, claims: Section) -> None:
    """A capability that is half understood might permit more than its issuer meant."""
    async with from_file(tmp_path, gated(tmp_path, **GRANTS)) as node:
        await Holder(**claims).come(node, expect=0x87)
