"""A link with two connections, whose default dies again and again under load: the books, and how long nothing arrives.

Both nodes are real processes, as in `links`. A round waits until the default carries, cuts it or stalls it without a
word, refuses new connections to it, waits until all subscribers have something again, and mends it.

From detection: the node logs when it has found out that the default is lost. Until a subscriber then receives a
message that it did not have, nothing arrives for it.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from reliability import links
from reliability.links import GYM, Pair, Report, Watcher

ATTEMPTS: Final = 3
INTERVAL: Final = 0.1  # seconds
WAYS: Final = ("cut", "stall")
MODES: Final = ("active", "on_demand")
ALLOWED: Final = {"active": 0.2, "on_demand": ATTEMPTS * INTERVAL + 0.2}  # seconds (measuring.md)
LINK: Final = "gym->remotegym"


def near(mode: str) -> str:
    strategy = f"mode: {mode}, attempts: {ATTEMPTS}, interval: {INTERVAL * 1000:g}ms, heartbeat: 100ms, restore: 200ms"
    plain = 'via: ["mqtts://127.0.0.1:PROXY"]'
    assert plain in GYM
    return GYM.replace(plain, f'via: ["mqtts://127.0.0.1:PROXY", "mqtts://127.0.0.1:BACKUP"], failover: {{{strategy}}}')


@dataclass
class Times:
    """Seconds without delivery, of every round and subscriber."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def longest(self) -> float:
        return max(self.seconds)


async def run(folder: Path, *, mode: str, rounds: int, seed: int) -> tuple[Report, Times]:
    times = Times()

    async def disturb(pair: Pair, way: str, rng: random.Random, watchers: list[Watcher]) -> None:
        node, default = pair.nodes["near"], pair.proxy
        url = f"mqtts://127.0.0.1:{default.port}"

        async def state() -> dict[str, Any]:
            shown: dict[str, Any] = await asyncio.to_thread(node.ask, "link_show", link=LINK)
            return shown

        async def settled() -> bool:
            shown = await state()
            standby = mode == "on_demand" or shown["standby"] == 1
            return shown["address"] == url and shown["state"] == "connected" and standby

        async def carried() -> bool:
            shown = await state()
            return shown["address"] != url and shown["state"] == "connected"

        async with asyncio.timeout(links.DRAIN):
            while not await settled():
                await asyncio.sleep(0.02)
            await asyncio.sleep(rng.uniform(0.0, 0.1))  # the random moment
            before = len(node.events("link is down"))
            default.refusing = True
            default.cut() if way == "cut" else default.stall()
            down = await asyncio.to_thread(node.wait_for, "link is down", before + 1, links.DRAIN)
            detected = datetime.fromisoformat(down["timestamp"]).timestamp()
            while not await carried():
                await asyncio.sleep(0.01)
            begun = [len(watcher.times) for watcher in watchers]
            while any(len(watcher.times) < number + 20 for watcher, number in zip(watchers, begun, strict=True)):
                await asyncio.sleep(0.01)
        times.seconds += [_without(watcher.times, detected) for watcher in watchers]
        default.cut()
        default.flow()
        default.refusing = False

    report = await links.run(folder, rounds=rounds, seed=seed, ways=WAYS, near=near(mode), disturb=disturb)
    return report, times


def _without(times: list[float], detected: float) -> float:
    """The longest stretch after a moment in which nothing came."""
    after = [detected, *(each for each in times if each > detected)]
    return max(later - sooner for sooner, later in pairwise(after))
