"""The functions that every predicate can call: CEL's own, and those of Tidegate.

Left out: `type()` and type values, protocol buffer messages and enums, optional values, the string extensions
beyond CEL's standard definitions.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import re2  # type: ignore[import-untyped]

from tidegate import topics
from tidegate.policy.predicate import times, values
from tidegate.policy.predicate.failure import CelError, PredicateFailed
from tidegate.policy.predicate.signature import Function, Overload, Style
from tidegate.policy.predicate.types import Kind, Uint, kind
from tidegate.policy.predicate.values import MAX_LIST, Distinct, refuse, short

MAX_PATTERN: Final = 1024
"""Characters that a regular expression may have."""

A, B, I, U, D, S, Y, L, M, T, P = (  # noqa: E741  one letter for each kind keeps the tables below readable
    Kind.ANY, Kind.BOOL, Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.STRING,
    Kind.BYTES, Kind.LIST, Kind.MAP, Kind.TIMESTAMP, Kind.DURATION,
)  # fmt: skip

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,32}")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


@lru_cache(512)
def pattern(text: str) -> Callable[[str], object]:
    """The search of a regular expression, compiled once. RE2: linear in the text, whatever the pattern."""
    if len(text) > MAX_PATTERN:
        raise CelError(f"a regular expression of more than {MAX_PATTERN} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    options.never_capture = True
    try:
        return re2.compile(text, options).search  # type: ignore[no-any-return]
    except (re2.error, UnicodeEncodeError) as error:
        raise CelError(f"no regular expression: {short(text)}: {error}") from error


def matches(text: Any, wanted: Any) -> bool:
    """`text.matches(pattern)`: somewhere in the text."""
    if not isinstance(text, str) or not isinstance(wanted, str):
        refuse("matches", text, wanted)
    search = pattern(wanted)
    try:
        return search(text) is not None
    except UnicodeEncodeError as error:
        raise CelError("a string that is not Unicode") from error


def matcher_of(wanted: object) -> Callable[[object], bool] | None:
    """`matches` with a pattern that is known and good, bound so that no cache can lose it."""
    try:
        search = pattern(wanted) if isinstance(wanted, str) else None
    except CelError:
        return None  # the call itself will say so

    def run(text: object) -> bool:
        if not isinstance(text, str):
            refuse("matches", text, wanted)
        return search(text) is not None  # type: ignore[misc]

    return run if search is not None else None


def contains(text: Any, part: Any) -> bool:
    """`text.contains(part)`."""
    if not isinstance(text, str) or not isinstance(part, str):
        refuse("contains", text, part)
    return part in text


def starts_with(text: Any, part: Any) -> bool:
    """`text.startsWith(part)`."""
    if not isinstance(text, str) or not isinstance(part, str):
        refuse("startsWith", text, part)
    return text.startswith(part)


def ends_with(text: Any, part: Any) -> bool:
    """`text.endsWith(part)`."""
    if not isinstance(text, str) or not isinstance(part, str):
        refuse("endsWith", text, part)
    return text.endswith(part)


def size(value: Any) -> int:
    """`size(value)`: code points, bytes, elements or entries."""
    if kind(value) not in (S, Y, L, M):
        refuse("size", value)
    return len(value)


def _read_integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise CelError(f"no integer: {short(text)}")
    return int(text)


def _truncated(value: float) -> int:
    if not math.isfinite(value):
        raise CelError("integer overflow")
    return math.trunc(value)


def to_int(value: Any) -> int:
    """`int(value)`."""
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
    """`uint(value)`."""
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


def to_double(value: Any) -> float:
    """`double(value)`."""
    match kind(value):
        case Kind.INT | Kind.UINT | Kind.DOUBLE:
            return float(value)
        case Kind.STRING:
            if len(value) > 512 or _DOUBLE.fullmatch(value) is None:
                raise CelError(f"no double: {short(value)}")
            return float(value)
        case _:
            refuse("double", value)


def to_bool(value: Any) -> bool:
    """`bool(value)`."""
    match kind(value):
        case Kind.BOOL:
            return value  # type: ignore[no-any-return]
        case Kind.STRING if value in _TRUE or value in _FALSE:
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


def to_string(value: Any) -> str:
    """`string(value)`."""
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
            if len(value) > values.MAX_TEXT:
                raise PredicateFailed(f"a string of more than {values.MAX_TEXT} characters")
            try:
                return bytes.decode(value)
            except UnicodeDecodeError as error:
                raise CelError("bytes that are not UTF-8") from error
        case Kind.TIMESTAMP:
            return times.write_timestamp(value)
        case Kind.DURATION:
            return times.write_duration(value)
        case _:
            refuse("string", value)


def to_bytes(value: Any) -> bytes:
    """`bytes(value)`."""
    match kind(value):
        case Kind.BYTES:
            return value  # type: ignore[no-any-return]
        case Kind.STRING:
            try:
                return str.encode(values.text(value))
            except UnicodeEncodeError as error:
                raise CelError("a string that is not Unicode") from error
        case _:
            refuse("bytes", value)


def _lists(name: str, a: Any, b: Any) -> None:
    if kind(a) is not L or kind(b) is not L:
        refuse(name, a, b)
    if len(a) + len(b) > 2 * MAX_LIST:
        raise PredicateFailed(f"lists of more than {MAX_LIST} elements")


def sets_contains(a: Any, b: Any) -> bool:
    """`sets.contains(a, b)`: every element of b is in a."""
    _lists("sets.contains", a, b)
    among = Distinct(a)
    return all(item in among for item in b)


def sets_intersects(a: Any, b: Any) -> bool:
    """`sets.intersects(a, b)`: some element is in both."""
    _lists("sets.intersects", a, b)
    among = Distinct(a)
    return any(item in among for item in b)


def sets_equivalent(a: Any, b: Any) -> bool:
    """`sets.equivalent(a, b)`: each contains the other."""
    return sets_contains(a, b) and sets_contains(b, a)


def union(a: Any, b: Any) -> list[object]:
    """What is in either, each once, in the order of a and then b."""
    _lists("union", a, b)
    seen = Distinct()
    return [item for item in [*a, *b] if seen.add(item)]


def intersection(a: Any, b: Any) -> list[object]:
    """What is in both, each once, in the order of a."""
    _lists("intersection", a, b)
    among, seen = Distinct(b), Distinct()
    return [item for item in a if item in among and seen.add(item)]


def difference(a: Any, b: Any) -> list[object]:
    """What is in a and not in b, each once, in the order of a."""
    _lists("difference", a, b)
    among, seen = Distinct(b), Distinct()
    return [item for item in a if item not in among and seen.add(item)]


@lru_cache(1024)
def topic_filter(text: str) -> str:
    """A filter without its `$share/group/`."""
    if not topics.valid_filter(text):
        raise CelError(f"no topic filter: {short(text)}")
    return topics.share(text)[1]


def matches_filter(topic: Any, wanted: Any) -> bool:
    """`matchesFilter(topic, filter)`."""
    if not isinstance(topic, str) or not isinstance(wanted, str):
        refuse("matchesFilter", topic, wanted)
    wanted = topic_filter(wanted)
    if not topics.valid_topic(topic):
        raise CelError(f"no topic: {short(topic)}")
    return topics.matches(wanted, topic)


@lru_cache(1024)
def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """A network such as `10.0.0.0/8`."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise CelError(f"no network: {short(text)}: {error}") from error


def networks(value: Any) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """One network or a list of them."""
    match kind(value):
        case Kind.STRING:
            return [network(value)]
        case Kind.LIST:
            return [network(item) if isinstance(item, str) else refuse("cidr", item) for item in value]
        case _:
            refuse("cidr", value)


def cidr(address: Any, value: Any) -> bool:
    """`cidr(address, "10.0.0.0/8")`. An IPv4 address written as IPv6 (`::ffff:10.0.0.1`) is the IPv4 address."""
    if not isinstance(address, str):
        refuse("cidr", address, value)
    try:
        found = ipaddress.ip_address(address)
    except ValueError as error:
        raise CelError(f"no address: {short(address)}") from error
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found.version == among.version and found in among for among in networks(value))


def _same(value: object) -> object:
    return value


def _function(
    name: str,
    run: Callable[..., object],
    *overloads: Overload,
    style: Style = Style.GLOBAL,
    literal: Callable[..., object] | None = None,
) -> Function:
    return Function(name=name, run=run, overloads=overloads, style=style, literal=literal)


_ORDER: Final[tuple[Overload, ...]] = (
    *(((a, b), B) for a in (I, U, D) for b in (I, U, D)),
    *(((a, a), B) for a in (B, S, Y, T, P)),
)


def _arithmetic(*kinds: Kind) -> tuple[Overload, ...]:
    return tuple(((a, a), a) for a in kinds)


AGE: Final = _function("age", times.age, ((T, T), P))

OPERATORS: Final[Mapping[str, Function]] = {
    made.name: made
    for made in (
        _function("_==_", values.equal, ((A, A), B)),
        _function("_!=_", values.unequal, ((A, A), B)),
        _function("_<_", values.less, *_ORDER),
        _function("_<=_", values.at_most, *_ORDER),
        _function("_>_", values.greater, *_ORDER),
        _function("_>=_", values.at_least, *_ORDER),
        _function("_+_", values.add, *_arithmetic(I, U, D, S, Y, L, P), ((T, P), T), ((P, T), T)),
        _function("_-_", values.subtract, *_arithmetic(I, U, D, P), ((T, T), P), ((T, P), T)),
        _function("_*_", values.multiply, *_arithmetic(I, U, D)),
        _function("_/_", values.divide, *_arithmetic(I, U, D)),
        _function("_%_", values.remainder, *_arithmetic(I, U)),
        _function("-_", values.negative, ((I,), I), ((D,), D)),
        _function("!_", values.negated, ((B,), B)),
        _function("_in_", values.member, ((A, L), B), *(((a, M), B) for a in (B, I, U, D, S))),
        _function("_[_]", values.index, *(((L, a), A) for a in (I, U, D)), *(((M, a), A) for a in (B, I, U, D, S))),
    )
}

_STRING: Final[Overload] = ((S, S), B)
_SETS: Final[Overload] = ((L, L), B)
_LISTS: Final[Overload] = ((L, L), L)

FUNCTIONS: Final[Mapping[str, Function]] = {
    made.name: made
    for made in (
        _function("size", size, *(((a,), I) for a in (S, Y, L, M)), style=Style.BOTH),
        _function("contains", contains, _STRING, style=Style.RECEIVER),
        _function("startsWith", starts_with, _STRING, style=Style.RECEIVER),
        _function("endsWith", ends_with, _STRING, style=Style.RECEIVER),
        _function("matches", matches, _STRING, style=Style.BOTH, literal=pattern),
        _function("int", to_int, *(((a,), I) for a in (I, U, D, S, T)), literal=to_int),
        _function("uint", to_uint, *(((a,), U) for a in (I, U, D, S)), literal=to_uint),
        _function("double", to_double, *(((a,), D) for a in (I, U, D, S)), literal=to_double),
        _function("bool", to_bool, *(((a,), B) for a in (B, S)), literal=to_bool),
        _function("string", to_string, *(((a,), S) for a in (S, I, U, D, B, Y, T, P)), literal=to_string),
        _function("bytes", to_bytes, *(((a,), Y) for a in (S, Y)), literal=to_bytes),
        _function("timestamp", times.timestamp, *(((a,), T) for a in (S, I, T)), literal=times.timestamp),
        _function("duration", times.duration, *(((a,), P) for a in (S, P)), literal=times.duration),
        _function("dyn", _same, ((A,), A)),
        *(
            _function(
                name,
                times.accessor(name, *how),
                ((T,), I),
                ((T, S), I),
                *((((P,), I),) if how[1] is not None else ()),
                style=Style.RECEIVER,
                literal=times.zone,
            )
            for name, how in times.ACCESSORS.items()
        ),
        _function("sets.contains", sets_contains, _SETS),
        _function("sets.intersects", sets_intersects, _SETS),
        _function("sets.equivalent", sets_equivalent, _SETS),
        _function("union", union, _LISTS, style=Style.BOTH),
        _function("intersection", intersection, _LISTS, style=Style.BOTH),
        _function("difference", difference, _LISTS, style=Style.BOTH),
        _function("matchesFilter", matches_filter, _STRING, style=Style.BOTH, literal=topic_filter),
        _function(
            "within",
            times.within,
            *(((t, w), B) for t in (T, S) for w in (S, L)),
            *(((T, w, S), B) for w in (S, L)),
            style=Style.BOTH,
        ),
        _function("cidr", cidr, *(((S, n), B) for n in (S, L)), style=Style.BOTH, literal=networks),
    )
}
