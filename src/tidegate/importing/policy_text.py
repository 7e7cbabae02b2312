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
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    printable = _CONTROL.sub(lambda character: f"\\x{ord(character[0]):02x}", escaped)
    return f"'{printable}'"


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
