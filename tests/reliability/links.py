"""Two linked nodes whose connection is cut, stalled and flapped, and which are killed, under load; then the books.

Both nodes are real processes. The link goes through a small proxy of the test, which can end its connections, hold back
what they carry without a word (half open), and refuse new ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness import PATIENCE, Client, free_port
from processes import File, Process
from reliability.ledger import Ledger, Publisher, Subscriber
from tidegate import wire
from tidegate.cli import certificates

GYM = """
version: 1
node: {name: a, data: DATA, cert: ../a.pem, key: ../a.key, ca: ../ca.pem}
listeners: [{url: "mqtt://127.0.0.1:PORT", scope: gym, anonymous: true}]
scopes: {gym: {}}
trust: {otherwise: degrade, domains: {b: {nodes: [b]}}}
links: [{from: gym, to: remotegym, via: ["mqtts://127.0.0.1:PROXY"], peer: CN=b}]
policies: open
limits: {queue: {messages: 1000000, bytes: 1GiB}, clock_skew: 2h}
log: {format: json}
sys: {interval: 0s}
"""
REMOTE = """
version: 1
node: {name: b, data: DATA}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: remotegym, anonymous: true}
  - {url: "mqtts://127.0.0.1:LINK_PORT", scope: remotegym, cert: ../b.pem, key: ../b.key, client_ca: ../ca.pem,
     client_cert: optional, anonymous: true}
scopes: {remotegym: {}}
trust: {otherwise: degrade, domains: {a: {nodes: [a]}}}
links: [{from: remotegym, to: gym, peer: CN=a}]
policies: open
limits: {queue: {messages: 1000000, bytes: 1GiB}}
log: {format: json}
sys: {interval: 0s}
"""
PACE: Final = 0.002  # seconds between two messages of one publisher, so that there is always something under way
DRAIN: Final = 120.0  # seconds; only a failing run ever waits that long
CUTS: Final = ("cut", "stall", "flap")
KILLS: Final = ("kill near", "kill far", "half open")


@dataclass
class Report:
    """What a run found."""

    seed: int
    rounds: Counter[str] = field(default_factory=Counter)
    published: int = 0
    acknowledged: int = 0
    deliveries: int = 0
    connections: int = 0
    refused: int = 0
    """Messages that publishers had to publish again, because the disk was full."""
    lost: list[str] = field(default_factory=list)
    duplicated_qos2: list[str] = field(default_factory=list)
    crossed_twice: list[str] = field(default_factory=list)
    """QoS 1 messages that a subscriber was sent anew, not again under the same identifier."""
    repeated_qos1: int = 0  # by the node that the subscriber is connected to: allowed
    out_of_order: list[str] = field(default_factory=list)
    retained: str = ""
    broken: list[str] = field(default_factory=list)
    """Clients that were told something they did not expect."""
    sessions_lost: list[str] = field(default_factory=list)

    def check(self) -> None:
        assert not self.broken, (self.seed, self.broken)
        assert not self.sessions_lost, (self.seed, self.sessions_lost)
        assert not self.lost, (self.seed, len(self.lost), self.lost[:10])
        assert not self.duplicated_qos2, (self.seed, self.duplicated_qos2[:10])
        assert not self.out_of_order, (self.seed, self.out_of_order[:10])
        assert not self.retained, (self.seed, self.retained)
        assert self.acknowledged == self.published
        if not any(self.rounds[kill] for kill in KILLS):
            assert not self.crossed_twice, (self.seed, self.crossed_twice[:10])


class Proxy:
    """The network between the nodes."""

    def __init__(self, port: int, to: int) -> None:
        self.port = port
        self.to = to
        self.connections = 0
        self.tried = 0
        self.refusing = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def close(self) -> None:
        self._server.close()
        self._flowing.set()
        self.cut()
        await asyncio.gather(*self._tasks)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def stall(self) -> None:
        """Nothing goes through, and nobody is told."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.tried += 1
        try:
            if self.refusing:
                return
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.to)
                self.connections += 1
                self._writers |= {writer, far_writer}
                await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                if writer.transport.is_closing():
                    break
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


class Watcher(Subscriber):
    """Also notes in which order messages came first, and what was sent anew."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.order: list[str] = []
        self.times: list[float] = []  # wall clock: when each of these came
        self.anew: Counter[str] = Counter()

    async def _take(self, packet: wire.Packet) -> None:
        if isinstance(packet, wire.Publish) and not (packet.qos == 2 and packet.packet_id in self.pending):
            payload = packet.payload.decode()
            if payload not in self.seen:
                self.order.append(payload)
                self.times.append(time.time())
            elif not packet.dup:
                self.anew[payload] += 1
        await super()._take(packet)


class Paced(Publisher):
    """Goes on until it is told to stop. What is refused because nothing can be made safe it publishes again."""

    def __init__(self, name: str, port: int, ledger: Ledger, qos: int) -> None:
        super().__init__(name, port, wire.V5, ledger, qos, count=10**9)
        self.refused: set[str] = set()
        self.pace = PACE

    async def _answer(self, packet: wire.Packet) -> None:
        if not isinstance(packet, wire.Puback | wire.Pubrec) or packet.reason != wire.Reason.QUOTA_EXCEEDED:
            await super()._answer(packet)
            return
        payload = self.open.pop(packet.packet_id)
        self.refused.add(payload)
        await asyncio.sleep(0.05)  # until there may be room again
        self.pid = self.pid % 65535 + 1
        self.open[self.pid] = payload
        await super()._send(self.pid, payload)

    async def _send(self, pid: int, payload: str, dup: bool = False) -> None:
        await super()._send(pid, payload, dup)
        await asyncio.sleep(self.pace)

    def stop(self) -> None:
        self.count = self.next


class Nodes:
    """Both nodes, and what is between them."""

    allowed: tuple[str, ...] = ()
    """What they may log as errors."""
    pace = PACE

    def __init__(self, folder: Path, near: str = GYM, **filled: str) -> None:
        """`filled`: what stands for words in their files."""
        certificates.make_ca(folder, "Test CA", days=2)
        for name in ("a", "b"):
            certificates.issue(folder, name, ["127.0.0.1"], client=True, days=2)
        self._files = {}
        for name, text in (("far", REMOTE), ("near", near)):
            place = folder / name
            place.mkdir()
            written = text.replace("DATA", str(place / "data"))
            for word, value in filled.items():
                written = written.replace(word, value)
            self._files[name] = File(place, written)
        self.ports = {name: file.ports["PORT"] for name, file in self._files.items()}
        self.nodes: dict[str, Process] = {}

    async def open(self) -> None:
        """Before everything else."""

    async def close(self) -> None:
        """After everything else."""

    async def disturb(self, way: str, rng: random.Random) -> None:
        raise NotImplementedError

    async def dial(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.ports[name])

    @property
    def connections(self) -> int:
        """Of the link, so far."""
        raise NotImplementedError

    def process(self, name: str) -> Process:
        return Process(self._files[name])

    async def start(self, name: str) -> None:
        node = self.nodes[name] = self.process(name)
        await asyncio.to_thread(node.wait_for, "ready", 1, 60.0)

    async def kill(self, name: str) -> None:
        self.nodes[name].kill()
        self.nodes[name].check(*self.allowed)
        await self.start(name)

    async def retained(self, name: str, topics: int) -> dict[str, bytes]:
        """What a node keeps below `state/`."""
        reader, writer = await self.dial(name)
        client = Client(reader, writer)
        try:
            await client.send(wire.Connect(version=wire.V5, client_id="look", clean_start=True, keep_alive=0))
            await client.expect(wire.Connack)
            await client.subscribe("state/#")
            found: dict[str, bytes] = {}
            while len(found) < topics:
                message = await client.message()
                found[message.topic] = message.payload
            return found
        finally:
            writer.close()


class Pair(Nodes):
    """The nodes with proxies between them: `backup` is for links with two addresses."""

    def __init__(self, folder: Path, near: str = GYM) -> None:
        proxy, backup = free_port(), free_port()
        super().__init__(folder, near, PROXY=str(proxy), BACKUP=str(backup))
        self.proxy, self.backup = (Proxy(each, self._files["far"].ports["LINK_PORT"]) for each in (proxy, backup))

    async def open(self) -> None:
        await self.proxy.start()
        await self.backup.start()

    async def close(self) -> None:
        await self.proxy.close()
        await self.backup.close()

    @property
    def connections(self) -> int:
        return self.proxy.connections + self.backup.connections

    async def disturb(self, way: str, rng: random.Random) -> None:
        proxy = self.proxy
        match way:
            case "cut":
                proxy.cut()
            case "stall":
                proxy.stall()
                await asyncio.sleep(rng.uniform(0.1, 0.5))
                proxy.cut()
                proxy.flow()
            case "flap":
                for _ in range(5):
                    proxy.cut()
                    proxy.refusing = not proxy.refusing
                    await asyncio.sleep(rng.uniform(0.0, 0.1))
                proxy.refusing = False
            case "kill near":
                await self.kill("near")
            case "kill far":
                await self.kill("far")
            case _:
                raise AssertionError(way)


class State:
    """Sets retained messages at one node, again and again."""

    TOPICS: Final = 5

    def __init__(self, pair: Nodes) -> None:
        self.pair = pair
        self.number = 0

    async def set(self) -> None:
        reader, writer = await self.pair.dial("near")
        client = Client(reader, writer)
        try:
            await client.send(wire.Connect(version=wire.V5, client_id="state", clean_start=True, keep_alive=0))
            await client.expect(wire.Connack)
            for topic in range(self.TOPICS):
                self.number += 1
                await client.publish(f"state/{topic}", str(self.number).encode(), qos=1, retain=True)
        finally:
            writer.close()


Disturb = Callable[[Any, str, random.Random, list[Watcher]], Awaitable[None]]


async def run(
    folder: Path,
    *,
    rounds: int,
    seed: int,
    ways: tuple[str, ...],
    near: str = GYM,
    disturb: Disturb | None = None,
    made: Callable[[Path, str], Nodes] = Pair,
) -> Report:
    """Disturbs the link `rounds` times while four publishers send over it, two of them each way."""
    rng = random.Random(seed)
    report = Report(seed=seed)
    pair = made(folder, near)
    try:
        await pair.open()
        await pair.start("far")
        await pair.start("near")
    except BaseException:
        for node in pair.nodes.values():
            node.kill()
        await pair.close()
        raise
    ledger = Ledger()
    both = [("near", "far"), ("far", "near")]
    watchers = [
        (here, Watcher(f"sub-{here}-{q}", pair.ports[there], wire.V5, ledger, q, f"load/{here}/#"))
        for here, there in both
        for q in (1, 2)
    ]
    publishers = [(here, Paced(f"{here}/{q}", pair.ports[here], ledger, q)) for here, _ in both for q in (1, 2)]
    there = {"near": "far", "far": "near"}
    for where, client in (*((there[here], watcher) for here, watcher in watchers), *publishers):
        client.dial = partial(_dialed, pair, where)
        if isinstance(client, Paced):
            client.pace = pair.pace
    tasks = [asyncio.create_task(watcher.run()) for _, watcher in watchers]
    state = State(pair)
    try:
        for _, watcher in watchers:
            await watcher.subscribed.wait()
        sending = [asyncio.create_task(publisher.run()) for _, publisher in publishers]
        tasks += sending
        for number in range(rounds):
            await state.set()
            await asyncio.sleep(rng.uniform(0.05, 0.5))  # the random moment, not a wait for anything
            way = ways[number % len(ways)]
            report.rounds[way] += 1
            if disturb is None:
                await pair.disturb(way, rng)
            else:
                await disturb(pair, way, rng, [watcher for _, watcher in watchers])
        await state.set()
        for _, publisher in publishers:
            publisher.stop()
        await asyncio.wait_for(asyncio.gather(*sending), DRAIN)
        await _until(lambda: _arrived(ledger, watchers))
        report.retained = await _differ(pair)
    except TimeoutError:
        pass  # the books below say what is missing
    finally:
        report.broken += [repr(task.exception()) for task in tasks if task.done() and task.exception()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for node in pair.nodes.values():
            await asyncio.to_thread(node.stop)
        await pair.close()
    for node in pair.nodes.values():
        node.check(*pair.allowed)
    report.connections = pair.connections
    _audit(report, ledger, publishers, watchers)
    return report


async def _dialed(pair: Nodes, name: str, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await pair.dial(name)


def _arrived(ledger: Ledger, watchers: list[tuple[str, Watcher]]) -> bool:
    return not any(_wanted(ledger, here) - watcher.seen.keys() for here, watcher in watchers)


def _wanted(ledger: Ledger, here: str) -> set[str]:
    return {message for message in ledger.acknowledged if message.startswith(f"{here}/")}


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DRAIN):
        while not condition():
            await asyncio.sleep(0.05)


async def _differ(pair: Nodes) -> str:
    """In what the retained messages differ when everything has arrived; empty: in nothing."""
    near: dict[str, bytes] = {}
    far: dict[str, bytes] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE * 3):
            while not near or near != far:
                near = await pair.retained("near", State.TOPICS)
                far = await pair.retained("far", State.TOPICS)
    return "" if near and near == far else f"{near} here, {far} there"


def _audit(
    report: Report, ledger: Ledger, publishers: list[tuple[str, Paced]], watchers: list[tuple[str, Watcher]]
) -> None:
    report.published = sum(publisher.next for _, publisher in publishers)
    report.sessions_lost = ledger.sessions_lost
    report.acknowledged = len(ledger.acknowledged)
    refused = {payload for _, publisher in publishers for payload in publisher.refused}
    report.refused = len(refused)
    for here, watcher in watchers:
        report.deliveries += watcher.seen.total()
        report.lost += [
            f"{message} to {watcher.name}" for message in sorted(_wanted(ledger, here) - watcher.seen.keys())
        ]
        last: dict[str, int] = {}
        for message in watcher.order:
            publisher, _, number = message.rpartition("/")
            if message in refused:  # it was published later than its number says
                continue
            if int(number) < last.get(publisher, -1):
                report.out_of_order.append(f"{message} to {watcher.name}")
            last[publisher] = max(int(number), last.get(publisher, -1))
        for message, times in watcher.seen.items():
            if times > 1:
                if min(watcher.qos, int(message.split("/")[1])) == 2:
                    report.duplicated_qos2.append(f"{message} to {watcher.name}, {times} times")
                elif watcher.anew[message]:
                    report.crossed_twice.append(f"{message} to {watcher.name}")
                else:
                    report.repeated_qos1 += times - 1
