"""Who comes in, and when: prices of connections, `connect_rate` and the number of TLS handshakes, before TLS begins."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness import PATIENCE, Client, live
from processes import Served, from_file, on_uvloop, process, until
from tidegate import wire
from tidegate.cli import certificates
from tidegate.net.admission import Admission

FILE = """
version: 1
node: {name: test}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", anonymous: true}
  - {url: "mqtts://127.0.0.1:TLS_PORT", cert: node.pem, key: node.key, anonymous: true, OPTIONS}
policies: open
sys: {interval: 0s}
"""
PLAIN = """
version: 1
node: {name: test}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
policies: open
sys: {interval: 0s}
"""
OTHER = "127.0.0.2"
CONNECT = wire.encode(wire.Connect(version=wire.V5, client_id="", clean_start=True, keep_alive=0), wire.V5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certificates.make_ca(tmp_path, "Test CA", days=2)
    certificates.issue(tmp_path, "node", ["127.0.0.1"], client=False, days=2)
    return tmp_path


@contextlib.asynccontextmanager
async def served(folder: Path, options: str) -> AsyncIterator[Served]:
    async with from_file(folder, FILE.replace("OPTIONS", options)) as node:
        yield node


def door(node: Served, scheme: str = "mqtts") -> Admission:
    (found,) = [one for url, one in node.node.listeners.bound.items() if url.startswith(f"{scheme}:")]
    return found.admission


class Coming:
    """TLS handshakes that were begun and may not have ended."""

    def __init__(self, node: Served, folder: Path) -> None:
        self.node = node
        self.context = ssl.create_default_context(cafile=folder / "ca.pem")
        self.tasks: list[asyncio.Task[Client]] = []

    def begin(self, count: int = 1, local: str = "127.0.0.1") -> None:
        dial = self.node.dial
        port = self.node.ports["TLS_PORT"]
        self.tasks += [asyncio.create_task(dial(port, self.context, local=local)) for _ in range(count)]

    @property
    def ended(self) -> int:
        return sum(task.done() and task.exception() is None for task in self.tasks)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def coming(node: Served, folder: Path) -> AsyncIterator[Coming]:
    them = Coming(node, folder)
    try:
        yield them
    finally:
        await them.stop()


# -- connect_rate ------------------------------------------------------------------------------------------------


@on_uvloop
async def test_connect_rate_is_asked_before_tls_and_each_address_has_its_turn(folder: Path) -> None:
    async with served(folder, "connect_rate: 1") as node, coming(node, folder) as many, coming(node, folder) as other:
        many.begin(30)
        await until(lambda: door(node).connections == 30)
        await until(lambda: many.ended == 1)
        assert door(node).handshakes <= 1
        started = time.monotonic()
        other.begin(local=OTHER)
        await until(lambda: other.ended == 1)  # not after the 29 who came before
        assert many.ended <= 2 + time.monotonic() - started
        assert door(node).turned_away == 0


@on_uvloop
async def test_who_leaves_while_waiting_is_not_opened(folder: Path) -> None:
    async with served(folder, "connect_rate: 1") as node, coming(node, folder) as last:
        async with coming(node, folder) as first:
            first.begin()
            await until(lambda: first.ended == 1)
        leaving = [await node.dial(node.ports["TLS_PORT"]) for _ in range(20)]
        await until(lambda: door(node).connections >= 20)
        for one in leaving:
            one.writer.close()
        last.begin()
        await until(lambda: last.ended == 1, 15)  # they took no token: 20 of them would have to wait 20 seconds
        await until(lambda: door(node).connections == 1)


@on_uvloop
async def test_who_waits_is_handed_over_to_a_listener_that_changes(folder: Path) -> None:
    async with served(folder, "connect_rate: 0.01") as node, coming(node, folder) as many:
        many.begin(5)
        await until(lambda: many.ended == 1 and door(node).connections == 5)
        node.file.write(FILE.replace("OPTIONS", "connect_rate: 100"))
        await node.reload()
        await until(lambda: many.ended == 5)
        assert door(node).turned_away == 0


@on_uvloop
async def test_places_are_counted_while_they_wait() -> None:
    text = 'listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true, connect_rate: 0.01, max_connections: 3}]\n'
    async with live(text) as node:
        first = await node.connect("first")
        waiting = [await node.socket() for _ in range(2)]
        (bound,) = node.node.listeners.bound.values()
        await until(lambda: bound.admission.connections == 3)
        assert await (await node.socket()).closed() == b""
        (status,) = node.node.status()["listeners"]
        assert (status["connections"], status["waiting"], status["turned_away"]) == (1, 2, 1)
        await first.silent()
        for one in waiting:
            assert not one.reader.at_eof()


# -- handshakes ---------------------------------------------------------------------------------------------------


@on_uvloop
async def test_handshakes_of_one_address_are_bounded(folder: Path) -> None:
    async with served(folder, "address_handshakes: 3") as node, coming(node, folder) as mine:
        silent = [await node.dial(node.ports["TLS_PORT"]) for _ in range(4)]
        await until(lambda: door(node).connections == 4)
        assert door(node).handshakes == 3
        mine.begin()
        async with coming(node, folder) as other:
            other.begin(local=OTHER)
            await until(lambda: other.ended == 1)
        assert (mine.ended, door(node).handshakes) == (0, 3)
        for one in silent[:2]:
            one.writer.close()
        await until(lambda: mine.ended == 1)


@on_uvloop
async def test_handshakes_of_a_listener_are_bounded(folder: Path) -> None:
    async with served(folder, "handshakes: 3") as node, coming(node, folder) as more:
        silent = [await node.dial(node.ports["TLS_PORT"]) for _ in range(3)]
        await until(lambda: door(node).handshakes == 3)
        more.begin(5)
        await until(lambda: door(node).connections == 8)
        assert (more.ended, door(node).handshakes) == (0, 3)
        silent[0].writer.close()
        await until(lambda: more.ended == 5)
        await until(lambda: door(node).handshakes == 2)


@on_uvloop
async def test_one_address_cannot_keep_all_handshakes(folder: Path) -> None:
    async with served(folder, "handshakes: 3, connect_timeout: 1h") as node, coming(node, folder) as other:
        silent = [await node.dial(node.ports["TLS_PORT"]) for _ in range(5)]
        await until(lambda: door(node).connections == 5)
        other.begin(local=OTHER)
        await until(lambda: other.ended == 1)
        await silent[0].closed()  # the oldest
        assert not silent[1].reader.at_eof()


@on_uvloop
async def test_handshakes_that_never_end_make_room_in_time(folder: Path) -> None:
    async with served(folder, "handshakes: 2, connect_timeout: 300ms") as node, coming(node, folder) as last:
        _ = [await node.dial(node.ports["TLS_PORT"]) for _ in range(4)]
        await until(lambda: door(node).connections == 4)
        last.begin()
        await until(lambda: last.ended == 1)


@on_uvloop
async def test_a_fleet_behind_one_address_comes_back_and_nobody_is_refused(folder: Path) -> None:
    async with served(folder, "") as node, coming(node, folder) as fleet:
        fleet.begin(300)
        await until(lambda: fleet.ended == 300, 6 * PATIENCE)
        assert door(node).turned_away == 0
        await until(lambda: door(node).handshakes == 0)  # a client is done before the node has its last bytes


# -- prices -------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_who_comes_all_the_time_waits_while_others_are_served(tmp_path: Path) -> None:
    async with from_file(tmp_path, PLAIN) as node:
        site, mine = node.node.site, door(node, "mqtt")
        victim, reader = await node.connect("v"), await node.connect("r")
        await reader.subscribe("v")

        async def come() -> None:
            while True:
                client = await node.dial(node.ports["PORT"], local=OTHER)
                await client.raw(CONNECT + b"\xe0\x00")
                await client.closed()

        rested = 0
        attackers = [asyncio.create_task(come()) for _ in range(4)]
        try:
            async with asyncio.timeout(PATIENCE):
                while rested < 20:
                    await victim.publish("v")
                    await reader.message()
                    source = mine.addresses.get(OTHER)
                    rested += source is not None and bool(source.arrivals) and site.rests(source.payer)
        finally:
            for attacker in attackers:
                attacker.cancel()
            await asyncio.wait(attackers)
        assert mine.turned_away == 0
        await until(lambda: OTHER not in mine.addresses)  # what it owes is paid, and it is forgotten


@on_uvloop
async def test_an_address_is_remembered_until_it_has_paid(tmp_path: Path) -> None:
    async with from_file(tmp_path, PLAIN) as node:
        mine = door(node, "mqtt")
        for _ in range(20):
            client = await node.dial(node.ports["PORT"], local=OTHER)
            await client.raw(CONNECT + b"\xe0\x00")
            await client.closed()
        await until(lambda: mine.connections == 0)
        assert mine.addresses[OTHER].payer.until > 0
        await until(lambda: not mine.addresses)


def test_without_a_descriptor_connections_wait(tmp_path: Path) -> None:
    with process(tmp_path, PLAIN + "log: {format: json}\n") as node, contextlib.ExitStack() as stack:
        _, most = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir(f"/proc/{node.pid}/fd"))
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (highest + 3, most))
        clients: list[socket.socket] = []

        def come() -> socket.socket:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", node.ports["PORT"]), timeout=PATIENCE))
            client.sendall(CONNECT)
            clients.append(client)
            return client

        while not node.events("cannot accept"):  # the node opens and closes files meanwhile: how many fit nobody knows
            assert len(clients) < 100
            select.select([come()], [], [], 0.5)
        late = come()
        assert select.select([late], [], [], 0.3)[0] == []
        for client in clients[:-1]:
            client.close()
        assert late.recv(1) == b"\x20"
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (most, most))
        assert len(node.events("cannot accept")) < 20  # and it does not say so all the time
