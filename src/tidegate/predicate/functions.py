"""The functions that every predicate can call: CEL's own, and those of Tidegate.

Whatever depends on the size of an argument is paid for before it is done. What is constant but for the first argument
(a pattern, a list of networks) is prepared once.

Left out: `type()` and type values, protocol buffer messages and enums, optional values, the string extensions
beyond CEL's standard definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidegate.predicate import conversions, equality, networks, texts, times, values
from tidegate.predicate.equality import Distinct
from tidegate.predicate.failure import PredicateFailed
from tidegate.predicate.signature import Function, Overload, Style
from tidegate.predicate.types import Kind, kind
from tidegate.predicate.values import MAX_LIST, refuse
from tidegate.predicate.work import LOADING, Meter, Work

A, B, I, U, D, S, Y, L, M, T, P = (  # noqa: E741  one letter for each kind keeps the tables below readable
    Kind.ANY, Kind.BOOL, Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.STRING,
    Kind.BYTES, Kind.LIST, Kind.MAP, Kind.TIMESTAMP, Kind.DURATION,
)  # fmt: skip


def size(value: Any) -> int:
    """`size(value)`: code points, bytes, elements or entries."""
    if kind(value) not in (S, Y, L, M):
        refuse("size", value)
    return len(value)


def _lists(name: str, a: Any, b: Any) -> None:
    if kind(a) is not L or kind(b) is not L:
        refuse(name, a, b)
    if len(a) + len(b) > 2 * MAX_LIST:
        raise PredicateFailed(f"lists of more than {MAX_LIST} elements")


def sets_contains(work: Meter, a: Any, b: Any) -> bool:
    """`sets.contains(a, b)`: every element of b is in a."""
    _lists("sets.contains", a, b)
    among = Distinct(work, a)
    return all(item in among for item in b)


def sets_intersects(work: Meter, a: Any, b: Any) -> bool:
    """`sets.intersects(a, b)`: some element is in both."""
    _lists("sets.intersects", a, b)
    among = Distinct(work, a)
    return any(item in among for item in b)


def sets_equivalent(work: Meter, a: Any, b: Any) -> bool:
    """`sets.equivalent(a, b)`: each contains the other."""
    return sets_contains(work, a, b) and sets_contains(work, b, a)


def union(work: Meter, a: Any, b: Any) -> list[object]:
    """What is in either, each once, in the order of a and then b."""
    _lists("union", a, b)
    seen = Distinct(work)
    return [item for part in (a, b) for item in part if seen.add(item)]


def intersection(work: Meter, a: Any, b: Any) -> list[object]:
    """What is in both, each once, in the order of a."""
    _lists("intersection", a, b)
    among, seen = Distinct(work, b), Distinct(work)
    return [item for item in a if item in among and seen.add(item)]


def difference(work: Meter, a: Any, b: Any) -> list[object]:
    """What is in a and not in b, each once, in the order of a."""
    _lists("difference", a, b)
    among, seen = Distinct(work, b), Distinct(work)
    return [item for item in a if item not in among and seen.add(item)]


def _same(value: object) -> object:
    return value


def _function(
    name: str,
    run: Callable[..., object],
    *overloads: Overload,
    cost: int = 3,
    metered: bool = False,
    style: Style = Style.GLOBAL,
    literal: Callable[..., object] | None = None,
    prepare: Callable[..., Callable[..., object]] | None = None,
) -> Function:
    return Function(
        name=name,
        run=run,
        overloads=overloads,
        cost=cost,
        metered=metered,
        style=style,
        literal=literal,
        prepare=prepare,
    )


def _metered(name: str, run: Callable[..., object], *overloads: Overload, **more: Any) -> Function:
    """A function that takes a meter first."""
    return _function(name, run, *overloads, metered=True, **more)


def _unmetered(run: Callable[..., object]) -> Callable[..., object]:
    """For literals, which are as short as the text they stand in."""
    return lambda value: run(Work(LOADING), value)


_ORDER: Final[tuple[Overload, ...]] = (
    *(((a, b), B) for a in (I, U, D) for b in (I, U, D)),
    *(((a, a), B) for a in (B, S, Y, T, P)),
)


def _arithmetic(*kinds: Kind) -> tuple[Overload, ...]:
    return tuple(((a, a), a) for a in kinds)


AGE: Final = _function("age", times.age, ((T, T), P), cost=25)

OPERATORS: Final[Mapping[str, Function]] = {
    made.name: made
    for made in (
        _metered("_==_", equality.equal, ((A, A), B), cost=3),
        _metered("_!=_", equality.unequal, ((A, A), B), cost=4),
        _metered("_<_", values.less, *_ORDER),
        _metered("_<=_", values.at_most, *_ORDER),
        _metered("_>_", values.greater, *_ORDER),
        _metered("_>=_", values.at_least, *_ORDER),
        _metered("_+_", values.add, *_arithmetic(I, U, D, S, Y, L, P), ((T, P), T), ((P, T), T), cost=5),
        _metered("_-_", values.subtract, *_arithmetic(I, U, D, P), ((T, T), P), ((T, P), T), cost=5),
        _function("_*_", values.multiply, *_arithmetic(I, U, D), cost=8),
        _function("_/_", values.divide, *_arithmetic(I, U, D), cost=10),
        _function("_%_", values.remainder, *_arithmetic(I, U), cost=10),
        _function("-_", values.negative, ((I,), I), ((D,), D), cost=6),
        _function("!_", values.negated, ((B,), B), cost=4),
        _metered(
            "_in_",
            equality.member,
            ((A, L), B),
            *(((a, M), B) for a in (B, I, U, D, S)),
            cost=12,
            prepare=equality.prepare_member,
        ),
        _metered(
            "_[_]",
            equality.index,
            *(((L, a), A) for a in (I, U, D)),
            *(((M, a), A) for a in (B, I, U, D, S)),
            cost=8,
        ),
    )
}

_STRING: Final[Overload] = ((S, S), B)
_SETS: Final[Overload] = ((L, L), B)
_LISTS: Final[Overload] = ((L, L), L)

FUNCTIONS: Final[Mapping[str, Function]] = {
    made.name: made
    for made in (
        _function("size", size, *(((a,), I) for a in (S, Y, L, M)), cost=4, style=Style.BOTH),
        _metered("contains", texts.contains, _STRING, cost=5, style=Style.RECEIVER, prepare=texts.prepare_contains),
        _metered(
            "startsWith", texts.starts_with, _STRING, cost=4, style=Style.RECEIVER, prepare=texts.prepare_starts_with
        ),
        _metered("endsWith", texts.ends_with, _STRING, cost=4, style=Style.RECEIVER, prepare=texts.prepare_ends_with),
        _metered(
            "matches",
            texts.matches,
            _STRING,
            cost=70,
            style=Style.BOTH,
            literal=texts.pattern,
            prepare=texts.prepare_matches,
        ),
        _function(
            "int", conversions.to_int, *(((a,), I) for a in (I, U, D, S, T)), cost=25, literal=conversions.to_int
        ),
        _function(
            "uint", conversions.to_uint, *(((a,), U) for a in (I, U, D, S)), cost=25, literal=conversions.to_uint
        ),
        _metered(
            "double",
            conversions.to_double,
            *(((a,), D) for a in (I, U, D, S)),
            cost=20,
            literal=_unmetered(conversions.to_double),
        ),
        _function("bool", conversions.to_bool, *(((a,), B) for a in (B, S)), cost=5, literal=conversions.to_bool),
        _metered(
            "string",
            conversions.to_string,
            *(((a,), S) for a in (S, I, U, D, B, Y, T, P)),
            cost=10,
            literal=_unmetered(conversions.to_string),
        ),
        _metered(
            "bytes",
            conversions.to_bytes,
            *(((a,), Y) for a in (S, Y)),
            cost=14,
            literal=_unmetered(conversions.to_bytes),
        ),
        _function("timestamp", times.timestamp, *(((a,), T) for a in (S, I, T)), cost=55, literal=times.timestamp),
        _metered("duration", times.duration, *(((a,), P) for a in (S, P)), cost=40, literal=_unmetered(times.duration)),
        _function("dyn", _same, ((A,), A), cost=2),
        *(
            _metered(
                name,
                times.accessor(name, *how),
                ((T,), I),
                ((T, S), I),
                *((((P,), I),) if how[1] is not None else ()),
                cost=30,
                style=Style.RECEIVER,
                literal=times.zone,
                prepare=times.prepare_accessor(name, *how),
            )
            for name, how in times.ACCESSORS.items()
        ),
        _metered("sets.contains", sets_contains, _SETS, cost=25),
        _metered("sets.intersects", sets_intersects, _SETS, cost=25),
        _metered("sets.equivalent", sets_equivalent, _SETS, cost=40),
        _metered("union", union, _LISTS, cost=25, style=Style.BOTH),
        _metered("intersection", intersection, _LISTS, cost=40, style=Style.BOTH),
        _metered("difference", difference, _LISTS, cost=40, style=Style.BOTH),
        _metered(
            "matchesFilter",
            texts.matches_filter,
            _STRING,
            cost=22,
            style=Style.BOTH,
            literal=texts.topic_filter,
            prepare=texts.prepare_filter,
        ),
        _metered(
            "within",
            times.within,
            *(((t, w), B) for t in (T, S) for w in (S, L)),
            *(((T, w, S), B) for w in (S, L)),
            cost=25,
            style=Style.BOTH,
            prepare=times.prepare_within,
        ),
        _metered(
            "cidr",
            networks.cidr,
            *(((S, n), B) for n in (S, L)),
            cost=80,
            style=Style.BOTH,
            literal=_unmetered(networks.networks),
            prepare=networks.prepare_cidr,
        ),
    )
}
