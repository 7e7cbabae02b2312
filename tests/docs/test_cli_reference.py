"""docs/reference/cli.md says what the commands say."""

from __future__ import annotations

import re

import pytest
from bench.cli import app as bench
from typer.testing import CliRunner

from docs.cli_reference import PAGE, commands, page
from tidegate.cli.commands import app

NAMES = [name for name, _ in commands()]


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run `python tests/docs/cli_reference.py --update`"


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_the_options_of_the_help(name: str) -> None:
    words = name.split()
    runs, words = (bench, words[1:]) if words[0] == "bench" else (app, words)
    done = CliRunner().invoke(runs, [*words, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert done.exit_code == 0
    shown = set(re.findall(r"^[│|\s*]*(--[a-z][a-z-]*)", done.output, re.MULTILINE)) - {"--help"}
    section = page().split(f"\n## tidegate {name}\n")[1].split("\n## ")[0]
    written = set(re.findall(r"^\| .*?(--[a-z][a-z-]*)", section, re.MULTILINE))
    assert shown == written


def test_every_command_is_there() -> None:
    done = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    shown = set(re.findall(r"^[│|]\s+([a-z]+)  ", done.output, re.MULTILINE))
    assert shown == {name.split()[0] for name in NAMES}
