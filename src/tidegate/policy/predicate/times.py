"""Timestamps, durations, zones and windows of the day, from and to text.

A timestamp read from a text is in UTC. `e.now` is in the node's zone, and so is what is computed from it; `within`
looks at the clock of the zone that its timestamp has, everything else at the instant.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from tidegate.policy.predicate.failure import CelError
from tidegate.policy.predicate.types import Kind, kind
from tidegate.policy.predicate.values import instant, refuse, short, span

_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))"
)
_DURATION: Final = re.compile(r"([+-]?)((?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:h|ms|m|s|us|µs|μs|ns))+)")
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(h|ms|m|s|us|µs|μs|ns)")
_NANOSECONDS: Final = {
    "h": 3600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ns": 1,
}
_OFFSET: Final = re.compile(r"([+-]?)([0-9]{2}):([0-9]{2})")
_WINDOW: Final = re.compile(r"([0-9]{2}):([0-9]{2}) ?- ?([0-9]{2}):([0-9]{2})")
_CLOCK: Final = re.compile(r"([0-9]{2}):([0-9]{2})(?::[0-9]{2})?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_timestamp(text: str) -> datetime:
    """A timestamp from RFC 3339."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise CelError(f"no timestamp: {short(text)}")
    year, month, day, hour, minute, second, fraction, zulu, sign, off_hours, off_minutes = found.groups()
    micro = int((fraction or "0").ljust(6, "0")[:6])
    try:
        zone: tzinfo = UTC
        if not zulu:
            if int(off_hours) > 23 or int(off_minutes) > 59:
                raise CelError(f"no timestamp: {short(text)}")
            offset = timedelta(hours=int(off_hours), minutes=int(off_minutes))
            zone = timezone(-offset if sign == "-" else offset)
        when = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micro, zone)
        return when.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise CelError(f"no timestamp: {short(text)}") from error


def timestamp(value: Any) -> datetime:
    """`timestamp(x)`: of a text, of seconds since 1970, or of a timestamp."""
    match kind(value):
        case Kind.STRING:
            return read_timestamp(value)
        case Kind.INT:
            try:
                return _EPOCH + timedelta(seconds=int(value))
            except OverflowError as error:
                raise CelError("timestamp out of range") from error
        case Kind.TIMESTAMP:
            return value  # type: ignore[no-any-return]
        case _:
            refuse("timestamp", value)


def read_duration(text: str) -> timedelta:
    """A duration such as `1h30m`, `-1.5s` or `0`."""
    if text in ("0", "+0", "-0"):
        return timedelta()
    found = _DURATION.fullmatch(text) if len(text) <= 128 else None
    if found is None:
        raise CelError(f"no duration: {short(text)}")
    total = 0
    for whole, fraction, unit in _PART.findall(found[2]):
        scale = _NANOSECONDS[unit]
        total += int(whole or 0) * scale
        if fraction:
            total += int(fraction) * scale // 10 ** len(fraction)
    try:
        result = timedelta(microseconds=total // 1000)
    except OverflowError as error:
        raise CelError("duration out of range") from error
    return span(-result if found[1] == "-" else result)


def duration(value: Any) -> timedelta:
    """`duration(x)`: of a text or of a duration."""
    match kind(value):
        case Kind.STRING:
            return read_duration(value)
        case Kind.DURATION:
            return value  # type: ignore[no-any-return]
        case _:
            refuse("duration", value)


def write_timestamp(when: datetime) -> str:
    """RFC 3339 in UTC, with no more digits than needed."""
    when = instant(when)
    fraction = f".{when.microsecond:06}".rstrip("0") if when.microsecond else ""
    return f"{when.year:04}-{when.month:02}-{when.day:02}T{when:%H:%M:%S}{fraction}Z"


def write_duration(value: timedelta) -> str:
    """Seconds, with no more digits than needed."""
    micro = value // timedelta(microseconds=1)
    sign = "-" if micro < 0 else ""
    seconds, micro = divmod(abs(micro), 10**6)
    fraction = f".{micro:06}".rstrip("0") if micro else ""
    return f"{sign}{seconds}{fraction}s"


def seconds(when: datetime) -> int:
    """`int(timestamp)`: whole seconds since 1970."""
    return (instant(when) - _EPOCH) // timedelta(seconds=1)


@lru_cache(256)
def zone(name: str) -> tzinfo:
    """A time zone by name or by offset. Zones come from the system's database, which is constant data."""
    found = _OFFSET.fullmatch(name)
    if found is not None:
        if int(found[2]) > 23 or int(found[3]) > 59:
            raise CelError(f"no time zone: {short(name)}")
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-offset if found[1] == "-" else offset)
    if name in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise CelError(f"no time zone: {short(name)}") from error


def _in_zone(when: datetime, name: str | None) -> datetime:
    if name is None:
        return instant(when)
    try:
        return instant(when).astimezone(zone(name))
    except OverflowError as error:
        raise CelError("timestamp out of range") from error


def accessor(
    name: str, of_time: Callable[[datetime], int], of_span: Callable[[int], int] | None
) -> Callable[..., object]:
    """`t.getHours()`, `t.getHours("Europe/Rome")`, and of durations where CEL has it (from microseconds)."""

    def get(value: Any, where: Any = None) -> int:
        if isinstance(value, timedelta) and of_span is not None and where is None:
            micro = value // timedelta(microseconds=1)
            return of_span(micro) if micro >= 0 else -of_span(-micro)
        if kind(value) is not Kind.TIMESTAMP or not (where is None or isinstance(where, str)):
            refuse(name, value, *(() if where is None else (where,)))
        return of_time(_in_zone(value, where))

    return get


ACCESSORS: Final[dict[str, tuple[Callable[[datetime], int], Callable[[int], int] | None]]] = {
    "getFullYear": (lambda t: t.year, None),
    "getMonth": (lambda t: t.month - 1, None),
    "getDate": (lambda t: t.day, None),
    "getDayOfMonth": (lambda t: t.day - 1, None),
    "getDayOfWeek": (lambda t: t.isoweekday() % 7, None),
    "getDayOfYear": (lambda t: t.timetuple().tm_yday - 1, None),
    "getHours": (lambda t: t.hour, lambda micro: micro // 3_600_000_000),
    "getMinutes": (lambda t: t.minute, lambda micro: micro // 60_000_000),
    "getSeconds": (lambda t: t.second, lambda micro: micro // 1_000_000),
    "getMilliseconds": (lambda t: t.microsecond // 1000, lambda micro: micro // 1000 % 1000),
}


@lru_cache(1024)
def window(text: str) -> tuple[int, int]:
    """Begin and end of `22:00-06:00` in minutes of the day."""
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise CelError(f"no window of the day: {short(text)}")
    begin = _minutes(found[1], found[2], text)
    end = 1440 if found[3] == "24" and found[4] == "00" else _minutes(found[3], found[4], text)
    if begin == end:
        raise CelError(f"a window that ends where it begins: {short(text)}")
    return begin, end


def _minutes(hours: str, minutes: str, text: str) -> int:
    if int(hours) > 23 or int(minutes) > 59:
        raise CelError(f"no time of the day: {short(text)}")
    return int(hours) * 60 + int(minutes)


def windows(value: Any) -> list[tuple[int, int]]:
    """One window or a list of them."""
    match kind(value):
        case Kind.STRING:
            return [window(value)]
        case Kind.LIST:
            return [window(item) if isinstance(item, str) else refuse("within", item) for item in value]
        case _:
            refuse("within", value)


def within(when: Any, value: Any, where: Any = None) -> bool:
    """`within(t, "22:00-06:00")`: begin included, end not; it may cross midnight."""
    open_at = windows(value)
    match kind(when):
        case Kind.STRING if where is None:
            found = _CLOCK.fullmatch(when)
            if found is None:
                raise CelError(f"no time of the day: {short(when)}")
            now = _minutes(found[1], found[2], when)
        case Kind.TIMESTAMP if where is None or isinstance(where, str):
            local = when if where is None else _in_zone(when, where)
            now = local.hour * 60 + local.minute
        case _:
            refuse("within", when, value)
    return any(begin <= now < end if begin < end else now >= begin or now < end for begin, end in open_at)


def age(now: Any, then: Any) -> timedelta:
    """`age(t)`: the duration from t to `e.now`."""
    if kind(now) is not Kind.TIMESTAMP or kind(then) is not Kind.TIMESTAMP:
        refuse("age", then)
    return span(instant(now) - instant(then))
