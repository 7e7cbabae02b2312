"""Who has been delivered a message that could reach them more than once."""

from __future__ import annotations

from tidegate.session import Message

Seen = set[tuple[object, int]]
"""Each with the output number of the message."""


def first(seen: Seen, where: object, message: Message) -> bool:
    """Whether nobody has delivered it there; from now on somebody has."""
    before = len(seen)
    seen.add((where, message.output))
    return len(seen) > before
