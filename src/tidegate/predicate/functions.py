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


def _function(name: str, run: Callable[..., object], *overloads: Overload, cost: int = 3, **more: Any) -> Function:
    return Function(name=name, run=run, overloads=overloads, cost=cost, **more)


def _metered(name: str, run: Callable[..., object], *overloads: Overload, **more: Any) -> Function:
    return _function(name, run, *overloads, metered=True, **more)


def _conversion(
    name: str, run: Callable[..., object], result: Kind, *kinds: Kind, cost: int, metered: bool = False
) -> Function:
    """A function of one value of these kinds. A literal is converted once when the predicate is loaded."""
    overloads = (((a,), result) for a in kinds)
    return _function(name, run, *overloads, cost=cost, metered=metered, literal=_unmetered(run) if metered else run)


def _text_test(name: str, cost: int, run: Callable[..., bool], prepare: Callable[..., object], **more: Any) -> Function:
    return _metered(name, run, ((S, S), B), cost=cost, prepare=prepare, **more)


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
    operator.name: operator
    for operator in (
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
            "_[_]", equality.index, *(((L, a), A) for a in (I, U, D)), *(((M, a), A) for a in (B, I, U, D, S)), cost=8
        ),
    )
}

_SETS: Final[Overload] = ((L, L), B)
_LISTS: Final[Overload] = ((L, L), L)
_METHOD: Final = {"style": Style.RECEIVER}
_EITHER: Final = {"style": Style.BOTH}

FUNCTIONS: Final[Mapping[str, Function]] = {
    function.name: function
    for function in (
        _function("size", size, *(((a,), I) for a in (S, Y, L, M)), cost=4, **_EITHER),
        _text_test("contains", 5, texts.contains, texts.prepare_contains, **_METHOD),
        _text_test("startsWith", 4, texts.starts_with, texts.prepare_starts_with, **_METHOD),
        _text_test("endsWith", 4, texts.ends_with, texts.prepare_ends_with, **_METHOD),
        _text_test("matches", 70, texts.matches, texts.prepare_matches, literal=texts.pattern, **_EITHER),
        _text_test(
            "matchesFilter", 22, texts.matches_filter, texts.prepare_filter, literal=texts.topic_filter, **_EITHER
        ),
        _conversion("int", conversions.to_int, I, I, U, D, S, T, cost=25),
        _conversion("uint", conversions.to_uint, U, I, U, D, S, cost=25),
        _conversion("double", conversions.to_double, D, I, U, D, S, cost=20, metered=True),
        _conversion("bool", conversions.to_bool, B, B, S, cost=5),
        _conversion("string", conversions.to_string, S, S, I, U, D, B, Y, T, P, cost=10, metered=True),
        _conversion("bytes", conversions.to_bytes, Y, S, Y, cost=14, metered=True),
        _conversion("timestamp", times.timestamp, T, S, I, T, cost=55),
        _conversion("duration", times.duration, P, S, P, cost=40, metered=True),
        _function("dyn", _same, ((A,), A), cost=2),
        *(
            _metered(
                name,
                times.accessor(name, *readers),
                *(((T,), I), ((T, S), I), ((P,), I))[: 2 if readers[1] is None else 3],
                cost=30,
                literal=times.zone,
                prepare=times.prepare_accessor(name, *readers),
                **_METHOD,
            )
            for name, readers in times.ACCESSORS.items()
        ),
        _metered("sets.contains", sets_contains, _SETS, cost=25),
        _metered("sets.intersects", sets_intersects, _SETS, cost=25),
        _metered("sets.equivalent", sets_equivalent, _SETS, cost=40),
        _metered("union", union, _LISTS, cost=25, **_EITHER),
        _metered("intersection", intersection, _LISTS, cost=40, **_EITHER),
        _metered("difference", difference, _LISTS, cost=40, **_EITHER),
        _metered(
            "within",
            times.within,
            *(((t, w), B) for t in (T, S) for w in (S, L)),
            *(((T, w, S), B) for w in (S, L)),
            cost=25,
            prepare=times.prepare_within,
            **_EITHER,
        ),
        _metered(
            "cidr",
            networks.cidr,
            *(((S, n), B) for n in (S, L)),
            cost=80,
            literal=_unmetered(networks.networks),
            prepare=networks.prepare_cidr,
            **_EITHER,
        ),
    )
}
