"""A link with several connections: which one carries, and what becomes of it when it is lost, or overloaded."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness import free_port
from processes import on_uvloop, until
from reliability.links import Proxy
from sockets.linked_pair import FROM_REMOTE, GYM, REMOTE, Pair, row
from tidegate import wire
from tidegate.errors import ConfigError
from tidegate.link import failover
from tidegate.link.overload import LOOKS, Overload
from tidegate.policy.failover import Failover

FAST = "interval: 100ms, heartbeat: 100ms"
BACK = "restore: 300ms"


class Ways:
    """Two nodes, and the networks between them, in the order of `via`."""

    def __init__(self, both: Pair, proxies: list[Proxy]) -> None:
        self.both = both
        self.proxies = proxies
        self.urls = [f"mqtts://127.0.0.1:{proxy.port}" for proxy in proxies]

    @property
    def row(self) -> dict[str, Any]:
        return row(self.both.gym)

    @property
    def states(self) -> list[str]:
        return [each["state"] for each in self.row["failover"]["connections"]]

    async def over(self, number: int) -> None:
        """Until that one carries, at both ends."""
        await until(lambda: self.row["address"] == self.urls[number] and self.states[number] == "carries")
        await until(lambda: row(self.both.remote)["state"] == "connected")

    async def crosses(self, content: bytes, qos: int = 1) -> None:
        here, there = await self.both.gym.connect("here"), await self.both.remote.connect("there")
        await there.subscribe("out/#", qos=2)
        await here.subscribe("back/#", qos=2)
        await here.publish("out/a", content, qos=qos)
        assert (await there.message()).payload == content
        await there.publish("back/a", content, qos=qos)
        assert (await here.message()).payload == content


@contextlib.asynccontextmanager
async def ways(folder: Path, strategy: str, number: int = 2) -> AsyncIterator[Ways]:
    both = Pair(folder)
    proxies = [Proxy(free_port(), int(both.port)) for _ in range(number)]
    via = ", ".join(f'"mqtts://127.0.0.1:{proxy.port}"' for proxy in proxies)
    for proxy in proxies:
        await proxy.start()
    links = f"links: [{{from: gym, to: remotegym, via: [{via}], peer: CN=b, failover: {{{strategy}}}}}]"
    try:
        async with both.remotes(), both.gyms(links):
            yield Ways(both, proxies)
    finally:
        for proxy in proxies:
            await proxy.close()


# -- all are open ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_another_connection_takes_over_at_once(folder: Path, qos: int) -> None:
    async with ways(folder, f"mode: active, attempts: 100, {FAST}, restore: null") as between:
        await between.over(0)
        await until(lambda: between.states == ["carries", "standby"])
        await until(lambda: row(between.both.remote)["standby"] == 1)  # the other end hears of it a moment later
        await between.crosses(b"1", qos)
        between.proxies[0].refusing = True
        between.proxies[0].cut()
        await between.over(1)
        await between.crosses(b"2", qos)
        between.proxies[0].refusing = False
        await until(lambda: between.states == ["standby", "carries"])  # SEC-REDS 3.2.1: it is added as a backup
        assert between.row["switches"] == 1


@on_uvloop
async def test_a_silent_connection_is_found_by_its_heartbeat(folder: Path) -> None:
    async with ways(folder, f"mode: active, attempts: 100, {FAST}, restore: null") as between:
        await between.over(0)
        await until(lambda: between.states == ["carries", "standby"])
        between.proxies[0].stall()
        await between.over(1)
        assert "nothing came for 0.3 s" in between.row["failover"]["reason"]
        await between.crosses(b"x")
        between.proxies[0].flow()


@on_uvloop
async def test_the_default_carries_again_when_it_has_been_there_for_a_while(folder: Path) -> None:
    async with ways(folder, f"mode: active, attempts: 100, {FAST}, {BACK}") as between:
        await between.over(0)
        await until(lambda: between.states == ["carries", "standby"])
        between.proxies[0].cut()
        await between.over(1)
        await between.over(0)
        await until(lambda: between.states == ["carries", "standby"])
        assert between.row["failover"]["reason"] == "the default is back"
        await between.crosses(b"x")


# -- one is open -------------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_backup_is_opened_after_so_many_attempts(folder: Path) -> None:
    async with ways(folder, f"mode: on_demand, attempts: 3, {FAST}, {BACK}") as between:
        internet, satellite = between.proxies
        await between.over(0)
        assert between.states == ["carries", "closed"]
        tried = internet.tried
        internet.refusing = True
        internet.cut()
        await between.over(1)
        assert internet.tried - tried == 3
        assert between.row["on_backup"]
        await between.crosses(b"1", 2)
        internet.refusing = False
        await between.over(0)
        await until(lambda: between.states == ["carries", "closed"])
        assert (satellite.connections, between.row["on_backup"]) == (1, False)
        await between.crosses(b"2", 2)


@on_uvloop
async def test_a_default_that_is_there_again_at_once_needs_no_backup(folder: Path) -> None:
    async with ways(folder, f"mode: on_demand, attempts: 3, {FAST}, {BACK}") as between:
        await between.over(0)
        between.proxies[0].cut()
        await until(lambda: between.proxies[0].connections == 2)
        await between.over(0)
        await between.crosses(b"1")
        assert between.proxies[1].tried == 0


# -- chosen by an operator ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["active", "on_demand"])
@on_uvloop
async def test_another_default(folder: Path, mode: str) -> None:
    attempts = 100 if mode == "active" else 1
    async with ways(folder, f"mode: {mode}, attempts: {attempts}, {FAST}, {BACK}", 3) as between:
        links = between.both.gym.node.links
        await between.over(0)
        if mode == "active":
            await until(lambda: between.states == ["carries", "standby", "standby"])
        said = await links.set_default("gym->remotegym", between.urls[2])
        assert (said["address"], said["failover"]["default"]) == (between.urls[2], between.urls[2])
        await between.over(2)
        await between.crosses(b"1")
        if mode == "active":
            await until(lambda: between.states == ["standby", "standby", "carries"])
        between.proxies[2].refusing = True
        between.proxies[2].cut()
        await between.over(0)
        assert between.row["on_backup"]
        between.proxies[2].refusing = False
        await between.over(2)  # that is the default now


@on_uvloop
async def test_a_default_that_cannot_be(folder: Path) -> None:
    async with ways(folder, f"mode: on_demand, {FAST}") as between:
        links = between.both.gym.node.links
        await between.over(0)
        between.proxies[1].refusing = True
        for link, address, why in (
            ("gym->remotegym", between.urls[1], "does not carry the link"),
            ("gym->remotegym", "mqtts://127.0.0.1:1", "it is none of"),
            ("gym->remote", between.urls[0], "did you mean gym->remotegym"),
        ):
            with pytest.raises(ConfigError, match=why):
                await links.set_default(link, address)
        with pytest.raises(ConfigError, match="the other end connects, and chooses"):
            await between.both.remote.node.links.set_default("remotegym->gym", between.urls[0])
        assert between.states == ["carries", "closed"]
        await between.crosses(b"1")


# -- overload ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["active", "on_demand"])
@on_uvloop
async def test_an_overloaded_default_is_relieved(folder: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "LOOK", 0.02)
    strategy = f"mode: {mode}, attempts: 100, interval: 100ms, heartbeat: 10s, {BACK}, overload: 50"
    async with ways(folder, strategy) as between:
        await between.over(0)
        if mode == "active":
            await until(lambda: between.states == ["carries", "standby"])
        here, there = await between.both.gym.connect("here"), await between.both.remote.connect("there")
        await there.subscribe("out/#", qos=1)
        between.proxies[0].stall()  # it is there, and carries nothing
        for number in range(60):
            await here.publish("out/a", str(number).encode(), qos=1)
        await between.over(1)
        assert between.row["failover"]["reason"] == "overload"
        assert [(await there.message()).payload for _ in range(60)] == [str(number).encode() for number in range(60)]
        between.proxies[0].flow()
        await between.over(0)
        assert between.row["switches"] == 2


def test_overload_needs_several_looks_and_does_not_flap() -> None:
    overload = Overload(Failover(overload=100, restore=30.0), 0.0)
    assert not any(overload.look(0.0, queue, True) for queue in (500, 400, 300, 200, 150))  # it catches up
    assert [overload.look(0.0, 500, True) for _ in range(LOOKS)][-1]
    spared = []
    now = 0.0
    for _ in range(6):
        overload.carries(now, False, True)
        began = now
        while not overload.over(now, 0):
            now += 1.0
        spared.append(now - began)
        assert not overload.over(now, 60)  # there is still too much to send
        overload.carries(now, True, False)
        now += 5.0  # and it is overloaded again
    assert spared == [30.0, 60.0, 120.0, 240.0, 480.0, 480.0]
    now += 1000.0
    overload.carries(now, False, True)
    assert overload.over(now + 30.0, 0)


# -- two connections at once -------------------------------------------------------------------------------------


def demanding(fact: str = "secure") -> wire.Properties:
    return wire.Properties(user_properties=(("require", fact),))


@contextlib.asynccontextmanager
async def classes(folder: Path, mode: str) -> AsyncIterator[Ways]:
    """Two connections, of which only the first has the fact `secure`."""
    both = Pair(folder)
    second = free_port()
    proxies = [Proxy(free_port(), int(both.port)), Proxy(free_port(), second)]
    for proxy in proxies:
        await proxy.start()
    via = ", ".join(f'"mqtts://127.0.0.1:{proxy.port}"' for proxy in proxies)
    strategy = f"mode: {mode}, attempts: 100, {FAST}, restore: null"
    links = f"links: [{{from: gym, to: remotegym, via: [{via}], peer: CN=b, failover: {{{strategy}}}}}]\n"
    files = "cert: ../b.pem, key: ../b.key, client_ca: ../ca.pem, client_cert: required"
    listener = f'{{url: "mqtts://127.0.0.1:SECOND", scope: remotegym, {files}}}'
    remote = REMOTE.replace("scopes:", f"  - {listener}\nscopes:").replace("SECOND", str(second))
    here = "s.listener == 'mqtt://127.0.0.1:PORT' || s.listener == 'mqtts://127.0.0.1:FIRST'"
    gym = GYM.replace("LINKS", links + f'levels: {{facts: {{secure: "{here}"}}}}')
    gym = gym.replace("FIRST", str(proxies[0].port))
    there = f"s.listener == 'mqtt://127.0.0.1:PORT' || s.listener == 'mqtts://127.0.0.1:{both.port}'"
    remote = remote.replace("LINKS", FROM_REMOTE + f'\nlevels: {{facts: {{secure: "{there}"}}}}')
    try:
        async with both.node("remote", remote, ""), both.node("gym", gym, ""):
            yield Ways(both, proxies)
    finally:
        for proxy in proxies:
            await proxy.close()


@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_what_demands_the_better_connection_takes_it(folder: Path, qos: int) -> None:
    """SEC-REDS, figure 1.6: two connections carry at once, each its class of messages."""
    async with classes(folder, "active") as between:
        await between.over(0)
        await until(lambda: between.states == ["carries", "standby"])
        await between.both.gym.node.links.set_default("gym->remotegym", between.urls[1])
        await until(lambda: between.states == ["standby", "carries"])
        here, there = await between.both.gym.connect("here"), await between.both.remote.connect("there")
        await there.subscribe("out/#", qos=1)
        sent = []
        for number in range(60):
            if number in (20, 40):  # meanwhile the other one carries, and then the first one again
                await between.both.gym.node.links.set_default("gym->remotegym", between.urls[number // 20 - 1])
                await until(lambda: sorted(between.states) == ["carries", "standby"])
            strict = number % 3 == 1
            sent.append((f"out/{number % 2}", str(number).encode()))
            properties = demanding() if strict else wire.NONE
            await here.publish(*sent[-1], qos=qos, properties=properties)
        got = [await there.message() for _ in sent]
        assert sorted((each.topic, each.payload) for each in got) == sorted(sent)  # each once
        for topic in ("out/0", "out/1"):
            numbers = [int(each.payload) for each in got if each.topic == topic]
            assert numbers == sorted(numbers)
        floors = {int(each.payload): dict(each.properties.user_properties)["floor"] for each in got}
        assert all("secure" in floors[number] for number in range(1, 60, 3))
        assert not any("secure" in floors[number] for number in (0, 2))  # nothing before them demands it
        await until(lambda: between.row["queue"] == 0)


@on_uvloop
async def test_what_demands_the_better_connection_waits_for_it(folder: Path) -> None:
    """SEC-REDS, figure 1.6: the rest falls back."""
    async with classes(folder, "on_demand") as between:
        await between.over(0)
        await between.both.gym.node.links.set_default("gym->remotegym", between.urls[1])
        await between.over(1)
        here, there = await between.both.gym.connect("here"), await between.both.remote.connect("there")
        await there.subscribe("out/#", qos=1)
        await here.publish("out/strict", b"1", qos=1, properties=demanding())
        await here.publish("out/strict", b"2", qos=1)  # behind it
        await here.publish("out/free", b"3", qos=1)
        assert (await there.message()).payload == b"3"
        await between.both.gym.node.links.set_default("gym->remotegym", between.urls[0])
        assert [(await there.message()).payload for _ in range(2)] == [b"1", b"2"]
