"""`tidegate monitor list`, `state` and `reset` on a running node, as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.driving import TIDEGATE, Tidegate, running
from harness import free_port

FILE = """\
version: 1
node: {name: n, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
policies: open
sys: {interval: 0s}
monitors:
  - {id: door, link: "client:panel->main", only: unlock, after: [ask, granted], reset: denied}
  - {id: every, scope: main, direction: im_sub, each: scope, map: {old: new}}
  - {id: count, scope: main, direction: im_pub, each: client, use: complex_em}
"""
PANEL = "anonymous client:panel->scope:main"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a node that a panel has sent some messages to."""
    port = free_port()
    (tmp_path / "f.yaml").write_text(FILE.replace("PORT", str(port)))
    with running([TIDEGATE, "run", "-c", str(tmp_path / "f.yaml")], port, tmp_path / "log"):
        yield port


def publish(tidegate: Tidegate, port: int, *topics: str) -> None:
    for topic in topics:
        answer = tidegate("pub", "-p", port, "-i", "panel", "-q", 1, "-t", topic, "-m", "x")
        assert answer.returncode in (0, 1), answer.stderr  # suppressed ones are told to whoever sent them


def test_states_are_seen_and_put_back(tidegate: Tidegate, port: int) -> None:
    def state(*more: str) -> dict[str, Any]:
        answer = tidegate("monitor", "state", "door", "-c", "f.yaml", "--json", *more)
        assert (answer.returncode, answer.stderr) == (0, "")
        found: dict[str, Any] = json.loads(answer.stdout)
        return found

    answer = tidegate("monitor", "state", "door", "-c", "f.yaml")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "Nothing has reached it yet.\n")
    publish(tidegate, port, "unlock", "ask")
    told = {"monitor": "door", "states": [{"of": PANEL, "state": "seen ask"}], "more": False}
    assert state() == state("--of", PANEL) == told
    shown = tidegate("monitor", "state", "door", "-c", "f.yaml").stdout
    assert PANEL in shown
    assert "seen ask" in shown

    answer = tidegate("monitor", "list", "-c", "f.yaml", "--json")
    rows = {row["monitor"]: row for row in json.loads(answer.stdout)}
    assert list(rows) == ["door", "every", "count"]
    door = rows["door"]
    assert (door["acts on"], door["each"], door["states"]) == ("client:panel->scope:main", "link", 1)
    assert (door["seen"], door["suppressed"], door["made"], door["failed"]) == (2, 1, 0, 0)
    assert rows["every"]["acts on"] == "main: im_sub"
    assert rows["count"]["made"] == rows["count"]["seen"] == 1  # what the door lets through
    table = tidegate("monitor", "list", "-c", "f.yaml").stdout
    assert table.split()[:7] == ["monitor", "acts", "on", "each", "states", "seen", "suppressed"]
    assert all(id in table for id in rows)

    answer = tidegate("monitor", "reset", "door", "-c", "f.yaml")
    assert (answer.returncode, answer.stdout) == (0, "✓ 1 state back at the start\n")
    assert state()["states"] == [{"of": PANEL, "state": "nothing seen"}]
    publish(tidegate, port, "granted", "unlock")
    assert state()["states"] == []  # of a client that is gone, only what differs from the start is kept
    publish(tidegate, port, "ask")
    answer = tidegate(
        "monitor", "reset", "door", "--of", PANEL, "--port", port, "--socket", "data/control.sock", "--json"
    )
    assert (answer.returncode, json.loads(answer.stdout)) == (0, {"monitor": "door", "reset": 1})

    audit = tidegate("audit", "-c", "f.yaml", "--json").stdout
    assert "monitor door of" in audit  # who put it back is written down


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["state", "dor"], "there is no monitor dor; did you mean door?"),
        (["reset", "nothing-like-it"], "there is no monitor nothing-like-it; there are door, every, count"),
        (
            ["state", "door", "--of", "nobody"],
            "monitor door has no state of 'nobody'; `tidegate monitor state door` lists",
        ),
        (["reset", "door", "--of", "nobody"], "monitor door has no state of 'nobody'"),
    ],
)
def test_what_is_not_there(tidegate: Tidegate, port: int, arguments: list[str], said: str) -> None:
    answer = tidegate("monitor", *arguments, "-c", "f.yaml")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert said in answer.stderr


def test_without_a_node(tidegate: Tidegate, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(FILE.replace("PORT", str(free_port())))
    for arguments in (["list"], ["state", "door"], ["reset", "door"]):
        answer = tidegate("monitor", *arguments, "-c", "f.yaml")
        assert (answer.returncode, answer.stdout) == (1, "")
        assert "is the node running?" in answer.stderr


def test_a_node_without_monitors(tidegate: Tidegate, tmp_path: Path) -> None:
    port = free_port()
    with running([TIDEGATE, "run", "--port", str(port)], port, tmp_path / "log"):
        answer = tidegate("monitor", "list", "--port", port)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "There are no monitors.\n")
        assert json.loads(tidegate("monitor", "list", "--port", port, "--json").stdout) == []
        answer = tidegate("monitor", "state", "door", "--port", port)
        assert (answer.returncode, "there is no monitor door; there are none" in answer.stderr) == (1, True)
