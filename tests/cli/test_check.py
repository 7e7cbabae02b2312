"""`tidegate check`, `schema` and `passwd`."""

from __future__ import annotations

import json
from pathlib import Path

import argon2
import pytest
from typer.testing import CliRunner

from cli.driving import Tidegate
from tidegate.cli.commands import app
from tidegate.config import markdown, parse, schema
from tidegate.config.directory import ARGON2

GOOD = """\
version: 1
node: {name: n, data: var}
listeners:
  - {url: "mqtt://127.0.0.1:1883", anonymous: true}
  - {url: "ws://127.0.0.1:8083/mqtt"}
directory: {users: {joe: {password: "plain:hunter2"}}}
policies: open
"""


def test_a_good_file(tidegate: Tidegate, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(GOOD)
    (tmp_path / "f.yaml").chmod(0o600)
    answer = tidegate("check", "f.yaml")
    assert answer.returncode == 0
    for shown in ("✓ f.yaml is fine: node n", "mqtt://127.0.0.1:1883", "password or anonymous", "1 users", "16MiB"):
        assert shown in answer.stdout
    assert answer.stderr == (
        "f.yaml:6: warning: `directory.users.joe.password` is written in plain; "
        "replace it with what `tidegate passwd` prints\n"
    )
    assert "hunter2" not in answer.stdout + answer.stderr


def test_a_good_file_for_scripts(tidegate: Tidegate, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(GOOD)
    (tmp_path / "f.yaml").chmod(0o600)
    answer = tidegate("check", "f.yaml", "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    told = json.loads(answer.stdout)
    assert told["ok"] is True
    assert told["listeners"][0] == {
        "url": "mqtt://127.0.0.1:1883",
        "scope": "main",
        "admits": ["password", "anonymous"],
    }
    assert told["data"] == str(tmp_path / "var")
    assert [warning["line"] for warning in told["warnings"]] == [6]
    assert told["limits"]["queue"]["bytes"] == "16MiB"
    assert "hunter2" not in answer.stdout


def test_the_rules_of_the_pipeline_are_checked_too(tidegate: Tidegate, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(GOOD + "pipeline: {rules: rules.yaml}\n")
    (tmp_path / "rules.yaml").write_text("version: 1\nscores: [{id: a, dimension: accuracy, check: in_rang}]\n")
    answer = tidegate("check", "f.yaml")
    assert answer.returncode == 1
    assert "rules.yaml:2: `scores[0]` (`a`): there is no check `in_rang`; did you mean `in_range`?" in answer.stderr
    (tmp_path / "rules.yaml").write_text("version: 1\n")
    assert tidegate("check", "f.yaml").returncode == 0


BAD = "version: 1\nnode: {nme: n}\nlisteners: [{url: 'mqtt://127.0.0.1'}]\nscopes: {main: {bakend: 'mqtt://h'}}\n"


def test_a_bad_file(tidegate: Tidegate, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(BAD)
    answer = tidegate("check", "f.yaml")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.splitlines() == [
        "f.yaml:2: `node.name` is missing; add it (Name of the node)",
        "f.yaml:2: unknown key `nme` in `node`; did you mean `name`?",
        "f.yaml:4: unknown key `bakend` in `scopes.main`; did you mean `backend`?",
    ]
    assert tidegate("run", "-c", "f.yaml").stderr == answer.stderr
    assert tidegate("status", "-c", "f.yaml").stderr == answer.stderr


def test_a_bad_file_for_scripts(tidegate: Tidegate, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(BAD)
    answer = tidegate("check", "f.yaml", "--json")
    assert (answer.returncode, answer.stderr) == (1, "")
    told = json.loads(answer.stdout)
    assert told["ok"] is False
    assert [(each["file"], each["line"]) for each in told["problems"]] == [("f.yaml", 2), ("f.yaml", 2), ("f.yaml", 4)]
    assert told["problems"][1]["text"] == "unknown key `nme` in `node`; did you mean `name`?"


def test_no_file(tidegate: Tidegate) -> None:
    answer = tidegate("check", "no.yaml")
    assert answer.returncode == 1
    assert answer.stderr == "no.yaml: cannot be read (No such file or directory); check its name and permissions\n"


def test_schema(tidegate: Tidegate) -> None:
    assert json.loads(tidegate("schema").stdout) == schema()
    assert tidegate("schema", "--markdown").stdout == markdown()


@pytest.mark.parametrize("user", ["mary", "a b", "5", 'quo"te', "yes", "null", "bücher", None])
def test_passwd(user: str | None) -> None:
    answer = CliRunner().invoke(app, ["passwd", *([user] if user else []), "--stdin"], input="wonder\n")
    assert answer.exit_code == 0, answer.stderr
    line = answer.stdout.rstrip("\n")
    if user is None:
        assert ARGON2.fullmatch(line)
        hashed = line
    else:
        text = f"version: 1\nnode: {{name: n}}\nlisteners: [{{url: 'mqtt://h'}}]\ndirectory:\n  users:\n    {line}\n"
        stored = parse(text, "f").directory.users[user].password
        assert stored is not None
        hashed = stored
    argon2.PasswordHasher().verify(hashed, "wonder")
    parameters = argon2.extract_parameters(hashed)
    assert (parameters.time_cost, parameters.memory_cost, parameters.parallelism) == (2, 19456, 1)


def test_passwd_asks_twice() -> None:
    answer = CliRunner().invoke(app, ["passwd"], input="wonder\nwander\nwonder\nwonder\n")
    assert answer.exit_code == 0, answer.output
    argon2.PasswordHasher().verify(answer.stdout.strip().splitlines()[-1], "wonder")
    assert "wonder" not in answer.output


def test_passwd_for_scripts_and_without_a_password(tidegate: Tidegate) -> None:
    told = json.loads(tidegate("passwd", "mary", "--stdin", "--json", stdin="x").stdout)
    assert told["user"] == "mary"
    assert ARGON2.fullmatch(told["password"])
    empty = tidegate("passwd", "mary", "--stdin", stdin="\n")
    assert (empty.returncode, empty.stderr) == (1, "error: the password is empty\n")
