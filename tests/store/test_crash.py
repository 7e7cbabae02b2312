"""kill -9 at any moment: what was acknowledged is there, and what was noted in one turn is there as a whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from store.crashing import SESSIONS
from store.test_migration import EXPECTED, by_value, version
from store.trial import Trial
from store.version1 import BOOT, NODE

HERE = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "store.crashing", *map(str, arguments)]


def killed(folder: Path, round: int, after: float) -> list[str]:
    """What the process said before it was killed."""
    with subprocess.Popen(command("load", folder, round), stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + after
        lines = []
        for line in process.stdout:
            lines.append(line.decode().strip())
            if time.monotonic() > deadline:
                process.kill()
                break
        lines += [line.decode().strip() for line in process.stdout]
    return lines


class Account:
    """What must be there, what must not, and what may be."""

    def __init__(self) -> None:
        self.noted: dict[str, set[int]] = defaultdict(set)
        self.safe: dict[str, set[int]] = defaultdict(set)
        self.pids: dict[int, int] = {}  # number of an incoming message to its packet id, in the last round

    def read(self, lines: list[str]) -> None:
        self.pids.clear()
        for line in lines:
            kind, what, *numbers = line.split()
            number = int(numbers[-1])
            (self.noted if kind == "note" else self.safe)[what].add(number)
            if what == "receive":
                self.pids[number] = int(numbers[0])

    def check(self, trial: Trial) -> None:
        sessions = {s.client: s for s in trial.found.sessions}
        assert set(sessions) == set(SESSIONS)
        queues = {name: [int(d.message.payload.split()[0]) for d in s.deliveries] for name, s in sessions.items()}
        there = queues["one"]
        assert queues["two"] == there, "one turn, one commit"
        assert queues["three"] == there
        assert len(set(there)) == len(there), "nothing twice"
        found = set(there)
        must = (self.safe["publish"] | self.safe["handed"]) - self.noted["done"]
        assert must <= found, f"acknowledged and lost: {must - found}"
        assert not found & self.safe["done"], "struck out and back again"
        assert found <= self.noted["publish"] | self.noted["handed"]
        incoming = sessions["one"].incoming
        for number, pid in self.pids.items():
            if pid in incoming:
                assert number not in found, "queued, and would be handed on again"
                assert number not in self.safe["handed"]
            elif number in self.safe["receive"]:
                assert number in self.noted["handed"], "acknowledged and lost"
                assert number in found | self.noted["done"], "handed on, and nobody has it"
        if self.safe["publish"]:
            (retained,) = trial.found.retained
            last = int(retained.payload.split()[0])
            assert last >= max(self.safe["publish"])
            assert trial.found.notes == {"last": str(last)}, "one turn, one commit"
            assert [terms for _, _, terms in sessions["one"].subscriptions.values()] == [b"%d" % last]


def test_killed_under_load(tmp_path: Path) -> None:
    """Five lives of one store; the seed of the moments is printed."""
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    chance = Random(seed)
    account = Account()
    for round in range(1, 6):
        account.read(killed(tmp_path / "d", round, chance.uniform(0.0, 0.5)))
        trial = Trial(tmp_path / "d" / "t.db")
        account.check(trial)
        for pid in list(trial.found.sessions[0].incoming):
            trial.store.release(trial.found.sessions[0].row, pid)
        trial.close()
    assert len(account.safe["publish"]) > 50


def killed_at_points(folder: Path, what: str) -> list[dict[str, Any]]:
    run = subprocess.run(
        command("points", folder, what), capture_output=True, text=True, env=ENVIRONMENT, timeout=110, check=False
    )
    assert run.returncode == 0, run.stderr
    results: list[dict[str, Any]] = json.loads(run.stdout)
    assert [result["status"] for result in results] == [9] * (len(results) - 1) + [0]
    assert len(results) > 8
    return results


def test_killed_before_each_statement_of_a_migration(tmp_path: Path) -> None:
    """The old tables or the new ones, and everything in them."""
    outcomes = set()
    for result in killed_at_points(tmp_path, "migrate"):
        path = tmp_path / str(result["nth"]) / "t.db"
        found = version(path)
        opened = any(word.startswith("opened") for word in result["said"])
        trial = Trial(path)
        assert by_value(trial.found.sessions) == EXPECTED
        assert len(trial.found.retained) == 2
        assert (trial.found.node, trial.found.boot) == (NODE, BOOT + found)
        trial.close()
        outcomes.add((found, opened))
    assert outcomes == {(1, False), (2, False), (2, True)}


@pytest.mark.parametrize("what", ["open", "write", "close"])
def test_killed_before_each_statement(tmp_path: Path, what: str) -> None:
    outcomes = set()
    for result in killed_at_points(tmp_path, what):
        trial = Trial(tmp_path / str(result["nth"]) / "t.db")
        if what == "open":
            opened = any(word.startswith("opened") for word in result["said"])
            outcomes.add((trial.found.boot, opened))
            assert trial.found.sessions == []
        else:
            (session,) = trial.found.sessions
            payloads = [d.message.payload.decode() for d in session.deliveries]
            before = payloads == [f"old {n}" for n in range(5)] and session.ended is None
            after = payloads == ["old 3", "old 4", *(f"new {n}" for n in range(7))] and session.ended == 1.0
            assert before or after, payloads
            assert after or "safe" not in result["said"]
            outcomes.add((after, "safe" in result["said"]))
        trial.close()
    if what == "open":
        assert outcomes >= {(1, False), (2, False), (2, True)}
        assert (1, True) not in outcomes
    else:
        assert outcomes >= {(False, False), (True, True)}
