"""The command, against the relay, which needs nothing installed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from bench.broker.works import work
from bench.cli import app
from bench.harness import machine, rounds, servers
from typer.testing import CliRunner

QUICK = ["broker", "--quick", "--duration", "0.2", "--reference", "relay", "--subject", "relay"]


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(rounds, "two_cores", lambda: (mine[0], mine[-1]))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.output


def test_list_of_works() -> None:
    code, text = run("broker", "--list")
    assert code == 0
    assert "qos0-1000" in text
    assert "≥ 1.7" in text


def test_an_unknown_work_is_refused_with_the_names() -> None:
    code, text = run("broker", "--work", "qos7")
    assert code == 1
    assert "there is no work named qos7" in text


def test_a_quick_run_writes_its_own_files(tmp_path: Path) -> None:
    code, text = run(*QUICK, "--work", "qos0-100/5000", "--out", str(tmp_path))
    assert code == 0, text
    stem = "broker-qos0-100-5000-relay-relay-quick"
    made = {file.name for file in tmp_path.iterdir()}
    assert {f"{stem}.md", f"{stem}.csv", f"{stem}-rounds.csv", f"{stem}-machine.json"} <= made
    assert "relay (again)" in text


def test_latency_measures_the_maximum_first(tmp_path: Path) -> None:
    code, text = run(*QUICK, "--work", "latency", "--out", str(tmp_path))
    assert code == 0, text
    assert "half of the reference's maximum" in text


def test_json_and_missed_goals(tmp_path: Path) -> None:
    code, text = run(*QUICK, "--work", "qos0-100/5000", "--out", str(tmp_path), "--json", "--check")
    (line,) = json.loads(text)
    assert line["subject_rate"] > 0
    assert line["goal"] == "≥ 1.7"
    assert code == (0 if line["reached"] != "no" else 1)


def test_a_server_that_fails_is_reported_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "raise SystemExit('out of tide')"]
    monkeypatch.setattr(servers, "_command", lambda *_: command)
    code, text = run(*QUICK, "--work", "qos0-100", "--out", str(tmp_path))
    assert code == 1
    assert "qos0-100/20, round 1: relay ended with code 1" in text
    assert "out of tide" in text


def test_too_few_files_means_fewer_connections() -> None:
    notes = rounds.Bench(rounds.Plan(), before=lambda *_: None, files=1000)
    job = notes._job(work("idle-10k"))
    assert job.connections == 700
    assert "only 700 connections" in notes.notes[0]


def test_the_machine_is_described_without_naming_it() -> None:
    told = machine.describe()
    assert told["cores"] == os.cpu_count()
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))
    assert os.uname().nodename not in [str(value) for value in told.values()]
