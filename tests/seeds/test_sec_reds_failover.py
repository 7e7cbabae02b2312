"""SEC-REDS, chapter 3 and figure 1.6, on two nodes that are processes of their own, linked over TLS.

B1 is the master: it connects, and has the backup strategy. B2 is the slave. Each network between them can be cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import PATIENCE, Client, free_port
from processes import File, Process
from reliability.links import Proxy
from tidegate import wire
from tidegate.cli import certificates
from tidegate.errors import TidegateError

SLAVE = """
version: 1
node: {name: slave, data: data}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: b2, anonymous: true}
  - {url: "mqtts://127.0.0.1:TLS_PORT", scope: b2, anonymous: true, client_cert: optional,
     cert: ../slave.pem, key: ../slave.key, client_ca: ../ca.pem}
scopes: {b2: {}}
links: [{from: b2, to: b1, peer: CN=master, plain_backup: true}]
trust: {otherwise: degrade, domains: {master: {nodes: [master]}}}
policies: open
sys: {interval: 0s}
"""
MASTER = """
version: 1
node: {name: master, data: data, cert: ../master.pem, key: ../master.key, ca: ../ca.pem}
listeners: [{url: "mqtt://127.0.0.1:PORT", scope: b1, anonymous: true}]
scopes: {b1: {}}
links: [{from: b1, to: b2, via: [VIA], peer: CN=slave, failover: {STRATEGY}}]
trust: {otherwise: degrade, domains: {slave: {nodes: [slave]}}}
policies: open
sys: {interval: 0s}
"""
PACE = "interval: 300ms, heartbeat: 10s"  # what is cut is noticed at once
ON_DEMAND = f"mode: on_demand, attempts: 3, {PACE}, restore: 200ms"
ACTIVE = f"mode: active, attempts: 100, {PACE}, restore: null"


class Brokers:
    """B1, B2, and the networks between them: A, B and C."""

    def __init__(self, folder: Path) -> None:
        certificates.make_ca(folder, "Test CA", days=2)
        for name in ("master", "slave"):
            (folder / f"node-{name}").mkdir()
            certificates.issue(folder, name, ["127.0.0.1"], client=True, days=2)
        self.folder = folder
        self.clients: list[Client] = []
        self.slave = Process(File(folder / "node-slave", SLAVE))
        self.networks = [Proxy(free_port(), self.slave.ports["TLS_PORT"]) for _ in range(3)]
        self.urls = [f"mqtts://127.0.0.1:{network.port}" for network in self.networks]
        self.master = Process(File(folder / "node-master", self._text(ON_DEMAND, 2)))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def _text(self, strategy: str, number: int, *more: str) -> str:
        via = ", ".join(f'"{url}"' for url in (*self.urls[:number], *more))
        return MASTER.replace("VIA", via).replace("STRATEGY", strategy)

    def start(self) -> None:
        self._thread.start()
        for network in self.networks:
            self._do(network.start())
        for process in (self.slave, self.master):
            process.wait_until_it_accepts()

    def stop(self, *, kill: bool = False) -> None:
        for process in (self.master, self.slave):
            process.kill() if kill else process.stop()
        if self._thread.is_alive():
            for network in self.networks:
                self._do(network.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def _do(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    # -- what happens to the networks ------------------------------------------------------------------------------

    def lose(self, number: int) -> None:
        async def cut() -> None:
            self.networks[number].refusing = True
            self.networks[number].cut()

        self._do(cut())

    def mend(self, number: int) -> None:
        self.networks[number].refusing = False

    # -- the link --------------------------------------------------------------------------------------------------

    def strategy(self, strategy: str, number: int, *more: str) -> None:
        """The backup strategy of the master (figure 3.2), with the first so many networks."""
        self.master.file.write(self._text(strategy, number, *more))
        self.master.ask("reload")

    @property
    def link(self) -> dict[str, Any]:
        found: dict[str, Any] = self.master.ask("link_show", link="b1->b2")
        return found

    @property
    def other_end(self) -> dict[str, Any]:
        found: dict[str, Any] = self.slave.ask("link_show", link="b2->b1")
        return found

    def until(self, *states: str, backups: int | None = None, level: str = "trusted") -> dict[str, Any]:
        """Until the connections are so, and at the slave as many stand by."""
        deadline = time.monotonic() + 6 * PATIENCE
        while True:
            link, other = self.link, self.other_end
            found = tuple(each["state"] for each in link["failover"]["connections"])
            same = other["state"] == "connected" and other["level"] == link["level"] == level
            if found == states and same and backups in (None, other["standby"]):
                return link
            assert time.monotonic() < deadline, (link, other)
            time.sleep(0.02)

    def set_default(self, number: int) -> None:
        self.master.ask("link_default", link="b1->b2", address=self.urls[number])

    # -- clients ---------------------------------------------------------------------------------------------------

    async def come(self, name: str, port: int, *, tls: bool = False) -> Client:
        context = ssl.create_default_context(cafile=self.folder / "ca.pem") if tls else None
        client = Client(*await asyncio.open_connection("127.0.0.1", port, ssl=context))
        self.clients.append(client)
        await client.send(wire.Connect(version=wire.V5, client_id=name, clean_start=True, keep_alive=0))
        assert (await client.expect(wire.Connack)).reason == 0
        return client

    async def crosses(self) -> None:
        """A message in either direction, once."""
        here = await self.come("here", self.master.ports["PORT"])
        there = await self.come("there", self.slave.ports["PORT"])
        for source, target, topic in ((here, there, "t/there"), (there, here, "t/here")):
            await target.subscribe(topic, qos=2)
            await source.publish(topic, b"1", qos=2)
            assert (await target.message()).payload == b"1"
            await target.silent()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    made = Brokers(tmp_path_factory.mktemp("brokers"))
    try:
        made.start()
        yield made
    except BaseException:
        made.stop(kill=True)
        raise
    made.stop()


@pytest.fixture
async def brokers(running: Brokers) -> AsyncIterator[Brokers]:
    """With all networks, and nobody there."""
    for number in range(3):
        running.mend(number)
    yield running
    while running.clients:
        writer = running.clients.pop().writer
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_figures_3_1_3_2_and_3_8_a_backup_on_demand(brokers: Brokers) -> None:
    """Lost, tried as often as the strategy says, replaced by the satellite; and taken again once it is back."""
    brokers.strategy(ON_DEMAND, 2)
    brokers.until("carries", "closed", backups=0)
    internet, satellite = brokers.networks[:2]
    tried, opened = internet.tried, satellite.connections
    brokers.lose(0)
    link = brokers.until("closed", "carries", backups=0)
    assert internet.tried - tried >= 3
    assert (satellite.connections - opened, link["on_backup"]) == (1, True)
    await brokers.crosses()
    brokers.mend(0)
    assert not brokers.until("carries", "closed", backups=0)["on_backup"]
    await brokers.crosses()


async def test_figure_3_9_another_default_on_demand(brokers: Brokers) -> None:
    """The old default connection is closed at both ends, and they remain linked through the new one."""
    brokers.strategy(ON_DEMAND, 2)
    brokers.until("carries", "closed", backups=0)
    brokers.set_default(1)
    assert brokers.until("closed", "carries", backups=0)["failover"]["default"] == brokers.urls[1]
    await brokers.crosses()


async def test_figures_3_4_to_3_6_all_connections_are_open_and_one_carries(brokers: Brokers) -> None:
    """The first is the default, the others stand by in both tables; the next one takes over, and the old stands by."""
    brokers.strategy(ACTIVE, 3)
    brokers.until("carries", "standby", "standby", backups=2)
    brokers.lose(0)
    await brokers.crosses()
    link = brokers.link
    assert link["address"] in brokers.urls[1:]
    brokers.mend(0)
    at = brokers.urls.index(link["address"])
    states = ["standby"] * 3
    states[at] = "carries"
    brokers.until(*states, backups=2)


async def test_figures_3_6_and_3_7_the_slave_confirms_another_default(brokers: Brokers) -> None:
    brokers.strategy(ACTIVE.replace("null", "200ms"), 3)
    brokers.until("carries", "standby", "standby", backups=2)
    brokers.set_default(2)
    assert brokers.until("standby", "standby", "carries", backups=2)["failover"]["default"] == brokers.urls[2]
    await brokers.crosses()
    with pytest.raises(TidegateError, match="the other end connects, and chooses"):  # the master decides
        brokers.slave.ask("link_default", link="b2->b1", address=brokers.urls[0])


async def test_figure_1_6_a_double_link_what_needs_guarantees_and_what_falls_back(brokers: Brokers) -> None:
    """The second connection is not encrypted: it takes over what may go over it, and the rest waits for the first."""
    brokers.strategy(ON_DEMAND, 1, f"mqtt://127.0.0.1:{brokers.slave.ports['PORT']}")
    brokers.until("carries", "closed", backups=0)
    brokers.lose(0)
    link = brokers.until("closed", "carries", backups=0, level="plain")
    assert link["degraded"] == brokers.other_end["degraded"] == "it shows no certificate"
    here = await brokers.come("here", brokers.master.ports["PORT"])
    there = await brokers.come("there", brokers.slave.ports["TLS_PORT"], tls=True)
    await there.subscribe("t/#", qos=2)
    view = wire.Properties(user_properties=(("view", '{"*": ["/a"]}'),))
    await here.publish("t/1", b'{"a": 1, "b": 2}', qos=2, properties=view)
    await here.publish("t/2", b"free", qos=2)
    assert (await there.message()).payload == b"free"
    brokers.mend(0)
    brokers.until("carries", "closed", backups=0)
    assert (await there.message()).payload == b'{"a":1}'
    await there.silent()
