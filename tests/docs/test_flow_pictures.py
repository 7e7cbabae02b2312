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

OF_EXAMPLES = {"nodes.svg": ("house-outside", "house.yaml", ("--node", "outside.yaml"))}


def flow(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["flow", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def drawn(picture: str, folder: Path) -> str:
    page, name, options = PICTURES[picture]
    file = folder / name
    file.write_text(next(one.text for one in blocks(SCOPES / page) if one.file == name))
    return flow(str(file), "--format", "svg", *options)


@pytest.mark.parametrize("picture", PICTURES)
def test_it_is_that_of_the_page(picture: str, tmp_path: Path) -> None:
    assert drawn(picture, tmp_path) == (SCOPES / picture).read_text()


@pytest.mark.parametrize("picture", OF_EXAMPLES)
def test_it_is_that_of_an_example(picture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example, file, options = OF_EXAMPLES[picture]
    monkeypatch.chdir(ROOT / "examples" / example)
    assert flow(file, "--format", "svg", *options) == (SCOPES / picture).read_text()


def test_the_table_of_several_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples/house-outside")
    found = flow("house.yaml", "--node", "outside.yaml", "--from", "client:SP", "--to", "client:DL")
    said = (SCOPES / "flows.md").read_text().partition("house, outside: ")[2].partition("```")[0]
    rows = [line.split() for line in f"house, outside: {said}".splitlines() if line.strip()]
    assert all(row in [line.split() for line in found.splitlines()] for row in rows), found


def test_every_picture_is_drawn() -> None:
    assert {file.name for file in SCOPES.glob("*.svg")} == {*PICTURES, *OF_EXAMPLES}
