"""docs/reference/rules.md and lake.md name every check, unit, key and column."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.pages import name
from docs.pipeline_reference import LAKE, RULES, page, untold
from tidegate.pipeline import checks
from tidegate.pipeline.columns import DIMENSIONS
from tidegate.pipeline.lake.tables import TABLES
from tidegate.pipeline.rules import PLACEHOLDERS, Form, Kind, parse


@pytest.mark.parametrize("path", [RULES, LAKE], ids=name)
def test_the_page_is_current(path: Path) -> None:
    assert path.read_text() == page(path), "run `python tests/docs/pipeline_reference.py --update`"


def test_every_column_has_a_meaning() -> None:
    assert not untold()


def test_every_dimension_has_checks() -> None:
    assert {dimension for one in checks.listed() for dimension in one.dimensions} == set(DIMENSIONS)


def test_every_table_has_a_section() -> None:
    assert re.findall(r"^## (\w+)$", LAKE.read_text(), re.MULTILINE) == list(TABLES)


@pytest.mark.parametrize("section", ["sources", "time", "values", "scores", "topics"])
def test_every_key_is_there(section: str) -> None:
    """What the parser says that it knows is what the page has."""
    bad = {
        "sources": "sources: [{zzzzzzzzzz: 1}]",
        "time": "sources: [{id: a, time: {zzzzzzzzzz: 1}, values: [{name: a, at: /a}]}]",
        "values": "sources: [{id: a, values: [{zzzzzzzzzz: 1}]}]",
        "scores": "scores: [{zzzzzzzzzz: 1}]",
        "topics": "topics: [{zzzzzzzzzz: 1}]",
    }[section]
    with pytest.raises(Exception, match="zzzzzzzzzz") as refused:
        parse(f"version: 1\n{bad}\n", "rules.yaml")
    known = re.search(r"known here: ([^\n;]+)", str(refused.value))
    assert known is not None, refused.value
    told = RULES.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    keys = re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE)
    assert keys == [key.strip(" `") for key in known[1].split(",")]


def test_every_choice_is_there() -> None:
    text = RULES.read_text()
    for word in (*Kind, *Form, *(f"{{{place}}}" for place in PLACEHOLDERS)):
        assert f"`{word}`" in text, word
