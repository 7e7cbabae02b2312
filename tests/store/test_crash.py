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

from store.crashing import OTHER, SESSIONS, named
from store.test_migration import NOTES, OLD, VERSION, by_value, expected, records, version
from store.trial import MAIN, Trial, counts

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
        # in the last round
        self.packets: dict[int, list[int]] = {}  # packet id of an incoming publish to what it hands on
        self.steps: dict[str, set[int]] = defaultdict(set)  # packet ids that came so far

    def read(self, lines: list[str]) -> None:
        self.packets.clear()
        self.steps.clear()
        for line in lines:
            kind, what, *words = line.split()
            numbers = [int(word) for word in words]
            if what in ("receive", "handed"):
                pid = numbers.pop(0)
                self.packets[pid] = numbers
                self.steps[f"{kind} {what}"].add(pid)
            (self.noted if kind == "note" else self.safe)[what].update(numbers)

    def check(self, trial: Trial) -> None:
        sessions = named(trial.found.sessions)
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
        for session in sessions.values():
            assert [d.seen for d in session.deliveries] == [number % 2 == 1 for number in there]
        incoming = {
            pid: [int(m.payload.split()[0]) for m in messages] for pid, messages in sessions["one"].incoming.items()
        }
        assert incoming.keys() <= self.packets.keys()
        for pid, numbers in self.packets.items():
            if pid in incoming:
                assert incoming[pid] == numbers, "all of them, in their order"
                assert not found & set(numbers), "queued, and would be handed on again"
                assert pid not in self.steps["safe handed"]
            elif pid in self.steps["safe receive"] or found & set(numbers):
                assert pid in self.steps["note handed"], "acknowledged and lost"
                assert set(numbers) <= found | self.noted["done"], "handed on, and nobody has it"
        if self.safe["publish"]:
            (retained,) = trial.found.retained[MAIN]
            last = int(retained.payload.split()[0])
            assert trial.found.retained.get(OTHER, []) == ([retained] if last % 2 else []), "one turn, one commit"
            assert last >= max(self.safe["publish"])
            assert trial.found.notes == {"last": str(last)}, "one turn, one commit"
            records = trial.found.records["last"]
            assert records[str(last % 3)] == b"%d" % last
            assert str((last + 1) % 3) not in records, "taken back in the same turn"
            assert [terms for _, _, terms in sessions["one"].subscriptions.values()] == [b"%d" % last]


def test_killed_under_load(tmp_path: Path) -> None:
    """Five lives of one store; the seed of the moments is printed."""
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    chance = Random(seed)
    account = Account()
    packets: set[int] = set()
    for round in range(1, 6):
        account.read(killed(tmp_path / "d", round, chance.uniform(0.0, 0.5)))
        trial = Trial(tmp_path / "d" / "t.db")
        account.check(trial)
        packets |= {len(account.packets[pid]) for pid in account.steps["safe receive"]}
        for pid in list(trial.found.sessions[0].incoming):
            trial.store.release(trial.found.sessions[0].row, pid)
        trial.close()
    assert len(account.safe["publish"]) > 50
    assert packets == {0, 1, 2, 3}


BEFORE = (
    [f"old {n}" for n in range(5)],
    [],
    {1: [b"a", b"b", b"c"], 2: []},
    {"room": {"removed": b"old", "replaced": b"old"}},
    None,
)
AFTER = (
    ["old 3", "old 4", *(f"new {n}" for n in range(7))],
    ["old 3"],
    {1: [b"x"], 3: [b"y", b"z"], 4: []},
    {"room": {"added": b"new", "replaced": b"new"}},
    1.0,
)


def killed_at_points(folder: Path, what: str) -> list[dict[str, Any]]:
    run = subprocess.run(
        command("points", folder, what), capture_output=True, text=True, env=ENVIRONMENT, timeout=110, check=False
    )
    assert run.returncode == 0, run.stderr
    results: list[dict[str, Any]] = json.loads(run.stdout)
    assert [result["status"] for result in results] == [9] * (len(results) - 1) + [0]
    assert len(results) > 8
    return results


@pytest.mark.parametrize("old", OLD)
def test_killed_before_each_statement_of_a_migration(tmp_path: Path, old: int) -> None:
    """The old tables or the new ones, and everything in them."""
    outcomes = set()
    for result in killed_at_points(tmp_path, f"migrate{old}"):
        path = tmp_path / str(result["nth"]) / "t.db"
        found = version(path)
        opened = any(word.startswith("opened") for word in result["said"])
        trial = Trial(path)
        assert by_value(trial.found.sessions) == expected(old)
        assert {scope: len(messages) for scope, messages in trial.found.retained.items()} == {MAIN: 2}
        assert (trial.found.node, trial.found.boot) == (OLD[old].NODE, OLD[old].BOOT + 1 + (found == VERSION))
        assert (trial.found.notes, trial.found.records) == (NOTES, records(old))
        trial.close()
        outcomes.add((found, opened))
    assert outcomes == {(old, False), (VERSION, False), (VERSION, True)}


def test_killed_before_each_statement_while_what_has_expired_goes(tmp_path: Path) -> None:
    """Whatever is left of a packet id, a release takes all of it."""
    shortened = set()
    for result in killed_at_points(tmp_path, "expire"):
        path = tmp_path / str(result["nth"]) / "t.db"
        shortened.add(counts(path)["incoming"])
        trial = Trial(path)
        (session,) = trial.found.sessions
        incoming = {pid: [m.payload for m in messages] for pid, messages in session.incoming.items()}
        assert incoming == {1: [b"a", b"b", b"c"], 2: [], 3: [b"d", b"e"]}
        for pid in incoming:
            trial.store.release(session.row, pid)
        trial.close()
        assert counts(path) == {"session": 1}
    assert shortened == {9, 6}, "before, and after"


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
            incoming = {pid: [m.payload for m in messages] for pid, messages in session.incoming.items()}
            found = (
                payloads,
                [d.message.payload.decode() for d in session.deliveries if d.seen],
                incoming,
                trial.found.records,
                session.ended,
            )
            before = found == BEFORE
            after = found == AFTER
            assert before or after, found
            assert after or "safe" not in result["said"]
            outcomes.add((after, "safe" in result["said"]))
        trial.close()
    if what == "open":
        assert outcomes >= {(1, False), (2, False), (2, True)}
        assert (1, True) not in outcomes
    else:
        assert outcomes >= {(False, False), (True, True)}
