"""Where everything stands in a picture: in columns, with as few crossings as a few rounds of sorting give.

The usual steps (Sugiyama): columns; a joint in each column that an edge passes; the order in each column, by the middle
of the neighbours, to and fro, keeping the best; then heights, each as near to its neighbours as the order and the gaps
leave room. Columns follow the hierarchy if there is one: the highest at the left. Otherwise they are the distance from
the scope with the most neighbours, or from one end of a row.

Names, sizes and pairs go in, places come out; it knows nothing of links and types. The same input gives the same
places.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

_ROUNDS: Final = 6
_SETTLING: Final = 40
_GAP: Final = 10.0
_JOINT: Final = 6.0


@dataclass(slots=True)
class PlacedNode:
    """An entity, or a joint of an edge that passes its column."""

    name: str
    column: int
    height: float
    y: float = 0.0
    left: list[PlacedNode] = field(default_factory=list)
    right: list[PlacedNode] = field(default_factory=list)

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(slots=True)
class Layout:
    """The columns from left to right, and the way of each pair: its ends and the joints between."""

    columns: list[list[PlacedNode]]
    nodes: dict[str, PlacedNode]
    ways: dict[tuple[str, str], list[PlacedNode]]


def ranks(
    names: Sequence[str], pairs: Iterable[tuple[str, str]], parents: Mapping[str, Iterable[str]]
) -> dict[str, int]:
    """The column of each name. Parents are left of their children; others are beside whom they are joined to."""
    near: dict[str, list[str]] = {name: [] for name in names}
    for one, other in pairs:
        near[one].append(other)
        near[other].append(one)
    columns = _by_parents(near, parents)
    while len(columns) < len(near):
        edge = [name for name in columns if any(other not in columns for other in near[name])]
        if not edge:
            start = _start(near, columns)
            columns[start] = 0
            edge = [start]
        for name in edge:
            for other in near[name]:
                if other not in columns:
                    columns[other] = columns[name] + 1
                    edge.append(other)
    return columns


def _by_parents(near: Mapping[str, object], parents: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """One column more than the parent that is furthest to the right. Whoever is above itself has no column here."""
    above = {child: [each for each in some if each in near] for child, some in parents.items() if child in near}
    columns = {name: 0 for some in above.values() for name in some if not above.get(name)}
    waiting = [child for child, some in above.items() if some]
    while waiting:
        ready = [child for child in waiting if all(each in columns for each in above[child])]
        if not ready:
            break
        for child in ready:
            columns[child] = max(columns[each] for each in above[child]) + 1
        waiting = [child for child in waiting if child not in columns]
    return columns


def _start(near: Mapping[str, list[str]], placed: Mapping[str, int]) -> str:
    rest = [name for name in near if name not in placed]
    inner = {name: sum(len(near[other]) > 1 for other in near[name]) for name in rest}
    most = max(inner.values())
    ends = [name for name in rest if inner[name] == 1 and len(near[name]) > 1] if most == 2 else []
    return ends[0] if ends else next(name for name in rest if inner[name] == most)


def lay_out(heights: Mapping[str, float], pairs: Sequence[tuple[str, str]], column: Mapping[str, int]) -> Layout:
    """Places for names with these heights, joined by these pairs, in these columns."""
    nodes = {name: PlacedNode(name, column[name], height) for name, height in heights.items()}
    columns: list[list[PlacedNode]] = [[] for _ in range(max(column.values(), default=-1) + 1)]
    ways: dict[tuple[str, str], list[PlacedNode]] = {}
    for pair in pairs:
        first, last = sorted((nodes[pair[0]], nodes[pair[1]]), key=lambda each: each.column)
        joints = [PlacedNode("", at, _JOINT) for at in range(first.column + 1, last.column)]
        ways[pair] = [first, *joints, last]
        if first.column < last.column:
            for one, other in pairwise(ways[pair]):
                one.right.append(other)
                other.left.append(one)
    for each in _walk(nodes.values()):
        columns[each.column].append(each)
    _sort(columns)
    _settle(columns)
    return Layout(columns, nodes, ways)


def _walk(nodes: Iterable[PlacedNode]) -> list[PlacedNode]:
    """Everything, what is joined close together: a first order that hardly crosses in trees."""
    visited: dict[int, PlacedNode] = {}
    for start in sorted(nodes, key=lambda each: each.column):
        waiting = [start]
        while waiting:
            here = waiting.pop()
            if id(here) not in visited:
                visited[id(here)] = here
                waiting += [each for each in (*reversed(here.right), *reversed(here.left)) if id(each) not in visited]
    return list(visited.values())


def _sort(columns: list[list[PlacedNode]]) -> None:
    best = [list(column) for column in columns]
    fewest = _crossings(columns)
    for turn in range(_ROUNDS):
        if not fewest:
            break
        forth = turn % 2 == 0
        for at in range(1, len(columns)) if forth else range(len(columns) - 2, -1, -1):
            place = {id(each): number for number, each in enumerate(columns[at - 1 if forth else at + 1])}
            centre: dict[int, float] = {}
            for number, each in enumerate(columns[at]):
                beside = [place[id(other)] for other in (each.left if forth else each.right)]
                centre[id(each)] = sum(beside) / len(beside) if beside else float(number)
            columns[at].sort(key=lambda each: centre[id(each)])
        count = _crossings(columns)
        if count < fewest:
            fewest, best = count, [list(column) for column in columns]
    columns[:] = best


def _crossings(columns: list[list[PlacedNode]]) -> int:
    count = 0
    for column, following in pairwise(columns):
        place = {id(each): number for number, each in enumerate(following)}
        passed: list[int] = []
        for each in column:
            ends = sorted(place[id(other)] for other in each.right)
            count += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return count


def _settle(columns: list[list[PlacedNode]]) -> None:
    for column in columns:
        y = 0.0
        for each in column:
            each.y, y = y, y + each.height + _GAP
    for turn in range(_SETTLING):
        for column in columns if turn % 2 == 0 else reversed(columns):
            _place(column, [_wanted(each, turn % 2 == 0) for each in column])
    top = min((each.y for column in columns for each in column), default=0.0)
    for column in columns:
        for each in column:
            each.y -= top


def _wanted(each: PlacedNode, forth: bool) -> float:
    """In the middle of those where the round comes from; of the others, if there are none."""
    beside = (each.left or each.right) if forth else (each.right or each.left)
    return sum(other.middle for other in beside) / len(beside) - each.height / 2 if beside else each.y


def _place(column: Sequence[PlacedNode], wanted: Sequence[float]) -> None:
    """As near to the wanted heights as order and gaps allow: neighbours that push each other share the distance."""
    offset = 0.0
    blocks: list[tuple[float, int]] = []  # the sum of what its members want, as if there were no offsets; how many
    for each, want in zip(column, wanted, strict=True):
        total, count = want - offset, 1
        offset += each.height + _GAP
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            before, size = blocks.pop()
            total, count = total + before, count + size
        blocks.append((total, count))
    offset, number = 0.0, 0
    for total, count in blocks:
        for each in column[number : number + count]:
            each.y = total / count + offset
            offset += each.height + _GAP
        number += count
