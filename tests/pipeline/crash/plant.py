"""A node and its pipeline as processes of their own, which can be killed and come back; and what they leave on disk.

Everything that belongs to a pipeline (the driver, its JVM, the workers) is one session of the system, so that what
outlives a killed driver is found, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from keys.making import entropy
from processes import TIDEGATE, File, Process
from tidegate.config import load
from tidegate.keys import PrivateKey
from tidegate.pipeline.folders import Folders
from tidegate.store.journal import INGEST, Reader

MARY = PrivateKey.generate(entropy("mary"))
BUSY = 600.0  # seconds to wait at most for something of Spark; only a failing run ever does
LOOK = 0.05
SLOW = "Python worker failed to connect back"
"""Spark gives a new interpreter ten seconds, and that cannot be changed; on a busy machine it takes longer."""
CONFIG = f"""
version: 1
node: {{name: plant, data: data}}
listeners: [{{url: "mqtt://127.0.0.1:PORT"}}]
http: {{url: "http://127.0.0.1:HTTP_PORT", rate: 10000, address_rate: 10000}}
log: {{format: json}}
sys: {{interval: 0s}}
limits: {{queue: {{messages: 1000000, bytes: 1GiB}}}}
keys: {{protect: ["raw/closed/#", "sealed/#"]}}
directory:
  users:
    sensor: {{password: "plain:sensor"}}
    mary: {{password: "plain:mary", public_key: "{MARY.public}"}}
policies:
  - {{id: sensors, subject: "user:sensor", topic: "raw/#", action: write}}
  - {{id: reads, subject: "service:pipeline", topic: "raw/#", action: read}}
  - {{id: writes, subject: "service:pipeline", topic: "open/#", action: write}}
  - {{id: seals, subject: "service:pipeline", topic: "sealed/#", action: write}}
  - {{id: mary, subject: "user:mary", topic: "#", action: read}}
pipeline:
  ingest: ["raw/#"]
  rules: rules.yaml
  trigger: 500ms
  batch: BATCH
  audit: AUDIT
  spark: {{master: "local[2]", memory: 512m, conf: {{spark.local.dir: SPARK}}}}
"""
RULES = """
version: 1
sources:
  - id: climate
    source: /sensor
    values: [{name: temperature, at: /t, unit: C}, {name: humidity, at: /h, unit: "%"}]
    keep: [/n]
scores:
  - {id: range, dimension: accuracy, check: in_range, args: {column: value, min: -40, max: 60, soft: 10}}
  - {id: usual, dimension: accuracy, check: deviates_from_history, args: {good: 4, bad: 8, floor: 0.5}}
  - {id: fresh, dimension: timeliness, check: age_under, args: {good: 2s, bad: 60s}}
topics:
  - {id: open, filter: "name = 'temperature'", topic: "open/{name}/{source}"}
  - {id: sealed, filter: "name = 'humidity'", topic: "sealed/{name}/{source}"}
"""
"""Each message makes two records: one goes out in clear, the other under a key."""


class Driver:
    """`tidegate pipeline …`, or a script that is called like it."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        self.log = next(path for number in count(1) if not (path := folder / f"driver-{number}.log").exists())
        spare = folder / "tmp"
        spare.mkdir(exist_ok=True)
        with self.log.open("wb") as stream:
            self.popen = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd=folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(spare)},
                start_new_session=True,
            )
        self.session = self.popen.pid

    @property
    def batches(self) -> int:
        """How many it has done."""
        return self.log.read_text().count('{"batch":')

    @property
    def too_slow(self) -> bool:
        """Whether it gave up because of the machine."""
        return not self.running and SLOW in self.log.read_text()

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        """The driver alone: Java and the workers have to find out."""
        if self.running:
            self.popen.kill()
            self.popen.wait()

    def kill_java(self) -> None:
        """Only the JVM, if there is one yet; the driver has to find out."""
        for pid, name in _session(self.session):
            if name == "java":
                _kill(pid)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        if self.running:
            self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(BUSY)

    def left(self) -> list[str]:
        """What still runs of it."""
        return [f"{name} ({pid})" for pid, name in _session(self.session)]

    def sweep(self) -> None:
        """Whatever happens in a test, nothing stays."""
        self.kill()
        deadline = time.monotonic() + BUSY
        while found := list(_session(self.session)):
            for pid, _ in found:
                _kill(pid)
            assert time.monotonic() < deadline, found
            time.sleep(LOOK)


class Plant:
    """A folder with a node and a pipeline in it."""

    def __init__(self, folder: Path, *, batch: int, audit: bool = True) -> None:
        (folder / "rules.yaml").write_text(RULES)
        said = {"BATCH": str(batch), "AUDIT": str(audit).lower(), "SPARK": str(folder / "spark")}
        text = re.sub("|".join(said), lambda found: said[found[0]], CONFIG)
        self.folder = folder
        self.file = File(folder, text)
        self.folders = Folders.of(load(self.file.path))
        self.drivers: list[Driver] = []
        self.nodes: list[Process] = []
        self.left_over: list[str] = []
        """Batches that the last driver that was killed had begun and not done."""
        self.slow = 0
        """Drivers that were started again because the machine was too slow for Spark."""

    @property
    def port(self) -> int:
        return self.file.ports["PORT"]

    @property
    def web(self) -> str:
        return f"http://127.0.0.1:{self.file.ports['HTTP_PORT']}"

    @property
    def node(self) -> Process:
        return self.nodes[-1]

    @property
    def driver(self) -> Driver:
        return self.drivers[-1]

    async def start_node(self) -> Process:
        self.nodes.append(Process(self.file))
        await asyncio.to_thread(self.node.wait_for, "ready", 1, BUSY)
        return self.node

    def start_driver(self, *, once: bool = False) -> Driver:
        what = "once" if once else "run"
        return self._started([TIDEGATE, "pipeline", what, "--json", "-c", str(self.file.path)])

    def start_script(self, script: Path, *arguments: str) -> Driver:
        return self._started([sys.executable, str(script), *arguments, str(self.file.path)])

    def _started(self, arguments: Sequence[str]) -> Driver:
        self.drivers.append(Driver(self.folder, arguments))
        return self.driver

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.folders.own / "checkpoint", ignore_errors=True)

    def lose_ledger(self) -> None:
        for file in self.folders.own.glob("ledger.db*"):
            file.unlink()

    def status(self) -> dict[str, Any]:
        try:
            found = json.loads(self.folders.status.read_text())
        except FileNotFoundError:
            return {}
        assert isinstance(found, dict)
        return found

    def works(self) -> bool:
        """Whether the driver that was started last has come to its batches."""
        said = self.status()
        return said.get("pid") == self.driver.popen.pid and said.get("state") == "running"

    def begun(self) -> list[str]:
        """Batches that were begun and are not done."""
        if not self.folders.ledger.exists():
            return []
        with sqlite3.connect(f"file:{self.folders.ledger}?mode=ro", uri=True) as ledger:
            found = [name for (name,) in ledger.execute("select name from batches where done is null")]
        ledger.close()
        return found

    def written(self) -> list[dict[str, Any]]:
        """All rows of the journal."""
        found: list[dict[str, Any]] = []
        with Reader(self.folders.data, INGEST) as reader:
            while batches := reader.poll():
                for batch in batches:
                    found += batch.to_pylist()
        return found

    def worked_off(self, rows: int) -> bool:
        """Whether everything that is in the journal is done."""
        return self.works() and self.status().get("next", {}).get("0", 0) == rows

    async def until(self, condition: Callable[[], bool], seconds: float = BUSY) -> None:
        """Waits for it; a driver that ends before is a failure."""
        async with asyncio.timeout(seconds):
            while not condition():
                if self.driver.too_slow:
                    self.slow += 1
                    self.start_driver()
                assert self.driver.running, self.driver.log.read_text()
                await asyncio.sleep(LOOK)

    def sweep(self) -> None:
        for driver in self.drivers:
            driver.sweep()
        for node in self.nodes:
            node.kill()


def _session(session: int) -> Iterator[tuple[int, str]]:
    """The processes of a session of the system that still run."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition(" (")[2].rpartition(") ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, _, owner = rest.split()[:4]
        if int(owner) == session and state != "Z":
            yield int(path.parent.name), name


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
