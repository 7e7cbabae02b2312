"""Topics that begin with `$`, as Mosquitto 2.0 treats them whatever its access rules say.

- Below `$SYS` only the broker publishes (and bridges their own state).
- `$share` is no topic of a message, and neither is anything that begins like it.
- `$CONTROL` reaches the broker's plugins and never a subscriber.
- `+` and `#` match none of them.
"""

from __future__ import annotations

from typing import Final

SYS: Final = "$SYS"
ANYTHING: Final = "#"

READ: Final = "read"
WRITE: Final = "write"
BOTH: Final = (READ, WRITE)


def first(filter: str) -> str:
    """The first level of a filter."""
    return filter.partition("/")[0]


def root(filter: str) -> str | None:
    """The first level, if it begins with `$`."""
    return first(filter) if filter[:1] == "$" else None


def possible(filter: str, action: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """The actions that can be allowed on a filter at all, and why not the others."""
    level = root(filter)
    if level is None:
        return action, ""
    if level == "$CONTROL":
        return (), "it administers Mosquitto; here the configuration is edited, and reloaded"
    if level.startswith("$share"):
        return (), "no message has such a topic; speak of the filter without `$share/GROUP/`"
    if level == "$tidegate":
        return (), "these topics are the node's own here"
    if level.startswith(SYS) and WRITE in action:
        return tuple(each for each in action if each != WRITE), "only the broker itself publishes below `$SYS`"
    return action, ""


def everything(roots: frozenset[str]) -> tuple[str, ...]:
    """Filters that match every topic, but for those that begin with `$` and another first level than `roots`."""
    return (ANYTHING, *(f"{level}/#" for level in sorted(roots)))
