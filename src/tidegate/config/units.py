"""Numbers as people write them: durations (`3s`), sizes (`64KiB`), counts, switches and times.

Each reader takes what YAML gave (text or a number) and returns the plain number, or refuses with a text
that completes the sentence "`key` ...". In memory a duration is a float of seconds and a size an int of
bytes; written back as JSON both become text again. A true or false is never taken for a number, nor a
number for true or false.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from tidegate.config.problems import refusal

_DURATION_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
# ASCII digits only, and few enough that no text can turn into a number that takes long to compute with.
_NUMBER: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)")
_WORDS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def duration(written: object) -> float:
    """`500ms`, `3s`, `5m`, `2h`, `7d`, or a plain number of seconds; the result is seconds."""
    if isinstance(written, int | float) and not isinstance(written, bool) and 0 <= written < 1e15:
        return float(written)
    if isinstance(written, str) and (number := _NUMBER.fullmatch(written.strip())):
        unit = _DURATION_UNITS.get(number[2] or "s")
        if unit is not None:
            return round(float(number[1]) * unit, 9)
    raise refusal("must be a duration; write for example `500ms`, `3s`, `5m`, `2h` or `7d`")


def duration_text(seconds: float) -> str:
    """The shortest way to write a duration that `duration` reads back."""
    for unit in ("d", "h", "m", "s"):
        if seconds and seconds % _DURATION_UNITS[unit] == 0:
            return f"{int(seconds / _DURATION_UNITS[unit])}{unit}"
    milliseconds = round(seconds * 1000, 6)
    return f"{milliseconds:.6f}".rstrip("0").rstrip(".") + "ms" if seconds else "0s"


def size(written: object) -> int:
    """`64KiB`, `1MiB`, `64KB`, or a plain number of bytes; the result is bytes."""
    if isinstance(written, int) and not isinstance(written, bool) and written >= 0:
        return written
    if isinstance(written, str) and (number := _NUMBER.fullmatch(written.strip())):
        unit = _SIZE_UNITS.get(number[2] or "B")
        if unit is not None:
            return round(float(number[1]) * unit) if "." in number[1] else int(number[1]) * unit
    raise refusal("must be a size; write for example `64KiB`, `1MiB`, `64KB` or a number of bytes")


def size_text(total: int) -> str:
    """The shortest way to write a size that `size` reads back."""
    for unit in ("GiB", "MiB", "KiB"):
        if total and total % _SIZE_UNITS[unit] == 0:
            return f"{total // _SIZE_UNITS[unit]}{unit}"
    return f"{total}B"


def _count(written: object) -> object:
    if isinstance(written, bool) or (isinstance(written, str) and not re.fullmatch(r"[0-9]{1,15}", written)):
        raise refusal("must be a whole number; write it in plain digits, such as `1000`")
    return written


def _rate(written: object) -> object:
    if isinstance(written, bool):
        raise refusal("must be a number per second; write for example `20` or `0.5`")
    return written


def _switch(written: object) -> bool:
    if isinstance(written, bool):
        return written
    if isinstance(written, str) and written.lower() in _WORDS:
        return _WORDS[written.lower()]
    raise refusal("must be `true` or `false`; write one of the two")


def moment(written: object) -> datetime:
    """A time as ISO 8601 writes it, such as `2026-03-02T09:30:00Z`; without a zone it is naive."""
    if isinstance(written, datetime):
        return written
    if isinstance(written, str):
        try:
            return datetime.fromisoformat(written.strip())
        except ValueError:
            pass
    raise refusal("must be a time; write for example `2026-03-02T09:30:00` or `2026-03-02T09:30:00Z`")


def in_utc(moment: datetime) -> float:
    """Seconds since 1970; a time without a zone is UTC."""
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _json_schema(title: str, number: str, units: Iterable[str]) -> WithJsonSchema:
    text = {"type": "string", "pattern": rf"^[0-9]+(\.[0-9]+)? ?({'|'.join(units)})?$"}
    return WithJsonSchema({"anyOf": [text, {"type": number, "minimum": 0}], "title": title})


Duration = Annotated[
    float,
    BeforeValidator(duration),
    PlainSerializer(duration_text, return_type=str, when_used="json"),
    _json_schema("duration", "number", _DURATION_UNITS),
]
Size = Annotated[
    int,
    BeforeValidator(size),
    PlainSerializer(size_text, return_type=str, when_used="json"),
    _json_schema("size", "integer", _SIZE_UNITS),
]
Count = Annotated[int, BeforeValidator(_count)]
Rate = Annotated[float, BeforeValidator(_rate)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Moment = Annotated[datetime, BeforeValidator(moment), WithJsonSchema({"type": "string", "title": "time"})]
