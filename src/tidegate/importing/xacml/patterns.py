"""Regular expressions of XACML (those of XPath's `matches`) as RE2 writes them.

Both look for a match anywhere in a text. What they write alike and mean differently is written anew (`\\d` is any digit
of Unicode, `\\s` has no form feed); what RE2 cannot say, or XPath does not have, is refused.
"""

from __future__ import annotations

import re
from typing import Final

_SAME: Final = frozenset("nrt\\|.?*+(){}-[]^$")
_OUTSIDE: Final = {
    "d": r"\p{Nd}",
    "D": r"\P{Nd}",
    "s": r"[ \t\n\r]",
    "S": r"[^ \t\n\r]",
    "w": r"[^\p{P}\p{Z}\p{C}]",
    "W": r"[\p{P}\p{Z}\p{C}]",
}
_INSIDE: Final = {"d": r"\p{Nd}", "D": r"\P{Nd}", "s": r" \t\n\r"}
_CATEGORY: Final = re.compile(r"\{(L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|Z[slp]?|S[mcko]?|C[cfo]?)\}")
_COUNT: Final = re.compile(r"\{[0-9]{1,4}(,[0-9]{0,4})?\}")


def as_re2(pattern: str) -> str | None:
    """The same pattern for RE2; None if there is none."""
    pieces: list[str] = []
    at, inside = 0, False
    while at < len(pattern):
        character = pattern[at]
        rest = pattern[at + 1 :]
        if character == "\\":
            written = _escape(rest, inside)
            if written is None:
                return None
            text, used = written
            pieces.append(text)
            at += 1 + used
            continue
        if inside:
            if character == "[" or (character == "-" and rest[:1] == "["):
                return None  # classes within classes, and subtraction
            inside = character != "]"
        elif character == "[":
            if rest[:1] == "]" or rest[:2] == "^]":
                return None  # RE2 takes the bracket for a member
            inside = True
        elif character == "(" and rest[:1] == "?":
            return None
        elif character == "{":
            count = _COUNT.match(pattern, at)
            if count is None:
                return None
            pieces.append(count[0])
            at = count.end()
            continue
        elif character in "]}":
            return None
        pieces.append(character)
        at += 1
    return None if inside else "".join(pieces)


def _escape(rest: str, inside: bool) -> tuple[str, int] | None:
    """What an escape becomes, and how many characters after the backslash it has."""
    letter = rest[:1]
    if letter and letter in _SAME:
        return f"\\{letter}", 1
    if letter and letter in "pP":
        category = _CATEGORY.match(rest, 1)
        return None if category is None else (f"\\{letter}{category[0]}", category.end())
    text = (_INSIDE if inside else _OUTSIDE).get(letter)
    return None if text is None else (text, 1)
