"""The bounds of a running node as a table: what is used of each, and how often it was reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.text import Text

from tidegate.cli.tables import aligned
from tidegate.cli.terminal import harmless
from tidegate.config.units import duration_text

_TITLES: Final = ("limit", "used", "of", "largest user", "used by it", "of it", "reached")
_RIGHT: Final = ("used", "of", "used by it", "of it", "reached")
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def limits_table(limits: Mapping[str, Any]) -> Iterator[Text]:
    """A line for each bound, under their titles."""
    rows: list[list[Text]] = []
    for name, bound in limits.items():
        words = name.replace("_", " ")
        if not isinstance(bound, dict):  # a time
            cells = ["", "no limit" if bound is None else duration_text(bound), "", "", "", ""]
        else:
            show = _bytes if name.endswith("bytes") else _number
            most = bound.get("largest") or {}
            user_limit = bound.get("user_limit")
            rate = bound.get("address_rate")
            cells = [
                show(bound["used"]),
                show(bound["limit"]),
                harmless(str(most.get("user") or "")),
                show(most["used"]) if most.get("user") else "",
                show(user_limit) if user_limit is not None else f"{rate:g}/s",
                _number(bound["reached"]),
            ]
            if rate is not None:
                words, cells[2] = "refused connections by address", "each address"
        rows.append([Text(words), *map(Text, cells)])
    yield Text("")
    yield from aligned(_TITLES, rows, right=_RIGHT, cut=(("largest user", 12),))


def _number(value: float) -> str:
    return f"{value:,}"


def _bytes(value: float) -> str:
    size = float(value)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if size == int(size) else f"{size:.1f} {unit}"
