"""The command, part by part: small, but with real servers and real sockets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from bench.cli import app
from bench.gate.changes import TRIALS
from bench.gate.steps import Pace
from bench.harness import rounds, servers
from bench.harness.servers import BenchError
from typer.testing import CliRunner

from bench.gate import contests, proofs_sockets, steps, works
from processes import missing

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "two_cores", lambda: (CORES[0], CORES[-1]))
    monkeypatch.setattr(works, "QUICK_STEPS", Pace(seconds=0.001, policies=(60,), publishers=14))
    monkeypatch.setattr(works, "QUICK_RUNS", 5)
    monkeypatch.setattr(works, "QUICK_CLIENTS", 100)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["gate", *arguments], catch_exceptions=False)
    return result.exit_code, result.output


def needs_mosquitto() -> None:
    try:
        servers.mosquitto()
    except BenchError as error:
        missing(str(error))


def test_list_of_works() -> None:
    code, text = run("--list")
    assert code == 0
    assert "everything-1000" in text
    assert "≥ 1.4" in text
    assert "≤ 2 KiB" in text


def test_an_unknown_work_is_refused_with_the_names() -> None:
    code, text = run("--work", "everythin")
    assert code == 1
    assert "there is no work named everythin; there are everything-100, everything-1000" in text.replace("\n", " ")
    code, text = run("--profile", "steps")
    assert code == 1
    assert "nothing to profile named steps" in text


def test_choosing() -> None:
    assert [one.name for one in works.chosen([]).contests] == [one.name for one in contests.contests()]
    some = works.chosen(["change", "views"])
    assert [one.name for one in some.contests] == ["views"]
    assert list(some.trials) == list(TRIALS)
    assert not some.steps
    assert not some.proof
    assert not some.levels
    assert not some.memory
    assert works.count(some, rounds.Plan(rounds=5)) == 5 * 3 + 5 * 2 * 4


def test_only_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    monkeypatch.setattr(contests, "run", lambda contest, plan, before: measured.append(contest.name) or none(contest))
    code, text = run("--everything", "--quick", "--out", str(tmp_path))
    assert code == 0, text
    assert measured == ["everything-100", "everything-1000"]
    assert (tmp_path / "gate-everything-quick.md").exists()


def none(contest: contests.Contest) -> contests.Rounds:
    """As if nothing could be measured, and nothing had failed."""
    return contests.Rounds(contest=contest, outcomes={one.name: [None] for one in contest.contenders})


def test_what_is_profiled() -> None:
    assert [works.contender("everything-100")[1].name, works.contender("conditions/hour")[1].name] == [
        "everything",
        "hour",
    ]


def test_goals() -> None:
    goals = {
        f"{contest.name}/{one.name}": str(one.goal)
        for contest in contests.contests()
        for one in contest.contenders
        if one.goal is not None
    }
    assert goals == {
        "everything-100/everything": "≥ 1.4",
        "everything-1000/everything": "≥ 1.4",
        "conditions/moment": "≥ 1.3",
        "conditions/payload-write": "≥ 1.3",
        "conditions/payload-read": "≥ 1.3",
        "monitors/rate": "≥ 1.3",
        "monitors/acting": "≥ 1.3",
        "views/views": "≥ 1.3",
        "where/where": "≥ 1.3",
        "policies/10000": "≥ 0.9",
    }


def test_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, part = next(iter(steps.PARTS.items()))
    monkeypatch.setattr(steps, "PARTS", {name: part})  # all of them are in test_steps.py
    code, text = run("--quick", "--work", "steps", "--out", str(tmp_path))
    assert code == 0, text
    assert "Each step alone" in text
    assert {file.name for file in tmp_path.iterdir()} == {
        "gate-steps-quick.md",
        "gate-steps-quick.csv",
        "gate-steps-quick-machine.json",
    }


def test_proofs(tmp_path: Path) -> None:
    code, text = run("--quick", "--duration", "0.2", "--work", "proof", "--out", str(tmp_path))
    assert code == 0, text
    assert "a message, proven each" in text
    assert "over sockets, proven each" in text
    assert (tmp_path / "gate-proof-quick.csv").exists()


def test_proofs_that_fail_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs_sockets, "FIRST", 0)  # nothing is proven with the counter zero
    code, text = run("--quick", "--duration", "0.2", "--work", "proof", "--out", str(tmp_path))
    assert code == 1
    assert "proof/Ed25519, proven each, round 1: CONNECT was refused" in text


def test_memory(tmp_path: Path) -> None:
    code, text = run("--quick", "--work", "memory", "--out", str(tmp_path), "--json")
    assert code == 0, text
    found = {(line["name"], line["figure"]): line for line in json.loads(text)}
    assert {name for name, _ in found} == {"without", "monitored"}
    assert found["monitored", "added"]["goal"] == "≤ 2 KiB"


@pytest.mark.parametrize("name", ["calm", "rate"])
def test_monitors_over_sockets(name: str) -> None:
    (contest,) = (one for one in contests.contests() if one.name == "monitors")
    (one,) = (each for each in contest.contenders if each.name == name)
    plan = rounds.Plan(duration=0.2, warmup=0.05, server_core=CORES[0], load_core=CORES[-1])
    outcome = rounds.measure(one.peer, one.job, contest.work(one), plan)
    assert outcome.messages > 100
    assert outcome.lost == 0


def test_a_contest(tmp_path: Path) -> None:
    needs_mosquitto()
    arguments = ("--quick", "--duration", "0.2", "--work", "views", "--out", str(tmp_path), "--json")
    code, text = run(*arguments)
    assert code == 0, text
    found = {(line["name"], line["figure"]): line for line in json.loads(text)}
    assert found["views/views", "CPU ratio"]["median"] is not None
    for name in ("mosquitto", "open", "views"):
        assert found[f"views/{name}", "rate"]["median"] > 0
    assert (tmp_path / "gate-views-quick.png").exists()


def test_everything_and_a_change_of_it_under_load(tmp_path: Path) -> None:
    code, text = run("--quick", "--work", "change-200-100", "--out", str(tmp_path))
    assert code == 0, text
    assert "during changes" in text
    lines = (tmp_path / "gate-change-200-100-quick-changes.csv").read_text().splitlines()
    assert [line.split(",")[2:4] for line in lines[1:4]] == [
        ["steady", "before"],
        ["changed", "before"],
        ["changed", "during"],
    ]
    assert (tmp_path / "gate-change-200-100-quick-changes.png").exists()


def test_levels(tmp_path: Path) -> None:
    needs_mosquitto()
    code, text = run("--quick", "--work", "levels", "--out", str(tmp_path))
    assert code == 0, text
    assert "below 1 ms" in text
    lines = (tmp_path / "gate-levels-quick-levels.csv").read_text().splitlines()
    assert len(lines) == 1 + 6 * 5


def test_conditions_of_subscriptions_over_sockets() -> None:
    (contest,) = (one for one in contests.contests() if one.name == "where")
    one = contest.contenders[-1]
    plan = rounds.Plan(duration=0.2, warmup=0.05, version=5, server_core=CORES[0], load_core=CORES[-1])
    outcome = rounds.measure(one.peer, one.job, contest.work(one), plan)
    assert outcome.messages > 100
    assert outcome.lost == 0


def test_what_fails_is_told_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise BenchError("out of tide")

    monkeypatch.setattr(rounds, "measure", fail)
    code, text = run("--quick", "--work", "views", "--out", str(tmp_path))
    assert code == 1
    assert "views/open, round 1: out of tide" in text
    assert (tmp_path / "gate-views-quick.md").exists()
