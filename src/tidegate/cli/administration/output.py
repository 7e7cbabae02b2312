"""Tables of administration: what there is, what it was, and what would be decided differently.

Ids are never abridged: they are there to be copied. Times are those of this machine's time zone. What came from the
node is shown with its control characters written out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from tidegate.cli import terminal
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from datetime import datetime


Row = Mapping[str, object]

_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_NEVER: Final = "-"
_CHANGE_COLUMNS: Final = (
    *(("who", "as"), ("action", "action"), ("topic", "topic"), ("from", "from")),
    *(("now", "before"), ("then", "after"), ("times", "count")),
)
"""The columns of a decision that would be different, and the members that they show."""


def listing(
    items: Sequence[Any], columns: Callable[[Any], Row], *, none: str, json: bool, whole: Sequence[str] = ("id",)
) -> None:
    """Items as JSON, or a table with a row for each."""
    if json:
        terminal.print_json({"items": items})
    else:
        rows([columns(item) for item in items], none=none, whole=whole)


def rows(found: Sequence[Row], *, none: str = "", whole: Sequence[str]) -> None:
    """A table on standard output, or the note `none`. The columns named by `whole` are not broken into lines."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not found:
        terminal.note(none)
        return
    table = Table(box=box.SIMPLE, pad_edge=False)
    names = list(dict.fromkeys(name for row in found for name in row))
    # What is said of none of them would only take room.
    names = [name for name in names if any(plain(row.get(name)) != _NEVER for row in found)]
    for name in names:
        cells = [plain(row.get(name)) for row in found]
        numbers = any(isinstance(row.get(name), int | float) and not isinstance(row.get(name), bool) for row in found)
        widest = max(map(len, cells)) if name in whole else None
        table.add_column(name, justify="right" if numbers else "left", overflow="fold", min_width=widest)
    for row in found:
        table.add_row(*(Text(plain(row.get(name))) for name in names))
    terminal.out().print(table)


def plain(value: object) -> str:
    """A value as people read it: texts as they are, lists with commas, the rest as JSON."""
    match value:
        case None:
            return _NEVER
        case bool():
            return "yes" if value else "no"
        case str():
            return terminal.harmless(value, lines=False) or _NEVER
        case list() | tuple() if all(isinstance(each, str) for each in value):
            return ", ".join(terminal.harmless(str(each), lines=False) for each in value) or _NEVER
        case dict():
            named = (f"{key}={each if isinstance(each, str) else json.dumps(each)}" for key, each in value.items())
            return terminal.harmless(", ".join(named), lines=False) or _NEVER
        case _:
            return terminal.harmless(json.dumps(value, ensure_ascii=False), lines=False)


def details(about: Row) -> None:
    from tidegate.cli.tables import facts

    told: dict[str, object] = {}
    for key, value in about.items():
        below = value if isinstance(value, dict) and value else None
        told[key] = plain(value) if below is None else {name: plain(each) for name, each in below.items()}
    terminal.out().print(facts(told))


def secrets(credentials: Row) -> None:
    """Credentials on standard output, each on a line of its own that is never broken, so that it can be copied."""
    for name, value in credentials.items():
        typer.echo(f"{name}: {plain(value)}")


def moment(at: str | None) -> str:
    """When, by the clock on the wall here."""
    return _NEVER if at is None else f"{_parsed(at).astimezone():%Y-%m-%d %H:%M:%S}"


def when(at: str | None) -> str:
    """When, and how far away that is."""
    if at is None:
        return _NEVER
    seconds = _until(at)
    return f"{moment(at)} ({f'in {span(seconds)}' if seconds >= 0 else f'{span(-seconds)} ago'})"


def left(at: str) -> str:
    return span(max(_until(at), 0.0))


def _until(at: str) -> float:
    return _parsed(at).timestamp() - time.time()


def _parsed(at: str) -> datetime:
    from datetime import datetime

    try:
        return datetime.fromisoformat(at)
    except ValueError:
        raise TidegateError(f"the node wrote a time that is none: {at[:40]!r}") from None


def span(seconds: float) -> str:
    """How long, in its two largest units."""
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts)) or f"{max(seconds, 0) * 1000:.0f} ms"


def effect(found: Mapping[str, Any] | None, would: str) -> None:
    """What a dry run found: a table of what would be decided differently, and what that says nothing about."""
    if found is None:  # it is about others than who asks
        terminal.done(f"{would}, and nothing was changed")
        return
    effect = found
    changes = effect.get("changes") or []
    if changes:
        table = [
            {title: each.get(member) for title, member in _CHANGE_COLUMNS} | {"last": moment(each.get("last"))}
            for each in changes
        ]
        rows(table, whole=("who", "topic"))
    decisions, different = effect.get("decisions", 0), effect.get("different", 0)
    since = f" since {moment(effect['since'])}" if effect.get("since") else ""
    told = f"{different} of {effect.get('questions', 0)} kinds of decisions would be different"
    over = f"{told}, over the last {decisions:,} decisions{since}" if decisions else "there are no decisions to compare"
    terminal.done(f"{would}, and nothing was changed; {over}")
    if different > len(changes):
        terminal.note(f"Only {len(changes)} are output.")
    if effect.get("undecided"):
        because = "; ".join(map(str, effect.get("undecided_because") or ()))
        terminal.note(f"{effect['undecided']:,} could not be tried: {because}")
    if decisions:
        for each in effect.get("not_covered") or ():
            terminal.note(f"Not covered: {each}.")
