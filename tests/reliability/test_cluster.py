"""`examples/cluster`: guards and servers are killed with `kill -9` while clients use them; what was acknowledged and
has not come is counted. Both forms are long ones: they take a minute and more of both cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import postgres
from docs.pages import ROOT
from harness import free_port
from processes import end_group, missing
from reliability.tap import Tap

RUN = ROOT / "examples" / "cluster" / "run.py"
REPORT = ROOT / "docs" / "reliability" / "cluster.md"
PROGRAMS = ("nats-server", "haproxy")


def killed(folder: Path, kills: int, *, seed: int, bare: bool = False, messages: int = 0) -> dict[str, Any]:
    """What the example says of itself, and what of the lost messages a guard had."""
    for program in PROGRAMS:
        if not os.access(f"/usr/sbin/{program}", os.X_OK):
            missing(f"{program} is not installed")
    folder.mkdir(exist_ok=True)
    report, ports, behind = folder / "report.json", [free_port() for _ in range(13)], free_port()
    words = [sys.executable, str(RUN), "--kills", str(kills), "--seed", str(seed), "--report", str(report)]
    words += ["--messages", str(messages), *["--bare"] * bare]
    with postgres.running() as server, Tap(behind, ports[1]) as tap:
        environment = {
            **os.environ,
            "DATABASE": server.address(schema=server.schema()),
            "FOLDER": str(folder / "var"),
            "PORTS": ",".join(map(str, ports)),
            "BEHIND": str(behind),
        }
        with (folder / "output").open("wb") as output:
            running = subprocess.Popen(words, env=environment, stdout=output, stderr=output, start_new_session=True)
            try:
                running.wait()
            finally:
                end_group(running)
    assert report.exists(), (folder / "output").read_text()
    found: dict[str, Any] = json.loads(report.read_text())
    lost = [entry.split(" to ") for entry in found["lost"]]
    found["lost by guards"] = None if bare else [entry for entry in lost if entry[0] in tap.sent[entry[1]]]
    return found


def seeded() -> int:
    seed = int(os.environ.get("TIDEGATE_SEED", time.time_ns() % 2**32))
    print(f"TIDEGATE_SEED={seed}")
    return seed


def check(found: dict[str, Any]) -> None:
    """Everything is acknowledged, no session is gone, and what the cluster sends comes to its client. What JetStream
    itself never sends is written down: it does so without guards, too."""
    assert found["lost by guards"] == []
    assert found["sessions lost"] == 0
    assert found["stalled"] is None
    assert found["acknowledged"] == found["published"] > 0


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_one_guard_and_one_server(tmp_path: Path) -> None:
    found = killed(tmp_path, 2, seed=seeded())
    check(found)
    assert found["killed"][0] == "guard-a"
    assert found["killed"][1].startswith("nats-")


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_twenty_kills(tmp_path: Path) -> None:
    """The report is written whether it is clean or not."""
    seed = seeded()
    guarded = killed(tmp_path / "guarded", 20, seed=seed)
    bare = killed(tmp_path / "bare", 20, seed=seed, bare=True)
    quiet = killed(tmp_path / "quiet", 0, seed=seed, bare=True, messages=1500)
    REPORT.write_text(page(guarded, bare, quiet))
    check(guarded)


def page(guarded: dict[str, Any], bare: dict[str, Any], quiet: dict[str, Any]) -> str:
    columns = [figures(run) for run in (guarded, bare, quiet)]
    rows = "".join(f"| {name} | {' | '.join(str(column[name]) for column in columns)} |\n" for name in columns[0])
    return f"""# Two guards, three servers, killed under load

Written by `make soak` (`tests/reliability/test_cluster.py`), which runs [the
cluster](../../examples/cluster/README.md): three servers of NATS 2.9.10 with JetStream, two guards, HAProxy and
PostgreSQL. Guards and servers are killed in turn with `kill -9` at random moments, and started again; the next one is
killed when all servers know who leads JetStream's streams and have caught up. Meanwhile two machines publish with QoS 1
(windows of 20) and two screens with lasting sessions listen, each in MQTT 3.1.1 and 5. Then it is counted what was
acknowledged to a machine and has not come to a screen within a minute. NATS has no QoS 2 there, and the guards
refuse it.

A tap between guards and servers sees what the servers send. So a message that a guard had and did not pass on is told
from one that JetStream never sent. The second column is the same **without guards**: clients of MQTT 3.1.1 come to the
servers, and two of the four are cut off where a guard is killed. In the third one nobody does anything to servers or
connections. What is lost in these two NATS has lost.

| seed {guarded["seed"]} | two guards | no guards | no guards, no kills |
|---|---:|---:|---:|
{rows}
**What the cluster does not send no guard can pass on**, and NATS 2.9.10 with three replicas does not send everything.
Its consumers say that they are through with the last message, and have counted fewer deliveries than there were
messages; traces have shown that without guards and without kills, too, though not in each run. So a run with guards may
lose messages as well. The test fails on those that a guard had, on sessions that are gone and on a standstill; what
NATS alone has skipped it writes down. A newer NATS has not been tried.
"""


def figures(found: dict[str, Any]) -> dict[str, Any]:
    """The rows of one run."""
    by_guards = found["lost by guards"]
    servers = sum(name.startswith("nats") for name in found["killed"])
    return {
        "guards killed, or clients cut off": len(found["killed"]) - servers,
        "servers killed": servers,
        "connections of the four clients": found["connections of clients"],
        "sessions of screens that were gone": found["sessions lost"],
        "came to a standstill": found["stalled"] or "no",
        "published": found["published"],
        "acknowledged (PUBACK)": found["acknowledged"],
        "deliveries owed": 2 * found["acknowledged"],
        "delivered more than once": found["repeated"],
        "acknowledged and lost": len(found["lost"]),
        "**of these: sent to a guard, and lost there**": "no guard" if by_guards is None else f"**{len(by_guards)}**",
    }
