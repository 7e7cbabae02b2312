"""`tidegate link list` and `show` on a running node, as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.driving import TIDEGATE, Tidegate, running
from harness import free_port
from tidegate.cli import certificates
from tidegate.cli.tables import show

FILE = """\
version: 1
node: {name: n, data: data, cert: n.pem, key: n.key, ca: ca.pem}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: gym, anonymous: true}
  - {url: "mqtts://127.0.0.1:SECURE", scope: gym, cert: n.pem, key: n.key, client_ca: ca.pem, client_cert: required}
scopes: {gym: {}}
links:
  - {from: gym, to: far, via: ["mqtts://127.0.0.1:NOBODY"], peer: CN=far, share: [{topic: "a/#", remote_prefix: "x/"}]}
  - {from: near, to: gym, peer: CN=near, share: [{topic: "b/#"}]}
policies: open
sys: {interval: 0s}
"""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a node with two links, to nobody."""
    certificates.make_ca(tmp_path, "Test CA", days=2)
    certificates.issue(tmp_path, "n", ["127.0.0.1"], client=True, days=2)
    port = free_port()
    text = FILE.replace("PORT", str(port)).replace("SECURE", str(free_port())).replace("NOBODY", str(free_port()))
    (tmp_path / "f.yaml").write_text(text)
    with running([TIDEGATE, "run", "-c", str(tmp_path / "f.yaml")], port, tmp_path / "log"):
        yield port


def test_links_are_listed_and_shown(tidegate: Tidegate, port: int) -> None:
    assert tidegate("pub", "-p", port, "-q", 1, "-t", "a/b", "-m", "12345").returncode == 0
    answer = tidegate("link", "list", "-c", "f.yaml", "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    far, near = json.loads(answer.stdout)
    assert (far["link"], far["direction"], far["queue"], far["bytes"] > 0) == ("gym->far", "connects", 1, True)
    assert far["state"] in ("connecting", "waiting")
    assert far["oldest"] >= 0
    assert (near["link"], near["direction"], near["state"], near["queue"]) == (
        "gym->near",
        "is connected to",
        "waiting",
        0,
    )

    head, rule, *rows = tidegate("link", "list", "-c", "f.yaml").stdout.splitlines()
    assert head.split()[:4] == ["link", "direction", "state", "address"]
    assert set(rule) == {"─", " "}
    assert len(rows) == 2
    assert rows[0].index("connects") == rows[1].index("is connected to") == head.index("direction")

    shown = json.loads(tidegate("link", "show", "gym->far", "-c", "f.yaml", "--json").stdout)
    assert shown["out"] == [{"topic": "a/#", "there": "x/a/#", "qos": 2}]
    assert (shown["in"], shown["peer"], shown["via"] == [far["address"]]) == ([], None, True)
    assert "x/a/#" in tidegate("link", "show", "gym->far", "-c", "f.yaml").stdout
    wrong = tidegate("link", "show", "gym->fat", "-c", "f.yaml")
    assert (wrong.returncode, "did you mean gym->far?" in wrong.stderr) == (1, True)
    told = json.loads(tidegate("status", "-c", "f.yaml", "--json").stdout)["links"]
    assert [(row["link"], row["queue"]) for row in told] == [("gym->far", 1), ("gym->near", 0)]


def test_a_round_trip_is_shown_in_milliseconds(capsys: pytest.CaptureFixture[str]) -> None:
    connection = {"address": "mqtts://127.0.0.1:8883", "round_trip": 0.00042}
    show({"round_trip": 0.00031, "failover": {"connections": [connection]}}, json=False)
    shown = capsys.readouterr().out
    assert "0.3 ms" in shown
    assert "0.4 ms" in shown
