"""SEC-REDS on nodes that are processes of their own, linked over TLS: figures 1.3 to 1.5 and 2.7.

Figures 1.6 and 3.1 to 3.9 are `examples/satellite`. What they need in detail is in `tests/sockets/test_failover.py`
and `tests/sockets/test_subscription_forwarding.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import PATIENCE, Client
from processes import File, Process
from sockets.test_subscription_forwarding import Net
from tidegate import wire
from tidegate.cli import certificates

TREE = ("ab", "ac", "bd", "bc")
"""A is the root, B and C are brothers that are linked, too, and D is below B."""


class Town:
    """Nodes that run, each as a process."""

    def __init__(self, folder: Path) -> None:
        net = Net(folder, TREE, {})
        self.nodes: dict[str, Process] = {}
        self.clients: list[Client] = []
        for name in net.names:
            place = folder / f"node-{name}"
            place.mkdir()
            self.nodes[name] = Process(File(place, net.text(name)))

    async def client(self, name: str, identifier: str) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.nodes[name].ports["PORT"])
        client = Client(reader, writer)
        self.clients.append(client)
        await client.send(wire.Connect(version=wire.V5, client_id=identifier, clean_start=True, keep_alive=0))
        await client.expect(wire.Connack)
        return client

    async def leave(self) -> None:
        for client in self.clients:
            client.writer.close()
            with contextlib.suppress(OSError):
                await client.writer.wait_closed()
        self.clients.clear()

    async def until(self, name: str, link: str, **wanted: Any) -> None:
        """Until a link is as it should be."""
        async with asyncio.timeout(PATIENCE):
            while True:
                shown = await asyncio.to_thread(self.nodes[name].ask, "link_show", link=link)
                if all(shown[key] == value for key, value in wanted.items()):
                    return
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("town")
    certificates.make_ca(folder, "Test CA", days=2)
    made = Town(folder)
    try:
        for node in made.nodes.values():
            node.wait_until_it_accepts()
        yield made
    finally:
        for node in made.nodes.values():
            with contextlib.suppress(Exception):
                node.stop()
            node.kill()


@pytest.fixture
async def town(running: Town) -> AsyncIterator[Town]:
    """Where everybody leaves at the end of a test."""
    yield running
    await running.leave()


async def arrives(publisher: Client, subscriber: Client, content: bytes) -> None:
    """Publishes until somebody behind several nodes has it, whose subscription may still be on its way."""

    arrived = False

    async def publish() -> None:
        while not arrived:
            await publisher.publish("t/1", content, qos=1)
            await asyncio.sleep(0.05)

    publishing = asyncio.create_task(publish())
    while (await subscriber.message()).payload != content:
        pass
    arrived = True
    await publishing


async def test_figure_2_7_a_mobile_subscriber(town: Town) -> None:
    """It attaches to D, and later to C; messages of the publisher at A follow it."""
    for name, link in (("a", "a->b"), ("a", "a->c"), ("b", "b->d"), ("b", "b->c")):
        await town.until(name, link, state="connected", level="trusted")
    publisher = await town.client("a", "publisher")
    mobile = await town.client("d", "mobile")
    await mobile.subscribe("t/#", qos=1)
    await arrives(publisher, mobile, b"at D")
    await mobile.send(wire.Disconnect())
    mobile = await town.client("c", "mobile")
    await mobile.subscribe("t/#", qos=1)
    await arrives(publisher, mobile, b"at C")
    await mobile.send(wire.Disconnect())


async def test_figures_1_3_to_1_5_brothers_are_linked_too(town: Town) -> None:
    """What comes over a brother's link as well is dropped; when the link between A and C drops, it is not."""
    publisher, subscriber = await town.client("a", "publisher"), await town.client("c", "subscriber")
    await subscriber.subscribe("t/#", qos=1)
    await arrives(publisher, subscriber, b"begin")
    numbers = [f"number {number}".encode() for number in range(50)]
    for number in numbers:
        await publisher.publish("t/1", number, qos=1)
    await publisher.publish("t/1", b"end", qos=1)
    came = []
    while (payload := (await subscriber.message()).payload) != b"end":
        came += [payload] if payload in numbers else []
    assert came == numbers
    file = town.nodes["c"].file
    file.write(file.path.read_text().replace("peer: CN=a", "peer: CN=nobody"))  # C does not accept A any more
    assert await asyncio.to_thread(town.nodes["c"].ask, "reload")
    await town.until("c", "c->a", state="waiting")
    await arrives(publisher, subscriber, b"by way of B")
