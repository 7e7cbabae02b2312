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
from processes import missing

RUN = ROOT / "examples" / "cluster" / "run.py"
REPORT = ROOT / "docs" / "reliability" / "cluster.md"
PROGRAMS = ("nats-server", "haproxy")


def killed(folder: Path, kills: int) -> dict[str, Any]:
    """What the example says of itself."""
    for program in PROGRAMS:
        if not os.access(f"/usr/sbin/{program}", os.X_OK):
            missing(f"{program} is not installed")
    seed = int(os.environ.get("TIDEGATE_SEED", time.time_ns() % 2**32))
    print(f"TIDEGATE_SEED={seed}")
    report = folder / "report.json"
    ports = ",".join(str(free_port()) for _ in range(10))
    with postgres.running() as server:
        environment = {
            **os.environ,
            "DATABASE": server.address(schema=server.schema()),
            "FOLDER": str(folder / "var"),
            "PORTS": ports,
        }
        words = [sys.executable, str(RUN), "--kills", str(kills), "--seed", str(seed), "--report", str(report)]
        with (folder / "output").open("wb") as output:
            running = subprocess.Popen(words, env=environment, stdout=output, stderr=output)
            try:
                running.wait()
            finally:
                running.terminate()  # it ends what it has started
                running.wait()
    assert report.exists(), (folder / "output").read_text()
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def check(found: dict[str, Any]) -> None:
    assert found["lost"] == []
    assert found["acknowledged"] == found["published"] > 0


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_one_guard_and_one_server(tmp_path: Path) -> None:
    found = killed(tmp_path, 2)
    check(found)
    assert found["killed"][0] == "guard-a"
    assert found["killed"][1].startswith("nats-")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_twenty_kills(tmp_path: Path) -> None:
    """The report is written whether it is clean or not."""
    found = killed(tmp_path, 20)
    guards = sum(name.startswith("guard") for name in found["killed"])
    rows = {
        "seed": found["seed"],
        "guards killed": guards,
        "servers killed": len(found["killed"]) - guards,
        "connections of the four clients": found["connections of clients"],
        "published": found["published"],
        "acknowledged (PUBACK)": found["acknowledged"],
        "**acknowledged and lost**": f"**{len(found['lost'])}**",
    }
    REPORT.write_text(
        f"""# Two guards, three servers, killed under load

Written by `make soak` (`tests/reliability/test_cluster.py`), which runs [the
cluster](../../examples/cluster/README.md): three servers of NATS 2.9.10 with JetStream, two guards, HAProxy and
PostgreSQL. Guards and servers are killed in turn with `kill -9` at random moments, and started again, while two
machines publish with QoS 1 (windows of 20) and two screens with lasting sessions listen, each in MQTT 3.1.1 and 5.
Then every acknowledged message must have come to both screens. NATS has no QoS 2 there, and the guards refuse it.

| | |
|---|---:|
{"".join(f"| {name} | {value} |{chr(10)}" for name, value in rows.items())}"""
    )
    check(found)
