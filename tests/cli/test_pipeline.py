"""`tidegate pipeline`: what is wrong is told before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli.pipeline import app
from tidegate.config import load
from tidegate.errors import PipelineError
from tidegate.pipeline import spark
from tidegate.pipeline.folders import Folders, alone


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration, and no Java: it is looked for first, when Spark starts."""
    path = tmp_path / "tidegate.yaml"
    path.write_text(
        f"version: 1\nnode: {{name: n, data: '{tmp_path / 'data'}'}}\nlisteners: [{{url: 'mqtt://127.0.0.1:1883'}}]\n"
        "pipeline: {}\n"
    )
    monkeypatch.setattr(spark, "java", lambda: pytest.fail("Spark is started"))
    return path


def refused(*command: str) -> str:
    told = CliRunner().invoke(app, command)
    assert isinstance(told.exception, PipelineError), told.output
    return str(told.exception)


def test_another_one_runs(file: Path) -> None:
    with alone(Folders.of(load(file))):
        assert "another pipeline runs" in refused("once", "-c", str(file))
        assert "another pipeline runs" in refused("run", "-c", str(file))


def test_where_nothing_can_be_written(file: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    assert "let this user write there" in refused("once", "-c", str(file))


def test_quality_of_nothing(file: Path) -> None:
    assert "there is no lake in" in refused("quality", "-c", str(file))
    assert "there is no dimension 'beauty'; there are confidentiality," in refused(
        "quality", "-c", str(file), "--dimension", "beauty"
    )


@pytest.mark.parametrize("master", ["foo://x", "local[", "spark://", "yarn!"])
def test_a_master_that_spark_does_not_know(file: Path, monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    monkeypatch.setattr(spark, "java", lambda: None)
    assert "is no master of Spark; write `local[*]`" in refused("once", "-c", str(file), "--master", master)


@pytest.mark.parametrize("master", ["local", "local[*]", "local-cluster[2,1,1024]", "spark://one,two:7077", "yarn"])
def test_masters_that_spark_knows(master: str) -> None:
    assert spark._MASTER.match(master)
