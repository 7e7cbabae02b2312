"""`bench guard`: the scenarios are those of the experiments, and short rounds with real guards and Mosquittos."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from bench.cli import app
from bench.guard import report, works
from bench.guard.deployment import Monitors
from bench.guard.load import Timed
from bench.guard.scenarios import SCENARIOS, user_of
from bench.guard.works import SCENARIO, Findings
from bench.harness import rounds
from bench.harness.rounds import Plan
from typer.testing import CliRunner

from cli.driving import mosquitto_program

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    mosquitto_program()
    monkeypatch.setattr(rounds, "two_cores", lambda: (CORES[0], CORES[-1]))


def test_the_scenarios_are_those_of_table_2() -> None:
    shown = {
        one.name: (one.near_publishers, one.near_subscribers, one.far_publishers, one.far_subscribers)
        for one in SCENARIOS
    }
    assert shown == {
        "S1,1": (0, 20, 20, 0),
        "S2,1": (0, 100, 100, 0),
        "S3,1": (0, 200, 200, 0),
        "S1,2": (20, 0, 0, 20),
        "S2,2": (100, 0, 0, 100),
        "S3,2": (200, 0, 0, 200),
        "S1,3": (10, 10, 10, 10),
        "S2,3": (50, 50, 50, 50),
        "S3,3": (100, 100, 100, 100),
    }


def test_users_have_one_to_four_clients() -> None:
    users = [user_of(number) for number in range(20)]
    assert [users.count(f"u{number:02d}") for number in range(8)] == [1, 2, 3, 4, 1, 2, 3, 4]


def timed(p50: float) -> Timed:
    return Timed(sent=100, received=100, p50=p50, p99=p50, slowest=p50, seconds=1.0, cpu={"guard": 0.01})


def test_what_is_added_is_judged_within_rounds() -> None:
    found = Findings(plan=Plan(rounds=2), machine={"load_average_at_start": 0}, parts=[SCENARIO])
    last = list(Monitors)[-1]
    for scenario in SCENARIOS:
        for qos in (0, 2):
            found.timed[Monitors.NONE, scenario.name, qos] = [timed(0.001), timed(0.005)]
            slow = 0.002 if scenario.name == "S2,3" and qos else 0.0005
            found.timed[last, scenario.name, qos] = [timed(0.001 + slow), timed(0.005 + slow)]
    assert [name for name in found.missed if "median" in name] == [
        f"median added by {last.value}, QoS 2, worst scenario"
    ]
    assert report.report(found).markdown()


@pytest.mark.timeout(300)
def test_quick_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "QUICK_SCENARIOS", SCENARIOS[2:3])
    monkeypatch.setattr(works, "JOBS", {"100 publishers, QoS 1": works.JOBS["100 publishers, QoS 1"]})
    words = ["guard", "--quick", "--duration", "0.3", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert {(one["scenario"], one["qos"], one["monitors"]) for one in told["scenarios"]} == {
        ("S1,3", qos, monitors.value) for qos in (0, 2) for monitors in Monitors
    }
    assert all(one["received"] == one["sent"] > 0 for one in told["scenarios"])
    assert (tmp_path / "guard-quick.md").exists()
