"""`tidegate check` runs the `tests` of a configuration."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.driving import Tidegate
from tidegate.cli.commands import app
from tidegate.config import ConfigErrors, load, parse
from tidegate.explain.file_tests import run_tests, verify_tests

HEAD = """\
version: 1
node: {name: mygym, domain: mygymbrand, timezone: Europe/Rome}
listeners: [{url: "mqtt://127.0.0.1:1883"}]
directory:
  users:
    mary: {password: "plain:x", roles: [frequenter], attributes: {enrolled: [ts1]}}
    alice: {password: "plain:x", roles: [coach], attributes: {shift: "08:00-14:00"}}
    bob: {password: "plain:x", roles: [coach], attributes: {shift: "08:00-14:00"}}
policies:
  - {id: p1, subject: "role:frequenter", topic: "+/performance/ts1/+", action: [read, write],
     when: "'ts1' in s.enrolled"}
  - {id: p2, subject: "role:coach", topic: "+/performance/#", action: read, when: "within(e.now, s.shift)"}
  - {id: p3, subject: "role:coach", topic: "plans/#", action: write, when: "o.payload.weeks < 10 && s.level == 'tls'"}
preferences:
  - {id: up1, user: mary, topic: "+/performance/ts1/+", when: "s.role == 'coach' && s.user == 'alice'"}
  - {id: up2, user: mary, topic: "+/performance/ts1/+", when: "s.user == 'john'"}
tests:
"""
FIRST = HEAD.count("\n") + 1
SPEED = "topic: tr1/performance/ts1/speed"
MORNING = 'at: "2026-03-02T09:30:00"'
GOOD = f"""\
  - {{as: "user:bob", action: read, {SPEED}, from: "user:mary", {MORNING}, expect: deny, by: up1}}
  - {{as: "user:bob", action: read, {SPEED}, from: "user:mary", {MORNING}, expect: deny, by: up2}}
  - {{as: "user:bob", action: read, {SPEED}, from: "user:mary", {MORNING}, expect: deny, by: "up1, up2"}}
  - {{as: "user:bob", action: read, {SPEED}, from: "user:mary", {MORNING}, expect: deny}}
  - {{as: "user:alice", action: read, {SPEED}, from: "user:mary", {MORNING}, expect: allow, by: p2}}
  - {{as: "user:alice", action: read, {SPEED}, from: "user:mary", {MORNING}, expect: allow, by: up1}}
  - {{as: "user:alice", action: read, {SPEED}, from: "user:mary", at: "2026-03-02T20:00:00", expect: deny, by: default}}
  - {{as: "user:mary", action: write, {SPEED}, expect: allow, by: p1}}
  - {{as: "user:alice", action: subscribe, topic: "+/performance/#", expect: allow, by: p2}}
  - {{as: "user:mary", action: subscribe, topic: "plans/1", expect: deny, by: default}}
  - {{as: "user:bob", action: write, topic: plans/1, payload: {{weeks: 8}}, set: {{s.level: tls}}, expect: allow}}
  - {{as: "user:bob", action: write, topic: plans/1, payload: long, set: {{s.level: tls}}, expect: deny, by: p3}}
"""


def failing(row: str) -> str:
    """What is said of one test that fails."""
    tested = run_tests(parse(HEAD + row, "gym.yaml"), file="gym.yaml")
    [problem] = tested.problems
    assert problem.line == FIRST
    assert tested.passed == 0
    return str(problem.args[0])


def test_tests_that_pass(tidegate: Tidegate, tmp_path: Path) -> None:
    (tmp_path / "gym.yaml").write_text(HEAD + GOOD)
    answer = tidegate("check", "gym.yaml")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-1] == "tests: 12 passed"


def checked(path: Path, text: str) -> dict[str, Any]:
    path.write_text(text)
    told: dict[str, Any] = json.loads(CliRunner().invoke(app, ["check", str(path), "--json"]).stdout)
    return told


def test_tests_for_scripts(tmp_path: Path) -> None:
    assert checked(tmp_path / "f", HEAD + GOOD)["tests"] == {"passed": 12}
    assert checked(tmp_path / "f", HEAD.removesuffix("tests:\n"))["tests"] == {"passed": 0}
    bad = f'  - {{as: "user:mary", action: write, {SPEED}, expect: deny}}\n'
    told = checked(tmp_path / "f", HEAD + bad + GOOD + bad)
    assert told["ok"] is False
    assert [(each["file"], each["line"]) for each in told["problems"]] == [
        (str(tmp_path / "f"), FIRST),
        (str(tmp_path / "f"), FIRST + 13),
    ]


def test_tests_that_fail(tidegate: Tidegate, tmp_path: Path) -> None:
    """Each with its line and the command that shows why; that command says the same."""
    bad = f'  - {{as: "user:bob", action: read, {SPEED}, from: "user:mary", {MORNING}, expect: allow, by: p2}}\n'
    (tmp_path / "gym.yaml").write_text(HEAD + GOOD + bad + bad)
    answer = tidegate("check", "gym.yaml")
    assert (answer.returncode, answer.stdout) == (1, "")
    lines = [line for line in answer.stderr.splitlines() if "warning" not in line]
    command = (
        "tidegate explain gym.yaml --as user:bob --action read --topic tr1/performance/ts1/speed --from user:mary "
        "--at 2026-03-02T08:30:00Z"
    )
    assert lines == [
        f"gym.yaml:{FIRST + at}: `tests[{at}]` failed: expected ALLOW by p2, got DENY by up1, up2 (read, preferences); "
        f"see why: {command}"
        for at in (12, 13)
    ]
    shown = tidegate(*shlex.split(command)[1:])
    assert shown.stdout.splitlines()[0] == "DENY by up1, up2 (read, preferences)"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            f'  - {{as: "user:mary", action: write, {SPEED}, expect: deny}}\n',
            "expected DENY, got ALLOW by p1 (write, policies)",
        ),
        (
            f'  - {{as: "user:mary", action: write, {SPEED}, expect: allow, by: p2}}\n',
            "expected ALLOW by p2, got ALLOW by p1 (write, policies)",
        ),
        (
            f'  - {{as: "user:mary", action: write, {SPEED}, expect: allow, by: defalt}}\n',
            "expected ALLOW by defalt (no rule is called so; did you mean `default`?), "
            "got ALLOW by p1 (write, policies)",
        ),
        (
            f'  - {{as: "user:bob", action: write, {SPEED}, expect: allow}}\n',
            "expected ALLOW, got DENY by default (write, policies)",
        ),
    ],
)
def test_what_is_said(row: str, said: str) -> None:
    assert failing(row).startswith(f"`tests[0]` failed: {said}; see why: tidegate explain gym.yaml --as user:")


def test_a_test_that_cannot_be_run() -> None:
    row = f'  - {{as: "user:bop", action: write, {SPEED}, expect: deny}}\n'
    said = "`tests[0]` cannot be run: `user:bop` names the unknown user `bop`; did you mean `bob`?"
    assert failing(row) == said
    row = f'  - {{as: "user:bob", action: read, {SPEED}, expect: deny}}\n'
    assert failing(row).endswith("; say who with `from`")


@pytest.mark.parametrize(
    "more",
    [
        "payload: {weeks: 12}, qos: 1, retain: true, properties: {k: a b}",
        'payload: "it\'s", set: {s.level: tls, s.age: 30, s.number: \'30\', s.list: [1, "a b"], s.roles: [coach]}',
        "set: {s.level: tls}, at: 2026-03-02T09:30:00",
    ],
)
def test_the_command_asks_the_same(tmp_path: Path, more: str) -> None:
    row = f'  - {{as: "user:bob/client:c 1", action: write, topic: plans/1, {more}, expect: allow, by: nobody}}\n'
    file = tmp_path / "g ym.yaml"
    file.write_text(HEAD + row)
    [problem] = run_tests(load(file), file=str(file)).problems
    got, _, command = str(problem).partition(", got ")[2].partition("; see why: ")
    shown = CliRunner().invoke(app, [*shlex.split(command)[1:], "--json"])
    told: dict[str, Any] = json.loads(shown.stdout)
    assert got == f"{told['verdict'].upper()} by {told['rule']} ({told['step']}, {told['part']})"
    s = told["as"]["s"]
    assert s["client"] == "c 1"
    if "s.number" in more:
        assert (s["age"], s["number"], s["list"], s["level"]) == (30, "30", [1, "a b"], "tls")
    if "at:" in more:
        assert told["at"] == "2026-03-02T09:30:00+01:00"


def test_a_test_that_depends_on_the_clock_is_warned_about(tmp_path: Path) -> None:
    row = f'  - {{as: "user:bob", action: read, {SPEED}, from: "user:mary", expect: deny}}\n'
    told = checked(tmp_path / "f", HEAD + row)
    warned = {"line": FIRST, "text": "`tests[0]` depends on the clock; say when with `at`"}
    assert told["warnings"][-1] == warned
    assert not [each for each in checked(tmp_path / "f", HEAD + GOOD)["warnings"] if "clock" in each["text"]]


def test_rules_that_never_decide_are_warned_about(tidegate: Tidegate, tmp_path: Path) -> None:
    extra = '  - {id: never, subject: "role:coach", topic: x, action: read, when: "false"}\n'
    text = HEAD.replace("preferences:\n", f"{extra}preferences:\n").removesuffix("tests:\n")
    (tmp_path / "gym.yaml").write_text(text)
    answer = tidegate("check", "gym.yaml")
    assert answer.returncode == 0
    line = 1 + text[: text.index(extra)].count("\n")
    warned = (
        f"gym.yaml:{line}: warning: `policies[3]` never decides: its condition is always false; change it, or remove it"
    )
    assert warned in answer.stderr.splitlines()


def test_a_configuration_with_failing_tests_is_refused_whole() -> None:
    verify_tests(parse(HEAD + GOOD, "gym.yaml"))
    bad = f'  - {{as: "user:mary", action: write, {SPEED}, expect: deny}}\n'
    with pytest.raises(ConfigErrors) as found:
        verify_tests(parse(HEAD + bad + bad, "gym.yaml"), file="gym.yaml")
    assert [(each.file, each.line) for each in found.value.problems] == [("gym.yaml", FIRST), ("gym.yaml", FIRST + 1)]


def test_a_test_that_depends_on_the_clock_is_no_reason_to_refuse() -> None:
    row = f'  - {{as: "user:bob", action: read, {SPEED}, from: "user:mary", expect: allow}}\n'
    config = parse(HEAD + row, "gym.yaml")
    assert len(run_tests(config).problems) == 1
    verify_tests(config)


def test_many_tests_are_quick() -> None:
    """A reload waits for them: well below a millisecond each."""
    config = parse(HEAD + GOOD * 50, "gym.yaml")
    begun = time.process_time()
    assert run_tests(config).passed == 600
    assert time.process_time() - begun < 3.0
