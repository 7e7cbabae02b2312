"""A node that is killed again and again under load, and the books afterwards."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

from processes import File, Process
from reliability.ledger import Ledger, Publisher, Subscriber
from tidegate import wire

CONFIG = """
version: 1
node: {name: crash, data: DATA}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
policies: open
limits: {queue: {messages: 1000000, bytes: 1GiB}}
log: {format: json}
sys: {interval: 0s}
"""
DRAIN = 60.0  # seconds; only a failing run ever waits that long


@dataclass
class Report:
    """What a run found."""

    seed: int
    kills: int = 0
    published: int = 0
    acknowledged: int = 0
    deliveries: int = 0
    reconnections: int = 0
    lost: list[str] = field(default_factory=list)
    duplicated_qos2: list[str] = field(default_factory=list)
    repeated_qos1: int = 0  # allowed
    sessions_lost: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated_qos2 or self.sessions_lost)


async def run(folder: Path, *, kills: int, count: int, seed: int) -> Report:
    """Kills a node `kills` times at random moments while `count` messages a publisher go through it."""
    rng = random.Random(seed)
    report = Report(seed=seed)
    file = File(folder, CONFIG.replace("DATA", str(folder / "data")))
    node = Process(file)
    await asyncio.to_thread(node.wait_until_it_accepts)
    port = file.ports["PORT"]
    ledger = Ledger()
    subscribers = [Subscriber(f"sub-{v}-{q}", port, v, ledger, q) for v in (wire.V311, wire.V5) for q in (1, 2)]
    publishers = [Publisher(f"pub-{v}-{q}", port, v, ledger, q, count) for v in (wire.V311, wire.V5) for q in (1, 2)]
    listening = [asyncio.create_task(one.run()) for one in subscribers]
    for one in subscribers:
        await one.subscribed.wait()
    sending = [asyncio.create_task(one.run()) for one in publishers]
    try:
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(0.02, 0.4))  # the random moment, not a wait for anything
            node.kill()
            report.kills += 1
            node = Process(file)
            await asyncio.to_thread(node.wait_for, "ready", 1, 30.0)
        await asyncio.wait_for(asyncio.gather(*sending), DRAIN * 5)
        wanted = ledger.acknowledged
        async with asyncio.timeout(DRAIN):
            while any(wanted - one.seen.keys() for one in subscribers):
                await asyncio.sleep(0.05)
    except TimeoutError:
        pass  # the books below say what is missing
    finally:
        for task in (*listening, *sending):
            task.cancel()
        await asyncio.gather(*listening, *sending, return_exceptions=True)
        await asyncio.to_thread(node.stop)
    node.check()
    _audit(report, ledger, publishers, subscribers)
    return report


def _audit(report: Report, ledger: Ledger, publishers: list[Publisher], subscribers: list[Subscriber]) -> None:
    report.published = sum(one.next for one in publishers)
    report.acknowledged = len(ledger.acknowledged)
    report.sessions_lost = ledger.sessions_lost
    report.reconnections = sum(one.reconnections for one in (*publishers, *subscribers))
    at_most = {one.name: one.qos for one in publishers}
    for one in subscribers:
        report.deliveries += one.seen.total()
        report.lost += [f"{message} to {one.name}" for message in sorted(ledger.acknowledged - one.seen.keys())]
        for message, times in one.seen.items():
            if times > 1:
                if min(one.qos, at_most[message.split("/")[0]]) == 2:
                    report.duplicated_qos2.append(f"{message} to {one.name}, {times} times")
                else:
                    report.repeated_qos1 += times - 1
