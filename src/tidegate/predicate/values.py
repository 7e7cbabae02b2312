"""The operators of CEL on values: order, arithmetic, fields. What rests on equality is in `equality`.

Not Python's: integers have 64 bits and overflow is an error, division truncates, `true` is no number, kinds do not
mix in arithmetic, numbers of all kinds compare with each other, and NaN equals nothing, itself included.
Every function raises `CelError` for arguments that no overload takes. Those whose work depends on the size of their
arguments take a meter first and pay before they do it.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from tidegate.predicate.failure import CelError, PredicateFailed
from tidegate.predicate.types import INT_MAX, INT_MIN, NUMBERS, UINT_MAX, Kind, Uint, kind
from tidegate.predicate.work import LONG, Meter

MAX_TEXT: Final = 1 << 20
"""Characters or bytes that a computed string may have."""
MAX_LIST: Final = 10_000
"""Elements that a list may have to be computed or to be run over."""

_SLOW: Final = 8
"""Operations for finding the overload of kinds that are rarely added or put in order."""
ZONED: Final = 16
"""Operations for bringing timestamps into a zone."""

DURATION_MAX: Final = timedelta(seconds=315_576_000_000)


def refuse(operator: str, *values: object) -> NoReturn:
    raise CelError(f"no such overload: {operator} of {', '.join(kind(value).value for value in values)}")


def boolean(value: object) -> bool:
    """The value, which must be a bool."""
    if value is True or value is False:
        return value
    raise CelError(f"{kind(value).value} where bool is expected")


def negated(value: object) -> bool:
    return not boolean(value)


def copied(work: Meter, length: int) -> None:
    """Pay for a computed string or bytes of this length, which must be within bounds."""
    if length > LONG:
        if length > MAX_TEXT:
            raise PredicateFailed(f"a string of more than {MAX_TEXT} characters")
        work.spend(length // LONG)


def short(value: object) -> str:
    """A value in a message: never long, and never much work."""
    match value:
        case str() | bytes():
            shown = repr(value[:60])
        case int() if value.bit_length() > 64:
            return "a number of more than 64 bits"
        case None | bool() | int() | float():
            shown = repr(value)
        case _:
            return kind(value).value
    return shown if len(shown) <= 60 else shown[:57] + "..."


def instant(value: datetime) -> datetime:
    """The same instant in UTC: Python compares the wall clocks of equal zones, which is wrong in autumn."""
    return value if value.tzinfo is UTC else value.astimezone(UTC)


_SIZED: Final = frozenset((Kind.STRING, Kind.BYTES))
_ORDERED: Final = NUMBERS | {Kind.STRING, Kind.BYTES, Kind.BOOL, Kind.DURATION}


def _comparable(work: Meter, operator: str, a: Any, b: Any) -> tuple[Any, Any]:
    left, right = kind(a), kind(b)
    if left is right:
        if left is Kind.TIMESTAMP:
            work.spend(_SLOW + ZONED)
            return instant(a), instant(b)
        work.spend(_SLOW + (min(len(a), len(b)) // LONG if left in _SIZED else 0))
        if left in _ORDERED:
            return a, b
    elif left in NUMBERS and right in NUMBERS:
        return a, b
    return refuse(operator, a, b)


# hot: two types looked at, no call
_PLAIN: Final = frozenset({(int, int), (float, float), (int, float), (float, int), (timedelta, timedelta)})


def less(work: Meter, a: Any, b: Any) -> bool:
    if (type(a), type(b)) not in _PLAIN:
        a, b = _comparable(work, "_<_", a, b)
    return a < b  # type: ignore[no-any-return]


def at_most(work: Meter, a: Any, b: Any) -> bool:
    if (type(a), type(b)) not in _PLAIN:
        a, b = _comparable(work, "_<=_", a, b)
    return a <= b  # type: ignore[no-any-return]


def greater(work: Meter, a: Any, b: Any) -> bool:
    if (type(a), type(b)) not in _PLAIN:
        a, b = _comparable(work, "_>_", a, b)
    return a > b  # type: ignore[no-any-return]


def at_least(work: Meter, a: Any, b: Any) -> bool:
    if (type(a), type(b)) not in _PLAIN:
        a, b = _comparable(work, "_>=_", a, b)
    return a >= b  # type: ignore[no-any-return]


def signed(value: int) -> int:
    """An int within 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def unsigned(value: int) -> Uint:
    """A uint within 64 bits."""
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise CelError("unsigned integer overflow")


def span(value: timedelta) -> timedelta:
    """A duration within the range of CEL."""
    if -DURATION_MAX <= value <= DURATION_MAX:
        return value
    raise CelError("duration out of range")


def moved(when: datetime, by: timedelta) -> datetime:
    """A timestamp later by a duration, in the zone it had."""
    try:
        return (instant(when) + by).astimezone(when.tzinfo)
    except OverflowError as error:
        raise CelError("timestamp out of range") from error


def add(work: Meter, a: Any, b: Any) -> object:
    if type(a) is int and type(b) is int:
        return signed(a + b)
    if type(a) is str and type(b) is str:
        copied(work, len(a) + len(b))
        return a + b
    work.spend(_SLOW)
    match kind(a), kind(b):
        case Kind.INT, Kind.INT:
            return signed(int(a) + int(b))
        case Kind.UINT, Kind.UINT:
            return unsigned(int(a) + int(b))
        case Kind.DOUBLE, Kind.DOUBLE:
            return a + b
        case Kind.STRING, Kind.STRING:
            copied(work, len(a) + len(b))
            return str.__add__(a, b)
        case Kind.BYTES, Kind.BYTES:
            copied(work, len(a) + len(b))
            return a + b
        case Kind.LIST, Kind.LIST:
            if len(a) + len(b) > MAX_LIST:
                raise PredicateFailed(f"a list of more than {MAX_LIST} elements")
            work.spend((len(a) + len(b)) // 8)
            return [*a, *b]
        case Kind.TIMESTAMP, Kind.DURATION:
            work.spend(2 * ZONED)
            return moved(a, b)
        case Kind.DURATION, Kind.TIMESTAMP:
            work.spend(2 * ZONED)
            return moved(b, a)
        case Kind.DURATION, Kind.DURATION:
            return span(a + b)
        case _:
            refuse("_+_", a, b)


def subtract(work: Meter, a: Any, b: Any) -> object:
    if type(a) is int and type(b) is int:
        return signed(a - b)
    work.spend(_SLOW)
    match kind(a), kind(b):
        case Kind.INT, Kind.INT:
            return signed(int(a) - int(b))
        case Kind.UINT, Kind.UINT:
            return unsigned(int(a) - int(b))
        case Kind.DOUBLE, Kind.DOUBLE:
            return a - b
        case Kind.TIMESTAMP, Kind.TIMESTAMP:
            work.spend(ZONED)
            return span(instant(a) - instant(b))
        case Kind.TIMESTAMP, Kind.DURATION:
            work.spend(2 * ZONED)
            return moved(a, -b)
        case Kind.DURATION, Kind.DURATION:
            return span(a - b)
        case _:
            refuse("_-_", a, b)


def _narrow(value: int) -> int:
    """A factor: what came from outside with more bits than CEL has would take long to multiply or divide."""
    if INT_MIN <= value <= UINT_MAX:
        return int(value)
    raise CelError("integer overflow")


def multiply(a: Any, b: Any) -> object:
    match kind(a), kind(b):
        case Kind.INT, Kind.INT:
            return signed(_narrow(a) * _narrow(b))
        case Kind.UINT, Kind.UINT:
            return unsigned(_narrow(a) * _narrow(b))
        case Kind.DOUBLE, Kind.DOUBLE:
            return a * b
        case _:
            refuse("_*_", a, b)


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise CelError("division by zero")
    result = abs(a) // abs(b)  # truncated towards zero
    return result if (a < 0) == (b < 0) else -result


def divide(a: Any, b: Any) -> object:
    match kind(a), kind(b):
        case Kind.INT, Kind.INT:
            return signed(_quotient(_narrow(a), _narrow(b)))
        case Kind.UINT, Kind.UINT:
            return unsigned(_quotient(_narrow(a), _narrow(b)))
        case Kind.DOUBLE, Kind.DOUBLE:
            if b != 0:
                return a / b
            if a == 0 or math.isnan(a):
                return math.nan
            return math.copysign(math.inf, a) * math.copysign(1.0, b)
        case _:
            refuse("_/_", a, b)


def remainder(a: Any, b: Any) -> object:
    """`a % b`, with the sign of `a`."""
    match kind(a), kind(b):
        case Kind.INT, Kind.INT:
            # the least int by minus one has no quotient, so CEL gives it no remainder either
            return int(a) - signed(_quotient(_narrow(a), _narrow(b))) * int(b)
        case Kind.UINT, Kind.UINT:
            return unsigned(int(a) - _quotient(_narrow(a), _narrow(b)) * int(b))
        case _:
            refuse("_%_", a, b)


def negative(a: Any) -> object:
    match kind(a):
        case Kind.INT:
            return signed(-int(a))
        case Kind.DOUBLE:
            return -a
        case _:
            refuse("-_", a)


def select(value: Any, field: str) -> object:
    if type(value) is dict:
        if field in value:
            return value[field]
        raise CelError(f"no such field: {field}")
    if kind(value) not in (Kind.MAP, Kind.GROUP):
        raise CelError(f"{kind(value).value} has no fields, so no {field}")
    try:
        return value[field]
    except KeyError as error:
        raise CelError(f"no such field: {field}") from error
    except (CelError, PredicateFailed):
        raise
    except Exception as error:
        raise CelError(f"{field}: {type(error).__name__}: {error}") from error


def has(value: Any, field: str) -> bool:
    if kind(value) not in (Kind.MAP, Kind.GROUP):
        raise CelError(f"{kind(value).value} has no fields, so no {field}")
    try:
        value[field]
    except KeyError:
        return False
    except (CelError, PredicateFailed):
        raise
    except Exception as error:
        raise CelError(f"{field}: {type(error).__name__}: {error}") from error
    return True
