"""The picture of A1 in the documentation is what `tidegate check` draws of it; `make reference` writes it again."""

from __future__ import annotations

from docs.pages import ROOT, blocks
from tidegate.config import Config, load, parse
from tidegate.flow.drawing import automaton as picture

PICTURE = (ROOT / "docs/monitors/a1.svg").read_text()


def drawn(config: Config) -> str:
    return picture.svg("a1", config.built.rules.monitors.by_id["a1"].monitor.graph())


def test_it_is_that_of_the_example() -> None:
    assert drawn(load(ROOT / "examples/doorlock/tidegate.yaml")) == PICTURE


def test_it_is_that_of_the_page() -> None:
    text = next(one.text for one in blocks(ROOT / "docs/monitors/README.md") if one.file == "tidegate.yaml")
    assert drawn(parse(text, "tidegate.yaml")) == PICTURE
