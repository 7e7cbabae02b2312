"""Drawings of the command line as part of a page: without styles of their own, which the page does not let count.

Their texts were escaped when they were drawn. The style sheet has their classes, below `.drawing`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from html import escape
from typing import Final

from markupsafe import Markup

from tidegate.flow.drawing.elements import tip_id

GREY: Final = "#52606d"  # of the arrows of automata, which the style of the drawing says
_STYLE: Final = re.compile(r"<style>.*?</style>\n?", re.DOTALL)
_FILLED: Final = re.compile(r'style="fill:(#[0-9a-f]{6})"')
_LINE: Final = re.compile(r'<path(?: class="([^"]*)")?([^>]*)><title>([^<]*?)(?=: |<)')
_TIP: Final = re.compile(r'(id="|url\(#)(tip[0-9a-f]{6})')


def inline(
    svg: str, label: str, red: Collection[tuple[str, str]] = (), prefix: str = "", states: Collection[str] = ()
) -> Markup:
    """A drawing in a page, with what is read out instead.

    `red`: links that are marked, by their ends; `states`: those of an automaton that it is in; `prefix`: for a second
    one on the same page.
    """
    plain = _FILLED.sub(r'fill="\1"', _STYLE.sub("", svg, count=1))
    plain = plain.replace('<path class="arrow"', f'<path class="arrow" marker-end="url(#{tip_id(GREY)})"')
    plain = _TIP.sub(rf"\1{prefix}\2", plain)
    marked = {escape(f"{source} -> {target}") for source, target in red}

    def line(found: re.Match[str]) -> str:
        kind = f"{found[1] or ''} forbidden" if found[3] in marked else found[1]
        named = f' class="{kind}"' if kind else ""
        return f"<path{named}{found[2]}><title>{found[3]}"

    if marked:
        plain = _LINE.sub(line, plain)
    for state in states:
        box = re.compile(rf'<rect class="state"([^>]*>)(?=<text[^>]*>{re.escape(escape(state))}</text>)')
        plain = box.sub(r'<rect class="state current"\1', plain, count=1)
    return Markup(plain.replace("<svg ", f'<svg class="drawing" role="img" aria-label="{escape(label)}" ', 1))  # noqa: S704  # escaped by the drawing
