"""Where in the file a place in a scalar's text is.

YAML folds lines, doubles quotes and replaces escapes, but it keeps the order of what is not white space. So the
two are walked side by side. Where they part (an environment variable was put in), the place is told as it is in
the text itself, on the line where the scalar begins.
"""

from __future__ import annotations

import re
from typing import Final

from tidegate.config.tree import Node

_PROPERTIES: Final = re.compile(r"(?:[&!]\S*\s+)*")
"""An anchor and a tag, which stand before what they belong to."""
_HEADER: Final = re.compile(r"[|>][^\n]*\n?")
_ESCAPED: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_BLANK: Final = "nNtrvfbae0LP_ \t\n\r"
"""Escapes for what is white space, or never stands in a condition."""


def position_in_file(source: str, node: Node, line: int, column: int) -> tuple[int, int]:
    """The line and column of the file for those of a scalar's text; all are counted from one."""
    if node.span is None or not isinstance(node.value, str):
        return node.line, column
    lines = node.value.split("\n")
    if line > len(lines):
        return node.line, column
    offset = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
    at = _offset(source, node, offset)
    if at is None:
        return node.line, column
    return source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at)


def _offset(source: str, node: Node, wanted: int) -> int | None:
    """The offset in the file of the character at an offset of the text, or of the end of the text."""
    assert node.span is not None
    assert isinstance(node.value, str)
    at, end = node.span
    text = node.value
    if properties := _PROPERTIES.match(source, at):
        at = properties.end()
    match node.style:
        case "|" | ">":
            header = _HEADER.match(source, at)
            at = header.end() if header else at
        case "'" | '"':
            at += 1
            end -= 1
    last = at
    for offset, character in enumerate(text):
        if character.isspace():
            if offset >= wanted:
                break
            continue
        at = _next(source, at, end, node.style)
        read, length = _read(source, at, node.style) if at < end else ("\n", 0)
        if read not in (character, ""):
            return None
        if offset >= wanted:
            return at
        at += length
        last = at
    return last


def _next(source: str, at: int, end: int, style: str | None) -> int:
    """The next thing that is not white space in the text."""
    while at < end:
        if source[at].isspace():
            at += 1
        elif style == '"' and source[at] == "\\" and source[at + 1 : at + 2] in _BLANK:
            at += 2
        else:
            break
    return at


def _read(source: str, at: int, style: str | None) -> tuple[str, int]:
    """The character that stands there, empty if that takes working out, and how long it is written."""
    if style == "'" and source.startswith("''", at):
        return "'", 2
    if style == '"' and (escape := _ESCAPED.match(source, at)):
        return (escape[1] if escape[1] in '"\\/' else ""), len(escape[0])
    return source[at], 1
