"""JSON whose objects know the line they begin in.

Keys are read without regard to case, and of several equal ones the first counts, as Mosquitto's parser has it.
ConfigError tells the line of what is wrong. Depth is bounded before anything recurses.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Any, Final, NoReturn

from tidegate.errors import ConfigError

MAX_DEPTH: Final = 50

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


class Entry:
    """An object."""

    __slots__ = ("line", "values")

    def __init__(self, pairs: list[tuple[str, Any]], line: int) -> None:
        self.line = line
        self.values: dict[str, Any] = {}
        for key, value in pairs:
            self.values.setdefault(key.lower(), value)

    def get(self, key: str) -> Any:
        """The value, or None."""
        return self.values.get(key.lower())

    def text(self, key: str) -> str | None:
        """The value if it is a text."""
        value = self.get(key)
        return value if isinstance(value, str) else None

    def switch(self, key: str) -> bool:
        """Whether it says true, and nothing but that."""
        return self.get(key) is True

    def number(self, key: str, default: int) -> int:
        """The value if it is a number, as a whole one within 32 bits."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return default
        return int(max(-(1 << 31), min((1 << 31) - 1, value)))

    def entries(self, key: str) -> list[Entry]:
        """The objects in a list; what is no object in it, or no list, does not count."""
        value = self.get(key)
        return [each for each in value if isinstance(each, Entry)] if isinstance(value, list) else []


def parse(text: str, source: str) -> Entry:
    """The object that the text is."""
    starts = _starts(text, source)
    ends = [newline.start() for newline in re.finditer("\n", text)]
    order = iter(starts)

    def entry(pairs: list[tuple[str, Any]]) -> Entry:
        return Entry(pairs, bisect_right(ends, next(order)) + 1)

    def refused(constant: str) -> NoReturn:
        raise ValueError(f"`{constant}` is no number of JSON")

    try:
        value = json.loads(text, object_pairs_hook=entry, parse_constant=refused)
    except json.JSONDecodeError as wrong:
        raise ConfigError(f"no JSON: {wrong.msg}; mend it there", file=source, line=wrong.lineno) from None
    except ValueError as wrong:  # numbers that are none, or far too long
        raise ConfigError(f"no JSON: {wrong}; mend it", file=source) from None
    if not isinstance(value, Entry):
        raise ConfigError("no JSON object; is it the right file?", file=source, line=1)
    return value


def _starts(text: str, source: str) -> list[int]:
    """Where objects begin, in the order in which they end, which is the order in which they are made."""
    opened: list[int] = []
    starts: list[int] = []
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "{" | "[":
                opened.append(token.start())
                if len(opened) > MAX_DEPTH:
                    line = text.count("\n", 0, token.start()) + 1
                    raise ConfigError(f"nested deeper than {MAX_DEPTH} levels; flatten it", file=source, line=line)
            case "}" | "]" if opened:
                start = opened.pop()
                if token[0] == "}":
                    starts.append(start)
            case _:
                pass
    return starts
