"""Who uses a plant while it is killed: a sensor over MQTT, a source over HTTP, and somebody who reads.

They keep the books: what was acknowledged, how often it was sent, what arrived. All of them come back by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import httpx
import orjson

from harness import Client as Raw
from pipeline.crash.plant import BUSY, LOOK, MARY, Plant
from tidegate import wire
from tidegate.client import Client, Denied, KeysError, Message, Refused, Unreachable

WINDOW = 10
KEEP = wire.Properties(session_expiry_interval=3600)
TOPICS = ("raw/open/1", "raw/open/2", "raw/closed/1")
BROKEN = 10  # every so many is no measurement


def good(number: int) -> bool:
    return number % BROKEN != BROKEN - 1


def payload(who: str, number: int) -> bytes:
    if not good(number):
        return b"\xff nonsense"
    said = {"n": f"{who}-{number}", "sensor": who, "t": 20 + number % 5, "h": 60 + number % 7}
    return orjson.dumps(said)


class Sender:
    """What was sent, how often, and what of it is acknowledged; messages are known by `who-number`."""

    def __init__(self, who: str, *, rate: float) -> None:
        self.who = who
        self.pause = 1 / rate
        self.next = 0
        self.wanted: int | None = None
        """How many in all; None: until somebody says."""
        self.sent: Counter[str] = Counter()
        self.acknowledged: set[str] = set()

    def finish(self) -> None:
        self.wanted = self.next

    @property
    def more(self) -> bool:
        return self.wanted is None or self.next < self.wanted

    async def run(self) -> None:
        """Until everything that is wanted is acknowledged."""
        raise NotImplementedError

    def name(self, number: int) -> str:
        return f"{self.who}-{number}"


class Sensor(Sender):
    """MQTT 5, QoS 1, a persistent session; what was not acknowledged is sent again."""

    def __init__(self, plant: Plant, *, rate: float) -> None:
        super().__init__("sensor", rate=rate)
        self.plant = plant
        self.open: dict[int, int] = {}  # packet id to number, in order
        self.reconnections = -1

    async def run(self) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await self._once()
                return
            await asyncio.sleep(LOOK)

    async def _once(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.plant.port)
        client = Raw(reader, writer)
        try:
            await client.send(
                wire.Connect(
                    version=wire.V5,
                    client_id="sensor",
                    clean_start=False,
                    keep_alive=0,
                    username="sensor",
                    password=b"sensor",
                    properties=KEEP,
                )
            )
            connack = await client.expect(wire.Connack)
            assert connack.reason == 0, connack
            self.reconnections += 1
            for pid, number in self.open.items():
                await self._send(client, pid, number, dup=connack.session_present)
            listening = asyncio.create_task(self._acknowledged(client))
            try:
                while self.more or self.open:
                    if listening.done():
                        break
                    if self.more and len(self.open) < WINDOW:
                        pid = self.next % 65535 + 1
                        self.open[pid] = self.next
                        self.next += 1
                        await self._send(client, pid, self.open[pid])
                    await asyncio.sleep(self.pause)
            finally:
                listening.cancel()
                await asyncio.wait([listening])
            if not listening.cancelled():
                await listening  # the connection ended: why
            await client.send(wire.Disconnect())
        finally:
            writer.close()

    async def _send(self, client: Raw, pid: int, number: int, dup: bool = False) -> None:
        name = self.name(number)
        self.sent[name] += 1
        await client.send(
            wire.Publish(
                topic=TOPICS[number % len(TOPICS)],
                payload=payload(self.who, number),
                qos=1,
                packet_id=pid,
                dup=dup,
                properties=wire.Properties(user_properties=(("n", name),)),
            )
        )

    async def _acknowledged(self, client: Raw) -> None:
        """Until the connection ends, or says nothing for so long that it might as well."""
        while True:
            packet = await client.expect(wire.Puback)
            assert packet.reason < 0x80, packet
            self.acknowledged.add(self.name(self.open.pop(packet.packet_id)))


class Source(Sender):
    """`POST /data`, one after the other; whatever was not answered with 202 is sent again."""

    def __init__(self, plant: Plant, token: str, *, rate: float) -> None:
        super().__init__("source", rate=rate)
        self.plant = plant
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    async def run(self) -> None:
        async with httpx.AsyncClient(base_url=self.plant.web, headers=self.headers, timeout=BUSY) as http:
            while self.more:
                number = self.next
                self.next += 1
                await self._through(http, number)
                await asyncio.sleep(self.pause)

    async def _through(self, http: httpx.AsyncClient, number: int) -> None:
        name = self.name(number)
        said = {"n": name, "sensor": self.who, "t": 20, "h": 60}
        body = orjson.dumps(said if good(number) else {"n": name})
        while True:
            self.sent[name] += 1
            with contextlib.suppress(httpx.TransportError):
                answer = await http.post("/data", content=body)
                if answer.status_code == 202:
                    self.acknowledged.add(name)
                    return
                assert answer.status_code >= 500, answer.text
            await asyncio.sleep(LOOK)


async def registered(plant: Plant, token: str) -> str:
    """The token of a source."""
    said = {"NodeId": "source", "NodeType": "climate", "CommunicationMode": "discrete"}
    async with httpx.AsyncClient(base_url=plant.web, timeout=BUSY) as http:
        answer = await http.post("/registration", json=said, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


class Listener:
    """Somebody with the SDK and a persistent session. `dedupe` 0: sees everything that comes."""

    def __init__(self, plant: Plant, name: str, *, dedupe: int) -> None:
        self.name = name
        self.subscribed = asyncio.Event()
        self.reconnections = -1
        self.opened: Counter[str] = Counter()
        self.sealed: dict[str, Message] = {}
        """Came when no key could be had, because the node was away."""
        self.recovered: set[str] = set()
        """Opened here, not by the SDK: it delivers the next copy of each, because it could not open the first."""
        self.wrong: list[str] = []
        self._client = Client(
            "127.0.0.1",
            port=plant.port,
            user="mary",
            password="mary",
            identifier=name,
            private_key=MARY,
            clean=False,
            session_expiry=3600,
            patience=BUSY,
            timeout=BUSY,
            dedupe=dedupe,
        )

    @property
    def ids(self) -> set[str]:
        return self.opened.keys() | self.sealed.keys()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(Unreachable, Refused):
                async with self._client:
                    self.reconnections += 1
                    await self._client.subscribe("open/#", "sealed/#")
                    self.subscribed.set()
                    await self._open_again()
                    async for message in self._client.messages:
                        self._take(message)
            await asyncio.sleep(LOOK)

    async def opens(self, topic: str, id: str, sealed: bytes) -> bytes:
        """What somebody else has kept of a topic, such as the lake."""
        keyring = self._client._keyring
        assert keyring is not None
        await keyring.wanted(id)
        return keyring.open(sealed, topic)

    def _take(self, message: Message) -> None:
        id = message.id
        if id is None:
            self.wrong.append(f"a message without an id in {message.topic}")
            return
        if message.error is not None:
            self.sealed[id] = message
            return
        said = orjson.loads(message.payload)
        if said["id"] != id or message.topic.startswith("sealed/") != (message.sealed_by is not None):
            self.wrong.append(f"{message.topic}: {said}, by {message.sealed_by}")
        if id in self.recovered:
            self.recovered.remove(id)
        else:
            self.opened[id] += 1

    async def _open_again(self) -> None:
        """What came when the keys could not: it is here, and the keys are with the node."""
        keyring = self._client._keyring
        assert keyring is not None
        for id, message in list(self.sealed.items()):
            if not self.opened[id]:
                assert message.sealed_by is not None
                try:
                    await keyring.wanted(message.sealed_by)
                    said = orjson.loads(keyring.open(bytes(message.raw.payload), message.topic))
                except Denied as denied:
                    self.wrong.append(f"{id} cannot be opened: {denied}")
                    continue
                except KeysError:
                    return  # it is away again; the next time
                assert said["id"] == id
                self.opened[id] += 1
                self.recovered.add(id)
            del self.sealed[id]
