"""Hours where they matter: what is only ever done in a part of the day, while other things go on around the clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.learn.table import SUBSCRIBE, Seen

_TIMES: Final = 20
_DAYS: Final = 3
_LONGEST: Final = 12
"""Hours that a window may have at most."""


@dataclass(frozen=True, slots=True)
class Hours:
    when: str
    reason: str


def hours_that_matter(uses: Sequence[Seen], every: Iterable[Seen]) -> Hours | None:
    """A window that holds all uses, if they are enough, over several days, and others were there outside of it."""
    hours = frozenset().union(*(each.hours for each in uses)) if uses else frozenset()
    count = sum(each.count for each in uses)
    days = 1 + int((max(each.last for each in uses) - min(each.first for each in uses)) // 86400) if uses else 0
    if count < _TIMES or days < _DAYS or any(each.action == SUBSCRIBE for each in uses):
        return None
    begin, length = _window(hours)
    if length > _LONGEST:
        return None
    window = {(begin + at) % 24 for at in range(length)}
    around = frozenset().union(*(each.hours for each in every if each.action != SUBSCRIBE))
    if len(around - window) < 3:
        return None  # nothing was recorded at other hours, so they say nothing
    end = (begin + length) % 24
    text = f"{begin:02d}:00-{end:02d}:00"
    return Hours(f"within(e.now, '{text}')", f"all {count:,} times within {text}, over {days:,} days")


def _window(hours: frozenset[int]) -> tuple[int, int]:
    """The shortest window around the clock that holds these hours: its begin, and how many hours it has."""
    ordered = sorted(hours)
    gaps = [
        ((following - hour - 1) % 24, following)
        for hour, following in zip(ordered, (*ordered[1:], ordered[0]), strict=True)
    ]
    widest, begin = max(gaps)
    return begin, 24 - widest
