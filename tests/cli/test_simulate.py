"""`tidegate simulate`: the trace, outcomes, expectations, the engine, exit codes, and everything as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from cli.driving import Tidegate
from tidegate.cli.commands import app
from tidegate.simulate.engine import EngineRun
from tidegate.simulate.run import Outcome

HOUSE = """\
version: 1
node: {name: house}
scopes: {street: {}, house: {parents: [street]}}
listeners:
  - {url: "mqtt://127.0.0.1:1801", scope: street, anonymous: true}
  - {url: "mqtt://127.0.0.1:1802", scope: house, anonymous: true}
policies: open
brokering: {preset: component}
monitors:
  - {id: guard, link: "street->house", only: open, after: [ask]}
"""
VISIT = """\
clients:
  bell: {scope: street}
  phone: {scope: street}
  door: {scope: house, subscribes: "#"}
steps:
  - {client: bell, publish: ask}
  - {client: phone, publish: open}
expect:
  - {client: door, hears: open, times: 1}
  - {client: bell, never: "#"}
"""

Simulate = Callable[..., Result]


@pytest.fixture
def simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulate:
    """The command, about a house."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*options: str, scenario: str = VISIT, file: str = HOUSE) -> Result:
        (tmp_path / "house.yaml").write_text(file)
        (tmp_path / "visit.yaml").write_text(scenario)
        paths = [str(tmp_path / name) for name in ("house.yaml", "visit.yaml")]
        return CliRunner().invoke(app, ["simulate", *paths, *options])

    return run


def lines(result: Result) -> list[str]:
    return [" ".join(line.split()) for line in result.stdout.splitlines() if line.strip()]


def test_one_run(tidegate: Tidegate, tmp_path: Path) -> None:
    """As a user runs it."""
    (tmp_path / "house.yaml").write_text(HOUSE)
    (tmp_path / "visit.yaml").write_text(VISIT)
    answer = tidegate("simulate", "house.yaml", "visit.yaml", "--engine")
    assert (answer.returncode, answer.stderr) == (0, "")
    told = [" ".join(line.split()) for line in answer.stdout.splitlines() if line.strip()]
    assert told[0] == "t rule link event then monitors"
    assert told[2:8] == [
        "0 T-Publish client:bell -> street ask",
        "1 T-Deliver client:bell -> street ask passes",
        "2 T-Broker client:bell -> street ask to house",
        "3 T-Deliver street -> house ask passes guard: nothing seen → seen ask",
        "4 T-Broker street -> house ask to client:door",
        "5 T-Notify house -> client:door ask heard: ask",
    ]
    assert told[-7:] == [
        "one run: 1 outcome",
        "client:bell -",
        "client:door ask, open",
        "client:phone -",
        "expected: client:door hears open once: met",
        "expected: client:bell never hears #: met",
        "the engine does what the model allows",
    ]


def test_all_outcomes(simulate: Simulate) -> None:
    """The two clients are in one scope, but nobody says which is first."""
    result = simulate("--all")
    told = lines(result)
    assert result.exit_code == 1
    assert told[0] == "A run in which an expectation is not met:"
    assert "T-Deliver street -> house open suppressed" in " ".join(told)
    assert "all runs: 2 outcomes" in told
    assert "client:door ask, open ask" in told
    assert "expected: client:door hears open once: not met" in told
    written = simulate("--all", scenario=VISIT + "order: written\n")
    assert written.exit_code == 0
    assert "all runs: 1 outcome" in lines(written)


def test_random_runs_are_the_same_with_the_same_seed(simulate: Simulate) -> None:
    one, same = simulate("--walks", "20", "--seed", "7"), simulate("--walks", "20", "--seed", "7")
    assert one.stdout == same.stdout
    assert one.exit_code == 1
    assert "20 runs at random: 2 outcomes" in lines(one)


def test_everything_as_json(simulate: Simulate) -> None:
    result = simulate("--all", "--engine", "--json")
    assert result.exit_code == 1
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["ok"] is False
    assert document["complete"] is True
    ask, opened = ({"scope": "house", "topic": topic, "payload": ""} for topic in ("ask", "open"))
    assert document["outcomes"] == [{"client:door": [ask, opened]}, {"client:door": [ask]}]
    assert document["engine"] == {"allowed": True, "outcome": {"client:door": [ask, opened]}}
    assert document["expected"] == [
        {"text": "client:door hears open once", "met": False},
        {"text": "client:bell never hears #", "met": True},
    ]
    assert document["left_out"] == []
    publish = {"time": 0, "rule": "T-Publish", "link": "client:phone -> street", "events": "open", "monitors": ""}
    assert publish in [{key: step[key] for key in publish} for step in document["steps"]]


def test_policies_are_left_out_and_that_is_said(simulate: Simulate) -> None:
    result = simulate("--engine", file=HOUSE.replace("policies: open", "policies: []"))
    assert result.exit_code == 0
    assert result.stderr == "policies: left out, the model knows nothing of them\n"
    assert "the engine does what the model allows" in lines(result)


def test_an_engine_that_does_something_else_is_told(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineRun, "run", lambda self: Outcome.of({}))
    result = simulate("--engine")
    assert result.exit_code == 1
    told = lines(result)
    assert told[-4:] == [
        "the engine does what the model does not allow:",
        "client:bell -",
        "client:door -",
        "client:phone -",
    ]
    # what the scenario expects is expected of the engine, too
    assert "expected: client:door hears open once: not met" in told


def test_changes_of_subscriptions_are_shown(simulate: Simulate) -> None:
    scenario = VISIT.replace("  - {client: phone", '  - {client: bell, subscribe: "#"}\n  - {client: phone')
    told = lines(simulate(scenario=scenario))
    assert any(line.endswith("subscribes street -> client:bell #") for line in told)
    assert "client:bell open" in told
    assert "expected: client:bell never hears #: not met" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--all", "--walks", "3"), "leave one of them out"), (("--seed", "3"), "--seed has no effect without --walks")],
)
def test_options_that_do_not_fit(simulate: Simulate, options: tuple[str, ...], message: str) -> None:
    result = simulate(*options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_mistakes_are_told_with_their_file(tidegate: Tidegate, tmp_path: Path) -> None:
    (tmp_path / "house.yaml").write_text(HOUSE)
    for scenario, message in (
        (
            VISIT.replace("{client: phone, p", "{client: fone, p"),
            ": `steps[1].client` is `fone`, which is no client of the scenario",
        ),
        (VISIT.replace("scope: house", "scope: hause"), "`client:door` is connected to `hause`, which is no scope"),
    ):
        (tmp_path / "visit.yaml").write_text(scenario)
        answer = tidegate("simulate", "house.yaml", "visit.yaml")
        assert answer.returncode == 1
        assert message in answer.stderr
        assert "Traceback" not in answer.stderr
