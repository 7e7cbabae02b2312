"""The functions that "sharing", example 4, calls: who is enrolled, and who works when."""

from __future__ import annotations

from datetime import datetime

from tidegate.predicate import function

ENROLLED = {"mary", "bob"}
SHIFTS = {"alice": (8, 14), "john": (14, 20)}


@function()
def is_enrolled(user: str) -> bool:
    """Whether somebody is enrolled in a gym course."""
    return user in ENROLLED


@function()
def is_working_time(now: datetime, user: str) -> bool:
    """Whether a moment is within somebody's shift."""
    begin, end = SHIFTS[user]
    return begin <= now.hour < end
