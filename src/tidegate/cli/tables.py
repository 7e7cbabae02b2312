"""Tables for people: facts in two columns, and rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.terminal import harmless

_GAP = "  "
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_NAMES = ("pid", "port")
"""Numbers that name something, and are not counted in thousands."""
_SHORT = ("round_trip",)
"""Seconds of which there is less than one."""


def show(answer: Mapping[str, Any], *, json: bool) -> None:
    if json:
        terminal.print_json(answer)
    else:
        terminal.out().print(facts(answer))


def rows_table(
    titles: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: Collection[int] = (), **settings: Any
) -> Table:
    """A row for each of `rows`. Columns in `numbers` are aligned to the right and not wrapped, the others folded."""
    table = Table(**{"box": box.SIMPLE, "pad_edge": False, **settings})
    for index, title in enumerate(titles):
        number = index in numbers
        table.add_column(title, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def aligned(
    titles: Sequence[str],
    rows: Sequence[Sequence[Text]],
    *,
    header: bool = True,
    right: Collection[str] = (),
    least: Mapping[str, int] = MappingProxyType({}),
    cut: Iterable[tuple[str, int]] = (),
) -> Iterator[Text]:
    """A line for each row, in columns as wide as they must be, and `least` wide. An empty row is an empty line.

    On a terminal the columns in `cut` are cut, one after the other and to their widths there, until a line fits.
    Whoever reads it from a pipe gets all of it.
    """
    widths = [
        max(least.get(title, 0), len(title) if header else 0, *(row[index].cell_len for row in rows if row))
        for index, title in enumerate(titles)
    ]
    out = terminal.out()
    if out.is_terminal:
        for title, shortest in cut:
            if title in titles:
                index = titles.index(title)
                over = sum(widths) + len(_GAP) * (len(widths) - 1) - out.width
                widths[index] = min(widths[index], max(shortest, widths[index] - over))
    if header:
        rule = [Text("─" * width, style="dim") for width in widths]
        rows = [[Text(title, style="bold") for title in titles], rule, *rows]
    for row in rows:
        for title, width, cell in zip(titles, widths, row, strict=False):
            if title in right:
                cell.align("right", width)
            cell.truncate(width, overflow="ellipsis", pad=True)
        line = Text(_GAP).join(row)
        line.rstrip()
        yield line


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
        case float() if key in _SHORT:
            return Text(f"{value * 1000:,.1f} ms")
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


def bytes_text(value: float) -> str:
    size = float(value)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if size == int(size) else f"{size:.1f} {unit}"
