"""What all drawings are made of: the SVG page, boxes, arrow tips and texts; and texts in Mermaid and Graphviz.

Text is measured as if each character were as wide as an average one of the font, which is enough for boxes.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

MARGIN: Final = 24.0
LINE: Final = 16.0
"""The height of a line of text."""
COMMON_STYLE: Final = """\
text { font: 12px ui-monospace, monospace; fill: #1f2933; }
.title { font: bold 14px sans-serif; } .note { font: 11px sans-serif; fill: #616e7c; }
rect.paper { fill: white; }"""
_MERMAID: Final = {"#": "#35;", ";": "#59;", ":": "#58;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "|": "#124;"}


def page(title: str, width: float, height: float, style: str, tips: str, body: Iterable[str]) -> str:
    """A whole picture on white paper."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}">'
    )
    paper = '<rect class="paper" width="100%" height="100%"/>'
    lines = [head, f"<style>{COMMON_STYLE}\n{style}</style>", f"<defs>{tips}</defs>", paper]
    return "\n".join([*lines, text("title", MARGIN, 26, title), *body, "</svg>", ""])


def text(kind: str, x: float, y: float, content: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(content)}</text>'


def box(kind: str, x: float, y: float, width: float, height: float, corner: float, label: str) -> str:
    """A box with its label in the middle."""
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{corner:g}"/>'
        f"{centred(x + width / 2, y + height / 2 + 4, label)}"
    )


def centred(x: float, y: float, label: str) -> str:
    """A text around a point."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle">{escape(label)}</text>'


def tip_id(colour: str) -> str:
    return f"tip{colour[1:]}"


def tip(colour: str) -> str:
    return (
        f'<marker id="{tip_id(colour)}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,1 L10,5 L0,9 z" style="fill:{colour}"/></marker>'
    )


def quoted(label: str) -> str:
    """A text in quotes, for Mermaid's front matter and Graphviz."""
    return '"' + label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def mermaid_label(label: str) -> str:
    """A label in Mermaid, where some characters mean something."""
    return "".join(_MERMAID.get(character, character) for character in label)
