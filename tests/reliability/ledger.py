"""Clients that keep the books: what was acknowledged to a publisher, what reached a subscriber.

They implement the client's half of QoS 1 and 2 across reconnections exactly, because a sloppy client would hide or
invent losses. Sessions are persistent on both sides.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from harness import Client
from tidegate import wire

KEEP = wire.Properties(session_expiry_interval=3600)
RETRY = 0.02  # seconds between attempts to reconnect
UNAVAILABLE = (3, 0x88, 0x8B, 0x8D, 0x97)
"""What a guard says whose broker is away, in CONNACK or DISCONNECT, a node whose disk is full, and one that has heard
nothing from whoever waits without a PING."""


Dial = Callable[[str, int], Coroutine[Any, Any, tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""How a client connects."""


class Ledger:
    """What all of them agree on."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.sessions_lost: list[str] = []


class Persistent:
    """Connects again and again until it is done."""

    def __init__(self, name: str, port: int, version: int, ledger: Ledger) -> None:
        self.name = name
        self.port = port
        self.version = version
        self.ledger = ledger
        self.reconnections = -1
        self.established = False  # something of ours was acknowledged, so the session must be there next time
        self.client: Client
        self.dial: Dial = asyncio.open_connection

    async def run(self) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await self._once()
                return
            await asyncio.sleep(RETRY)

    async def _once(self) -> None:
        reader, writer = await self.dial("127.0.0.1", self.port)
        client = self.client = Client(reader, writer)
        client.version = self.version
        try:
            await client.send(
                wire.Connect(
                    version=self.version,
                    client_id=self.name,
                    clean_start=False,
                    keep_alive=0,
                    properties=KEEP if self.version == wire.V5 else wire.NONE,
                )
            )
            connack = await client.expect(wire.Connack)
            if connack.reason in UNAVAILABLE:
                raise ConnectionRefusedError
            assert connack.reason == 0, connack
            if self.established and not connack.session_present:
                self.ledger.sessions_lost.append(self.name)
            self.reconnections += 1
            await self.talk(connack.session_present)
        finally:
            writer.close()

    async def talk(self, present: bool) -> None:
        raise NotImplementedError


class Publisher(Persistent):
    """Publishes `count` messages at one QoS with a window, and notes which were acknowledged for good."""

    def __init__(self, name: str, port: int, version: int, ledger: Ledger, qos: int, count: int, window: int = 20):
        super().__init__(name, port, version, ledger)
        self.qos = qos
        self.count = count
        self.window = window
        self.next = 0
        self.open: dict[int, str] = {}  # packet id to payload, in order
        self.released: set[int] = set()  # PUBREC seen: PUBREL is owed, the message is the server's
        self.pid = 0

    async def talk(self, present: bool) -> None:
        for pid, payload in list(self.open.items()):
            if pid in self.released:
                await self.client.send(wire.Pubrel(packet_id=pid))
            else:
                await self._send(pid, payload, dup=present)
        while self.next < self.count or self.open:
            while self.next < self.count and len(self.open) < self.window:
                self.pid = self.pid % 65535 + 1
                payload = f"{self.name}/{self.next}"
                self.next += 1
                self.open[self.pid] = payload
                await self._send(self.pid, payload)
            await self._answer(await self.client.receive())
        await self.client.send(wire.Disconnect())

    async def _send(self, pid: int, payload: str, dup: bool = False) -> None:
        topic = f"load/{self.name}"
        await self.client.send(
            wire.Publish(topic=topic, payload=payload.encode(), qos=self.qos, packet_id=pid, dup=dup)
        )

    async def _answer(self, packet: wire.Packet) -> None:
        match packet:
            case wire.Puback() if self.qos == 1:
                self.ledger.acknowledged.add(self.open.pop(packet.packet_id))
                self.established = True
            case wire.Pubrec():
                self.released.add(packet.packet_id)
                self.established = True
                await self.client.send(wire.Pubrel(packet_id=packet.packet_id))
            case wire.Pubcomp():
                self.released.discard(packet.packet_id)
                self.ledger.acknowledged.add(self.open.pop(packet.packet_id))
            case wire.Disconnect() if packet.reason in UNAVAILABLE:
                raise ConnectionResetError
            case _:
                raise AssertionError(packet)


class Subscriber(Persistent):
    """Counts how often each payload was delivered, as the application behind it would see it."""

    def __init__(self, name: str, port: int, version: int, ledger: Ledger, qos: int, filter: str = "load/#"):
        super().__init__(name, port, version, ledger)
        self.qos = qos
        self.filter = filter
        self.seen: Counter[str] = Counter()
        self.pending: set[int] = set()  # QoS 2: received, not released
        self.subscribed = asyncio.Event()

    async def talk(self, present: bool) -> None:
        if not self.subscribed.is_set():
            subscription = wire.Subscription(filter=self.filter, qos=self.qos)
            await self.client.send(wire.Subscribe(packet_id=1, subscriptions=(subscription,)))
        while True:
            reader = self.client.reader
            head = await reader.readexactly(1)
            length = shift = 0
            while True:
                byte = (await reader.readexactly(1))[0]
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 128:
                    break
            await self._take(wire.decode(head[0], await reader.readexactly(length), self.version))

    async def _take(self, packet: wire.Packet) -> None:
        match packet:
            case wire.Suback():
                assert packet.reasons == (self.qos,)
                self.subscribed.set()
                self.established = True
            case wire.Publish():
                if packet.qos == 1:
                    self.seen[packet.payload.decode()] += 1
                    await self.client.send(wire.Puback(packet_id=packet.packet_id))
                elif packet.qos == 2:
                    if packet.packet_id not in self.pending:
                        self.pending.add(packet.packet_id)
                        self.seen[packet.payload.decode()] += 1
                    await self.client.send(wire.Pubrec(packet_id=packet.packet_id))
            case wire.Pubrel():
                self.pending.discard(packet.packet_id)
                await self.client.send(wire.Pubcomp(packet_id=packet.packet_id))
            case wire.Disconnect() if packet.reason in UNAVAILABLE:
                raise ConnectionResetError
            case _:
                raise AssertionError(packet)
