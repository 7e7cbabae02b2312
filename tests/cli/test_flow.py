"""`tidegate flow`: tables, documents and pictures of what can flow; what holds, and what does not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import Result
from typer.testing import CliRunner

from cli.driving import TIDEGATE, Tidegate, running, subscriber
from harness import free_port
from tidegate.cli.commands import app

HOME = """\
version: 1
node: {name: home, data: data}
listeners:
  - {url: "mqtt://127.0.0.1:PORT1", anonymous: true, scope: I}
  - {url: "mqtt://127.0.0.1:PORT2", anonymous: true, scope: H4}
scopes:
  I: {}
  H1: {parents: [I]}
  H4: {}
  H2: {parents: [H1, H4]}
  H3: {parents: [H1]}
brokering: {preset: component}
directory:
  clients: {SP: {scopes: [I]}, DB: {scopes: [H2]}, DL: {scopes: [H3]}, MD: {scopes: [H4]}, SC: {scopes: [H4]}}
policies: open
sys: {interval: 0s}
"""
HOLDS = 'flows: {forbid: ["client:MD -> scope:I"], require: ["client:SP -> client:DL"]}\n'
LEAKS = 'flows: {forbid: ["client:MD -> scope:I"], paths: true}\n'
LEAK = "client:MD -> scope:H4 -> scope:H2 -> client:DB -> scope:H2 -> scope:H1 -> scope:I"

Flow = Callable[..., Result]


def written(folder: Path, text: str) -> Path:
    file = folder / "home.yaml"
    for name in ("PORT1", "PORT2"):
        text = text.replace(name, str(free_port()))
    file.write_text(text)
    return file


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    """The command, about a home."""

    def run(*arguments: str, text: str = HOME + HOLDS) -> Result:
        return CliRunner().invoke(app, ["flow", str(written(tmp_path, text)), *arguments])

    return run


def test_who_reaches_whom(tidegate: Tidegate, tmp_path: Path) -> None:
    """As a user runs it."""
    written(tmp_path, HOME + HOLDS)
    answer = tidegate("flow", "home.yaml")
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert lines[:4] == [
        "home: 5 scopes, 5 clients, 18 links; by routes",
        "",
        "from       to         by",
        "─────────  ─────────  ────────────────────────────────",
    ]
    at = next(number for number, line in enumerate(lines) if line.startswith("client:MD"))
    assert lines[at - 1 : at + 6] == [
        "",
        "client:MD  scope:H2   scope:H4",
        "           scope:H4   directly",
        "           client:DB  scope:H4 -> scope:H2",
        "           client:MD  scope:H4",
        "           client:SC  scope:H4",
        "",
    ]
    end = lines.index("flows")
    assert lines[end:] == [
        "flows",
        "  ✓ `client:MD -> scope:I` is forbidden, and there is no route",
        "  ✓ `client:SP -> client:DL` is required, and there is the route "
        "client:SP -> scope:I -> scope:H1 -> scope:H3 -> client:DL",
        "",
        "groups of scopes that trust each other",
        "  scope:H1, scope:H2, scope:H3, scope:H4, scope:I",
    ]


def test_from_and_to_with_or_without_kind(flow: Flow) -> None:
    for ends in (("--from", "MD", "--to", "client:DB"), ("--from", "client:MD", "--to", "DB")):
        answer = flow(*ends)
        assert answer.exit_code == 0
        assert answer.stdout.splitlines()[4] == "client:MD  client:DB  scope:H4 -> scope:H2"
    answer = flow("--to", "scope:I")
    lines = answer.stdout.splitlines()
    sources = [line.split()[0] for line in lines[4 : lines.index("flows") - 1]]
    assert sources == ["scope:H1", "scope:H2", "scope:H3", "client:DB", "client:DL", "client:SP"]
    assert "groups" not in answer.stdout


def test_what_does_not_flow(flow: Flow) -> None:
    answer = flow("--from", "MD", "--to", "I")
    assert answer.exit_code == 0
    assert answer.stderr == "Nothing flows from client:MD to scope:I.\n"
    assert flow("--from", "MD", "--to", "I", "--format", "svg").stderr == answer.stderr


def test_paths_go_through_clients(flow: Flow) -> None:
    answer = flow("--from", "MD", "--to", "I", "--paths")
    assert answer.exit_code == 0
    assert "scope:H4 -> scope:H2 -> client:DB -> scope:H2 -> scope:H1" in answer.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("DLL", "there is no `DLL` here; did you mean client:DL?"),
        ("client:MDD", "there is no `client:MDD` here; did you mean client:MD?"),
        ("user:mary-ann", "there is no `user:mary-ann` here; `tidegate flow` without --from and --to shows all"),
    ],
)
def test_unknown_names(flow: Flow, name: str, said: str) -> None:
    for option in ("--from", "--to"):
        answer = flow(option, name)
        assert answer.exit_code == 2
        assert said in answer.stderr


def test_a_name_of_two(flow: Flow) -> None:
    answer = flow("--from", "I", text=HOME.replace("MD: ", "I: {scopes: [H4]}, MD: "))
    assert answer.exit_code == 2
    assert "`I` may be scope:I or client:I; write it so" in answer.stderr


def test_what_is_violated_is_shown_and_counts(flow: Flow) -> None:
    """`check` and `run` refuse such a file; here its flows can be looked at."""
    answer = flow(text=HOME + LEAKS)
    assert answer.exit_code == 1
    assert f"  ✗ `client:MD -> scope:I` is forbidden, and there is the path {LEAK}" in answer.stdout.splitlines()
    answer = flow("--format", "dot", text=HOME + LEAKS)
    assert answer.exit_code == 1
    assert f"error: `client:MD -> scope:I` is forbidden, and there is the path {LEAK}" in answer.stderr
    assert answer.stdout.startswith('digraph "home"')


def test_a_broken_file_is_refused(flow: Flow, tmp_path: Path, tidegate: Tidegate) -> None:
    file = written(tmp_path, HOME.replace("H1: {parents: [I]}", "H1: {parents: [J]}"))
    answer = tidegate("flow", file)
    assert answer.returncode == 1
    assert f"{file}:8: " in answer.stderr
    assert answer.stdout == ""
    assert tidegate("flow", "nowhere.yaml").stderr.startswith("nowhere.yaml: cannot be read")


def test_json(flow: Flow) -> None:
    answer = flow("--from", "MD", "--format", "json")
    told = json.loads(answer.stdout)
    assert told["scopes"] == ["scope:H1", "scope:H2", "scope:H3", "scope:H4", "scope:I"]
    assert {"from": "client:MD", "to": "client:DB", "route": ["client:MD", "scope:H4", "scope:H2", "client:DB"]} in (
        told["flows"]
    )
    assert {"from": "scope:H1", "to": "scope:I", "type": "up", "trusted": True} in told["links"]
    assert told["groups"] == [told["scopes"]]
    assert told["assertions"] == [
        {"from": "client:MD", "to": "scope:I", "expect": "forbid", "by": "routes", "holds": True, "absent": []},
        {"from": "client:SP", "to": "client:DL", "expect": "require", "by": "routes", "holds": True, "absent": []},
    ]
    (broken,) = json.loads(flow("--format", "json", text=HOME + LEAKS).stdout)["assertions"]
    assert broken["holds"] is False
    assert broken["route"] == LEAK.split(" -> ")


def test_pictures(flow: Flow) -> None:
    root = ElementTree.fromstring(flow("--format", "svg").stdout)
    texts = {each.text for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"home", "I", "H1", "H2", "H3", "H4", "SP", "DB", "DL", "MD", "SC"} <= texts
    assert '    n0["H1"]' in flow("--format", "mermaid").stdout.splitlines()
    route = flow("--format", "dot", "--from", "MD", "--to", "I", "--paths").stdout
    assert route.count("penwidth=3") == 6


def test_pictures_of_what_one_reaches_or_of_who_reaches_it(flow: Flow) -> None:
    def shown(*arguments: str) -> set[str]:
        lines = flow("--format", "dot", *arguments).stdout.splitlines()
        return {line.split('"')[1] for line in lines if "shape=box" in line}

    assert shown("--from", "MD") == {"client:MD", "scope:H4", "scope:H2", "client:DB", "client:SC"}
    assert shown("--to", "I") == {
        "scope:I", "scope:H1", "scope:H2", "scope:H3", "client:DB", "client:DL", "client:SP",
    }  # fmt: skip


def crowded(clients: int, scopes: int) -> str:
    lines = ["version: 1", "node: {name: crowd}", "policies: open", "scopes:"]
    lines += [f"  s{number}: {{{'parents: [s0]' if number else ''}}}" for number in range(scopes)]
    lines += ["listeners:"]
    lines += [f'  - {{url: "mqtt://127.0.0.1:{20000 + at}", anonymous: true, scope: s{at}}}' for at in range(scopes)]
    lines += ["brokering: {preset: component}", "directory:", "  clients:"]
    lines += [f"    c{at:04}: {{scopes: [s{at % scopes}]}}" for at in range(clients)]
    return "\n".join(lines) + "\n"


def test_clients_that_are_alike_are_one_row(flow: Flow) -> None:
    answer = flow(text=crowded(300, 2))
    assert answer.exit_code == 0
    assert len(answer.stdout.splitlines()) < 30
    alike = ("client:c0000 … client:c0298 (150)", "client:c0001 … client:c0299 (150)")
    rows = [re.split(r" {2,}", line) for line in answer.stdout.splitlines()]
    assert [alike[1], "scope:s0", "scope:s1"] in rows
    assert ["", alike[0], "scope:s1 -> scope:s0"] in rows
    assert ["", alike[1], "scope:s1"] in rows
    one = flow("--from", "c0007", text=crowded(300, 2)).stdout
    assert "client:c0001 … client:c0299 (149)" in one


def test_where_there_is_too_much_there_is_a_row_for_each_scope(flow: Flow) -> None:
    text = crowded(400, 40)
    answer = flow(text=text)
    assert answer.exit_code == 0
    assert "narrow them with --from or --to" in answer.stderr
    rows = [line.split() for line in answer.stdout.splitlines()]
    assert ["scope:s0", "10", "39", "400", "39", "400"] in rows
    assert sum(row[:1] != [] and row[0].startswith("scope:s") and len(row) == 6 for row in rows) == 40
    answer = flow("--format", "json", text=text)
    assert answer.exit_code == 2
    assert "too many for one document; narrow them with --from or --to" in answer.stderr
    assert len(json.loads(flow("--from", "c0001", "--format", "json", text=text).stdout)["flows"]) == 440


async def test_who_is_connected(tidegate: Tidegate, tmp_path: Path) -> None:
    text = HOME + HOLDS
    ports = free_port(), free_port()
    for name, port in zip(("PORT1", "PORT2"), ports, strict=True):
        text = text.replace(name, str(port))
    (tmp_path / "home.yaml").write_text(text)
    with running([TIDEGATE, "run", "-c", str(tmp_path / "home.yaml")], ports[0], tmp_path / "log"):
        assert "0 clients" in tidegate("flow", "home.yaml", "--live").stdout
        async with subscriber(ports[0], "-i", "watcher", "-t", "#"), subscriber(ports[1], "-i", "camera", "-t", "#"):
            answer = tidegate("flow", "home.yaml", "--live", "--format", "json")
            assert (answer.returncode, answer.stderr) == (0, "")
            told = json.loads(answer.stdout)
            assert told["devices"] == ["client:camera", "client:watcher"]
            assert {"from": "client:camera", "to": "scope:H4", "type": "up", "trusted": False} in told["links"]
            assert [one["absent"] for one in told["assertions"]] == [["client:MD"], ["client:SP", "client:DL"]]
            shown = tidegate("flow", "home.yaml", "--live", "--from", "watcher").stdout.splitlines()
            assert "  ✓ `client:MD -> scope:I` is forbidden, and there is no route: `client:MD` not there" in shown
            assert (
                "  - `client:SP -> client:DL` is required, and cannot be seen: `client:SP` and `client:DL` not there"
                in shown
            )
    answer = tidegate("flow", "home.yaml", "--live")
    assert answer.returncode == 1
    assert "is the node running?" in answer.stderr


def test_a_socket_is_for_a_running_node(flow: Flow) -> None:
    answer = flow("--socket", "control")
    assert answer.exit_code == 2
    assert "--socket has no effect without --live" in answer.stderr
