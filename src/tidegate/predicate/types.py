"""The values of CEL as Python values, and where attributes come from.

| CEL | Python |
|---|---|
| int | `int` (not `bool`) |
| uint | `Uint` |
| double | `float` |
| bool, null | `bool`, `None` |
| string, bytes | `str`, `bytes` |
| list | `list`, `tuple` |
| map | any `Mapping`; keys are int, uint, bool or string |
| timestamp | aware `datetime`; its zone is kept for `within`, and otherwise only the instant counts |
| duration | `timedelta` |

Timestamps and durations have microseconds where CEL has nanoseconds; further digits in a text are cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Protocol

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class Uint(int):
    """An unsigned integer of 64 bits: equal to the int of the same value, but never added to one."""

    __slots__ = ()


class Attributes(Protocol):
    """What `s`, `o`, `e`, `p` and groups inside them are.

    A dict is one. So is a dict subclass with `__missing__`, or any class with `__getitem__`: an attribute is
    computed when a predicate reads it and not before. An absent attribute is a `KeyError`.
    """

    def __getitem__(self, name: str, /) -> object: ...


Env = Mapping[str, Attributes]
"""The roots by name. For a call, a root that is absent is an error when read; for `partial` it is unknown."""


class _Unknown(Enum):
    UNKNOWN = "unknown"


UNKNOWN: Final = _Unknown.UNKNOWN
"""Stands in an environment given to `partial` for a root or an attribute that is not known yet."""


class Kind(Enum):
    """The types of CEL that a value can have at run time, and ANY for what is not known before."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    NULL = "null"
    LIST = "list"
    MAP = "map"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    GROUP = "attributes"
    OPAQUE = "unknown"
    """What is no value of CEL: equal to nothing, and no overload takes it."""
    ANY = "dyn"


NUMBERS: Final = frozenset((Kind.INT, Kind.UINT, Kind.DOUBLE))

KINDS: Final[dict[type, Kind]] = {
    bool: Kind.BOOL,
    Uint: Kind.UINT,
    int: Kind.INT,
    float: Kind.DOUBLE,
    str: Kind.STRING,
    bytes: Kind.BYTES,
    type(None): Kind.NULL,
    list: Kind.LIST,
    tuple: Kind.LIST,
    dict: Kind.MAP,
    timedelta: Kind.DURATION,
}
"""Derived types before those they derive from."""

_SEEN: Final[dict[type, Kind]] = dict(KINDS)
"""The kinds of types met so far: all but the kind of a datetime depends on the type alone."""


def kind(value: object) -> Kind:
    known = _SEEN.get(type(value))
    if known is not None:
        return known
    if isinstance(value, datetime):
        return Kind.OPAQUE if value.tzinfo is None else Kind.TIMESTAMP
    known = _kind(type(value))
    if len(_SEEN) < 1024:  # types made at run time must not pile up
        _SEEN[type(value)] = known
    return known


def _kind(of: type) -> Kind:
    if issubclass(of, Enum) and not issubclass(of, (int, str)):
        return Kind.OPAQUE
    for python, cel in (*KINDS.items(), (Mapping, Kind.MAP)):
        if issubclass(of, python):
            return cel
    if hasattr(of, "__getitem__") and not issubclass(of, (bytearray, memoryview)):
        return Kind.GROUP
    return Kind.OPAQUE
