"""Who has no pipeline any more does not keep the journal for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from store.journal.trial import NOON, Trial
from tidegate.cli.pipeline import app
from tidegate.config import Config, load
from tidegate.errors import PipelineError
from tidegate.pipeline.folders import READER, Folders, ReleasedJournal, alone, release_journals
from tidegate.store.journal import AUDIT, INGEST, audit_row, ingest_row, readers

WITHOUT = """\
version: 1
node: {name: plant, data: DATA}
listeners: [{url: "mqtt://127.0.0.1:18830", anonymous: true}]
policies: open
"""


def configured(folder: Path, more: str = "") -> Config:
    """Where a pipeline has read three of five messages, and nothing of the audit."""
    data = folder / "data"
    file = folder / "tidegate.yaml"
    file.write_text(WITHOUT.replace("DATA", str(data)) + more)
    journal = Trial(data, INGEST)
    journal.write(*(ingest_row(NOON + n, id=f"plant-1-{n}", topic="t", payload=b"1", qos=1) for n in range(5)))
    journal.close()
    journal = Trial(data, AUDIT)
    journal.write(*(audit_row(NOON + n, node="plant", topic="t") for n in range(4)))
    journal.close()
    readers.commit(readers.readers_of(data, INGEST), READER, {"0": 3})
    readers.commit(readers.readers_of(data, AUDIT), READER, {})
    return load(file)


def held(folder: Path) -> list[str]:
    streams = (INGEST, AUDIT)
    return [one.name for one in streams if readers.known(readers.readers_of(folder / "data", one))]


def test_without_a_pipeline_nothing_is_kept_for_it(tmp_path: Path) -> None:
    config = configured(tmp_path)
    assert release_journals(config) == (
        ReleasedJournal(stream="ingest", rows=5, unread=2),
        ReleasedJournal(stream="audit", rows=4, unread=4),
    )
    assert held(tmp_path) == []
    assert release_journals(config) == ()


def test_the_audit_alone(tmp_path: Path) -> None:
    config = configured(tmp_path, "pipeline: {audit: false}\n")
    assert [one.stream for one in release_journals(config)] == ["audit"]
    assert held(tmp_path) == ["ingest"]


def test_what_is_read_is_kept(tmp_path: Path) -> None:
    config = configured(tmp_path, "pipeline: {}\n")
    with pytest.raises(PipelineError, match="remove `pipeline`"):
        release_journals(config)
    assert held(tmp_path) == ["ingest", "audit"]


def test_not_while_a_pipeline_runs(tmp_path: Path) -> None:
    config = configured(tmp_path)
    folders = Folders(data=tmp_path / "data", lake=tmp_path / "lake")
    with alone(folders), pytest.raises(PipelineError, match="another pipeline runs"):
        release_journals(config)
    assert held(tmp_path) == ["ingest", "audit"]


def test_the_command_says_what_may_go(tmp_path: Path) -> None:
    configured(tmp_path)
    told = CliRunner().invoke(app, ["forget", "-c", str(tmp_path / "tidegate.yaml"), "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["forgotten"][0] == {"stream": "ingest", "rows": 5, "unread": 2}
    told = CliRunner().invoke(app, ["forget", "-c", str(tmp_path / "tidegate.yaml")])
    assert "nothing is kept for a pipeline" in told.output
