"""A folder with a journal, and the node and the pipeline that run on it, as processes of their own.

Messages for the journal are like those that the node itself wrote for each sensor: a first node is sent one message of
each, and what it recorded (context, user, level, version of the policies) is the pattern for all others. They are
written by the journal's own Writer, each on the disk before the next node starts.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from bench.harness.servers import (
    CONFIGURATION,
    START_TIMEOUT,
    BenchError,
    Peer,
    Server,
    await_port,
    free_port,
    started,
    stop,
    tidegate,
)
from bench.keys.node import VERSION, mqtt_session
from bench.load import frames, sessions
from bench.pipeline import weather
from tidegate.config.pipeline import Pipeline, Spark
from tidegate.store.journal import INGEST, Reader, Writer, ingest_row
from tidegate.store.journal.rows import Row

if TYPE_CHECKING:
    from tidegate.config import Config

GAP: Final = 0.0001
"""Seconds between two messages of a journal that is made."""
AT_ONCE: Final = 16_384  # rows between two looks at whether the disk keeps up
AHEAD: Final = 2  # times that many are on their way to the disk

Pattern = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the pipeline is told."""

    batch: int = Pipeline().batch
    """Messages in one, at most."""
    memory: str = Spark().memory
    """Of Spark."""
    rules: str = weather.RULES


USUAL: Final = Setting()
"""As shipped."""
LARGE: Final = Setting(batch=1_000_000, memory="4g")
"""For whoever has much to work off: planning a batch costs the same for many messages as for few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A folder with everything in it."""

    folder: Path
    port: int

    @property
    def file(self) -> Path:
        return self.folder / CONFIGURATION

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def config(self) -> Config:
        from tidegate.config import load

        return load(self.file)

    def connected(self, user: str) -> socket.socket:
        return mqtt_session(self.port, user, None)

    def ruled(self, rules: str) -> None:
        (self.folder / "rules.yaml").write_text(rules)

    def forget(self) -> None:
        """The pipeline begins at the beginning again, with an empty lake."""
        from tidegate.pipeline.folders import Folders

        folders = Folders.of(self.config())
        for folder in (folders.own, folders.lake):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def prepared(setting: Setting = USUAL) -> Iterator[Site]:
    """A new one; everything in it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as name:
        site = Site(folder=Path(name), port=free_port())
        site.file.write_text(weather.configuration(site.folder, site.port, setting.batch, setting.memory))
        site.ruled(setting.rules)
        yield site


@contextmanager
def filled(count: int, setting: Setting) -> Iterator[tuple[Site, Server]]:
    """One with so many messages in its journal, and a node that runs."""
    with prepared(setting) as site:
        patterns = recorded(site)
        write(site.data, messages(patterns, count))
        with node(site) as server:
            yield site, server


@contextmanager
def node(site: Site) -> Iterator[Server]:
    """It runs until the end of the block."""
    log = site.folder / "log"
    with _process(tidegate("run", "-c", str(site.file)), log) as process:
        server = Server(peer=Peer.TIDEGATE, ports=(site.port,), process=process, log=log)
        await_port(server, site.port)
        yield server


@contextmanager
def pipeline(site: Site) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """`tidegate pipeline run` until the end of the block, and the file in which it tells of each batch."""
    log = site.folder / "batches"
    with _process(tidegate("pipeline", "run", "-c", str(site.file), "--json"), log) as process:
        yield process, log


def batches(log: Path) -> list[dict[str, Any]]:
    """What a pipeline told of its batches."""
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


@contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = started(command, log)
    try:
        yield process
    finally:
        stop(process)


@contextmanager
def confined(cores: tuple[int, int]) -> Iterator[None]:
    """This process, and those that it starts, run on two cores, however many there are."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def room(data: Path) -> int:
    """Bytes of the journal in this data folder."""
    return sum(file.stat().st_size for file in (data / "journal" / INGEST.name).rglob("*.arrow"))


# -- journals ----------------------------------------------------------------------------------------------------------


def recorded(site: Site) -> dict[str, Pattern]:
    """By topic, what a node writes down of one message of each sensor. The journal is empty afterwards."""
    everything = weather.sensors()
    with node(site), ExitStack() as stack:
        lines = {name: stack.enter_context(site.connected(name)) for name in weather.stations()}
        for number, sensor in enumerate(everything, 1):
            payload = sensor.payload(time.time(), 0.5)
            lines[sensor.station].sendall(
                frames.publish(sensor.topic, payload, qos=1, packet_id=number, version=VERSION)
            )
        for number, sensor in enumerate(everything, 1):
            if (reply := sessions.read_packet(lines[sensor.station])) != frames.answer(frames.PUBACK, number):
                raise BenchError(f"the node answered {reply.hex()} to a message of a sensor")
    with Reader(site.data, INGEST) as reader:
        found: dict[str, Pattern] = {row["topic"]: row for row in reader.rows()}
    if missing := {sensor.topic for sensor in everything} - set(found):
        raise BenchError(f"the node did not record what was sent to {min(missing)}")
    shutil.rmtree(site.data / "journal" / INGEST.name)
    return found


def messages(patterns: Mapping[str, Pattern], count: int) -> Iterator[Row]:
    """So many messages of all sensors in turn, the last of them now."""
    made = [(sensor, _row(patterns[sensor.topic])) for sensor in weather.sensors()]
    boot = next(iter(patterns.values()))["id"].rpartition("-")[0]
    values = weather.values()
    began = time.time() - count * GAP
    for number in range(count):
        sensor, row = made[number % len(made)]
        at = began + number * GAP
        payload = sensor.payload(at - 0.2, values[number % len(values)])
        yield row(at, f"{boot}-{number:x}", payload if (number + 1) % weather.BROKEN else payload[:-9])


def _row(pattern: Pattern) -> Callable[[float, str, bytes], Row]:
    """Rows like this one, at other times and with other payloads."""
    like = ingest_row(
        0.0,
        **{name: pattern[name] for name in INGEST.columns if name != INGEST.time},
    )
    topic, rest = like[2], like[4:]
    return lambda at, id, payload: (at, id, topic, payload, *rest)


def write(data: Path, rows: Iterator[Row]) -> float:
    """Writes them as a node does, as fast as the disk takes them; how long that took, in seconds."""
    turns: SimpleQueue[Callable[[], None]] = SimpleQueue()
    writer = Writer(data, INGEST, call=turns.put)
    writer.open()
    writer.start()
    began = time.perf_counter()
    given = taken = 0

    def safe(count: int) -> None:
        nonlocal taken
        taken = count

    try:
        while piece := list(islice(rows, AT_ONCE)):
            for row in piece:
                if not writer.append(row):
                    raise BenchError("the journal has no room; its disk is too slow")
            given += len(piece)
            writer.after(safe, given)
            while given - taken > AHEAD * AT_ONCE:
                turns.get(timeout=START_TIMEOUT)()
        while taken < given:
            turns.get(timeout=START_TIMEOUT)()
        return time.perf_counter() - began
    finally:
        writer.close(START_TIMEOUT)
