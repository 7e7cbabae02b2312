"""What a node in shadow mode would have denied has passed, and is learned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.replay import naive, recording
from tidegate.cli.commands import app

CONFIG = """version: 1
node: {name: n, data: DATA}
listeners: [{url: "mqtt://127.0.0.1:1883"}]
directory: {users: {mary: {password: "plain:x"}, bob: {password: "plain:x"}}}
policies:
  - {id: own, subject: "user:mary", topic: a, action: write}
enforce: ENFORCE
record: traffic
"""


@pytest.mark.parametrize(("enforce", "learned"), [("false", {"a", "b", "watched/b"}), ("true", {"a", "b"})])
def test_learned_since_it_passed(enforce: str, learned: set[str], tmp_path: Path) -> None:
    config = tmp_path / "tidegate.yaml"
    config.write_text(CONFIG.replace("DATA", str(tmp_path / "data")).replace("ENFORCE", enforce))
    mary, bob = naive.Person("mary", "mary"), naive.Person("bob", "bob")
    start = 1_700_000_000.0
    events = [
        naive.Event("connect", start, mary),
        naive.Event("connect", start, bob),
        naive.Event("subscribe", start, bob, naive.RecordedSubscription("b")),
        naive.Event("publish", start + 1, mary, topic="a"),
        naive.Event("publish", start + 2, mary, topic="b"),
    ]
    recording.write(tmp_path / "data", recording.rows(events, naive.Rules()))
    done = CliRunner().invoke(app, ["learn", "-c", str(config), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    seen = {each["topic"] for each in found["policies"] if each["action"] == "write"}
    seen |= {f"watched/{each['topic']}" for each in found["policies"] if each["action"] == "read" and each["used"]}
    assert seen == learned
