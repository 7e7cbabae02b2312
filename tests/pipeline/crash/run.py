"""A plant that is killed again and again while it is used, and worked off in the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import orjson
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pipeline.crash.books import Books, audit, ids_of
from pipeline.crash.people import Listener, Sender, Sensor, Source, registered
from pipeline.crash.plant import BUSY, LOOK, Plant
from tidegate.pipeline.lake.tables import Place

BATCH = 2000
RATE = 40.0  # messages a second over MQTT; half as many over HTTP
MOMENTS = 3.0  # seconds after a batch is done: the next one is being made
STARTING = 8.0  # seconds
EARLY = 0.2  # of the kills are while the driver starts, or is at its first batch


class Victim(Enum):
    """What is killed."""

    NODE = "the node"
    DRIVER = "the driver"
    JAVA = "the driver's JVM"
    BOTH = "the node and the driver"


class Loss(Enum):
    """What is deleted while the pipeline is down."""

    NOTHING = "nothing"
    CHECKPOINT = "Spark's checkpoint"
    LEDGER = "the ledger"
    BOTH = "the checkpoint and the ledger"


Round = tuple[Victim, Loss]
CHOICE: Sequence[Round] = (
    *((victim, Loss.NOTHING) for victim in Victim),
    (Victim.DRIVER, Loss.CHECKPOINT),
    (Victim.DRIVER, Loss.LEDGER),
    (Victim.BOTH, Loss.CHECKPOINT),
    (Victim.BOTH, Loss.LEDGER),
    (Victim.DRIVER, Loss.BOTH),
    (Victim.BOTH, Loss.NOTHING),
)


@dataclass
class Report:
    """What a run did and found."""

    seed: int
    rounds: list[Round] = field(default_factory=list)
    within: int = 0
    """Kills that interrupted a batch, for certain: one was begun and not done that the driver had not found so."""
    worked: int = 0
    """Drivers that had done batches when they were killed, or when the node was."""
    early: int = 0
    """Those that had not."""
    batches: int = 0
    """Done by drivers that were killed."""
    reconnections: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    again: int = 0
    """Messages that were sent again, because nobody had acknowledged them."""
    messages: int = 0
    """In the journal."""
    records: int = 0
    deliveries: int = 0
    orphans: list[str] = field(default_factory=list)
    """Processes that a killed driver left behind for good."""
    slow: int = 0
    """Drivers that ended because the machine was too slow for Spark, and were started again."""
    exit: int | None = None
    """Of the last driver, which is stopped politely."""
    timeout: str = ""
    books: Books = field(default_factory=Books)

    @property
    def killed(self) -> Counter[Victim]:
        return Counter(victim for victim, _ in self.rounds)

    @property
    def lost(self) -> Counter[Loss]:
        return Counter(loss for _, loss in self.rounds)


def rounds(count: int, seed: int) -> list[Round]:
    """Every kind of them about as often, in a random order."""
    chance = random.Random(seed)
    found: list[Round] = []
    while len(found) < count:
        found += chance.sample(CHOICE, len(CHOICE))
    return found[:count]


class Stay:
    """Everybody who uses a plant."""

    def __init__(self, plant: Plant, senders: Sequence[Sender], once: Listener, everything: Listener) -> None:
        self.plant = plant
        self.senders = senders
        self.once = once
        self.everything = everything

    @property
    def listeners(self) -> tuple[Listener, Listener]:
        return self.once, self.everything

    async def has_come(self, ids: set[str]) -> None:
        """Waits until all of these have come."""
        async with asyncio.timeout(BUSY):
            while any(ids - one.opened.keys() for one in self.listeners):
                await asyncio.sleep(LOOK)


@contextlib.asynccontextmanager
async def staying(plant: Plant) -> AsyncIterator[Stay]:
    """Two listeners that are subscribed, a sensor and a source that do not send yet; all of it stopped in the end."""
    listening: list[asyncio.Task[None]] = []
    try:
        node = await plant.start_node()
        source = Source(plant, await registered(plant, await asyncio.to_thread(node.admin_token)), rate=RATE / 2)
        once, everything = Listener(plant, "once", dedupe=10_000), Listener(plant, "everything", dedupe=0)
        listening += [asyncio.create_task(one.run()) for one in (once, everything)]
        for one in (once, everything):
            async with asyncio.timeout(BUSY):
                await one.subscribed.wait()
        yield Stay(plant, (Sensor(plant, rate=RATE), source), once, everything)
    finally:
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
        await asyncio.to_thread(plant.sweep)


async def run(folder: Path, spark: Callable[[], SparkSession], *, plan: Sequence[Round], seed: int) -> Report:
    """Kills what the plan says, at random moments, while messages come; the books are in the report.

    `spark` is asked for in the end, when the other one is gone.
    """
    chance = random.Random(seed)
    report = Report(seed=seed)
    plant = Plant(folder, batch=BATCH)
    async with staying(plant) as stay:
        sending = [asyncio.create_task(one.run()) for one in stay.senders]
        plant.start_driver()
        try:
            for victim, loss in plan:
                await _moment(plant, loss, chance)
                await _killed(report, plant, victim, loss, chance)
                report.rounds.append((victim, loss))
            for one in stay.senders:
                one.finish()
            async with asyncio.timeout(BUSY):
                await asyncio.gather(*sending)
            rows = plant.written()
            await plant.until(lambda: plant.worked_off(len(rows)))
            await stay.has_come(ids_of(rows))
        except TimeoutError:
            report.timeout = (
                f"{plant.status()}\n{plant.driver.log.read_text()[-2000:]}"  # the books say what is missing
            )
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        report.exit = await asyncio.to_thread(plant.driver.stop)
        await _alone(report, plant)
        report.books, rows = await asyncio.to_thread(audit, spark(), plant, stay.senders, stay.once, stay.everything)
        await _sealed(report, stay)
        plant.node.check()
        for sender in stay.senders:
            report.acknowledged[sender.who] = len(sender.acknowledged)
            report.again += sum(times > 1 for times in sender.sent.values())
        report.slow = plant.slow
        report.messages, report.records = len(rows), len(ids_of(rows))
        report.deliveries = stay.everything.opened.total()
        report.reconnections = sum(one.reconnections for one in stay.listeners)
    return report


async def _moment(plant: Plant, loss: Loss, chance: random.Random) -> None:
    """A random one: while the driver starts, or when it has done something; only then is there something to lose."""
    if chance.random() < EARLY and loss is Loss.NOTHING:
        await asyncio.sleep(chance.uniform(0, STARTING))
        return
    wanted = chance.randint(1, 2)
    await plant.until(lambda: plant.driver.batches >= wanted)
    await asyncio.sleep(chance.uniform(0, MOMENTS))


async def _killed(report: Report, plant: Plant, victim: Victim, loss: Loss, chance: random.Random) -> None:
    """Killed, and started again after a while."""
    driver, before = plant.driver, plant.left_over
    match victim:
        case Victim.NODE:
            plant.node.kill()
        case Victim.DRIVER:
            plant.driver.kill()
        case Victim.JAVA:
            await asyncio.to_thread(_java_gone, plant)
        case Victim.BOTH:
            for kill in chance.sample((plant.node.kill, plant.driver.kill), 2):
                kill()
    done, begun = driver.batches, plant.begun()
    report.worked += done > 0
    report.early += done == 0
    report.within += bool(begun) and (done > 0 or begun != before)
    if victim is not Victim.NODE:
        report.batches += done
        plant.left_over = begun
    if loss in (Loss.CHECKPOINT, Loss.BOTH):
        await asyncio.to_thread(plant.lose_checkpoint)
    if loss in (Loss.LEDGER, Loss.BOTH):
        plant.lose_ledger()
    node_first = chance.random() < 0.5
    if victim is not Victim.NODE and not node_first:
        plant.start_driver()
    if victim in (Victim.NODE, Victim.BOTH):
        await asyncio.sleep(chance.uniform(0, 1.5))  # it is away for a while
        await plant.start_node()
    if victim is not Victim.NODE and node_first:
        plant.start_driver()


def _java_gone(plant: Plant) -> None:
    """The driver notices, and ends by itself."""
    plant.driver.kill_java()
    assert plant.driver.popen.wait(BUSY) != 0, plant.driver.log.read_text()


async def _alone(report: Report, plant: Plant) -> None:
    """What a killed driver has left ends by itself."""
    for driver in plant.drivers:
        try:
            async with asyncio.timeout(BUSY):
                while driver.left():
                    await asyncio.sleep(LOOK)
        except TimeoutError:
            report.orphans += driver.left()


async def _sealed(report: Report, stay: Stay) -> None:
    """What the lake has under a key opens, too, and is what was measured."""
    lake = Place.open(stay.plant.folders.lake)
    for part in lake.parts("normalised"):
        table = pq.read_table(part.path, columns=["id", "target", "key_id", "message", "value"], partitioning=None)
        for row in table.to_pylist():
            if (row["key_id"] is not None) != str(row["target"]).startswith("sealed/"):
                report.books.strange.append(f"{row['id']} in {row['target']}: key {row['key_id']}")
            elif row["key_id"] is not None:
                said = orjson.loads(await stay.once.opens(row["target"], row["key_id"], row["message"]))
                if said["id"] != row["id"] or row["value"] is not None:
                    report.books.strange.append(f"{row['id']}: {said}")
