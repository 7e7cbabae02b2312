"""Tests that the pages name exist, and name the figures that they are said to play."""

from __future__ import annotations

import re

import pytest

from docs.pages import ROOT

PAGES = sorted(ROOT.glob("docs/**/*.md"))
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FIGURES = (ROOT / "docs/design/sec-reds-figures.md").read_text()


@pytest.mark.parametrize(
    ("file", "test"), sorted({found for page in PAGES for found in NAMED.findall(page.read_text())})
)
def test_it_exists(file: str, test: str) -> None:
    assert re.search(rf"^(?:async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{test}"


def test_every_figure_is_named_by_its_test() -> None:
    seen = set()
    for row in re.findall(r"^\| ([123]\.[\d., ]+) \|.*$", FIGURES, re.MULTILINE):
        (_, test) = NAMED.search(FIGURES[FIGURES.index(f"| {row} |") :]).groups()  # type: ignore[union-attr]
        for figure in row.split(", "):
            chapter, number = figure.split(".")
            told = test.replace("_to_", " to ")
            spans = re.findall(rf"{chapter}_(\d+)(?: to {chapter}_(\d+))?", told)
            assert any(int(first) <= int(number) <= int(last or first) for first, last in spans), (figure, test)
            seen.add(figure)
    architecture = {"3.3"} | {f"2.{number}" for number in (1, *range(17, 21))}
    wanted = {f"1.{number}" for number in range(4, 7)} | {f"2.{number}" for number in range(1, 21)}
    assert seen == (wanted | {f"3.{number}" for number in range(1, 10)}) - architecture
