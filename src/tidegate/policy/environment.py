"""`e`: the clock in the node's time zone, and what the configuration says of the surroundings.

`e.now` is a timestamp, `e.hour`, `e.minute` and `e.weekday` (0 is Monday) are numbers, `e.date` is `2026-03-02`.
The time comes in as an argument, in seconds since 1970. Nothing the configuration adds can stand in for the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from tidegate.errors import ConfigError
from tidegate.predicate import UNKNOWN

CLOCK: Final = frozenset(("now", "hour", "minute", "weekday", "date"))


class Moment(dict[str, Any]):
    """The root `e` at one moment: the clock is read off when a predicate asks."""

    __slots__ = ("at", "zone")

    def __init__(self, added: Mapping[str, Any], at: float, zone: tzinfo) -> None:
        super().__init__(added)
        self.at = at
        self.zone = zone

    def __missing__(self, name: str) -> object:
        if name not in CLOCK:
            raise KeyError(name)
        now = datetime.fromtimestamp(self.at, self.zone)
        self.update(now=now, hour=now.hour, minute=now.minute, weekday=now.weekday(), date=now.date().isoformat())
        return self[name]


class Environment:
    """The surroundings of a node or of one of its listeners."""

    def __init__(self, added: Mapping[str, Any] | None = None, *, zone: tzinfo = UTC) -> None:
        self.added = dict(added or {})
        self.zone = zone
        for name in self.added:
            if name in CLOCK:
                raise ConfigError(f"`{name}` is the clock's: call it otherwise")
            if not name.isidentifier():
                raise ConfigError(f"`{name}` cannot be read as `e.{name}`: use letters, digits and `_`")
        self.known: dict[str, Any] = {**self.added, **dict.fromkeys(CLOCK, UNKNOWN)}
        """The root `e` before the moment is known, for partial evaluation."""

    def extended(self, added: Mapping[str, Any]) -> Environment:
        """The surroundings of a listener: its own, then the node's."""
        return Environment({**self.added, **added}, zone=self.zone)

    def at(self, seconds: float) -> Moment:
        return Moment(self.added, seconds, self.zone)

    def valid_until(self, reads: Iterable[str], seconds: float) -> float | None:
        """Until when an answer given at `seconds` holds that read these attributes.

        None if it does not depend on the clock, `seconds` itself if it holds only now.
        """
        names = {path.split(".")[1] if "." in path else "now" for path in reads if path.partition(".")[0] == "e"}
        names &= CLOCK
        if not names:
            return None
        if "now" in names:
            return seconds
        now = datetime.fromtimestamp(seconds, self.zone)
        whole = seconds - now.second - now.microsecond / 1e6
        if "minute" in names:
            return round(whole) + 60.0
        # clocks are put forward and back on the hour, so nothing below changes in between
        hour = round(whole) + 60.0 * (60 - now.minute)
        if "hour" in names:
            return hour
        while datetime.fromtimestamp(hour, self.zone).date() == now.date():
            hour += 3600.0
        return hour
