"""Why nothing flows from one entity to another: the ways that there would be, and the step that closes each.

A way is a sequence of entities, each joined to the next, whatever the types of the links. It is closed by its first two
links that may not follow each other: what comes over the one may not leave over the other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tidegate.flow.graph import ConnectionGraph, Link, is_scope

WAYS: Final = 5
"""Ways that are looked for, the shortest first."""
STEPS: Final = 20_000
"""Links that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedWay:
    """A way, and where it ends."""

    entities: tuple[str, ...]
    at: str
    """The entity that does not pass it on."""
    came: Link
    leaves: Link


def closed_ways(graph: ConnectionGraph, source: str, target: str, *, paths: bool = False) -> list[ClosedWay]:
    """The shortest ways between two that do not reach each other. None: they are not joined at all."""
    found: list[ClosedWay] = []
    front: deque[tuple[Link, ...]] = deque((link,) for link in graph.leaving(source))
    steps = 0
    while front and len(found) < WAYS and steps < STEPS:
        way = front.popleft()
        last = way[-1].target
        steps += 1
        if last == target:
            if (closed := _closed(graph, way)) is not None:
                found.append(closed)
            continue
        if not paths and not is_scope(last):
            continue
        passed = {source, *(link.target for link in way)}
        front.extend((*way, link) for link in graph.leaving(last) if link.target not in passed)
    return found


def _closed(graph: ConnectionGraph, way: tuple[Link, ...]) -> ClosedWay | None:
    for came, leaves in pairwise(way):
        if is_scope(came.target) and not graph.follows(came, leaves):
            entities = (way[0].source, *(link.target for link in way))
            return ClosedWay(entities=entities, at=came.target, came=came, leaves=leaves)
    return None
