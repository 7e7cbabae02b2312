"""Which old segments may go.

Only whole segments go, the oldest first, never the one being written, and nothing that somebody still needs
(`keep_from`: the lowest offset that readers have come to). Going from the front means that a clock that jumped back
loses nothing early: a segment stays at least as long as the one before it. One that jumped ahead keeps its segment
until the limit in bytes, if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much is kept: what is younger than `age` seconds, up to `size` bytes in all. None: no limit."""

    age: float | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A segment that nobody writes to any more."""

    first: int
    next: int  # the offset after its last row
    size: int  # bytes, with its index
    high: float  # the latest time in it, seconds


def expired(
    closed: Sequence[Closed], retention: Retention, *, writing: int, now: float, keep_from: int | None
) -> list[Closed]:
    """Those to delete; `writing` is the size of the segment being written."""
    total = writing + sum(segment.size for segment in closed)
    segments = []
    for segment in closed:
        too_old = retention.age is not None and segment.high < now - retention.age
        too_much = retention.size is not None and total > retention.size
        if not (too_old or too_much) or (keep_from is not None and segment.next > keep_from):
            break
        total -= segment.size
        segments.append(segment)
    return segments
