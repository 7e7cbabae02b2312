"""What is learned from the audit, where no traffic was recorded."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tidegate.cli.commands import app
from tidegate.store.journal import AUDIT, Writer
from tidegate.store.journal.rows import Kind, audit_row

CONFIG = """version: 1
node: {name: n, data: DATA}
listeners: [{url: "mqtt://127.0.0.1:1883"}]
directory:
  users:
    tm1: {password: "plain:x", roles: [treadmill]}
    tm2: {password: "plain:x", roles: [treadmill]}
    alice: {password: "plain:x", roles: [coach]}
policies: open
record: decisions
"""
HOSTILE = "gym/{s.user}/\" '\n- x: ${HOME}"


def row(kind: Kind, user: str, action: str, topic: str, at: float = 1.7e9, **columns: object) -> tuple[object, ...]:
    link = f"scope:main->client:{user}" if action == "read" else f"client:{user}->scope:main"
    return audit_row(at, "n", kind.value, link, user, user, action, topic, **columns)


def test_from_the_audit(tmp_path: Path) -> None:
    config = tmp_path / "tidegate.yaml"
    config.write_text(CONFIG.replace("DATA", str(tmp_path / "data")))
    writer = Writer(tmp_path / "data", AUDIT, call=lambda function: function(), sync=False)
    writer.open()
    writer.start()
    writer.append(row(Kind.ALLOWED, "alice", "subscribe", "gym/+/speed", detail="QoS 1"))
    for name in ("tm1", "tm2"):
        writer.append(
            row(Kind.ALLOWED, "alice", "read", f"gym/{name}/speed", publisher=f"user:{name}/client:{name}", count=30)
        )
    writer.append(row(Kind.ALLOWED, "alice", "read", HOSTILE, publisher="user:tm1/client:tm1"))
    writer.append(row(Kind.DENY, "tm1", "read", "gym/tm2/speed", stage="read", rule="default"))
    writer.append(row(Kind.DENY, "tm1", "read", "gym/tm2/heart", stage="read", rule="a preference"))
    writer.append(row(Kind.CONNECT, "tm1", "connect", ""))
    writer.close()
    out = tmp_path / "learned.yaml"
    done = CliRunner().invoke(app, ["learn", "-c", str(config), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "stays denied (1):" in done.output
    found = json.loads(CliRunner().invoke(app, ["learn", "-c", str(config), "--json"]).output)
    allowed = {(str(each["subject"]), each["topic"]): each["used"] for each in found["policies"]}
    assert allowed["role:coach", "gym/+/speed"] == 60
    assert allowed["role:treadmill", "gym/{s.user}/speed"] == 60
    assert [each["topic"] for each in found["denied"]] == ["gym/tm2/speed"]
    checked = CliRunner().invoke(app, ["check", str(out), "-c", str(config)])
    assert checked.exit_code == 0, checked.output
    spark = CliRunner().invoke(app, ["learn", "-c", str(config), "--spark"])
    assert spark.exit_code == 2
