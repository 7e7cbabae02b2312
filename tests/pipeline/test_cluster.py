"""The same job on a cluster: a master and two workers of Spark's own, on loopback, and the same rows in the lake."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyspark
import pytest
from pyspark.sql import SparkSession

from harness import free_port
from processes import TIDEGATE
from store.journal.trial import NOON, Trial
from tidegate.config import load
from tidegate.pipeline.job import Done, Job
from tidegate.store.journal import INGEST, ingest_row

pytestmark = pytest.mark.timeout(700)

PATIENCE = 300.0  # seconds; never a measure of anything
MESSAGES = 120
HOST = "127.0.0.1"
# five virtual machines that live for a minute: what pays later is left out
ENVIRONMENT = {"SPARK_LOCAL_IP": HOST, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
RULES = """\
version: 1
sources:
  - id: thermo
    type: temperature
    records: /readings
    time: {at: /ts, form: s}
    values: [{name: temperature, at: /t, unit: F, to: C}, {name: humidity, at: /h, unit: "%", required: false}]
    keep: [/battery]
scores:
  - {id: range, dimension: accuracy, check: in_range, args: {min: -40, max: 60, soft: 10}}
  - {id: usual, dimension: accuracy, check: deviates_from_history, args: {count: 10}}
  - {id: fresh, dimension: timeliness, check: age_under, args: {good: 2s, bad: 60s}}
"""


@contextmanager
def daemon(name: str, log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A part of Spark and everything that it starts, until the block ends."""
    with log.open("wb") as stream:
        running = subprocess.Popen(
            [SPARK_CLASS, f"org.apache.spark.deploy.{name}", "--host", HOST, *words],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**os.environ, **ENVIRONMENT, "SPARK_DAEMON_MEMORY": "256m"},
            start_new_session=True,
        )
    try:
        yield running
    finally:
        # Spark would look after its executors for a while; what is left of the group goes with it
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a master with two workers, and the folder with what they were given to do."""
    folder = tmp_path_factory.mktemp("cluster")
    port, web = free_port(), free_port()
    master = f"spark://{HOST}:{port}"
    with ExitStack() as stack:
        log = folder / "master.log"
        running = [stack.enter_context(daemon("master.Master", log, "--port", str(port), "--webui-port", str(web)))]
        for number in (1, 2):
            words = ["--port", str(free_port()), "--webui-port", str(free_port()), "--cores", "1", "--memory", "512m"]
            words += ["--work-dir", str(folder / f"worker-{number}"), master]
            log = folder / f"worker-{number}.log"
            running.append(stack.enter_context(daemon("worker.Worker", log, *words)))
        deadline = time.monotonic() + PATIENCE
        while workers(web) < 2:
            logs = "\n".join(file.read_text() for file in folder.glob("*.log"))
            assert all(one.poll() is None for one in running), logs
            assert time.monotonic() < deadline, logs
            time.sleep(0.1)
        yield master, folder


def workers(web: int) -> int:
    """How many the master knows."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{web}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except OSError:
        return 0


def plant(folder: Path) -> Path:
    """A data folder with messages of three sources, of which some are faulty; its configuration."""
    folder.mkdir()
    (folder / "rules.yaml").write_text(RULES)
    journal = Trial(folder / "data", INGEST)
    luck = random.Random(7)
    rows = []
    for number in range(MESSAGES):
        readings = [{"t": round(luck.gauss(70, 2), 1), "h": 40 + number % 5}, {"t": 68.5}]
        said: dict[str, Any] = {"readings": readings, "ts": NOON + number - number % 11, "battery": 0.5}
        payload = b"nonsense" if number % 17 == 0 else json.dumps(said).encode()
        source = f"t{number % 3}"
        about = {"source": source, "client": source, "user": "anna", "source_kind": "temperature", "registered": True}
        rows.append(ingest_row(NOON + number, f"plant-1-{number:x}", None, payload, context=b"\x01\xa0", **about))
    journal.write(*rows)
    journal.close()
    first, second, third = (free_port() for _ in range(3))
    config = folder / "tidegate.yaml"
    config.write_text(
        f"""\
version: 1
node: {{name: plant, data: data}}
listeners: [{{url: "mqtt://{HOST}:{free_port()}", anonymous: true}}]
policies: open
pipeline:
  rules: rules.yaml
  batch: {MESSAGES // 2}
  spark:
    memory: 512m
    conf:
      spark.driver.host: {HOST}
      spark.driver.bindAddress: {HOST}
      spark.driver.port: "{first}"
      spark.driver.blockManager.port: "{second}"
      spark.blockManager.port: "{third}"
      spark.executor.memory: 512m
      spark.executor.cores: "1"
      spark.cores.max: "2"
      spark.local.dir: {folder / "local"}
"""
    )
    return config


def once(config: Path, master: str) -> list[dict[str, Any]]:
    """`tidegate pipeline once`: what it says of each batch."""
    running = subprocess.Popen(
        [TIDEGATE, "pipeline", "once", "-c", config, "--master", master, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
        start_new_session=True,
    )
    try:
        printed, complaints = running.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, printed + complaints
    return [json.loads(line) for line in printed.splitlines()]


def rows(config: Path, table: str) -> list[dict[str, Any]]:
    """Everything that is in a table, with its day and batch; without our code, and without the id of the journal."""
    found = ds.dataset(config.parent / "data" / "lake" / table, partitioning="hive").to_table().to_pylist()
    journals = {row.pop("journal") for row in found}
    assert len(journals) == 1
    for row in found:
        row["batch"] = place(row["batch"])
    return sorted(found, key=lambda row: (row["shard"], row["offset"], row.get("part", 0)))


def place(batch: str) -> str:
    """The name of a batch, without the id of the journal."""
    return batch.partition("-")[2]


def test_the_same_job_on_a_cluster(tmp_path: Path, cluster: tuple[str, Path], spark: SparkSession) -> None:
    master, folder = cluster
    near, far = plant(tmp_path / "near"), plant(tmp_path / "far")
    told = once(far, master)
    ran = sorted(path.relative_to(folder).parts[0] for path in folder.glob("worker-*/app-*/*/stderr"))
    assert ran == ["worker-1", "worker-2"], "each had an executor"

    done: list[Done] = []
    Job(spark, load(near), done.append).once()
    assert [(place(one["batch"]), one["messages"], one["records"], one["quarantined"]) for one in told] == [
        (place(one.batch.name), one.batch.messages, one.records, one.quarantined) for one in done
    ]
    assert [one["messages"] for one in told] == [MESSAGES // 2] * 2
    for table in ("raw", "normalised", "quarantine"):
        assert rows(far, table) == rows(near, table)
    assert {row["offset"] for row in rows(far, "raw")} == set(range(MESSAGES))
    faulty = {number for number in range(MESSAGES) if number % 17 == 0}
    assert {row["offset"] for row in rows(far, "quarantine")} == faulty
    assert {row["offset"] for row in rows(far, "normalised")} == set(range(MESSAGES)) - faulty
    assert any(row["scores"]["timeliness"] not in (None, 1.0) for row in rows(far, "normalised"))
