"""From rounds to points, verdicts, tables and pictures, with made-up figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.harness.rounds import Plan
from bench.load.job import Outcome
from bench.scopes import report, works
from bench.scopes.chain import CONFIGURATIONS, HSUP, LENGTHS, MULTI, NEW, ORI, SEM, Chain, Configuration
from bench.scopes.contest import CONTESTS, Compared
from bench.scopes.rates import Cell, Rates
from bench.scopes.saturated import Saturated, chains
from bench.scopes.works import Findings


def outcome(
    messages: float, *, lost: int = 0, server: float = 0.5, working: float = 0.2, foreign: float = 0.0
) -> Outcome:
    return Outcome(messages=int(messages), seconds=1.0, server_cpu=server, working=working, lost=lost, foreign=foreign)


def cell(configuration: Configuration, scopes: int, rate: int, *outcomes: Outcome | None) -> Cell:
    return Cell(chain=Chain(configuration=configuration, scopes=scopes), rate=rate, outcomes=list(outcomes))


def test_optimal() -> None:
    assert cell(NEW, 3, 10_000, outcome(9_900)).optimal
    assert not cell(NEW, 3, 10_000, outcome(9_700)).optimal
    assert not cell(NEW, 3, 10_000, outcome(10_000, lost=1)).optimal
    assert cell(MULTI, 3, 10_000, outcome(79_000)).optimal
    assert not cell(MULTI, 3, 10_000, outcome(10_000)).optimal
    assert cell(HSUP, 5, 5_000, outcome(153)).optimal
    assert not cell(HSUP, 5, 5_000, outcome(150)).optimal
    assert not cell(NEW, 1, 5_000, None).optimal


def test_most_rounds_decide() -> None:
    good, bad = outcome(10_000), outcome(5_000)
    assert cell(NEW, 1, 10_000, good, bad, good).optimal
    assert not cell(NEW, 1, 10_000, bad, good, bad).optimal
    assert not cell(NEW, 1, 10_000, bad, good).optimal


def test_cost_is_of_what_was_published() -> None:
    half = cell(HSUP, 1, 10_000, outcome(5_000, server=0.1)).cost
    assert half is not None
    assert half.median == pytest.approx(10.0)


def test_who_was_the_limit() -> None:
    assert cell(NEW, 1, 1000, outcome(1000)).held_back == "rate"
    assert cell(NEW, 1, 1000, outcome(1, server=0.99)).held_back == "node"
    assert cell(NEW, 1, 1000, outcome(1, working=0.99)).held_back == "generator"
    assert cell(NEW, 1, 1000, outcome(1, foreign=1.0)).held_back == "neighbours"
    assert cell(NEW, 1, 1000, outcome(1)).held_back == "unknown"


def test_the_highest_rate() -> None:
    cells = [cell(NEW, 3, 5_000, outcome(5_000)), cell(NEW, 3, 10_000, outcome(7_000))]
    found = Rates(cells=[*cells, cell(SEM, 3, 5_000, outcome(1)), cell(ORI, 3, 5_000, None)])
    assert found.best(NEW, 3) == 5_000
    assert found.best(SEM, 3) == 0
    assert found.best(ORI, 3) is None


def test_five_doublings_are_not_expected() -> None:
    cells = [cell(MULTI, 5, 5_000, outcome(1)), cell(MULTI, 3, 5_000, outcome(1)), cell(NEW, 5, 5_000, outcome(5_000))]
    assert works.missed(cells) == [cells[1]]


def compared(*, one: float, several: float) -> list[Compared]:
    return [Compared(contest=contest, qos=0, one=[one, one], several=[several, several]) for contest in CONTESTS]


def test_goals_of_comparisons() -> None:
    assert [one.reached for one in compared(one=1.0, several=1.2)] == ["yes", "yes", "yes", ""]
    assert [one.reached for one in compared(one=1.0, several=1.4)] == ["no", "no", "no", ""]
    assert Compared(contest=CONTESTS[0], qos=0, one=[None], several=[1.0]).reached == "failed"


def findings() -> Findings:
    cells = [
        cell(one, scopes, rate, outcome(one.calculated(rate, scopes) if rate == 5_000 else 10.0, server=0.99), None)
        for scopes in LENGTHS
        for one in CONFIGURATIONS
        for rate in (5_000, 30_000)
    ]
    outcomes = {(chain, qos): [outcome(1000), None] for chain in chains(CONTESTS) for qos in (0, 1)}
    return Findings(
        plan=Plan(rounds=2, duration=0.5),
        machine={"cores": 2},
        rates=Rates(cells=cells, failures=["NEW, 3 scopes, round 2: out of tide"]),
        saturated=Saturated(contests=CONTESTS, outcomes=outcomes),
        indoors=compared(one=1.0, several=1.4),
    )


def test_the_report(tmp_path: Path) -> None:
    found = findings()
    files = {file.name for file in report.report(found).write(tmp_path, "scopes")}
    assert files == {"scopes.md", "scopes-machine.json", "scopes.csv", "scopes-costs.csv", "scopes-rounds.csv"}
    text = (tmp_path / "scopes.md").read_text()
    assert "| NEW | 5 | 30 | 5 | 20 | 5 | 20 |" in text
    assert "| MULTI | 5 | 20 | 5 | 5 | 5 | none |" in text
    assert "| MULTI, 5 scopes | 30 | 0 | 960 | 99% | 20% | 0.00 | node |" in text
    assert "Optimal: 17 of 34 points" in text
    assert "without sockets: 0 of 3 comparisons" in text
    assert "over sockets: 6 of 6 comparisons" in text
    assert "out of tide" in text
    lines = (tmp_path / "scopes.csv").read_text().splitlines()
    assert len(lines) == 1 + 36
    assert lines[0].startswith("configuration,scopes,rate,calculated,arrived,")


def test_what_was_not_asked_for_is_left_out(tmp_path: Path) -> None:
    found = Findings(plan=Plan(), machine={}, indoors=compared(one=1.0, several=1.0))
    assert {file.name for file in report.report(found).write(tmp_path, "x")} == {
        "x.md",
        "x-machine.json",
        "x-costs.csv",
    }
    assert [table.title for table in report.report(found).shown] == [
        "Five scopes beside one, without sockets: CPU per message"
    ]
    assert found.missed == []
    assert found.disturbance == 0.0


def test_pictures(tmp_path: Path) -> None:
    drawn = report.report(findings()).draw(tmp_path, "scopes")
    assert [file.name for file in drawn] == ["scopes.png", "scopes-costs.png"]
    assert all(file.stat().st_size > 10_000 for file in drawn)
