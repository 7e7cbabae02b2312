"""The pipeline of the weather station: the job as a process of its own, and what the two users see of its messages.

Nothing of it knows the sensors: what they send comes from the node's journal, sealed, and goes back through the node.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from playing import Play, Received, Trouble
from station import Reader

from tidegate.config import Config, load
from tidegate.pipeline.status import overview

STARTING = 300.0  # seconds before we give up; Spark takes 15 to start where nothing else runs
STOPPING = 60.0
TIDEGATE = str(Path(sys.executable).with_name("tidegate"))


class Pipeline:
    """`tidegate pipeline run`, while it runs."""

    def __init__(self, config: Config, process: subprocess.Popen[bytes], log: Path) -> None:
        self._config = config
        self._process = process
        self._log = log

    def caught_up(self) -> None:
        """Waits until everything that was acknowledged before is in the lake, and published."""
        deadline = time.monotonic() + STARTING
        while (found := overview(self._config))["lag"] or not found["journal"]["next"]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"the pipeline does not work:\n{self._log.read_text()}")
            time.sleep(0.1)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table of the lake, as anybody may read it who may read files."""
        assert self._config.node.data is not None
        folder = self._config.node.data / "lake" / table
        return list(ds.dataset(folder, partitioning="hive").to_table().to_pylist()) if folder.exists() else []


@contextlib.contextmanager
def pipeline(file: Path) -> Iterator[Pipeline]:
    """From here to the end of the block; nothing that it started stays behind."""
    log = file.parent / "var" / "pipeline.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [TIDEGATE, "pipeline", "run", "-c", str(file)], stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        yield Pipeline(load(file), process, log)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOPPING)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Display:
    """Somebody's screen for what the pipeline publishes."""

    def __init__(self, owner: Reader, password: str, *, port: int, where: str | None = None) -> None:
        client = f"{owner.name}-display-{'all' if where is None else 'some'}"
        self.reader = Reader(owner.name, port=port, password=password, private=owner.private, client=client)
        self.got: dict[str, Received] = {}
        """By id: a message may come twice after a crash, with the same one."""
        if self.reader.subscribe("scored/#", None if where is None else {"where": where}) >= 0x80:
            raise Trouble(f"{owner.name} cannot subscribe to scored/#")

    def look(self, count: int) -> Counter[str]:
        """Waits for so many messages; how many of each topic there are then."""
        deadline = time.monotonic() + STOPPING
        while True:
            for message in self.reader.received():
                self.got[dict(message.properties)["id"]] = message
            if len(self.got) >= count or time.monotonic() > deadline:
                return Counter(message.topic for message in self.got.values())
            time.sleep(0.05)


def scored(play: Play, running: Pipeline, screens: Sequence[Display], sent: int) -> None:
    """What became of everything that was sent so far."""
    ada, ugo, picky = screens
    play.heading("Through the pipeline")
    running.caught_up()
    raw = Counter(row["topic"] for row in running.rows("raw"))
    play.expect("in the lake, of what was sent", f"{raw.total()} of {sent}", f"{sent} of {sent}")
    records = running.rows("normalised")
    play.expect("of those with scores", len(records), sent)
    play.expect("in quarantine", len(running.rows("quarantine")), 0)
    play.expect("values in clear in the lake", sum(row["value"] is not None for row in records), 0)
    temperature, humidity = raw["campodenno/sensor1/temperature"], raw["campodenno/sensor2/humidity"]
    both = {"scored/sensor1/temperature": temperature, "scored/sensor2/humidity": humidity}
    sees(play, "ada", ada, both)
    sees(play, "ugo", ugo, {"scored/sensor2/humidity": humidity})
    sees(play, "ada, where `o.scores.precision >= 0.5`,", picky, {"scored/sensor1/temperature": temperature})
    for topic in both:
        *_, last = (message for message in ada.got.values() if message.topic == topic)
        content, scores = json.loads(last.payload), json.loads(dict(last.properties)["scores"])
        told = ", ".join(f"{name} {round(score, 2):g}" for name, score in scores.items())
        print(f"  {content['source']}: {content['value']:g} {content['unit']}; {told}")
    sealed = json.loads(ada.reader.taken["scored/sensor1/temperature"])
    play.expect("what comes over the wire", ", ".join(sealed), "keyId, data")


def sees(play: Play, who: str, display: Display, should: dict[str, int]) -> None:
    came = display.look(sum(should.values()))
    told = [", ".join(f"{topic} {count}" for topic, count in sorted(each.items())) for each in (came, should)]
    play.expect(f"{who} sees", *told)


def faults(running: Pipeline) -> list[str]:
    """Why messages are in quarantine, once everything was worked off."""
    running.caught_up()
    return sorted(row["fault"] for row in running.rows("quarantine"))
