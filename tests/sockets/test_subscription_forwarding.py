"""`forward: subscriptions`: only what the other side has subscribed to crosses a link (SEC-REDS, 1.2)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness import Client, free_port
from processes import Served, from_file, on_uvloop, until
from tidegate import wire
from tidegate.cli import certificates
from tidegate.scope import spreading_subscriptions as spreading

KEEP = wire.Properties(session_expiry_interval=3600)
NODE = """
version: 1
node: {name: NAME, domain: d, data: data, cert: ../NAME.pem, key: ../NAME.key, ca: ../ca.pem}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: NAME, anonymous: true}
  - {url: "mqtts://127.0.0.1:LINKS", scope: NAME, cert: ../NAME.pem, key: ../NAME.key, client_ca: ../ca.pem,
     client_cert: required}
scopes: {NAME: {}}
trust: {otherwise: degrade, accept: [ACCEPTED], domains: {d: {nodes: [NODES]}}}
links: [LINKED]
policies: open
sys: {interval: 0s}
"""


class Net:
    """Nodes that are linked, each of them with one scope of its name."""

    def __init__(self, folder: Path, joined: tuple[str, ...], more: dict[str, str]) -> None:
        self.folder = folder
        self.joined = joined  # of each pair the first connects
        self.more = more
        self.names = sorted({name for pair in joined for name in pair})
        self.ports = {name: str(free_port()) for name in self.names}
        self.nodes: dict[str, Served] = {}
        for name in self.names:
            if not (folder / f"{name}.pem").exists():
                certificates.issue(folder, name, ["127.0.0.1"], client=True, days=2)

    def text(self, name: str) -> str:
        links = []
        for one, other in self.joined:
            if name not in (one, other):
                continue
            there = other if name == one else one
            via = f', via: ["mqtts://127.0.0.1:{self.ports[other]}"]' if name == one else ""
            links.append(f"{{from: {name}, to: {there}, peer: CN={there}{via}, forward: subscriptions}}")
        text = NODE.replace("LINKS", self.ports[name]).replace("LINKED", ", ".join(links)).replace("NAME", name)
        text = text.replace("NODES", ", ".join(self.names))
        return text.replace("ACCEPTED", ", ".join(f"CN={each}" for each in self.names)) + self.more.get(name, "")

    @contextlib.asynccontextmanager
    async def node(self, name: str) -> AsyncIterator[Served]:
        place = self.folder / f"node-{name}"
        place.mkdir(exist_ok=True)
        async with from_file(place, self.text(name)) as served:
            self.nodes[name] = served
            yield served

    def end(self, name: str, there: str) -> Any:
        return self.nodes[name].node.realm.node_links.ends[f"{name}->{there}"]

    def crossing(self, name: str, there: str) -> set[str]:
        """What one node sends to another."""
        return set(self.end(name, there).session.subscriptions or ())

    async def sends(self, name: str, there: str, *filters: str) -> None:
        await until(lambda: self.crossing(name, there) == set(filters))


@contextlib.asynccontextmanager
async def net(folder: Path, *joined: str, **more: str) -> AsyncIterator[Net]:
    made = Net(folder, joined, more)
    async with contextlib.AsyncExitStack() as stack:
        for name in made.names:
            await stack.enter_async_context(made.node(name))
        await until(
            lambda: all(row["state"] == "connected" for each in made.nodes.values() for row in each.node.links.rows())
        )
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "MOMENT", 0.05)


async def got(client: Client) -> tuple[str, bytes]:
    message = await client.message()
    return message.topic, message.payload


@on_uvloop
async def test_only_what_is_wanted_crosses(folder: Path, quick: None) -> None:
    async with net(folder, "ab") as nodes:
        here, there = await nodes.nodes["a"].connect("here"), await nodes.nodes["b"].connect("there")
        assert nodes.crossing("a", "b") == set()
        await here.publish("t/kept", b"0", qos=1, retain=True)
        await here.publish("t/1", b"1", qos=1)
        await there.subscribe("t/+", qos=1)
        await nodes.sends("a", "b", "t/+")
        assert await got(there) == ("t/kept", b"0")
        await here.publish("u/1", b"2", qos=1)
        await here.publish("t/1", b"3", qos=1)
        assert await got(there) == ("t/1", b"3")
        sent = nodes.nodes["a"].node.links.rows()[0]["queue"]
        assert sent == 0
        await there.unsubscribe("t/+")
        await nodes.sends("a", "b")


@on_uvloop
async def test_a_flapping_client_costs_nothing(folder: Path) -> None:
    async with net(folder, "ab") as nodes:
        there = await nodes.nodes["b"].connect("there")
        await there.subscribe("t/#", qos=1)
        await nodes.sends("a", "b", "t/#")
        told = []
        taken = nodes.end("a", "b").wanted_there
        taken.take, taking = lambda said: (told.append(said), taking(said)), taken.take
        for _ in range(20):
            await there.unsubscribe("t/#")
            await there.subscribe("t/#", qos=1)
        await there.subscribe("last", qos=1)
        await nodes.sends("a", "b", "t/#", "last")
        assert [(list(said["add"]), said["remove"]) for said in told] == [(["last"], [])]


@on_uvloop
async def test_it_spreads_over_nodes_and_follows_a_mobile_subscriber(folder: Path, quick: None) -> None:
    """SEC-REDS, figure 2.7: a subscriber that appears at another node receives there what it did here."""
    async with net(folder, "ab", "bc", "cd") as nodes:
        publisher = await nodes.nodes["a"].connect("publisher")
        mobile = await nodes.nodes["d"].connect("mobile")
        await mobile.subscribe("t/#", qos=1)
        for one, other in ("cd", "bc", "ab"):
            await nodes.sends(one, other, "t/#")
        await publisher.publish("t/1", b"1", qos=1)
        assert await got(mobile) == ("t/1", b"1")
        await mobile.send(wire.Disconnect())
        mobile = await nodes.nodes["b"].connect("mobile")
        await mobile.subscribe("t/#", qos=1)
        for one, other in ("cd", "bc"):
            await nodes.sends(one, other)
        assert nodes.crossing("a", "b") == {"t/#"}
        await publisher.publish("t/1", b"2", qos=1)
        assert await got(mobile) == ("t/1", b"2")


@on_uvloop
async def test_sibling_links_bring_nothing_twice(folder: Path, quick: None) -> None:
    """SEC-REDS, figures 1.4 and 1.5: brothers are linked, too; duplicates are removed, and a lost link is no loss."""
    async with net(folder, "ab", "ac", "bc") as nodes:
        publisher, subscriber = (
            await nodes.nodes["a"].connect("publisher"),
            await nodes.nodes["c"].connect("subscriber"),
        )
        for _ in range(2):  # what nobody wants any more does not go round
            await subscriber.unsubscribe("t/#")
            for one, other in ("ac", "ab", "bc", "ba", "cb", "ca"):
                await nodes.sends(one, other)
            await subscriber.subscribe("t/#", qos=1)
            for one, other in ("ac", "ab", "bc"):
                await nodes.sends(one, other, "t/#")
        for number in range(20):
            await publisher.publish("t/1", str(number).encode(), qos=1)
        numbers = [str(number).encode() for number in range(20)]
        assert [(await got(subscriber))[1] for _ in numbers] == numbers
        await until(lambda: not any(row["queue"] for each in nodes.nodes.values() for row in each.node.links.rows()))
        nodes.nodes["a"].node.links.dialers["a->c"]._pause = 1000.0  # it stays away
        nodes.end("a", "c").session.connection.close(wire.Reason.ADMINISTRATIVE_ACTION)
        await publisher.publish("t/1", b"around", qos=1)
        assert await got(subscriber) == ("t/1", b"around")  # and none of the others once more


@on_uvloop
async def test_demands_spread_only_over_links_that_meet_them(folder: Path, quick: None) -> None:
    levels = "levels: {facts: {near: \"s.address == 'elsewhere'\"}}\n"
    async with net(folder, "ab", b=levels) as nodes:
        there = await nodes.nodes["b"].connect("there")
        for filter, demand in (("strong", "trusted"), ("fact", "near"), ("weak", "tls"), ("last", None)):
            pairs = () if demand is None else (("require", demand),)
            await there.subscribe(filter, qos=1, properties=wire.Properties(user_properties=pairs))
        await nodes.sends("a", "b", "strong", "weak", "last")


@on_uvloop
async def test_held_subscriptions_do_not_spread(folder: Path, quick: None) -> None:
    more = "subscribe: hold\n"
    async with net(folder, "ab", b=more) as nodes:
        b = nodes.nodes["b"]
        allowed = "policies: [{id: links, subject: '*', topic: 'link/#', action: [read, write]}, OPEN]"
        text = nodes.text("b").replace("policies: open", allowed)
        await b.reload(text.replace("OPEN", "{id: l, subject: 'link:a->b', topic: '#', action: read}"))
        there = await b.connect("there")
        await there.subscribe("t/#", qos=1)
        await there.subscribe("link/t", qos=1)
        await nodes.sends("a", "b", "link/t")
        await b.reload(text.replace("OPEN", "{id: o, subject: '*', topic: '#', action: [read, write]}"))
        await nodes.sends("a", "b", "link/t", "t/#")


@on_uvloop
async def test_what_monitors_listen_to_is_wanted(folder: Path, quick: None) -> None:
    more = "monitors: [{id: door, link: 'a->b', only: DL_unlock, after: [AccessGranted], reset: AccessDenied}]\n"
    async with net(folder, "ab", b=more) as nodes:
        await nodes.sends("a", "b", "DL_unlock", "AccessGranted", "AccessDenied")


@on_uvloop
async def test_what_was_wanted_is_owed_over_outages_and_restarts(folder: Path, quick: None) -> None:
    made = Net(folder, ("ab",), {})
    async with made.node("b"):
        there = await made.nodes["b"].connect("there", clean_start=False, properties=KEEP)
        async with made.node("a"):
            await there.subscribe("t/#", qos=1)
            await made.sends("a", "b", "t/#")
        async with made.node("a"):  # from its store
            assert made.crossing("a", "b") == {"t/#"}
    async with made.node("a"):
        here = await made.nodes["a"].connect("here")
        await here.publish("t/1", b"owed", qos=1)
        await here.publish("u/1", b"not", qos=1)
        assert made.nodes["a"].node.links.rows()[0]["queue"] == 1
        async with made.node("b"):
            there = await made.nodes["b"].connect("there", clean_start=False, properties=KEEP)
            assert await got(there) == ("t/1", b"owed")


@on_uvloop
async def test_what_is_retained_and_not_wanted_any_more_is_forgotten(folder: Path, quick: None) -> None:
    async with net(folder, "ab") as nodes:
        here, there = await nodes.nodes["a"].connect("here"), await nodes.nodes["b"].connect("there")
        await here.publish("t/kept", b"1", qos=1, retain=True)
        await there.subscribe("t/#", qos=1)
        assert await got(there) == ("t/kept", b"1")
        await there.unsubscribe("t/#")
        await nodes.sends("a", "b")
        kept = nodes.nodes["b"].node.scopes["b"].retained
        await until(lambda: kept.get("t/kept") is None)
        await there.subscribe("t/#", qos=1)
        assert await got(there) == ("t/kept", b"1")  # it comes again
        await there.unsubscribe("t/#")
        await until(lambda: kept.get("t/kept") is None)
        await here.publish("t/kept", b"", qos=1, retain=True)
        await there.subscribe("#", qos=1)
        await nodes.sends("a", "b", "#")
        await here.publish("t/mark", b"mark", qos=1)
        assert await got(there) == ("t/mark", b"mark")


@on_uvloop
async def test_strange_filters_are_told_to_nobody(folder: Path, quick: None) -> None:
    async with net(folder, "ab") as nodes:
        there = await nodes.nodes["b"].connect("there")
        await there.subscribe("$SYS/#", qos=1)
        await there.subscribe("$share/g/t/+", qos=1)
        await nodes.sends("a", "b", "t/+")
