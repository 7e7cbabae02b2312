"""Is a hierarchy a conjoined forest? (scopes, 3.4.1.2; semantics, *Brokering* and *Trust*)

A scope may have several parents, but there is at most one directed path from one to another. Then no message arrives
twice and none goes round. What is wrong is shown whole: the cycle, or both paths.

Ancestors are bitsets, made from the top down: a scope two of whose parents share an ancestor, or are one, has two
paths to it. That is one union for each parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter


@dataclass(frozen=True, slots=True)
class Cycle:
    """Somebody is an ancestor of itself: the way from it back to it."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"`{self.path[0]}` is above itself ({_way(self.path)}): take one of these parents away"


@dataclass(frozen=True, slots=True)
class TwoPaths:
    """There are two ways from one to another, where messages would arrive twice."""

    first: tuple[str, ...]
    second: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"there are two paths from `{self.first[0]}` to `{self.first[-1]}`, {_way(self.first)} and "
            f"{_way(self.second)}: take a parent away from one of them"
        )


def forest_fault(parents: Mapping[str, Iterable[str]]) -> Cycle | TwoPaths | None:
    """What keeps a hierarchy from being a conjoined forest, given the parents of each; the first that is found."""
    above = {name: tuple(dict.fromkeys(each)) for name, each in parents.items()}
    for each in list(above.values()):
        for name in each:
            above.setdefault(name, ())
    bit = {name: 1 << at for at, name in enumerate(above)}
    try:
        order = tuple(TopologicalSorter(above).static_order())
    except CycleError as error:
        return Cycle(tuple(reversed(error.args[1])))
    ancestors: dict[str, int] = {}
    for name in order:
        met = 0
        for parent in above[name]:
            ways = bit[parent] | ancestors[parent]
            if met & ways:
                return _two_paths(above, ancestors, bit, name, met & ways)
            met |= ways
        ancestors[name] = met
    return None


def _two_paths(
    above: Mapping[str, tuple[str, ...]], ancestors: Mapping[str, int], bit: Mapping[str, int], start: str, shared: int
) -> TwoPaths:
    """To a shared ancestor that is above no other one, so that the paths part at once and meet only there."""
    candidates = [name for name in bit if shared & bit[name]]
    higher = 0
    for name in candidates:
        higher |= ancestors[name]
    nearest = next(name for name in candidates if not higher & bit[name])
    first, second, *_ = (
        (start, *_path(above, ancestors, bit, parent, nearest))
        for parent in above[start]
        if (bit[parent] | ancestors[parent]) & bit[nearest]
    )
    return TwoPaths(first, second)


def _path(
    above: Mapping[str, tuple[str, ...]], ancestors: Mapping[str, int], bit: Mapping[str, int], start: str, end: str
) -> tuple[str, ...]:
    path = [start]
    while path[-1] != end:
        path.append(next(name for name in above[path[-1]] if name == end or ancestors[name] & bit[end]))
    return tuple(path)


def _way(path: tuple[str, ...]) -> str:
    return " > ".join(path)
