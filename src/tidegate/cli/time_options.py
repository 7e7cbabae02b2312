"""Times as people write them for an option: when, or how long ago."""

from __future__ import annotations

import time
from datetime import tzinfo

from tidegate.cli import terminal


def parse_time(written: str, option: str, zone: tzinfo) -> float:
    """Seconds since 1970; ends the command if it is no time. One without a zone is of this one."""
    from tidegate.config import units

    try:
        return time.time() - units.duration(written)
    except ValueError:
        pass  # not how long ago, so when
    try:
        time_given = units.moment(written)
    except ValueError:
        terminal.usage(f"{option} is a time such as 2026-03-02T09:30, or how long ago: 30m, 1h, 2d")
    return (time_given if time_given.tzinfo is not None else time_given.replace(tzinfo=zone)).timestamp()
