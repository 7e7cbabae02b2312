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
    int: Kind.INT,
    Uint: Kind.UINT,
    float: Kind.DOUBLE,
    str: Kind.STRING,
    bytes: Kind.BYTES,
    type(None): Kind.NULL,
    list: Kind.LIST,
    tuple: Kind.LIST,
    dict: Kind.MAP,
    timedelta: Kind.DURATION,
}


def kind(value: object) -> Kind:
    """The CEL type of a value."""
    found = KINDS.get(type(value))
    if found is not None:
        return found
    match value:
        case datetime():
            return Kind.OPAQUE if value.tzinfo is None else Kind.TIMESTAMP
        case Enum() if not isinstance(value, (int, str)):
            pass
        case bool() | Uint():
            return Kind.BOOL if isinstance(value, bool) else Kind.UINT
        case int():
            return Kind.INT
        case float():
            return Kind.DOUBLE
        case str():
            return Kind.STRING
        case list() | tuple():
            return Kind.LIST
        case Mapping():
            return Kind.MAP
        case bytes():
            return Kind.BYTES
        case timedelta():
            return Kind.DURATION
        case _ if hasattr(type(value), "__getitem__") and not isinstance(value, (bytearray, memoryview)):
            return Kind.GROUP
        case _:
            pass
    return Kind.OPAQUE
