"""The operators of CEL on values: equality, order, arithmetic, membership, indexing.

Not Python's: integers have 64 bits and overflow is an error, division truncates, `true` is no number, kinds do not
mix in arithmetic, numbers of all kinds compare with each other, and NaN equals nothing, itself included.
Every function raises `CelError` for arguments that no overload takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from tidegate.policy.predicate.failure import CelError, PredicateFailed
from tidegate.policy.predicate.types import INT_MAX, INT_MIN, KINDS, NUMBERS, UINT_MAX, Kind, Uint, kind

MAX_TEXT: Final = 1 << 20
"""Characters or bytes that a computed string may have."""
MAX_LIST: Final = 10_000
"""Elements that a list may have to be computed or to be run over."""

DURATION_MAX: Final = timedelta(seconds=315_576_000_000)


def refuse(operator: str, *values: object) -> NoReturn:
    """No overload for these kinds."""
    raise CelError(f"no such overload: {operator} of {', '.join(kind(value).value for value in values)}")


def boolean(value: object) -> bool:
    """The value, which must be a bool."""
    if value is True or value is False:
        return value
    raise CelError(f"{kind(value).value} where bool is expected")


def negated(value: object) -> bool:
    """`!value`."""
    return not boolean(value)


def text(value: str) -> str:
    """A computed string, within bounds."""
    if len(value) > MAX_TEXT:
        raise PredicateFailed(f"a string of more than {MAX_TEXT} characters")
    return value


def instant(value: datetime) -> datetime:
    """The same instant in UTC: Python compares the wall clocks of equal zones, which is wrong in autumn."""
    return value if value.tzinfo is UTC else value.astimezone(UTC)


class Fuel:
    """Comparisons that one operator may still make: lists that share parts can be exponentially large to look at."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = 20 * MAX_LIST

    def burn(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise PredicateFailed("values too large to compare")


def equal(a: Any, b: Any, fuel: Fuel | None = None) -> bool:
    """`a == b`."""
    if type(a) is str and type(b) is str:
        return a == b
    left, right = kind(a), kind(b)
    if left is not right:
        return left in NUMBERS and right in NUMBERS and bool(a == b)
    match left:
        case Kind.LIST:
            if len(a) != len(b):
                return False
            fuel = fuel or Fuel()
            fuel.burn(1 + len(a))
            return all(equal(x, y, fuel) for x, y in zip(a, b, strict=True))
        case Kind.MAP:
            if len(a) != len(b):
                return False
            fuel = fuel or Fuel()
            fuel.burn(1 + len(a))
            return all(holds(b, key) and equal(value, fetch(b, key), fuel) for key, value in a.items())
        case Kind.TIMESTAMP:
            return instant(a) == instant(b)
        case Kind.GROUP | Kind.OPAQUE:
            refuse("_==_", a, b)
        case _:
            return bool(a == b)


def unequal(a: object, b: object) -> bool:
    """`a != b`."""
    return not equal(a, b)


_ORDERED: Final = NUMBERS | {Kind.STRING, Kind.BYTES, Kind.BOOL, Kind.DURATION}


def _comparable(operator: str, a: Any, b: Any) -> tuple[Any, Any]:
    left, right = kind(a), kind(b)
    if left is right:
        if left in _ORDERED:
            return a, b
        if left is Kind.TIMESTAMP:
            return instant(a), instant(b)
    elif left in NUMBERS and right in NUMBERS:
        return a, b
    return refuse(operator, a, b)


# hot: two types looked at, no call
_PLAIN: Final = frozenset({(int, int), (float, float), (int, float), (float, int), (str, str)})


def less(a: Any, b: Any) -> bool:
    """`a < b`."""
    if (type(a), type(b)) not in _PLAIN:
        a, b = _comparable("_<_", a, b)
    return bool(a < b)


def at_most(a: Any, b: Any) -> bool:
    """`a <= b`."""
    if (type(a), type(b)) not in _PLAIN:
        a, b = _comparable("_<=_", a, b)
    return bool(a <= b)


def greater(a: Any, b: Any) -> bool:
    """`a > b`."""
    if (type(a), type(b)) not in _PLAIN:
        a, b = _comparable("_>_", a, b)
    return bool(a > b)


def at_least(a: Any, b: Any) -> bool:
    """`a >= b`."""
    if (type(a), type(b)) not in _PLAIN:
        a, b = _comparable("_>=_", a, b)
    return bool(a >= b)


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


def add(a: Any, b: Any) -> object:
    """`a + b`."""
    if type(a) is int and type(b) is int:
        return signed(a + b)
    match kind(a), kind(b):
        case Kind.INT, Kind.INT:
            return signed(int(a) + int(b))
        case Kind.UINT, Kind.UINT:
            return unsigned(int(a) + int(b))
        case Kind.DOUBLE, Kind.DOUBLE:
            return a + b
        case Kind.STRING, Kind.STRING:
            return text(str.__add__(a, b)) if len(a) + len(b) <= MAX_TEXT else text("x" * (MAX_TEXT + 1))
        case Kind.BYTES, Kind.BYTES:
            if len(a) + len(b) > MAX_TEXT:
                raise PredicateFailed(f"bytes longer than {MAX_TEXT}")
            return a + b
        case Kind.LIST, Kind.LIST:
            if len(a) + len(b) > MAX_LIST:
                raise PredicateFailed(f"a list of more than {MAX_LIST} elements")
            return [*a, *b]
        case Kind.TIMESTAMP, Kind.DURATION:
            return moved(a, b)
        case Kind.DURATION, Kind.TIMESTAMP:
            return moved(b, a)
        case Kind.DURATION, Kind.DURATION:
            return span(a + b)
        case _:
            refuse("_+_", a, b)


def subtract(a: Any, b: Any) -> object:
    """`a - b`."""
    if type(a) is int and type(b) is int:
        return signed(a - b)
    match kind(a), kind(b):
        case Kind.INT, Kind.INT:
            return signed(int(a) - int(b))
        case Kind.UINT, Kind.UINT:
            return unsigned(int(a) - int(b))
        case Kind.DOUBLE, Kind.DOUBLE:
            return a - b
        case Kind.TIMESTAMP, Kind.TIMESTAMP:
            return span(instant(a) - instant(b))
        case Kind.TIMESTAMP, Kind.DURATION:
            return moved(a, -b)
        case Kind.DURATION, Kind.DURATION:
            return span(a - b)
        case _:
            refuse("_-_", a, b)


def multiply(a: Any, b: Any) -> object:
    """`a * b`."""
    match kind(a), kind(b):
        case Kind.INT, Kind.INT:
            return signed(int(a) * int(b))
        case Kind.UINT, Kind.UINT:
            return unsigned(int(a) * int(b))
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
    """`a / b`."""
    match kind(a), kind(b):
        case Kind.INT, Kind.INT:
            return signed(_quotient(int(a), int(b)))
        case Kind.UINT, Kind.UINT:
            return unsigned(_quotient(int(a), int(b)))
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
            return int(a) - signed(_quotient(int(a), int(b))) * int(b)
        case Kind.UINT, Kind.UINT:
            return unsigned(int(a) - _quotient(int(a), int(b)) * int(b))
        case _:
            refuse("_%_", a, b)


def negative(a: Any) -> object:
    """`-a`."""
    match kind(a):
        case Kind.INT:
            return signed(-int(a))
        case Kind.DOUBLE:
            return -a
        case _:
            refuse("-_", a)


def _key(found: Mapping[Any, Any], key: Any) -> tuple[bool, Any]:
    """Whether a map has the key, and the key as the map spells it. Python thinks that True is 1; CEL does not."""
    match kind(key):
        case Kind.STRING:
            return key in found, key
        case Kind.BOOL:
            return any(has is key for has in found), key
        case Kind.INT | Kind.UINT | Kind.DOUBLE:
            if key not in found:
                return False, key
            return key not in (0, 1) or any(has == key and not isinstance(has, bool) for has in found), key
        case _:
            return False, key


def holds(found: Mapping[Any, Any], key: object) -> bool:
    """Whether a map has the key."""
    return _key(found, key)[0]


def fetch(found: Mapping[Any, Any], key: object) -> object:
    """The value of a key."""
    there, key = _key(found, key)
    if not there:
        raise CelError(f"no such key: {short(key)}")
    return found[key]


def short(value: object) -> str:
    """A value in a message, never long."""
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def index(a: Any, b: Any) -> object:
    """`a[b]`."""
    match kind(a):
        case Kind.MAP:
            if kind(b) not in (Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.BOOL, Kind.STRING):
                refuse("_[_]", a, b)
            return select(a, b) if type(b) is str else fetch(a, b)
        case Kind.GROUP if isinstance(b, str):
            return select(a, b)
        case Kind.LIST if kind(b) in NUMBERS:
            if isinstance(b, float):
                if not b.is_integer():
                    raise CelError("a list index with a fraction")
                b = int(b)
            if not 0 <= b < len(a):
                raise CelError(f"index {short(b)} out of range")
            return a[b]
        case _:
            refuse("_[_]", a, b)


def select(value: Any, field: str) -> object:
    """`value.field`."""
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
    """`has(value.field)`."""
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


def member(a: object, b: Any) -> bool:
    """`a in b`."""
    if type(b) is list or type(b) is tuple:
        if type(a) is str:
            return a in b
        fuel = Fuel()
        return any(equal(a, item, fuel) for item in b)
    match kind(b):
        case Kind.LIST:
            fuel = Fuel()
            return any(equal(a, item, fuel) for item in b)
        case Kind.MAP:
            if kind(a) not in (Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.BOOL, Kind.STRING):
                refuse("_in_", a, b)
            return holds(b, a)
        case Kind.GROUP if isinstance(a, str):
            return has(b, a)
        case _:
            refuse("_in_", a, b)


def mapping(entries: Iterable[tuple[object, object]]) -> dict[object, object]:
    """A map literal. Keys that are equal, as `0` and `0u` are, are an error."""
    made: dict[Any, object] = {}
    for key, value in entries:
        if kind(key) not in (Kind.INT, Kind.UINT, Kind.BOOL, Kind.STRING):
            raise CelError(f"{kind(key).value} cannot be the key of a map")
        if key in made:
            raise CelError(f"the key {short(key)} twice")
        made[key] = value
    return made


class Distinct:
    """Values to test membership in: by hash for scalars, one by one for lists and maps."""

    __slots__ = ("_compound", "_fuel", "_scalars")

    def __init__(self, values: Sequence[object] = ()) -> None:
        self._scalars: set[object] = set()
        self._compound: list[object] = []
        self._fuel = Fuel()
        for value in values:
            self.add(value)

    def add(self, value: object) -> bool:
        """Put a value in; whether it was new."""
        if value in self:
            return False
        key = _scalar(value)
        if key is None:
            self._compound.append(value)
        else:
            self._scalars.add(key)
        return True

    def __contains__(self, value: object) -> bool:
        key = _scalar(value)
        if key is not None:
            return key in self._scalars
        self._fuel.burn(len(self._compound))
        return any(equal(value, other, self._fuel) for other in self._compound)


def _scalar(value: Any) -> object:
    """What equal scalars share and unequal ones do not; None for what has to be compared."""
    match kind(value):
        case Kind.LIST | Kind.MAP | Kind.GROUP | Kind.OPAQUE:
            return None
        case Kind.BOOL | Kind.NULL:
            return (Kind.BOOL, value)
        case Kind.DOUBLE if math.isnan(value):
            return (Kind.DOUBLE, object())  # equal to nothing
        case Kind.INT | Kind.UINT | Kind.DOUBLE:
            return (Kind.INT, value)
        case Kind.TIMESTAMP:
            return (Kind.TIMESTAMP, instant(value))
        case other:
            return (other, value)


def weight(value: Any) -> int:
    """Roughly the work of looking at all of a value; what macros are charged for each operation on it."""
    total, todo = 0, [value]
    while todo and total <= 20 * MAX_LIST:
        value = todo.pop()
        total += 1
        match KINDS.get(type(value)):
            case Kind.STRING | Kind.BYTES:
                total += len(value) // 32
            case Kind.LIST:
                todo.extend(value)
            case Kind.MAP:
                todo.extend(value.values())
            case _:
                pass
    return total
