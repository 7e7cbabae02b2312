"""The costs of a guard: per message with one guard and with two, per connection, and per change of a policy.

All of it is CPU time of the guards from /proc, never wall-clock time: the machine may be busy. The load is the same for
each guard, whether there are one or two, and half of what is published at one is received at the other. Rounds with one
and two alternate.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

import postgres  # noqa: E402
from backends import OPEN_TO_ALL, SECRET, UNLIMITED, mosquitto_of  # noqa: E402
from harness import Client  # noqa: E402
from processes import File, Process  # noqa: E402
from tidegate import wire  # noqa: E402
from tidegate.store.registry.documents import Change, Limits  # noqa: E402
from tidegate.store.registry.postgres import PostgresConnection  # noqa: E402
from tidegate.store.registry.registry import Registry  # noqa: E402

RESULT = TESTS.parent / "bench" / "results" / "scale.json"
ROUNDS = 5
TOPICS = 10  # of each guard; one publisher and one subscriber each
MESSAGES = 4000  # of each publisher and round
WINDOW = 50  # QoS 0 messages of a publisher that have not come
CONNECTIONS = 400
CHANGES = 10
SETTLE = 2.0  # seconds in which a change is in force everywhere
POLICIES = 200
PAGE = os.sysconf("SC_PAGE_SIZE")

CONFIG = """
version: 1
node: {name: NAME, domain: plant, data: FOLDER}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
scopes: {main: {backend: "BACKEND", secret: SECRET, guards: several, authenticate: here}}
store: "DATABASE"
master_key: {file: KEY}
policies:
  - {id: all, subject: "*", topic: "load/#", action: [read, write]}
limits: {queue: {messages: 1000000, bytes: 1GiB}}
log: {format: json}
sys: {interval: 0s}
"""


class Guard:
    """A guard as a process."""

    def __init__(self, folder: Path, name: str, backend: str, database: str, key: Path) -> None:
        folder.mkdir()
        text = CONFIG.replace("NAME", name).replace("FOLDER", str(folder / "data")).replace("BACKEND", backend)
        text = text.replace("SECRET", SECRET).replace("DATABASE", database).replace("KEY", str(key))
        self.file = File(folder, text)
        self.port = self.file.ports["PORT"]
        self.process = Process(self.file)
        self.process.wait_for("ready", 1, 60.0)
        self.pid = self.process.pid

    @property
    def cpu(self) -> float:
        """Seconds so far."""
        return (
            sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{self.pid}/task").glob("*/schedstat")) / 1e9
        )

    @property
    def bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE


async def joined(port: int, name: str) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    end = Client(reader, writer)
    end.version = wire.V311
    await end.send(wire.Connect(version=wire.V311, client_id=name, clean_start=True, keep_alive=0))
    assert (await end.expect(wire.Connack)).reason == 0
    return end


@contextlib.asynccontextmanager
async def clients(guards: list[Guard]) -> AsyncIterator[list[tuple[Client, Client, bytes]]]:
    """Publisher, subscriber and packet; every second subscriber is at the next guard."""
    made: list[tuple[Client, Client, bytes]] = []
    for at, guard in enumerate(guards):
        for number in range(TOPICS):
            there = guards[(at + number % 2) % len(guards)]
            topic = f"load/{at}/{number}"
            subscriber = await joined(there.port, f"s{at}-{number}")
            await subscriber.subscribe(topic)
            packet = wire.encode(wire.Publish(topic=topic, payload=bytes(150)), wire.V311)
            made.append((await joined(guard.port, f"p{at}-{number}"), subscriber, packet))
    try:
        yield made
    finally:
        for publisher, subscriber, _ in made:
            for end in (publisher, subscriber):
                end.writer.close()


async def messages(guards: list[Guard]) -> float:
    """Microseconds of CPU of all these guards for each message."""
    async with clients(guards) as ends:
        await asyncio.gather(*(_stream(*each, count=100) for each in ends))  # plans are compiled
        before = sum(guard.cpu for guard in guards)
        await asyncio.gather(*(_stream(*each, count=MESSAGES) for each in ends))
        spent = sum(guard.cpu for guard in guards) - before
    return spent / (len(ends) * MESSAGES) * 1e6


async def _stream(publisher: Client, subscriber: Client, packet: bytes, count: int) -> None:
    """Batches of `WINDOW`: the next one when the last one has come."""
    size = 0
    for _ in range(count // WINDOW):
        publisher.writer.write(packet * WINDOW)
        if not size:  # without an envelope it is as it was
            size = len(packet)
        await subscriber.reader.readexactly(size * WINDOW)


async def connections(guard: Guard) -> tuple[float, float]:
    """Microseconds of CPU to connect a client, and KiB while it does nothing."""
    first = await joined(guard.port, "first")
    cpu, size = guard.cpu, guard.bytes
    ends = [await joined(guard.port, f"idle{number}") for number in range(CONNECTIONS)]
    found = ((guard.cpu - cpu) / CONNECTIONS * 1e6, (guard.bytes - size) / CONNECTIONS / 1024)
    for end in (first, *ends):
        end.writer.close()
    return found


def changes(database: str, guards: list[Guard]) -> tuple[float, float]:
    """Milliseconds of CPU of one guard for a changed policy among `POLICIES`, and of the database's transaction."""
    registry = Registry(lambda: PostgresConnection(database, wait=5.0), limits=Limits(), patience=10.0)
    registry.open()
    try:

        def body(topic: str) -> dict[str, Any]:
            return {"place": 1, "content": {"subject": "user:mary", "topic": topic, "action": "read"}}

        for first in range(0, POLICIES, 50):
            many = [
                Change(kind="policy", id=f"p{n}", body=body("load/x/#"), expected=None)
                for n in range(first, first + 50)
            ]
            registry.apply(many, by="bench", why="", at=time.time())
        time.sleep(SETTLE)
        idle = guards[0].cpu
        time.sleep(SETTLE)
        idle = guards[0].cpu - idle
        costs, took = [], []
        for number in range(CHANGES):
            change, before = (
                Change(kind="policy", id=f"q{number}", body=body(f"load/y{number}/#"), expected=None),
                guards[0].cpu,
            )
            began = time.perf_counter()
            registry.apply([change], by="bench", why="", at=time.time())
            took.append(time.perf_counter() - began)
            time.sleep(SETTLE)  # it is in force within a second
            costs.append(guards[0].cpu - before - idle)
        said = guards[0].process.ask("status")["registry"]
        assert said["in_force"], said  # else nothing was taken up, which costs nothing
        return median(costs) * 1e3, median(took) * 1e3
    finally:
        registry.close()


async def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, postgres.running() as server:
        folder = Path(name)
        os.chmod(folder, 0o755)
        database = server.address(schema=server.schema())
        key = folder / "master.key"
        key.write_text(base64.b64encode(os.urandom(32)).decode() + "\n")
        key.chmod(0o600)
        with mosquitto_of(folder / "mosquitto", OPEN_TO_ALL + UNLIMITED) as broker:
            guards: list[Guard] = []
            try:
                for each in ("a", "b"):
                    guards.append(Guard(folder / each, each, broker.url, database, key))
                await messages(guards)  # everything is loaded
                one, two = [], []
                for _ in range(ROUNDS):
                    one.append(await messages(guards[:1]))
                    two.append(await messages(guards))
                connect, idle = await connections(guards[0])
                change, transaction = await asyncio.to_thread(changes, database, guards)
            finally:
                for guard in guards:
                    await asyncio.to_thread(guard.process.stop)
    ratio = [2 * first / second for first, second in zip(one, two, strict=True)]
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "load_average": os.getloadavg()[0],
        "rounds": ROUNDS,
        "micros_one_guard": one,
        "micros_two_guards": two,
        "two_over_one": ratio,
        "micros_connect": connect,
        "kib_idle": idle,
        "milliseconds_change_guard": change,
        "milliseconds_change_database": transaction,
        "policies": POLICIES,
    }


if __name__ == "__main__":
    found = asyncio.run(measure())
    print(json.dumps(found, indent=1))
    if sys.argv[1:] == ["--update"]:
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
