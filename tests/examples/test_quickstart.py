"""`make run`, on other ports: messages flow, one is denied, scored ones arrive, and Ctrl-C stops all of it."""

from __future__ import annotations

import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import environ
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from forkserver import COLD
from harness import free_port
from tidegate.pipeline.columns import DIMENSIONS
from tidegate.pipeline.rules import parse

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"
FILES = ("run.py", "devices.py", "tidegate.yaml", "rules.yaml")
AT_ONCE = ("gym/treadmill-1/speed", "gym/bike-2/power", "gym/strap-3/heartbeats", "denied: Not authorized")
SCORED = ("speed/treadmill-1", "power/bike-2", "heartbeats/strap-3", "temperature/air-4", "humidity/air-4")
SCORED += ("temperature/thermo-5", "temperature/door-6")


class Running:
    """`run.py` in a folder of its own, and everything that it starts."""

    def __init__(self, folder: Path, *, web: int | None = None, **surroundings: str) -> None:
        ports = {"1883": str(free_port()), "8083": str(free_port()), "8080": str(web or free_port())}
        for name in FILES:
            text = (QUICKSTART / name).read_text()
            (folder / name).write_text(re.sub(r"\b(1883|8083|8080)\b", lambda found: ports[found[0]], text))
        self._out = folder / "out"
        self._mark = f"TIDEGATE_TEST_MARK={secrets.token_hex(8)}"
        name, _, value = self._mark.partition("=")
        with self._out.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, str(folder / "run.py")],
                stdout=stream,
                stderr=stream,
                env={**environ, "COLUMNS": "200", **surroundings, name: value, COLD: "1"},
            )

    @property
    def printed(self) -> str:
        return self._out.read_text()

    def wait_for(self, *wanted: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while missing := [text for text in wanted if text not in self.printed]:
            assert self.process.poll() is None, self.printed
            assert time.monotonic() < deadline, f"no {missing} in\n{self.printed}"
            time.sleep(0.05)

    def left(self) -> list[str]:
        """What still runs of all that it has started, and of what that has."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
            except OSError:  # it has just ended, or is somebody else's
                continue
        return found


@contextmanager
def running(folder: Path, **surroundings: str) -> Iterator[Running]:
    """Ends with Ctrl-C, and insists that nothing is left."""
    it = Running(folder, **surroundings)
    try:
        yield it
        it.process.send_signal(signal.SIGINT)
        assert it.process.wait(120) == 0, it.printed
    finally:
        if it.process.poll() is None:
            it.process.send_signal(signal.SIGTERM)
            it.process.wait(120)
    deadline = time.monotonic() + 20
    while left := it.left():
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.mark.timeout(600)
def test_quickstart(tmp_path: Path) -> None:
    with running(tmp_path) as it:
        it.wait_for(*AT_ONCE, "visitor got", "denied by default", "Spark is starting", seconds=60)
        it.wait_for(*(f"alice got     scored/{topic} " for topic in SCORED), seconds=300)
        it.wait_for("it runs: scored messages follow", "records/s", "raw ", "normalised ", "quarantine ", seconds=60)
    printed = it.printed
    assert '"event": "stopped"' in printed
    assert "tidegate token make --socket" in printed
    assert not re.search(r"tg_[0-9a-f]{16}_", printed), "a token is in the log"
    hearts = [line for line in printed.splitlines() if "heartbeats" in line]
    assert all("alice got" in line for line in hearts), "Mary's preference holds for what the pipeline made, too"
    assert re.search(r"visitor got +scored/speed/treadmill-1", printed)
    assert re.search(r"scored/temperature/door-6 .*authentication 0\.00", printed), "it has not registered"
    lake = tmp_path / "var/quickstart/lake"
    sources = set(ds.dataset(lake / "normalised").to_table(columns=["source"])["source"].to_pylist())
    assert {"treadmill-1", "bike-2", "strap-3", "air-4", "thermo-5", "door-6"} <= sources


def test_without_java_everything_else_runs(tmp_path: Path) -> None:
    with running(tmp_path, JAVA_HOME=str(tmp_path)) as it:
        it.wait_for(*AT_ONCE, "it does not run, everything else does: there is no Java here", seconds=60)
    assert "failed" not in it.printed


def test_the_file_is_accepted() -> None:
    tidegate = Path(sys.executable).with_name("tidegate")
    done = subprocess.run([tidegate, "check", QUICKSTART / "tidegate.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_rules_are_an_example_of_all_dimensions() -> None:
    rules = parse((QUICKSTART / "rules.yaml").read_text(), "rules.yaml")
    assert {score.dimension for score in rules.scores} == set(DIMENSIONS)


def test_beside_another_it_does_not_start(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        it = Running(tmp_path, web=port)
        assert it.process.wait(60) == 1
    assert f"127.0.0.1:{port} is taken" in it.printed
    assert not (tmp_path / "var").exists(), "and touches nothing"
    assert not it.left()
