"""What tests use to run a real node and to speak raw MQTT to it.

`live(...)` runs a node on the test's own loop, listening on real sockets on loopback. `Client` speaks packets, not
callbacks: what a test sends and what it expects stand in the order in which they happen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

from tidegate import wire
from tidegate.config import Config, parse
from tidegate.node.node import Node

P = TypeVar("P")
PATIENCE = 10.0  # seconds before a test gives up waiting; never a measure of anything
PIECES = 500  # of work that a node is left to do; a test leaves it fewer
WORKERS = 8  # pytest processes at a time, at most
GIVEN: deque[int] = deque(maxlen=100)  # ports that someone may be about to use


def free_port() -> int:
    """A port below the ephemeral range that nobody listens on, and that was not given out just before.

    Tests at the same time have ports of their own.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    while True:
        port = random.randrange(10_000 + worker, 32_000, WORKERS)
        if port in GIVEN:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            GIVEN.append(port)
            return port


def configuration(text: str = "", *, port: int, data: Path | None = None, policies: str = "open") -> Config:
    """An anonymous, open node on `port`, plus whatever YAML is given."""
    base = f"version: 1\nnode: {{name: test{'' if data is None else f', data: {data}'}}}\n"
    if "listeners:" not in text:
        base += f'listeners: [{{url: "mqtt://127.0.0.1:{port}", anonymous: true}}]\n'
    if policies:
        base += f"policies: {policies}\n"
    if "sys:" not in text:
        base += "sys: {interval: 0s}\n"
    return parse(base + text, "test.yaml")


@contextlib.asynccontextmanager
async def live(
    text: str = "", *, data: Path | None = None, port: int | None = None, policies: str = "open"
) -> AsyncIterator[Live]:
    """A node that really listens."""
    port = port or free_port()
    config = configuration(text.replace("PORT", str(port)), port=port, data=data, policies=policies)
    node = Node(config, None, asyncio.get_running_loop())
    running = Live(node, port)
    await node.start()
    try:
        yield running
    finally:
        for client in running.clients:
            client.writer.close()
        await node.close()


class Live:
    """A running node and its clients."""

    def __init__(self, node: Node, port: int) -> None:
        self.node = node
        self.port = port
        self.clients: list[Client] = []

    async def socket(self) -> Client:
        """A TCP connection that has said nothing yet."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = Client(reader, writer)
        client.node = self.node
        self.clients.append(client)
        return client

    async def connect(self, client_id: str = "", *, version: int = wire.V5, expect: int = 0, **fields: Any) -> Client:
        """Connected; `expect` is the reason code CONNACK must carry. The CONNACK is in `client.connack`."""
        client = await self.socket()
        fields.setdefault("clean_start", True)
        fields.setdefault("keep_alive", 0)
        packet = wire.Connect(version=version, client_id=client_id, **fields)
        await client.send(packet)
        client.version = version
        client.connack = await client.expect(wire.Connack)
        assert client.connack.reason == expect, client.connack
        return client


class Client:
    """Speaks packets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.version = wire.V5
        self.connack: wire.Connack
        self.node: Node | None = None  # if it runs on this loop
        self._pid = 0

    async def settled(self) -> None:
        """The node has done what it does in pieces, unless it waits for somebody. On a busy machine they are small."""
        for _ in range(PIECES):
            site = None if self.node is None else self.node.site
            if site is None or not (site.unfinished or len(site.waiting) or len(site.resting)):
                return
            await asyncio.sleep(0.001)

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send(self, packet: wire.Packet) -> None:
        version = packet.version if isinstance(packet, wire.Connect) else self.version
        await self.raw(wire.encode(packet, version))

    async def receive(self) -> wire.Packet:
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readexactly(1)
            length = shift = 0
            while True:
                byte = (await self.reader.readexactly(1))[0]
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 128:
                    break
            return wire.decode(head[0], await self.reader.readexactly(length), self.version)

    async def expect(self, kind: type[P]) -> P:
        packet = await self.receive()
        assert isinstance(packet, kind), packet
        return packet

    async def closed(self) -> bytes:
        """The server closed the connection; what it still sent."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read(-1)
            except ConnectionResetError:
                return b""

    async def silent(self) -> None:
        """Nothing has been sent to it: the answer to a PING is the next packet."""
        await self.send(wire.Pingreq())
        await self.expect(wire.Pingresp)

    async def subscribe(self, *filters: str, qos: int = 0, **options: Any) -> wire.Suback:
        self._pid += 1
        properties = options.pop("properties", wire.NONE)
        subscriptions = tuple(wire.Subscription(filter=one, qos=qos, **options) for one in filters)
        await self.send(wire.Subscribe(packet_id=self._pid, subscriptions=subscriptions, properties=properties))
        return await self.expect(wire.Suback)

    async def unsubscribe(self, *filters: str) -> wire.Unsuback:
        self._pid += 1
        await self.send(wire.Unsubscribe(packet_id=self._pid, filters=filters))
        return await self.expect(wire.Unsuback)

    async def publish(
        self, topic: str, payload: bytes = b"x", *, qos: int = 0, pid: int = 0, **fields: Any
    ) -> wire.Puback | wire.Pubcomp | None:
        """Sends it and sees the handshake through; the last acknowledgement."""
        if qos and not pid:
            self._pid += 1
            pid = self._pid
        await self.send(wire.Publish(topic=topic, payload=payload, qos=qos, packet_id=pid, **fields))
        if qos == 1:
            return await self.expect(wire.Puback)
        if qos == 2:
            received = await self.expect(wire.Pubrec)
            assert received.packet_id == pid
            await self.send(wire.Pubrel(packet_id=pid))
            return await self.expect(wire.Pubcomp)
        return None

    async def message(self) -> wire.Publish:
        """The next message, acknowledged as its QoS asks."""
        packet = await self.expect(wire.Publish)
        if packet.qos == 1:
            await self.send(wire.Puback(packet_id=packet.packet_id))
        elif packet.qos == 2:
            await self.send(wire.Pubrec(packet_id=packet.packet_id))
            await self.expect(wire.Pubrel)
            await self.send(wire.Pubcomp(packet_id=packet.packet_id))
        return packet

    async def disconnect(self, reason: int = 0, **fields: Any) -> None:
        await self.send(wire.Disconnect(reason=reason, **fields))
        self.writer.close()

    def abort(self) -> None:
        """The network breaks."""
        self.writer.transport.abort()
