"""Names, topics and texts of other brokers, quoted for policies.

Whatever a source contains comes out as what it says there: a quote ends no text of a condition, and a brace begins no
placeholder.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MAX_NAME: Final = 65535


def quoted(text: str) -> str:
    """A text as a condition writes it."""
    return (
        "'"
        + _CONTROL.sub(lambda character: f"\\x{ord(character[0]):02x}", text.replace("\\", "\\\\").replace("'", "\\'"))
        + "'"
    )


def topic(filter: str) -> str:
    """A topic filter without placeholders, as the `topic` of a policy writes it."""
    return filter.replace("{", "{{").replace("}", "}}")


def unspeakable(sort: str, name: str) -> str | None:
    """Why no policy can speak of `SORT:NAME`, and the directory cannot hold it; None if both can."""
    if not name or name != name.strip():
        return "a name is not empty here, and has no spaces around it; rename"
    if name == "*":
        return "`*` means everybody here; rename"
    if _CONTROL.search(name) or len(name.encode(errors="surrogatepass")) > _MAX_NAME:
        return "a name has no control characters here, and at most 65535 bytes; rename"
    if sort == "user" and "@" in name:
        return "`@` stands between a user and a domain here; rename"
    return None


class Ids:
    """Ids that tell where a policy comes from: `acl-3` of line 3, and `acl-3-2` for a second one of that line."""

    __slots__ = ("_given", "_word")

    def __init__(self, word: str) -> None:
        self._word = word
        self._given: dict[int | str, int] = {}

    def next(self, mark: int | str) -> str:
        """The next id for a line, or for what stands in no line."""
        count = self._given[mark] = self._given.get(mark, 0) + 1
        return f"{self._word}-{mark}" if count == 1 else f"{self._word}-{mark}-{count}"
