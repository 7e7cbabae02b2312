"""What is a lake, what is not, and what is said when the disk refuses."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.lake.rows import JOURNAL, found, lay, messages
from tidegate.errors import PipelineError
from tidegate.pipeline.lake import Lake, compact, erase
from tidegate.pipeline.lake.tables import Place, refused_by_spark


def test_a_new_one_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    Place.open(tmp_path / "a" / "lake", create=True)
    mark = json.loads((tmp_path / "a" / "lake" / "_tidegate.json").read_text())
    assert mark == {"tidegate": 2, "kind": "lake", "journals": []}
    Place.open(tmp_path, create=True)
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"tidegate": 2, "journals": 7}', "is damaged"),
        ('{"tidegate": 9}', "of version 9; use the Tidegate that wrote it"),
    ],
)
def test_a_mark_that_is_none(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "_tidegate.json").write_text(content)
    with pytest.raises(PipelineError, match=said):
        Place.open(tmp_path, create=True)


def test_tables_without_a_mark(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    with pytest.raises(PipelineError, match=r"has raw but no _tidegate.json, .* choose another folder"):
        Place.open(tmp_path, create=True)


def test_a_path_that_spark_takes_for_a_pattern(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="rename it"):
        Place.open(tmp_path / "la{k}e", create=True)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    with pytest.raises(PipelineError, match="a file is where a folder should be; move it away"):
        Place.open(tmp_path / "lake", create=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of half a megabyte, where this may be mounted."""
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            # Lazily: Java may still hold the file that it could not write.
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk(spark: SparkSession, tmp_path: Path) -> None:
    """The batch fails with a reason; what was there stays; with some space it goes on."""
    with small_disk(tmp_path) as small:
        lake = Lake(tmp_path / "lake", journal=JOURNAL)
        small_batch = messages([{"offset": 1, "payload": b"x"}])
        lake.write_raw(small_batch, "0-1")
        if small:
            large = messages([{"offset": 2, "payload": os.urandom(1 << 20)}])
            with pytest.raises(PipelineError, match=r"No space left on device; free some space; the journal keeps"):
                lake.write_raw(large, "0-2")
            assert found(tmp_path / "lake", "raw") == [1]
        lake.write_raw(messages([{"offset": 2}]), "0-2")
        assert found(tmp_path / "lake", "raw") == [1, 2]
        lake.close()


def test_a_disk_that_is_read_only(tmp_path: Path) -> None:
    with small_disk(tmp_path) as small:
        lay(tmp_path / "lake", [1], batch="0-1")
        if small:
            subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
            for upkeep in (lambda: compact(tmp_path / "lake"), lambda: erase(tmp_path / "lake", "mary")):
                with pytest.raises(PipelineError, match="Read-only file system; mount it for writing"):
                    upkeep()
            with pytest.raises(PipelineError, match="Read-only file system; mount it for writing"):
                Place.open(tmp_path / "other", create=True)
        assert found(tmp_path / "lake") == [1]


def test_what_spark_says_is_made_short() -> None:
    said = "An error occurred\n  at x\nCaused by: java.io.IOException: No space left on device\n"
    assert "free some space" in str(refused_by_spark(Path("/lake"), said))
    other = "An error occurred\nCaused by: a\n  at x\nCaused by: java.lang.Oops: b\n  at y"
    assert "Caused by: java.lang.Oops: b; look at" in str(refused_by_spark(Path("/lake"), other))
    assert "it did not say why" in str(refused_by_spark(Path("/lake"), ""))
