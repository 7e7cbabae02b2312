"""The conversions of CEL: `int()`, `uint()`, `double()`, `bool()`, `string()`, `bytes()`."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from tidegate.predicate import times, values
from tidegate.predicate.failure import CelError
from tidegate.predicate.types import Kind, Uint, kind
from tidegate.predicate.values import copied, refuse, short
from tidegate.predicate.work import Meter

_WRITTEN: Final = 60
"""Operations to write a timestamp or a duration."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,32}")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def _read_integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise CelError(f"no integer: {short(text)}")
    return int(text)


def _truncated(value: float) -> int:
    if not math.isfinite(value):
        raise CelError("integer overflow")
    return math.trunc(value)


def to_int(value: Any) -> int:
    match kind(value):
        case Kind.INT | Kind.UINT:
            return values.signed(int(value))
        case Kind.DOUBLE:
            # the least int as a double might have been rounded to it, so CEL excludes both ends
            if not -(2.0**63) < value < 2.0**63:
                raise CelError("integer overflow")
            return _truncated(value)
        case Kind.STRING:
            return values.signed(_read_integer(value))
        case Kind.TIMESTAMP:
            return times.seconds(value)
        case _:
            refuse("int", value)


def to_uint(value: Any) -> Uint:
    match kind(value):
        case Kind.INT | Kind.UINT:
            return values.unsigned(int(value))
        case Kind.DOUBLE:
            if value < 0:
                raise CelError("unsigned integer overflow")
            return values.unsigned(_truncated(value))
        case Kind.STRING:
            if value[:1] in ("+", "-"):
                raise CelError(f"no unsigned integer: {short(value)}")
            return values.unsigned(_read_integer(value))
        case _:
            refuse("uint", value)


def to_double(work: Meter, value: Any) -> float:
    match kind(value):
        case Kind.INT | Kind.UINT | Kind.DOUBLE:
            return float(value)
        case Kind.STRING:
            if len(value) > 16:
                work.spend(min(len(value), 512) // 4)
            if len(value) > 512 or _DOUBLE.fullmatch(value) is None:
                raise CelError(f"no double: {short(value)}")
            return float(value)
        case _:
            refuse("double", value)


def to_bool(value: Any) -> bool:
    match kind(value):
        case Kind.BOOL:
            return value  # type: ignore[no-any-return]
        case Kind.STRING if len(value) <= 5 and (value in _TRUE or value in _FALSE):
            return value in _TRUE
        case Kind.STRING:
            raise CelError(f"no bool: {short(value)}")
        case _:
            refuse("bool", value)


def _write_double(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    shown = repr(value)
    return shown.removesuffix(".0")


def to_string(work: Meter, value: Any) -> str:
    match kind(value):
        case Kind.STRING:
            return value  # type: ignore[no-any-return]
        case Kind.INT | Kind.UINT:
            return str(int(value))
        case Kind.DOUBLE:
            return _write_double(value)
        case Kind.BOOL:
            return "true" if value else "false"
        case Kind.BYTES:
            copied(work, len(value))
            try:
                return bytes.decode(value)
            except UnicodeDecodeError as error:
                raise CelError("bytes that are not UTF-8") from error
        case Kind.TIMESTAMP:
            work.spend(_WRITTEN)
            return times.write_timestamp(value)
        case Kind.DURATION:
            work.spend(_WRITTEN)
            return times.write_duration(value)
        case _:
            refuse("string", value)


def to_bytes(work: Meter, value: Any) -> bytes:
    match kind(value):
        case Kind.BYTES:
            return value  # type: ignore[no-any-return]
        case Kind.STRING:
            copied(work, len(value))
            try:
                return str.encode(value)
            except UnicodeEncodeError as error:
                raise CelError("a string that is not Unicode") from error
        case _:
            refuse("bytes", value)
