"""The driver dies after each step of a batch in turn; the next one finishes it, and dies at the next step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.crash import dying
from pipeline.crash.books import audit, ids_of
from pipeline.crash.plant import BUSY, Driver, Plant
from pipeline.crash.run import Stay, staying

BATCH = 20
EACH = 40  # messages before each death: more than it takes


FEW = ("half published, not noted", "done, not committed")
"""A batch that was made in part and is made again, and one that is done and is not.

`test_job` has the one whose records were not even begun, without a death."""


@pytest.mark.timeout(1200)
async def test_a_driver_that_dies_at_some_steps(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    await _die(FEW, tmp_path, request)


@pytest.mark.soak
async def test_a_driver_that_dies_at_each_step(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    await _die(tuple(dying.STEPS), tmp_path, request)


async def _die(steps: Sequence[str], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    plant = Plant(tmp_path, batch=BATCH, audit=False)
    async with staying(plant) as stay:
        left = ""
        for step in steps:
            await _send(stay)
            driver = await _died(plant, step)
            said = driver.log.read_text()
            assert driver.popen.returncode == dying.DEAD, (step, said)
            assert left not in plant.begun(), f"{left} was not made again before {step}"
            left = said.rpartition("died in ")[2].split()[0]  # and what Java says of it
            assert (plant.begun() == [left]) == (step != "done, not committed"), (step, left, plant.begun())
        assert await asyncio.to_thread(plant.start_driver(once=True).popen.wait, BUSY) == 0, (
            plant.driver.log.read_text()
        )
        assert plant.begun() == []
        rows = plant.written()
        await stay.has_come(ids_of(rows))
        plant.node.check()
        spark = request.getfixturevalue("spark")
        books, _ = await asyncio.to_thread(audit, spark, plant, stay.senders, stay.once, stay.everything)
        assert books.clean, str(books)
        assert len(rows) == EACH * len(steps), "nobody was killed who sends"
        totals = plant.status()["totals"]
        assert (totals["messages"], totals["published"]) == (len(rows), len(ids_of(rows))), "each of them counts once"
        again = stay.everything.opened.total() - len(stay.everything.opened)
        assert again > 0, "what the ledger had not noted was published again"


async def _died(plant: Plant, step: str) -> Driver:
    """A driver that has ended."""
    while True:
        driver = plant.start_script(Path(dying.__file__), step)
        await asyncio.to_thread(driver.popen.wait, BUSY)
        if not driver.too_slow:
            return driver


async def _send(stay: Stay) -> None:
    """From both, and acknowledged."""
    async with asyncio.timeout(BUSY):
        for sender in stay.senders:
            sender.wanted = sender.next + EACH // 2
            await sender.run()
            assert len(sender.acknowledged) == sender.wanted
