"""Two nodes that are linked: messages cross over TLS, links come back by themselves, who is not trusted has none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness import PATIENCE
from processes import on_uvloop, until
from sockets.linked_pair import FROM_GYM, FROM_REMOTE, GYM, REMOTE, Pair, connected, over_tls, pair, row
from tidegate import wire
from tidegate.scope.link_greeting import GREETING
from tidegate.wire import Properties, Reason

WILL = wire.Will(topic="w", payload=b"", qos=0, retain=False)
FACTS = "levels: {facts: {near: \"cidr(s.address, '127.0.0.0/8')\"}}\n"


def greeting(link: str = "gym->remotegym", version: str = "1") -> Properties:
    return Properties(user_properties=((GREETING, f"{version} {link} {'ab' * 8} a"),))


# -- messages cross ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@on_uvloop
async def test_messages_cross_in_both_directions(folder: Path, qos: int) -> None:
    async with pair(folder) as both:
        await connected(both.gym, both.remote)
        here, there = await both.gym.connect("here"), await both.remote.connect("there")
        await here.subscribe("back/#", qos=2)
        await there.subscribe("out/#", qos=2)
        await here.publish("out/a", b"1", qos=qos)
        assert ((await there.message()).payload, qos) == (b"1", qos)
        await there.publish("back/a", b"2", qos=qos)
        assert (await here.message()).payload == b"2"


@on_uvloop
async def test_state_at_both_ends(folder: Path) -> None:
    async with pair(folder) as both:
        await connected(both.gym, both.remote)
        await until(lambda: row(both.gym)["round_trip"] is not None)
        here, there = row(both.gym), row(both.remote)
        assert (here["link"], here["direction"], here["address"]) == (
            "gym->remotegym",
            "connects",
            f"mqtts://127.0.0.1:{both.port}",
        )
        assert (there["link"], there["direction"], there["address"]) == (
            "remotegym->gym",
            "is connected to",
            "127.0.0.1",
        )
        assert here["level"] == there["level"] == "trusted"
        assert here["error"] is there["error"] is None
        shown = both.remote.node.links.show("remotegym->gym")
        assert (shown["peer"], shown["domain"]) == ("CN=a", "a")
        more = {"via", "peer", "facts", "node", "domain", "overflow", "lacks", "out", "in"}
        assert shown.keys() - there.keys() == more


@on_uvloop
async def test_what_is_owed_waits_for_the_other_node(folder: Path) -> None:
    both = Pair(folder)
    async with both.gyms():
        here = await both.gym.connect("here")
        await until(lambda: row(both.gym)["error"])
        for number in range(5):
            await here.publish("out/a", str(number).encode(), qos=1)
        assert (row(both.gym)["queue"], row(both.gym)["oldest"] is not None) == (5, True)
        async with both.remotes():
            there = await both.remote.connect("there")
            await there.subscribe("out/#", qos=1)
            await connected(both.gym)
            got = [(await there.message()).payload for _ in range(5)]
            assert got == [b"0", b"1", b"2", b"3", b"4"]
            await until(lambda: row(both.gym)["queue"] == 0)


@on_uvloop
async def test_a_cut_loses_and_doubles_nothing(folder: Path) -> None:
    async with pair(folder) as both:
        here, there = await both.gym.connect("here"), await both.remote.connect("there")
        await there.subscribe("out/#", qos=1)
        await connected(both.gym, both.remote)
        got: list[bytes] = []

        async def receive() -> None:
            while len(got) < 60:
                got.append((await there.message()).payload)

        receiving = asyncio.create_task(receive())
        for number in range(60):
            await here.publish("out/a", str(number).encode(), qos=2)
            if number % 20 == 10:
                for shell in list(both.remote.node.listeners.bound.values())[1].connections.copy():
                    shell.transport.abort()
        async with asyncio.timeout(PATIENCE):
            await receiving
        assert got == [str(number).encode() for number in range(60)]


@on_uvloop
async def test_the_other_node_is_started_again(folder: Path) -> None:
    both = Pair(folder)
    async with both.gyms():
        async with both.remotes():
            await connected(both.gym, both.remote)
        await until(lambda: row(both.gym)["state"] != "connected")
        async with both.remotes():
            await connected(both.gym, both.remote)
            there = await both.remote.connect("there")
            await there.subscribe("#")
            here = await both.gym.connect("here")
            await here.publish("again", b"x", qos=1)
            assert (await there.message()).topic == "again"


# -- who may open a link -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "properties", "fields", "reason", "text"),
    [
        (None, greeting(), {}, Reason.NOT_AUTHORIZED, "shows its certificate"),
        ("c", greeting(), {}, Reason.NOT_AUTHORIZED, "CN=c is not on the trust list"),
        ("a", greeting("gym->nowhere"), {}, Reason.NOT_AUTHORIZED, "no link of this node from `nowhere` to `gym`"),
        (None, greeting("gym->nowhere"), {}, Reason.NOT_AUTHORIZED, "shows its certificate"),
        ("a", greeting(version="7"), {}, Reason.PROTOCOL_ERROR, "version 1"),
        ("a", greeting(), {"username": "mary", "password": b"x"}, Reason.NOT_AUTHORIZED, "nothing else"),
        ("a", greeting(), {"clean_start": True}, Reason.PROTOCOL_ERROR, "does not start clean"),
        (
            "a",
            greeting(),
            {"will": WILL},
            Reason.PROTOCOL_ERROR,
            "will",
        ),
    ],
)
@on_uvloop
async def test_refused(
    folder: Path, name: str | None, properties: Properties, fields: dict[str, Any], reason: Reason, text: str
) -> None:
    both = Pair(folder)
    async with both.remotes():
        client = await over_tls(both, name, properties=properties, **fields)
        assert client.connack.reason == reason
        assert text in (client.connack.properties.reason_string or "")
        assert row(both.remote)["state"] == "waiting"
        assert await client.closed() == b""


@on_uvloop
async def test_without_tls_nobody_opens_a_link(folder: Path) -> None:
    both = Pair(folder)
    async with both.remotes():
        client = await both.remote.connect(
            "gym->remotegym", expect=Reason.NOT_AUTHORIZED, clean_start=False, properties=greeting()
        )
        assert "shows its certificate" in (client.connack.properties.reason_string or "")


@on_uvloop
async def test_both_ends_connect(folder: Path) -> None:
    both = Pair(folder)
    links = 'links: [{from: remotegym, to: gym, peer: CN=a, via: ["mqtts://127.0.0.1:1"]}]'
    text = REMOTE.replace("data: data", "data: data, cert: ../b.pem, key: ../b.key, ca: ../ca.pem")
    async with both.node("remote", text, links):
        client = await over_tls(both, "a", properties=greeting())
        assert client.connack.reason == Reason.NOT_AUTHORIZED
        assert "remove `via`" in (client.connack.properties.reason_string or "")


@on_uvloop
async def test_a_link_that_the_other_node_does_not_have(folder: Path) -> None:
    async with pair(folder, remote="links: [{from: remotegym, to: other, peer: CN=a}]") as both:
        await until(lambda: row(both.gym)["error"])
        assert "no link of this node from `remotegym` to `gym`" in row(both.gym)["error"]


# -- the rules change --------------------------------------------------------------------------------------------


@on_uvloop
async def test_links_come_and_go_with_the_rules(folder: Path) -> None:
    async with pair(folder, gym="") as both:
        assert both.gym.node.links.rows() == []
        await both.gym.reload(both.text(GYM, FROM_GYM))
        await connected(both.gym, both.remote)
        await both.gym.reload(both.text(GYM, ""))
        assert both.gym.node.links.rows() == []
        await until(lambda: row(both.remote)["state"] == "waiting")
        await until(lambda: not both.gym.node.links.dialers)
        await both.gym.reload(both.text(GYM, FROM_GYM))
        await connected(both.gym, both.remote)


@on_uvloop
async def test_a_link_gone_at_the_other_end(folder: Path) -> None:
    async with pair(folder) as both:
        await connected(both.gym, both.remote)
        await both.remote.reload(both.text(REMOTE, ""))
        await until(lambda: row(both.gym)["error"] and "no link of this node" in row(both.gym)["error"])


@pytest.mark.parametrize("where", ["gym", "remote"])
@on_uvloop
async def test_who_is_not_trusted_any_more_has_to_go(folder: Path, where: str) -> None:
    async with pair(folder) as both:
        await connected(both.gym, both.remote)
        if where == "gym":
            await both.gym.reload(both.text(GYM, FROM_GYM.replace("CN=b", "CN=c")))
        else:
            await both.remote.reload(both.text(REMOTE, FROM_REMOTE.replace("CN=a", "CN=c")))
        await until(lambda: row(both.gym)["state"] != "connected" and row(both.remote)["state"] == "waiting")
        await until(lambda: "is not on the trust list" in (row(both.gym)["error"] or ""))


@on_uvloop
async def test_other_facts_make_another_connection(folder: Path) -> None:
    async with pair(folder) as both:
        await connected(both.gym, both.remote)
        await both.gym.reload(both.text(GYM, FROM_GYM) + FACTS)
        await until(lambda: both.gym.node.links.show("gym->remotegym")["facts"] == ["near"])
        await connected(both.gym, both.remote)


@on_uvloop
async def test_the_node_that_is_connected_to_sets_a_shorter_keep_alive(folder: Path) -> None:
    both = Pair(folder)
    async with both.node("remote", REMOTE + "limits: {max_keep_alive: 10s}\n", FROM_REMOTE):
        client = await over_tls(both, "a", properties=greeting(), keep_alive=30)
        assert (client.connack.reason, client.connack.properties.server_keep_alive) == (Reason.SUCCESS, 10)


@on_uvloop
async def test_takes_leave_when_the_node_stops(folder: Path) -> None:
    both = Pair(folder)
    async with both.remotes():
        async with both.gyms():
            await connected(both.gym, both.remote)
        await until(lambda: row(both.remote)["state"] == "waiting")


# -- owners ------------------------------------------------------------------------------------------------------

USERS = """directory:
  users:
    mary: {password: "plain:mary"}
    alice: {password: "plain:alice"}
    bob: {password: "plain:bob"}
"""


@on_uvloop
async def test_an_owners_preferences_bind_at_the_other_node_and_change_there(folder: Path) -> None:
    said = 'preferences: [{id: u, user: mary, topic: "out/#", when: "s.user == \'alice@b\'"}]\n'
    async with pair(folder, FROM_GYM + "\n" + USERS + said, FROM_REMOTE + "\n" + USERS) as both:
        await connected(both.gym, both.remote)
        mary = await both.gym.connect("m", username="mary", password=b"mary")
        alice = await both.remote.connect("a", username="alice", password=b"alice")
        bob = await both.remote.connect("b", username="bob", password=b"bob")
        for client in (alice, bob):
            await client.subscribe("out/#", qos=1)
        await mary.publish("out/a", b"1", qos=1)
        assert (await alice.message()).payload == b"1"
        await both.gym.reload(both.text(GYM, FROM_GYM + "\n" + USERS + said.replace("alice@b", "bob@b")))
        await mary.publish("out/a", b"2", qos=1)
        assert (await bob.message()).payload == b"2"  # the first that he gets
        await alice.silent()
