"""Learning from the traffic of the examples: all of it passes again, and attacks on rights are denied.

Each decision is made by the gate of a node: the one before by the policies that were written by hand, the one after by
those that were learned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs.pages import ROOT
from learn.attacks import ATTACKS, Attack
from learn.recorded_examples import EXAMPLES, rows, write
from pipeline.replay import recording
from tidegate.cli.commands import app
from tidegate.config import Config, load
from tidegate.config.document import read_source
from tidegate.explain.file_tests import run_tests
from tidegate.explain.question import Operation, Question
from tidegate.explain.what_if import WhatIf
from tidegate.pipeline.replay import report
from tidegate.pipeline.replay.candidate import overlay

NAMES = tuple(ATTACKS)


@dataclass(frozen=True, slots=True)
class Learned:
    name: str
    base: Config
    proposed: Config
    data: Path
    file: Path
    printed: str

    @property
    def text(self) -> str:
        return self.file.read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("learned")


@pytest.fixture(scope="module")
def learned(folder: Path) -> object:
    @cache
    def of(name: str) -> Learned:
        return learn(name, folder / name)

    return of


def learn(name: str, place: Path) -> Learned:
    """`tidegate learn` on what the example recorded."""
    data = place / "data"
    config = place / "tidegate.yaml"
    place.mkdir()
    text = (EXAMPLES / name / "tidegate.yaml").read_text()
    node = re.compile(r"^node: \{ ?(.*?)(, data: [\w/]+)? ?\}", re.MULTILINE)
    config.write_text(node.sub(rf"node: {{ \1, data: {data} }}", text))
    if "var/certs" in text:
        run("cert", "ca", "-f", place / "var/certs")
        run("cert", "issue", "broker", "--host", "localhost", "-f", place / "var/certs")
    if "var/keys" in text:
        run("capability", "key", "issuer", "-f", place / "var/keys")
    write(data, rows(name))
    file = place / "learned.yaml"
    printed = run("learn", "-c", config, "--out", file)
    return Learned(name, load(config), overlay(read_source(config), read_source(file)), data, file, printed)


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="tidegate", env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", NAMES)
def test_the_same_traffic_passes_whole(name: str, learned) -> None:  # type: ignore[no-untyped-def]
    one = learned(name)
    found = recording.decided(one.base, one.proposed)
    denied = [
        (row["who"], row["action"], row["topic"], row["publisher"], row["after_rule"])
        for row in found
        if row["kind"] == report.CHANGE and row["before_allowed"] and not row["after_allowed"]
    ]
    assert denied == []
    assert recording.total(found, report.MESSAGES)


@pytest.mark.parametrize("name", NAMES)
def test_the_output_is_taken_as_it_is(name: str, learned) -> None:  # type: ignore[no-untyped-def]
    one = learned(name)
    results = run_tests(one.proposed)
    assert not results.problems
    assert results.passed >= len(one.proposed.policies) // 2


def denied(config: Config, attack: Attack) -> bool:
    question = Question.about(
        Operation(attack.action), (), subject=attack.who, topic=attack.topic, publisher=attack.publisher
    )
    return not WhatIf(config).explain(question).allowed


@pytest.mark.parametrize("name", NAMES)
def test_the_policies_written_by_hand_deny_the_attacks(name: str, learned) -> None:  # type: ignore[no-untyped-def]
    one = learned(name)
    assert [attack for attack in ATTACKS[name] if not denied(one.base, attack)] == []


def test_nine_of_ten_attacks_are_denied(learned) -> None:  # type: ignore[no-untyped-def]
    passed = [(name, each) for name in NAMES for each in ATTACKS[name] if not denied(learned(name).proposed, each)]
    every = sum(map(len, ATTACKS.values()))
    for name, attack in passed:
        print(name, attack)
    assert len(passed) <= every / 10, passed


def test_most_are_not_longer_than_those_written_by_hand(learned) -> None:  # type: ignore[no-untyped-def]
    sizes = {name: (rules(learned(name).proposed), rules(learned(name).base)) for name in NAMES}
    print(sizes)
    assert sum(ours <= theirs for ours, theirs in sizes.values()) > len(sizes) / 2, sizes


def rules(config: Config) -> int:
    return len(config.policies)


def test_the_table_of_the_page(learned) -> None:  # type: ignore[no-untyped-def]
    """docs/how-to/learn-policies.md shows what comes out here."""
    page = (ROOT / "docs/how-to/learn-policies.md").read_text()
    lines = []
    for name in sorted(NAMES):
        one, attacks = learned(name), ATTACKS[name]
        stopped = sum(denied(one.proposed, each) for each in attacks)
        lines.append(f"| {name} | {rules(one.base)} | {rules(one.proposed)} | {stopped} of {len(attacks)} |")
    shown = [line for line in page.splitlines() if re.fullmatch(r"\| [a-z-]+ \| \d+ \| \d+ \| \d+ of \d+ \|", line)]
    assert shown == lines
    every = sum(map(len, ATTACKS.values()))
    stopped = sum(int(line.split("|")[4].split()[0]) for line in lines)
    assert f"of {every} that the policies written by hand deny, the learned" in page
    assert f"ones deny {stopped}" in page
