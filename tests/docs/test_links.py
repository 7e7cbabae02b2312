"""Links between pages lead somewhere, and pages name only what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.pages import ROOT, name, pages, prose

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
ALL = pages()


@pytest.mark.parametrize("page", ALL, ids=name)
def test_links_resolve(page: Path) -> None:
    for found in LINK.finditer(prose(page)):
        link = found[1] or found[2]
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), link
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), f"{name(page)}: {link} does not exist"
        if anchor:
            assert anchor in anchors(target), f"{name(page)}: {link} has no such heading"


def anchors(page: Path) -> set[str]:
    """The headings of a page as they are linked to."""
    headings = re.findall(r"^#{1,6} +(.+?) *$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs/README.md"
    linked = {(index.parent / (found[1] or found[2])).resolve() for found in LINK.finditer(prose(index))}
    written = {page for page in ALL if page.is_relative_to(ROOT / "docs") and page != index}
    reports = ROOT / "docs/reliability"
    missing = {page for page in written - linked if not page.is_relative_to(reports)}
    assert not missing, sorted(map(name, missing))


def test_the_first_screen_has_the_two_commands() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:40])
    assert "make run" in first_screen
    assert "make test" in first_screen


def test_pages_name_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in ALL:
        for target in re.findall(r"^make ([a-z]+)|`make ([a-z]+)", page.read_text(), re.MULTILINE):
            word = target[0] or target[1]
            assert re.search(rf"^{word}:", makefile, re.MULTILINE), f"{name(page)}: make {word}"
