"""A guard and the broker behind it, which are killed at random under load; then the books.

Mosquitto acknowledges first and saves afterwards: what it has not saved when it is killed is lost with it, whoever
stands in front. So that this loss is not taken for one of the guard, everything is settled and saved before the broker
is let run into its end: of what is published from then on, only what it has acknowledged may be lost, and that is
counted. A Mosquitto that was killed also sends QoS 2 messages twice, to clients without a guard as well. So runs that
kill the broker ask only whether anything was lost, and those that kill the guard ask for both.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backends import OPEN_TO_ALL, SECRET, UNLIMITED, Mosquitto
from processes import File, Process
from reliability.ledger import Ledger, Publisher, Subscriber
from tidegate import wire

CONFIG = """
version: 1
node: {name: guard, data: DATA}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", anonymous: true, scope: main}
  - {url: "mqtt://127.0.0.1:TOP_PORT", anonymous: true, scope: top}
scopes: {main: {backend: "BACKEND", secret: SECRET, parents: [top]}, top: {}}
policies: open
limits: {queue: {messages: 1000000, bytes: 1GiB}}
log: {format: json}
sys: {interval: 0s}
"""
DRAIN: Final = 60.0  # seconds; only a failing run ever waits that long
PACE: Final = 0.001  # seconds between two messages of a publisher: something is always under way
GUARD, BROKER = "guard", "broker"


@dataclass
class Report:
    """What a run found."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    published: int = 0
    acknowledged: int = 0
    deliveries: int = 0
    reconnections: int = 0
    lost: list[str] = field(default_factory=list)
    unsaved: int = 0
    """Acknowledged by the broker, and lost by it because it had not saved them."""
    duplicated_qos2: list[str] = field(default_factory=list)
    repeated_qos1: int = 0  # allowed
    sessions_lost: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Clients that were told something they did not expect."""

    def check(self) -> None:
        assert not self.broken, (self.seed, self.broken)
        assert not self.sessions_lost, (self.seed, self.sessions_lost)
        assert not self.lost, (self.seed, len(self.lost), self.lost[:10])
        if not self.kills[BROKER]:
            assert not self.duplicated_qos2, (self.seed, self.duplicated_qos2[:10])
        assert self.acknowledged == self.published


class Paced(Publisher):
    """Goes on until it is told to stop, and sends nothing new while `going` is not set."""

    def __init__(self, name: str, port: int, version: int, ledger: Ledger, qos: int, going: asyncio.Event) -> None:
        super().__init__(name, port, version, ledger, qos, count=10**9)
        self.going = going

    async def talk(self, present: bool) -> None:
        """As that of `Publisher`, one message after the other."""
        for pid, payload in list(self.open.items()):
            if pid in self.released:
                await self.client.send(wire.Pubrel(packet_id=pid))
            else:
                await self._send(pid, payload, dup=present)
        while self.next < self.count or self.open:
            sending = self.next < self.count and len(self.open) < self.window and self.going.is_set()
            if sending:
                self.pid = self.pid % 65535 + 1
                payload = f"{self.name}/{self.next}"
                self.next += 1
                self.open[self.pid] = payload
                await self._send(self.pid, payload)
                await asyncio.sleep(PACE)
            if self.open and (not sending or self._answered()):
                await self._answer(await self.client.receive())
            elif not self.open:
                await self._until_going()
        await self.client.send(wire.Disconnect())

    def _answered(self) -> bool:
        return bool(self.client.reader._buffer)  # type: ignore[attr-defined]

    async def _until_going(self) -> None:
        """Or until the connection ends."""
        while not self.going.is_set() and self.next < self.count:
            if self.client.reader.at_eof():
                raise ConnectionResetError
            await asyncio.sleep(0.002)

    def stop(self) -> None:
        self.count = self.next


class Setup:
    """The broker, the guard, and who uses them."""

    def __init__(self, folder: Path, report: Report) -> None:
        self.report = report
        self.broker = Mosquitto(folder / "mosquitto", OPEN_TO_ALL + UNLIMITED, persistent=True)
        text = CONFIG.replace("DATA", str(folder / "data")).replace("BACKEND", self.broker.url)
        self.file = File(folder, text.replace("SECRET", SECRET))
        self.guard: Process
        self.ledger = Ledger()
        self.going = asyncio.Event()
        self.going.set()
        port = self.file.ports["PORT"]
        both = [(version, qos) for version in (wire.V311, wire.V5) for qos in (1, 2)]
        self.subscribers = [Subscriber(f"sub-{v}-{q}", port, v, self.ledger, q) for v, q in both]
        self.publishers = [Paced(f"pub-{v}-{q}", port, v, self.ledger, q, self.going) for v, q in both]
        top = self.file.ports["TOP_PORT"]  # the guard acknowledges what these publish, and owes it to the broker
        self.publishers += [Paced(f"top-{v}-{q}", top, v, self.ledger, q, self.going) for v, q in both[2:]]
        self.excused: set[str] = set()
        """What the broker has acknowledged, or said to be delivered, and may not have saved."""

    async def start_guard(self) -> None:
        self.guard = Process(self.file)
        await asyncio.to_thread(self.guard.wait_for, "ready", 1, 60.0)

    def settled(self) -> bool:
        """Whether nothing is under way."""
        done = self.ledger.acknowledged
        return not any(one.open for one in self.publishers) and not any(
            done - one.seen.keys() - self.excused or one.pending for one in self.subscribers
        )

    async def kill_guard(self, rng: random.Random) -> None:
        await asyncio.sleep(rng.uniform(0.02, 0.4))  # the random moment, not a wait for anything
        self.guard.kill()
        self.guard.check()
        await self.start_guard()

    async def kill_broker(self, rng: random.Random) -> None:
        self.going.clear()
        await until(self.settled)
        await self._saved()
        first = {one.name: one.next for one in self.publishers}
        self.going.set()
        await asyncio.sleep(rng.uniform(0.005, 0.3))  # the random moment, not a wait for anything
        self.broker.kill()
        await asyncio.sleep(rng.uniform(0.2, 0.5))  # what it has said arrives, and clients try in vain
        for one in self.publishers:
            late = (f"{one.name}/{number}" for number in range(first[one.name], one.next))
            taken = {one.open[pid] for pid in one.released}  # PUBREC is the broker's word as well
            self.excused |= {payload for payload in late if payload in taken or self._acknowledged(payload)}
        for subscriber in self.subscribers:
            subscriber.pending.clear()  # the broker uses identifiers again of which it has forgotten the exchange
        await asyncio.to_thread(self.broker.start)

    def _acknowledged(self, payload: str) -> bool:
        return payload in self.ledger.acknowledged or any(one.seen[payload] for one in self.subscribers)

    async def _saved(self) -> None:
        """The broker has written all that it holds; it does so when asked with SIGUSR1."""
        file = self.broker.folder / "mosquitto.db"
        before = time.time_ns()
        assert self.broker.process is not None

        def written() -> bool:
            return file.exists() and file.stat().st_mtime_ns > before

        while not written():
            self.broker.process.send_signal(signal.SIGUSR1)
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)  # the file is renamed when it is whole: the second one is surely from afterwards


async def run(folder: Path, *, kills: int, seed: int, victim: str) -> Report:
    """Kills the guard or the broker so many times, while six publishers, two of them in another scope, and four
    subscribers use them."""
    rng = random.Random(seed)
    report = Report(seed=seed)
    setup = Setup(folder, report)
    await asyncio.to_thread(setup.broker.start)
    tasks: list[asyncio.Task[None]] = []
    try:
        await setup.start_guard()
        tasks += [asyncio.create_task(one.run()) for one in setup.subscribers]
        for one in setup.subscribers:
            await asyncio.wait_for(one.subscribed.wait(), DRAIN)
        sending = [asyncio.create_task(one.run()) for one in setup.publishers]
        tasks += sending
        for _ in range(kills):
            report.kills[victim] += 1
            await (setup.kill_guard(rng) if victim == GUARD else setup.kill_broker(rng))
            assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
        await asyncio.sleep(0.2)
        for one in setup.publishers:
            one.stop()
        await asyncio.wait_for(asyncio.gather(*sending), DRAIN)
        await until(setup.settled)
    except (TimeoutError, AssertionError) as error:
        report.broken += [str(error)] if isinstance(error, AssertionError) else []
    finally:
        report.broken += [repr(task.exception()) for task in tasks if task.done() and task.exception()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(setup.guard.stop)
        setup.broker.stop()
    setup.guard.check()
    _audit(report, setup)
    return report


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DRAIN):
        while not condition():
            await asyncio.sleep(0.01)


def _audit(report: Report, setup: Setup) -> None:
    ledger = setup.ledger
    report.published = sum(one.next for one in setup.publishers)
    report.acknowledged = len(ledger.acknowledged)
    report.sessions_lost = ledger.sessions_lost
    report.reconnections = sum(one.reconnections for one in (*setup.publishers, *setup.subscribers))
    at_most = {one.name: one.qos for one in setup.publishers}
    for one in setup.subscribers:
        report.deliveries += one.seen.total()
        missing = ledger.acknowledged - one.seen.keys()
        report.unsaved += len(missing & setup.excused)
        report.lost += [f"{message} to {one.name}" for message in sorted(missing - setup.excused)]
        for message, times in one.seen.items():
            if times > 1:
                if min(one.qos, at_most[message.split("/")[0]]) < 2:
                    report.repeated_qos1 += times - 1
                else:
                    report.duplicated_qos2.append(f"{message} to {one.name}, {times} times")
