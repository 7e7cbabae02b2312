"""The pictures of scopes in the documentation are what `tidegate flow` draws of the configurations that stand there.

A picture that is not any more is drawn again by the command, from the block that `PICTURES` names.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs.pages import ROOT, blocks
from tidegate.cli.commands import app

SCOPES = ROOT / "docs/scopes"
PICTURES = {
    "house.svg": ("README.md", "house.yaml", ()),
    "gym.svg": ("README.md", "gym.yaml", ()),
    "hospital.svg": ("README.md", "hospital.yaml", ()),
    "plant.svg": ("README.md", "plant.yaml", ()),
    "bell.svg": ("flows.md", "tidegate.yaml", ("--from", "client:bell", "--to", "client:phone")),
}


def drawn(picture: str, folder: Path) -> str:
    page, name, options = PICTURES[picture]
    file = folder / name
    file.write_text(next(one.text for one in blocks(SCOPES / page) if one.file == name))
    done = CliRunner().invoke(app, ["flow", str(file), "--format", "svg", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("picture", PICTURES)
def test_it_is_that_of_the_page(picture: str, tmp_path: Path) -> None:
    assert drawn(picture, tmp_path) == (SCOPES / picture).read_text()


def test_every_picture_is_drawn() -> None:
    assert {file.name for file in SCOPES.glob("*.svg")} == set(PICTURES)
