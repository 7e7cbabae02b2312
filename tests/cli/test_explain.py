"""`tidegate explain`: the verdict, the steps, exit codes, and everything as JSON."""

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

GYM = """\
version: 1
node: {name: mygym, domain: mygymbrand, timezone: Europe/Rome}
listeners: [{url: "mqtt://127.0.0.1:1883", anonymous: true}]
directory:
  users:
    mary: {password: "plain:x", roles: [frequenter], attributes: {enrolled: [ts1]}}
    alice: {password: "plain:x", roles: [coach], attributes: {shift: "08:00-14:00"}}
    bob: {password: "plain:x", roles: [coach], attributes: {shift: "08:00-14:00"}}
policies:
  - {id: p1, subject: "role:frequenter", topic: "+/performance/ts1/+", action: [read, write],
     when: "'ts1' in s.enrolled"}
  - {id: p2, subject: "role:coach", topic: "+/performance/#", action: read, when: "within(e.now, s.shift)"}
preferences:
  - {id: up1, user: mary, topic: "+/performance/ts1/+", when: "s.role == 'coach' && s.user == 'alice'",
     keep: [/speed]}
"""
TOPIC = "tr1/performance/ts1/speed"
READ = ("--action", "read", "--topic", TOPIC, "--from", "user:mary", "--at", "2026-03-02T09:30:00")
WRITE = ("--action", "write", "-t", TOPIC)

Explain = Callable[..., Result]


@pytest.fixture
def explain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Explain:
    """The command, about MyGym."""
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "gym.yaml").write_text(GYM)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["explain", str(tmp_path / "gym.yaml"), *arguments])

    return run


def test_a_denial(tidegate: Tidegate, tmp_path: Path) -> None:
    """As a user runs it."""
    (tmp_path / "gym.yaml").write_text(GYM)
    answer = tidegate("explain", "gym.yaml", "--as", "user:bob", *READ)
    assert (answer.returncode, answer.stderr) == (1, "")
    first, asked, when, *rest = answer.stdout.splitlines()
    assert first == "DENY by up1 (read, preferences)"
    assert asked == f"user:bob reads {TOPIC} published by user:mary"
    assert when.startswith("at 2026-03-02 09:30:00+01:00, policy version ")
    rows = [" ".join(line.split()) for line in rest]
    assert "write, policies allow p1 p1: allow when 'ts1' in s.enrolled → true" in rows
    assert "read, preferences deny up1 up1: keep /speed when s.role == 'coach' && s.user == 'alice' → false" in rows
    assert 's.role = "coach", s.user = "bob"' in rows
    assert "view not asked" in rows


def test_what_is_received(explain: Explain) -> None:
    answer = explain("--as", "user:alice", *READ, "--payload", '{"speed": 9, "name": "Mary"}')
    assert answer.exit_code == 0
    assert answer.stdout.startswith("ALLOW by p2 (read, policies)\n")
    assert 'receives {"speed":9}' in answer.stdout
    assert "leaves /speed" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "headline"),
    [
        (("--as", "user:mary", *WRITE), "ALLOW by p1 (write, policies)"),
        (("--as", "client:tr1", *WRITE), "DENY by default (write, policies)"),
        (
            ("--as", "client:tr1", *WRITE, "--set", "s.roles=frequenter"),
            "DENY by p1 (write, policies)",
        ),
        (
            ("--as", "client:x", *WRITE, "--set", "s.role=frequenter", "--set", 's.enrolled=["ts1"]'),
            "ALLOW by p1 (write, policies)",
        ),
        (("--as", "user:alice", "--action", "subscribe", "-t", "#"), "ALLOW by p2 (read, policies)"),
        (("--as", "user:alice", "--action", "subscribe", "-t", "x"), "DENY by default (read, policies)"),
        (
            ("--as", "user:alice", *READ, "--require", "tls", "-m", '{"speed":9}'),
            "DENY by subscriber's demand (levels)",
        ),
        (("--as", "user:alice", *READ, "-D", "require=tls"), "DENY by publisher's demand (levels)"),
        (
            ("--as", "user:alice", *READ, "-D", "require=tls", "--set", "s.level=tls", "-m", '{"speed":9}'),
            "ALLOW by p2 (read, policies)",
        ),
        (("--as", "user:alice", *READ, "-D", 'view={"user:bob":"all"}'), "DENY by publisher's view (view)"),
        (("--as", "user:alice", *READ, "-m", '{"speed":9}', "--where", "o.payload.speed > 9"), "DENY by where (where)"),
        (("--as", "user:alice", *READ, "-m", "fast"), "DENY by nothing is left (view)"),
        (("--as", "user:alice", *READ[:-1], "2026-03-02T20:00:00+01:00"), "DENY by default (read, policies)"),
        (("--as", "user:alice", *READ[:-1], "09:30", "-m", '{"speed":9}'), "ALLOW by p2 (read, policies)"),
    ],
)
def test_verdicts(explain: Explain, arguments: tuple[str, ...], headline: str) -> None:
    answer = explain(*arguments)
    assert answer.stdout.splitlines()[0] == headline
    assert answer.exit_code == (0 if headline.startswith("ALLOW") else 1)


def document(answer: Result) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer.stdout)
    return told


def test_everything_as_json(explain: Explain) -> None:
    answer = explain("--as", "user:bob", *READ, "--json")
    assert answer.exit_code == 1
    told = document(answer)
    steps = told.pop("steps")
    version = told.pop("policy_version")
    assert len(version) == 12
    assert (told.pop("as")["s"]["role"], told.pop("from")["subject"]) == ("coach", "user:mary")
    assert told == {
        "allowed": False,
        "verdict": "deny",
        "step": "read",
        "part": "preferences",
        "rule": "up1",
        "action": "read",
        "topic": TOPIC,
        "at": "2026-03-02T09:30:00+01:00",
        "sees": None,
        "audit": {"step": "read", "rule": "up1"},
        "notes": [],
    }
    assert [(each["step"], each["part"], each["about"], each["verdict"], each["rule"]) for each in steps] == [
        ("write", "reserved", "user:mary", "nothing to say", None),
        ("write", "policies", "user:mary", "allow", "p1"),
        ("brokering", None, "user:bob", "nothing to say", None),
        ("levels", None, "user:bob", "nothing to say", None),
        ("read", "policies", "user:bob", "allow", "p2"),
        ("read", "preferences", "user:bob", "deny", "up1"),
        ("view", None, "user:bob", "not asked", None),
        ("where", None, "user:bob", "not asked", None),
    ]
    assert steps[4]["knew"] == {"e.now": "2026-03-02T09:30:00+01:00", "s.shift": "08:00-14:00"}
    assert steps[5]["rules"] == [
        {
            "rule": "up1",
            "says": "keep /speed",
            "condition": "s.role == 'coach' && s.user == 'alice'",
            "outcome": "false",
            "error": None,
        }
    ]


def test_what_is_received_as_json(explain: Explain) -> None:
    answer = explain("--as", "user:alice", *READ, "-m", '{"speed": 9, "name": "Mary"}', "-D", "k=v", "--json")
    assert answer.exit_code == 0
    told = document(answer)
    assert told["sees"] == {"payload": '{"speed":9}', "properties": []}
    assert told["steps"][5]["view"] == ["/speed"]
    assert told["audit"] is None


SCOPES = """\
version: 1
node: {name: mygym}
scopes: {gym: {}, brand: {}}
listeners:
  - {url: "mqtt://127.0.0.1:1883", scope: gym, anonymous: true}
  - {url: "mqtt://127.0.0.1:1884", scope: brand, anonymous: true}
links: [{from: gym, to: brand, share: [{topic: "+/speed", remote_prefix: "MyGym/"}]}]
policies:
  - {id: all, subject: "*", topic: "#", action: [read, write]}
"""


def test_over_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "gym.yaml").write_text(SCOPES)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["explain", str(tmp_path / "gym.yaml"), *arguments])

    reading = ("--as", "client:app", "--action", "read", "--from", "client:t1", "--set", "s.scope=brand")
    answer = run(*reading, "-t", "t1/speed")
    assert answer.exit_code == 0
    rows = [" ".join(line.split()) for line in answer.stdout.splitlines()]
    at = rows.index("link gym->brand allow all all: allow → true")
    assert rows[at + 1] == "behind it the topic is `MyGym/t1/speed`"
    told = document(run(*reading, "-t", "t1/heart", "--json"))
    assert (told["verdict"], told["step"], told["rule"], told["audit"]) == ("deny", "link", "not shared", None)
    steps = [(each["step"], each["link"], each["about"], each["verdict"]) for each in told["steps"]]
    assert steps[1:4] == [
        ("write", None, "client:t1", "allow"),
        ("link", "gym->brand", "link:gym->brand", "deny"),
        ("brokering", None, "client:app", "not asked"),
    ]
    answer = run("--as", "link:gym->brand", "--action", "write", "-t", "t1/speed")
    assert answer.stdout.splitlines()[:2] == ["ALLOW by all (write, policies)", "link:gym->brand writes t1/speed"]


def test_what_cannot_be_shown_on_a_terminal_is_written_out(explain: Explain) -> None:
    answer = explain("--as", "user:mary", *WRITE, "--set", 's.enrolled=["\\u001b[2J"]')
    assert "\x1b[2J" not in answer.stdout
    assert answer.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--as", "user:mery", *READ), "`user:mery` names the unknown user `mery`; did you mean `mary`?"),
        (("--as", "user:bob", *READ[:4]), "it matters who published the message: an unknown client may not publish it"),
        (("--as", "user:bob", *READ[:-1], "noon"), "`noon` is not a time: write 2026-03-02T09:30:00"),
        (("--as", "user:bob", *READ, "--set", "s.level"), "`s.level` is not an attribute: write NAME=VALUE"),
        (("--as", "user:bob", *READ, "-D", "x"), "`x` is not a property: write NAME=VALUE"),
        (("--as", "user:bob", *READ, "--where", "o.qos =="), "`where` is no condition: 1:"),
        (
            ("--as", "user:bob", "--action", "write", "-t", "a", "--from", "user:mary"),
            "--from has no effect on `write`; leave it out",
        ),
        (
            ("--as", "user:bob", "--action", "subscribe", "-t", "a", "-m", ""),
            "--payload has no effect on `subscribe`; leave it out",
        ),
        (("--as", "user:bob", "--action", "write", "-t", "a/#"), "`a/#` is no topic"),
    ],
)
def test_wrong_usage(explain: Explain, arguments: tuple[str, ...], error: str) -> None:
    answer = explain(*arguments)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith(f"error: {error}")


def test_a_broken_file(tidegate: Tidegate, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("version: 1\nnode: {nme: n}\nlisteners: [{url: 'mqtt://127.0.0.1'}]\n")
    answer = tidegate("explain", "f.yaml", "--as", "user:x", "--action", "write", "-t", "a")
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[0].startswith("f.yaml:2: `node.name` is missing")
