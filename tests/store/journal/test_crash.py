"""kill -9 at any moment: what was called safe is there, once, in order, and the offsets have no gap."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from store.journal.crashing import key
from store.journal.trial import Trial, audit, details, one_line, segments
from tidegate.store.journal import AUDIT, STREAMS, Reader
from tidegate.store.journal.frame import encode

HERE = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))}


def killed(data: Path, name: str, seed: int, after: float, follower: Reader, lines: int) -> int:
    """Kills a writing process some time after it has called something safe so often; the last row it did.

    Meanwhile somebody reads along.
    """
    command = [sys.executable, "-m", "store.journal.crashing", "load", str(data), name, str(seed)]
    said = data / "said"
    with said.open("wb") as out, subprocess.Popen(command, stdout=out, env=ENVIRONMENT) as process:
        while said.read_bytes().count(b"safe") < lines:
            assert process.poll() is None, said.read_text()
        deadline = time.monotonic() + after
        while time.monotonic() < deadline:
            check(follower, name)
            assert process.poll() is None, said.read_text()
        process.kill()
    return max(int(line.split()[1]) for line in said.read_text().splitlines() if line.startswith("safe "))


def check(reader: Reader, name: str) -> None:
    """Offset n holds row n: nothing is missing, doubled or out of order."""
    for batch in reader.poll():
        for offset, text in zip(batch.column("offset").to_pylist(), batch.column(key(name)).to_pylist(), strict=True):
            assert int(text.split()[0]) == offset


def trial(data: Path, name: str, rounds: int, seed: int) -> int:
    print("seed", seed)
    chance = Random(seed)
    follower = Reader(data, STREAMS[name])
    safe = -1
    for round in range(rounds):
        safe = max(safe, killed(data, name, seed + round, chance.uniform(0.0, 0.3), follower, 1 + round % 3))
        with Reader(data, STREAMS[name]) as reader:
            first, following = reader.bounds()
            assert following > safe, "called safe, and lost"
            check(reader, name)
            while reader.next < following:
                check(reader, name)
            assert reader.missed == 0
        for path in segments(data, STREAMS[name])[:-1]:
            table = one_line(path)
            assert table.column("offset")[0].as_py() == int(path.stem)
        assert first <= following
    follower.close()
    return safe


@pytest.mark.parametrize("name", STREAMS)
def test_killed_while_writing(tmp_path: Path, name: str) -> None:
    assert trial(tmp_path, name, 3, int.from_bytes(os.urandom(4), "big")) > 0


def torn(data: Path) -> None:
    """A journal of three segments whose end was being written."""
    start = Trial(data, segment_size=6_000)
    for number in range(11):
        start.write(audit(number))
    start.close()
    assert len(segments(data)) == 3
    message, _ = encode(AUDIT, 0, 11, [audit(11)], compress=False)
    with segments(data)[-1].open("ab") as file:
        file.write(message[:-5])


def test_killed_before_each_call_that_changes_anything(tmp_path: Path) -> None:
    """While it is opened and mended, written, rolled, cleaned and closed."""
    torn(tmp_path / "start")
    command = [sys.executable, "-m", "store.journal.crashing", "points", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=110, check=False)
    assert run.returncode == 0, run.stderr
    count = len(list(tmp_path.iterdir())) - 1
    assert count > 40
    for nth in range(1, count + 1):
        data = tmp_path / str(nth)
        safe = [int(line.split()[1]) for line in (data / "said").read_text().splitlines() if line.startswith("safe ")]
        for _ in range(2):
            kept = details(data)
            assert kept == list(range(kept[0], kept[-1] + 1))
            assert kept[-1] >= max([10, *safe])
            Trial(data).close()
        if nth == count:
            assert kept[-1] == max(safe) == 26, "the last one came to its end"
            assert kept[0] > 0


@pytest.mark.soak
@pytest.mark.parametrize("name", STREAMS)
def test_killed_while_writing_for_long(tmp_path: Path, name: str) -> None:
    trial(tmp_path, name, 200, int.from_bytes(os.urandom(4), "big"))
