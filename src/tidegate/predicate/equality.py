"""Equality, and what rests on it: keys of maps, members of lists, sets.

`true` is no number, numbers of all kinds compare with each other, and NaN equals nothing, itself included. Values
from outside may be as large as they like, and computed ones may share parts and so be exponentially large to look
at: every comparison pays as it goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from tidegate.predicate.failure import CelError
from tidegate.predicate.types import NUMBERS, Kind, kind
from tidegate.predicate.values import ZONED, has, instant, refuse, select, short
from tidegate.predicate.work import LONG, Meter

_FLAT: Final = frozenset((int, float, bool, type(None), timedelta))
"""Types of one kind, for which Python's `==` is CEL's and takes no time."""
FEW: Final = 16
"""Strings that are looked for one by one, which takes no longer than a hash."""

_PAIR: Final = 5
"""Operations to compare two elements of lists."""
_NESTED: Final = 10
"""Operations to begin comparing two lists or maps."""
_ENTRY: Final = 10
"""Operations to compare two entries of maps."""
_HASHED: Final = 16
"""Operations to find one element that is no string in a set, or to put it there."""


def equal(work: Meter, a: Any, b: Any) -> bool:
    if type(a) is str and type(b) is str:
        if len(a) > LONG and len(a) == len(b):
            work.spend(len(a) // LONG)
        return a == b
    if type(a) in _FLAT and type(a) is type(b):
        return bool(a == b)
    left, right = kind(a), kind(b)
    if left is not right:
        return left in NUMBERS and right in NUMBERS and bool(a == b)
    match left:
        case Kind.LIST:
            work.spend(_NESTED)
            return len(a) == len(b) and _lists(work.total(), a, b)
        case Kind.MAP:
            work.spend(_NESTED)
            return len(a) == len(b) and _maps(work.total(), a, b)
        case Kind.STRING | Kind.BYTES:
            if len(a) == len(b):
                work.spend(len(a) // LONG)
            return bool(a == b)
        case Kind.TIMESTAMP:
            work.spend(ZONED)
            return instant(a) == instant(b)
        case Kind.GROUP | Kind.OPAQUE:
            refuse("_==_", a, b)
        case _:
            return bool(a == b)


def _lists(work: Meter, a: Any, b: Any) -> bool:
    for x, y in zip(a, b, strict=True):
        work.spend(_PAIR)
        if not equal(work, x, y):
            return False
    return True


def _maps(work: Meter, a: Any, b: Any) -> bool:
    for key, value in a.items():
        work.spend(_ENTRY)
        if not holds(work, b, key) or not equal(work, value, b[key]):
            return False
    return True


def unequal(work: Meter, a: object, b: object) -> bool:
    return not equal(work, a, b)


def holds(work: Meter, mapping: Mapping[Any, Any], key: Any) -> bool:
    """Whether a map has the key. Python thinks that True is 1; CEL does not."""
    match kind(key):
        case Kind.STRING:
            if len(key) > LONG:
                work.spend(len(key) // LONG)
            return key in mapping
        case Kind.BOOL:
            work.spend(len(mapping))
            return any(known is key for known in mapping)
        case Kind.INT | Kind.UINT | Kind.DOUBLE:
            if key not in mapping:
                return False
            if key not in (0, 1):
                return True
            work.spend(len(mapping))
            return any(known == key and not isinstance(known, bool) for known in mapping)
        case _:
            return False


def index(work: Meter, a: Any, b: Any) -> object:
    match kind(a):
        case Kind.MAP:
            if kind(b) not in (Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.BOOL, Kind.STRING):
                refuse("_[_]", a, b)
            if type(b) is not str:
                if not holds(work, a, b):
                    raise CelError(f"no such key: {short(b)}")
                return a[b]
            if len(b) > LONG:
                work.spend(len(b) // LONG)
            return select(a, b)
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


def member(work: Meter, a: object, b: Any) -> bool:
    if type(b) is list or type(b) is tuple:
        if type(a) is str:
            if len(b) > 32 or len(a) > LONG:
                work.spend(len(b) // 3 + len(b) * (len(a) // LONG))
            return a in b
        return _among(work, a, b)
    match kind(b):
        case Kind.LIST:
            return _among(work, a, b)
        case Kind.MAP:
            if kind(a) not in (Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.BOOL, Kind.STRING):
                refuse("_in_", a, b)
            return holds(work, b, a)
        case Kind.GROUP if isinstance(a, str):
            return has(b, a)
        case _:
            refuse("_in_", a, b)


def prepare_member(work: Meter, b: object) -> Callable[..., bool]:
    """`a in b` of a long list of strings that is known: by hash. Other lists are looked through."""
    if not isinstance(b, list) or len(b) <= FEW or not all(type(item) is str for item in b):
        refuse("_in_", b)
    work.spend(sum(1 + len(item) // LONG for item in b))
    members = frozenset(b)
    longest = max(map(len, members))
    return lambda work, a: isinstance(a, str) and len(a) <= longest and a in members


def _among(work: Meter, a: object, b: Iterable[object]) -> bool:
    work = work.total()
    for item in b:
        work.spend(_PAIR)
        if equal(work, a, item):
            return True
    return False


def mapping(work: Meter, entries: Iterable[tuple[object, object]]) -> dict[object, object]:
    """A map literal. Keys that are equal, as `0` and `0u` are, are an error."""
    result: dict[Any, object] = {}
    for key, value in entries:
        if kind(key) not in (Kind.INT, Kind.UINT, Kind.BOOL, Kind.STRING):
            raise CelError(f"{kind(key).value} cannot be the key of a map")
        if isinstance(key, str) and len(key) > LONG:
            work.spend(len(key) // LONG)
        if key in result:
            raise CelError(f"the key {short(key)} twice")
        result[key] = value
    return result


class Distinct:
    """Values to test membership in: by hash for scalars, one by one for lists and maps."""

    __slots__ = ("_compound", "_scalars", "_work")

    def __init__(self, work: Meter, values: Iterable[object] = ()) -> None:
        self._scalars: set[object] = set()
        self._compound: list[object] = []
        self._work = work.total()
        for value in values:
            self.add(value)

    def add(self, value: object) -> bool:
        """Put a value in; whether it was new."""
        key = self._key(value)
        if key is None:
            if self._compared(value):
                return False
            self._compound.append(value)
            return True
        if key in self._scalars:
            return False
        self._scalars.add(key)
        return True

    def __contains__(self, value: object) -> bool:
        key = self._key(value)
        return self._compared(value) if key is None else key in self._scalars

    def _compared(self, value: object) -> bool:
        for other in self._compound:
            self._work.spend(_PAIR)
            if equal(self._work, value, other):
                return True
        return False

    def _key(self, value: Any) -> object:
        """What equal scalars share and unequal ones do not; None for what has to be compared."""
        if type(value) is str:
            self._work.spend(_PAIR + len(value) // LONG)
            return value
        self._work.spend(_HASHED)
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
                self._work.spend(ZONED)
                return (Kind.TIMESTAMP, instant(value))
            case Kind.STRING:
                self._work.spend(len(value) // LONG)
                return str.__str__(value)
            case Kind.BYTES:
                self._work.spend(len(value) // LONG)
                return (Kind.BYTES, value)
            case other:
                return (other, value)
