"""Java ends under a pipeline that runs, or a reader of the journal is slow to start: neither looks like a crash."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.crash.plant import BUSY, LOOK, TIDEGATE, Driver
from pipeline.test_job import Plant
from tidegate.errors import PipelineError
from tidegate.pipeline import job
from tidegate.pipeline.job import SLOW, STARTS, Job
from tidegate.pipeline.lake import Place
from tidegate.pipeline.spark import ENDED
from tidegate.pipeline.status import overview


@pytest.fixture
def plant(tmp_path: Path, spark: SparkSession) -> Plant:
    return Plant(tmp_path, spark, settings="audit: false, spark: {master: 'local[2]', memory: 512m}")


def _until(driver: Driver, condition: Any) -> None:
    deadline = time.monotonic() + BUSY
    while not condition():
        assert driver.running, driver.log.read_text()
        assert time.monotonic() < deadline, driver.log.read_text()
        time.sleep(LOOK)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("within", [False, True], ids=["between batches", "within a batch"])
def test_the_end_of_java_is_one_line(plant: Plant, within: bool) -> None:
    plant.temperatures(200 if within else 20)
    driver = Driver(plant.folder, [TIDEGATE, "pipeline", "run", "--json", "-c", str(plant.file)])
    try:
        _until(driver, lambda: driver.batches >= 1)
        driver.kill_java()
        assert driver.popen.wait(BUSY) == 1
        said = driver.log.read_text()
        assert "Traceback" not in said, said
        assert [line for line in said.splitlines() if "nothing is lost" in line] == [f"error: {ENDED}"], said
        found = overview(plant.config)
        assert (found["running"], found["state"]) == (False, "stopped")
    finally:
        driver.sweep()
    plant.once()
    assert plant.offsets("raw") == list(range(plant.written))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("command", "number", "code"),
    [("run", signal.SIGINT, 0), ("run", signal.SIGTERM, 0), ("quality", signal.SIGINT, 130)],
)
def test_who_is_stopped_while_spark_starts_leaves_no_java(
    plant: Plant, command: str, number: signal.Signals, code: int
) -> None:
    plant.temperatures(1)  # without a journal it would end by itself
    Place.open(plant.folders.lake, create=True)
    driver = Driver(plant.folder, [TIDEGATE, "pipeline", command, "--json", "-c", str(plant.file)])
    try:
        _until(driver, lambda: any(each.startswith("java ") for each in driver.left()))
        driver.popen.send_signal(number)
        assert driver.popen.wait(BUSY) == code, driver.log.read_text()
        assert "\tat " not in driver.log.read_text(), "nothing of what Java thinks of it"
        deadline = time.monotonic() + BUSY
        while left := driver.left():
            assert time.monotonic() < deadline, left
            time.sleep(LOOK)
    finally:
        driver.sweep()


class Slow:
    """A stream that Spark gave up."""

    isActive = False

    def exception(self) -> Exception:
        return RuntimeError(f"[STREAM_FAILED] Query terminated with exception: {SLOW}.")

    def stop(self) -> None:
        pass


@pytest.mark.parametrize("times", [1, STARTS - 1, STARTS])
def test_a_reader_that_is_slow_to_start_is_started_again(
    plant: Plant, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    start = Job._start

    def slow(self: Job, stream: str, trigger: Any) -> Any:
        started.append(stream)
        return Slow() if len(started) <= times else start(self, stream, trigger)

    monkeypatch.setattr(job.Job, "_start", slow)
    plant.temperatures(3)
    if times < STARTS:
        assert [done.batch.messages for done in plant.once()] == [3]
        assert started == ["ingest"] * (times + 1)
    else:
        with pytest.raises(PipelineError, match=SLOW):
            plant.once()
        assert len(started) == STARTS
    assert overview(plant.config)["state"] == "stopped"
