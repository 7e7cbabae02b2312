"""The command, part by part: small, but with real nodes and real sockets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from bench.cli import app
from bench.harness import rounds
from bench.harness.servers import BenchError
from bench.harness.work import chosen
from bench.scopes import in_process, works
from bench.scopes import rates as rated
from bench.scopes.chain import HSUP, NEW
from bench.scopes.contest import CONTESTS
from bench.scopes.rates import Extent
from typer.testing import CliRunner

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "two_cores", lambda: (CORES[0], CORES[-1]))
    monkeypatch.setattr(rated, "CONFIGURATIONS", (NEW, HSUP))
    scale = works.Scale(rates=Extent(lengths=(3,), rates=(500,)), contests=CONTESTS[1:2], in_process=(3, 0.001))
    monkeypatch.setattr(works, "QUICK", scale)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["scopes", *arguments], catch_exceptions=False)
    return result.exit_code, result.output


def test_an_unknown_work_is_refused_with_the_names() -> None:
    code, text = run("--work", "rate")
    assert code == 1
    assert "there is no work named rate; there are rates, saturated, indoors" in text


def test_rates(tmp_path: Path) -> None:
    code, text = run("--quick", "--work", "rates", "--out", str(tmp_path), "--json")
    assert code == 0, text
    found = json.loads(text)["rates"]
    assert [(one["configuration"], one["scopes"], one["rate"]) for one in found] == [("NEW", 3, 500), ("HSUP", 3, 500)]
    assert all(one["lost"] == 0 and one["arrived"] > 0 for one in found)
    assert (tmp_path / "scopes-rates-quick.md").exists()
    assert (tmp_path / "scopes-rates-quick.png").exists()


def test_saturated_and_indoors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "CONTESTS", works.QUICK.contests)  # all of them are in test_scopes_indoors.py
    code, text = run("--quick", "--work", "saturated", "--work", "indoors", "--out", str(tmp_path))
    assert code == 0, text
    assert "Five scopes beside one, without sockets" in text
    assert "Saturated: how many, and who was busy" in text
    lines = (tmp_path / "scopes-saturated-indoors-quick-costs.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 + 2


def test_what_fails_is_told_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BenchError("out of tide")

    monkeypatch.setattr(rated, "running", fail)
    code, text = run("--quick", "--work", "rates", "--out", str(tmp_path))
    assert code == 1
    assert "HSUP, 3 scopes, round 1: out of tide" in text
    assert (tmp_path / "scopes-rates-quick.md").exists()


def test_a_whole_run_is_told_of_in_steps() -> None:
    plan = rounds.Plan(rounds=3)
    assert works.count(list(works.PARTS), plan, works.WHOLE) == 3 * 3 * 2 + 3 * 7 + 8
    assert chosen(["indoors", "rates"], list(works.PARTS)) == ["rates", "indoors"]
