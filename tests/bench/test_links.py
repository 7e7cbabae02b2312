"""`bench links`: small, but with real nodes, a real link over TLS, and messages that are counted where they arrive."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from bench.cli import app
from bench.harness import rounds
from bench.harness.rounds import Plan
from bench.harness.servers import BenchError
from bench.links import nodes, report, works
from bench.links.works import ALL, ALONE, BATCHED, DURABLE, HALF, KEPT, TENTH, Findings
from bench.load.job import Outcome
from typer.testing import CliRunner

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "two_cores", lambda: (CORES[0], CORES[-1]))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["links", *arguments], catch_exceptions=False)
    return result.exit_code, result.output


def found(outcomes: dict[works.Formation, list[Outcome | None]]) -> Findings:
    every = {(one, BATCHED): outcomes.get(one, [None]) for one in (ALONE, ALL, HALF, TENTH)}
    return Findings(plan=Plan(rounds=1), machine={"load_average_at_start": 0.5}, parts=[BATCHED], outcomes=every)


def outcome(near: float, far: float = 0.0) -> Outcome:
    """A million messages in a second; microseconds for each."""
    return Outcome(messages=1_000_000, seconds=1.0, server_cpu=near + far, linked_cpu=far)


def test_batched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "LOADS", {ALONE: [BATCHED], HALF: [BATCHED]})
    monkeypatch.setattr(works, "CONTESTS", [one for one in works.CONTESTS if one.linked == HALF])
    code, text = run("--quick", "--duration", "0.2", "--work", "batched", "--out", str(tmp_path), "--json")
    assert code == 0, (tmp_path / "links-batched-quick.md").read_text()
    (line,) = json.loads(text)
    assert (line["load"], line["what"], line["goal"]) == ("batched", "half cross", 1.45)
    assert line["linked_micros"] == pytest.approx(line["near_micros"] + line["far_micros"], abs=0.001)
    assert min(line["near_micros"], line["far_micros"], line["judged"]) > 0
    assert (tmp_path / "links-batched-quick.md").exists()
    assert (tmp_path / "links-batched-quick.png").exists()
    assert len((tmp_path / "links-batched-quick-rounds.csv").read_text().splitlines()) == 1 + 2


def test_durable_over_the_link(tmp_path: Path) -> None:
    """Mosquitto's bridge is a reference that not everybody has."""
    folder = nodes.certificates(tmp_path)
    plan = Plan(rounds=1, duration=0.2, warmup=0.05, server_core=CORES[0], load_core=CORES[-1])
    with nodes.running_all(KEPT, folder, core=CORES[0]) as (near, far):
        assert far is not None
        measured = works._apply(near, far, DURABLE, KEPT, plan)
        assert (near.log.parent / "data").is_dir()
        assert (far.log.parent / "data").is_dir()
    assert measured.messages > 0
    assert measured.lost == 0


def test_what_fails_is_told_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BenchError("out of tide")

    monkeypatch.setattr(works, "running_all", fail)
    code, text = run("--quick", "--out", str(tmp_path))
    assert code == 1
    assert "two linked nodes, 10% cross, round 1: out of tide" in text
    assert "two bridged Mosquittos, 100% cross, round 1: out of tide" in text
    assert (tmp_path / "links-quick.md").exists()


def test_goals_are_judged_by_the_sum_of_both_nodes() -> None:
    seen = found(
        {ALONE: [outcome(1.0)], ALL: [outcome(2.0, 2.5)], HALF: [outcome(1.0, 0.4)], TENTH: [outcome(1.1, 0.1)]}
    )
    values = [(one.contest.title, one.value.median if one.value else None, one.reached) for one in seen.compared]
    assert values == [
        ("all cross: a hop, both sides", pytest.approx(3.5), "yes"),
        ("all cross", pytest.approx(4.5), ""),
        ("half cross", pytest.approx(1.4), "yes"),
        ("a tenth crosses", pytest.approx(1.2), "no"),
    ]
    assert seen.missed == ["batched: a tenth crosses"]
    text = report.report(seen).markdown()
    assert "| batched | two linked nodes, 100% cross | 1000.0 k/s | 2.00 | 2.50 |" in text
    assert "Load average when it began: 0.5" in text


def test_goals_that_could_not_be_judged_are_missed() -> None:
    assert [one.reached for one in found({ALONE: [outcome(1.0)]}).compared] == ["failed", "", "failed", "failed"]


def test_what_crosses_is_what_the_far_subscribers_read() -> None:
    assert TENTH.topics() == ["bench/probe", "bench/k18", "bench/k19"]
    assert [one.share for one in (ALL, HALF, TENTH, ALONE)] == [1.0, 0.5, 0.1, 0.0]
    assert works.count([BATCHED, DURABLE], Plan(rounds=3)) == 3 * 6
    assert list(works.formations([DURABLE])) == [KEPT, works.BRIDGED]
