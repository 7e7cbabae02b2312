"""Whoever has broken the file of a running node can still ask it, and stop it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from processes import TIDEGATE, process

TEXT = """version: 1
node: {name: n, data: var}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
policies: open
"""


@pytest.mark.parametrize("broken", ["bogus: 1\n", "functions: ['nowhere.at:all']\n", "preferences: [{user: 1}]\n"])
def test_a_broken_file_locks_nobody_out(tmp_path: Path, broken: str) -> None:
    with process(tmp_path, TEXT) as running:
        path = running.file.path
        path.write_text(path.read_text() + broken)
        for command in ("status", "audit"):
            done = subprocess.run([TIDEGATE, command, "-c", str(path), "--json"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        done = subprocess.run([TIDEGATE, "reload", "-c", str(path)], capture_output=True, text=True)
        assert done.returncode == 1
        assert f"tidegate.yaml:{len(TEXT.splitlines()) + 1}" in done.stderr


def test_a_file_that_says_nothing_of_its_node_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("bogus: 1\n")
    done = subprocess.run([TIDEGATE, "status", "-c", str(tmp_path / "x.yaml")], capture_output=True, text=True)
    assert done.returncode == 1
    assert "unknown key `bogus`" in done.stderr
