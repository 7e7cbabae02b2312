"""Facts in two columns, for answers whose keys are the node's and not ours to choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from tidegate.cli.terminal import harmless

_NAMES = ("pid", "port")
"""Numbers that name something, and are not counted in thousands."""


def facts(answer: Mapping[str, Any]) -> Table:
    """A row for each key; mappings below a key are indented, lists of mappings one row each."""
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in answer.items():
        name = Text(_words(key))
        match value:
            case dict():
                table.add_section()
                table.add_row(Text(_words(key), style="bold"), "")
                for below, inner in value.items():
                    table.add_row(Text(f"  {_words(below)}"), _cell(inner, below))
            case list():
                table.add_row(name, Text("\n").join(_cell(each) for each in value) if value else Text("-"))
            case _:
                table.add_row(name, _cell(value, key))
    return table


def _words(key: object) -> str:
    return harmless(str(key)).replace("_", " ")


def _cell(value: object, key: object = "") -> Text:
    match value:
        case int() if key in _NAMES:
            return Text(str(value))
        case bool():
            return Text("yes" if value else "no")
        case int():
            return Text(f"{value:,}")
        case float():
            return Text(f"{value:,.1f}")
        case dict() if not value:
            return Text("-")
        case dict():
            return Text(", ".join(f"{_words(key)} {_cell(each, key)}" for key, each in value.items()))
        case list():
            return Text(", ".join(str(_cell(each)) for each in value))
        case None:
            return Text("-")
        case _:
            return Text(harmless(str(value)))
