"""`tidegate replay` as people run it: a process, a journal, a table, JSON, a picture and exit codes."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from pipeline.replay.recording import rows, write
from pipeline.replay.test_partitions import BEFORE, story
from processes import TIDEGATE
from tidegate.cli.replay import _table
from tidegate.config import load
from tidegate.pipeline.replay.candidate import candidate
from tidegate.pipeline.replay.job import run as run_replay

BASE = """version: 1
node: {{name: n, data: {data}}}
listeners: [{{url: "mqtt://127.0.0.1:1883", anonymous: true}}]
directory: {{users: {{alice: {{password: "plain:x"}}, bob: {{password: "plain:x"}}, carol: {{password: "plain:x"}}}}}}
pipeline: {{spark: {{master: "local[2]"}}}}
policies:
- {{id: all, subject: "*", topic: "#", action: [read, write]}}
"""
OTHER = """policies:
- {id: all, subject: "*", topic: "#", action: [read, write]}
- {id: "no", subject: "user:bob", topic: "a/#", action: read, effect: deny}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tidegate.yaml").write_text(BASE.format(data=tmp_path / "data"))
    (tmp_path / "other.yaml").write_text(OTHER)
    write(tmp_path / "data", rows(story(60), BEFORE))
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [TIDEGATE, "replay", "-c", "tidegate.yaml", "--since", "2026-03-01T00:00", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)


def test_json_a_picture_and_the_exit_code(folder: Path) -> None:
    done = run(folder, "--policies", "other.yaml", "--json", "--plot", "changes.png", "--fail-on-change")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["messages"] == 60
    assert found["changed"] == sum(each["count"] for each in found["changes"]) > 0
    assert {each["who"] for each in found["changes"]} == {"user:bob/client:two"}
    assert found["changes"][0]["before"] == {"allowed": True, "rule": "all", "sees": None}
    assert found["changes"][0]["after"] == {"allowed": False, "rule": "no", "sees": None}
    assert any("monitors" in text for text in found["not_covered"])
    assert (folder / "changes.png").read_bytes().startswith(b"\x89PNG")


def test_a_table(folder: Path, spark: SparkSession) -> None:
    """A group is a line, and says by which rules."""
    base = folder / "tidegate.yaml"
    found = run_replay(spark, load(base), candidate(base, folder / "other.yaml"), since=0.0, until=1e11)
    console = Console(file=io.StringIO(), width=300)
    console.print(_table(found))
    assert isinstance(console.file, io.StringIO)
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert len(lines) == 1 + len(found.groups) == 4
    said = "user:bob/client:two read a/0 user:alice/client:one allow by all deny by no 11"
    assert any(line.startswith(said) for line in lines)


def test_what_is_wrong_is_said(folder: Path) -> None:
    (folder / "other.yaml").write_text("monitors: []\n")
    done = run(folder, "--policies", "other.yaml")
    assert done.returncode == 1
    assert done.stderr.startswith("other.yaml:1: `monitors` cannot be replaced alone")
