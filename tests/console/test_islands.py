"""The islands that are shipped are what their sources compile to."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from processes import needs
from tidegate import console

FOLDER = Path(console.__file__).parent
COMPILER = Path(__file__).parents[1] / "foreign/node_modules/typescript/bin/tsc"


def test_what_is_shipped_is_what_the_sources_say(tmp_path: Path) -> None:
    needs("node")
    if not COMPILER.exists():
        pytest.fail("the compiler is not installed; run `make foreign`")
    node = shutil.which("node")
    assert node is not None
    subprocess.run([node, COMPILER, "-p", FOLDER / "islands", "--outDir", tmp_path], check=True)
    made = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert made.keys() == {each.with_suffix(".js").name for each in (FOLDER / "islands").glob("*.ts")}
    assert made == {name: (FOLDER / "assets" / name).read_text() for name in made}
