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

from tidegate.predicate.failure import CelError
from tidegate.predicate.types import Kind, kind
from tidegate.predicate.values import instant, refuse, short, span
from tidegate.predicate.work import Meter

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
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
MAX_ZONE: Final = 64
"""Characters that the name of a time zone may have."""
MAX_WINDOW: Final = 16
"""Characters that a window of the day may have."""

_LOADED: Final = 1300
"""Operations to read a time zone from the system's database."""
_READ: Final = 40
"""Operations to read a window of the day."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_timestamp(text: str) -> datetime:
    """A timestamp from RFC 3339; digits beyond microseconds are cut off."""
    try:
        if _RFC3339.fullmatch(text):
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # no such day or time, or out of range
    raise CelError(f"no timestamp: {short(text)}")


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
    match = _DURATION.fullmatch(text) if len(text) <= 128 else None
    if match is None:
        raise CelError(f"no duration: {short(text)}")
    total = 0
    for whole, fraction, unit in _PART.findall(match[2]):
        scale = _NANOSECONDS[unit]
        total += int(whole or 0) * scale
        if fraction:
            total += int(fraction) * scale // 10 ** len(fraction)
    try:
        result = timedelta(microseconds=total // 1000)
    except OverflowError as error:
        raise CelError("duration out of range") from error
    return span(-result if match[1] == "-" else result)


def duration(work: Meter, value: Any) -> timedelta:
    """`duration(x)`: of a text or of a duration."""
    match kind(value):
        case Kind.STRING:
            if len(value) > 8:
                work.spend(3 * min(len(value), 128))
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


def zone(name: str) -> tzinfo:
    """A time zone by name or by offset. Zones come from the system's database, which is constant data."""
    if len(name) > MAX_ZONE:
        raise CelError(f"no time zone: {short(name)}")
    return _zone(name)


@lru_cache(256)
def _zone(name: str) -> tzinfo:
    match = _OFFSET.fullmatch(name)
    if match is not None:
        if int(match[2]) > 23 or int(match[3]) > 59:
            raise CelError(f"no time zone: {short(name)}")
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-offset if match[1] == "-" else offset)
    if name in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise CelError(f"no time zone: {short(name)}") from error


def _dynamic(work: Meter, where: Any) -> tzinfo:
    """A zone whose name comes with the message: it may have to be read first."""
    if not isinstance(where, str):
        refuse("a time zone", where)
    work.spend(_LOADED)
    return zone(where)


def _in_zone(when: datetime, where: tzinfo) -> datetime:
    try:
        return instant(when).astimezone(where)
    except OverflowError as error:
        raise CelError("timestamp out of range") from error


OfTime = Callable[[datetime], int]
OfSpan = Callable[[int], int]


def _reader(name: str, of_time: OfTime, of_span: OfSpan | None) -> Callable[[Any, tzinfo | None], int]:
    def read(value: Any, where: tzinfo | None) -> int:
        if isinstance(value, timedelta) and of_span is not None and where is None:
            micro = value // timedelta(microseconds=1)
            return of_span(micro) if micro >= 0 else -of_span(-micro)
        if kind(value) is not Kind.TIMESTAMP:
            refuse(name, value)
        return of_time(_in_zone(value, where or UTC))

    return read


def accessor(name: str, of_time: OfTime, of_span: OfSpan | None) -> Callable[..., object]:
    """`t.getHours()`, `t.getHours("Europe/Rome")`, and of durations where CEL has it (from microseconds)."""
    read = _reader(name, of_time, of_span)

    def get(work: Meter, value: Any, where: Any = None) -> int:
        return read(value, None if where is None else _dynamic(work, where))

    return get


def prepare_accessor(name: str, of_time: OfTime, of_span: OfSpan | None) -> Callable[..., Callable[..., object]]:
    """The same with a zone that is known."""
    read = _reader(name, of_time, of_span)

    def prepare(work: Meter, *constants: Any) -> Callable[..., object]:
        where = _dynamic(work, constants[0]) if constants else None
        return lambda work, value: read(value, where)

    return prepare


ACCESSORS: Final[dict[str, tuple[OfTime, OfSpan | None]]] = {
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


def window(text: Any) -> tuple[int, int]:
    """Begin and end of `22:00-06:00` in minutes of the day."""
    if not isinstance(text, str):
        refuse("within", text)
    if len(text) > MAX_WINDOW:
        raise CelError(f"no window of the day: {short(text)}")
    return _window(text)


@lru_cache(1024)
def _window(text: str) -> tuple[int, int]:
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise CelError(f"no window of the day: {short(text)}")
    begin = _minutes(match[1], match[2], text)
    end = 1440 if match[3] == "24" and match[4] == "00" else _minutes(match[3], match[4], text)
    if begin == end:
        raise CelError(f"a window that ends where it begins: {short(text)}")
    return begin, end


def _minutes(hours: str, minutes: str, text: str) -> int:
    if int(hours) > 23 or int(minutes) > 59:
        raise CelError(f"no time of the day: {short(text)}")
    return int(hours) * 60 + int(minutes)


def windows(value: Any) -> list[tuple[int, int]]:
    return [window(item) for item in value] if kind(value) is Kind.LIST else [window(value)]


def minute_of(when: Any, where: tzinfo | None) -> int:
    """The minute of the day of a timestamp, in its own zone or in another, or of a text such as `22:00`."""
    match kind(when):
        case Kind.TIMESTAMP:
            local = when if where is None else _in_zone(when, where)
            return local.hour * 60 + local.minute
        case Kind.STRING if where is None:
            match = _CLOCK.fullmatch(when)
            if match is None:
                raise CelError(f"no time of the day: {short(when)}")
            return _minutes(match[1], match[2], when)
        case _:
            refuse("within", when)


def opens(minute: int, open_at: list[tuple[int, int]]) -> bool:
    """Whether a minute of the day is within some window."""
    return any(begin <= minute < end if begin < end else minute >= begin or minute < end for begin, end in open_at)


def within(work: Meter, when: Any, value: Any, where: Any = None) -> bool:
    """`within(t, "22:00-06:00")`: begin included, end not; it may cross midnight."""
    if type(value) is not str and kind(value) is Kind.LIST:
        work.spend(_READ * len(value))
    open_at = windows(value)
    return opens(minute_of(when, None if where is None else _dynamic(work, where)), open_at)


def prepare_within(work: Meter, value: Any, where: Any = None) -> Callable[..., object]:
    """The same with windows and a zone that are known."""
    if kind(value) is Kind.LIST:
        work.spend(_READ * len(value))
    open_at, there = windows(value), None if where is None else _dynamic(work, where)
    if len(open_at) != 1:
        table = bytearray(1440)
        for begin, end in open_at:
            for first, last in ((begin, end),) if begin < end else ((begin, 1440), (0, end)):
                table[first:last] = b"\1" * (last - first)
        return lambda work, when: table[minute_of(when, there)] == 1
    [(begin, end)] = open_at
    if begin < end:
        return lambda work, when: begin <= minute_of(when, there) < end
    return lambda work, when: not end <= minute_of(when, there) < begin


def age(now: Any, then: Any) -> timedelta:
    """`age(t)`: the duration from t to `e.now`."""
    if kind(now) is not Kind.TIMESTAMP or kind(then) is not Kind.TIMESTAMP:
        refuse("age", then)
    return span(instant(now) - instant(then))
