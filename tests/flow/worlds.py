"""Small random connection graphs, and flow routes and paths found the slow way, from their definitions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

from hypothesis import strategies as st

from tidegate.flow.graph import ConnectionGraph, Link, is_scope
from tidegate.flow.reach import Reach

TYPES = ("a", "b", "c")
PAIRS = tuple(product(TYPES, TYPES))


@st.composite
def graphs(draw: st.DrawFn, wide: int = 4, most: int = 11) -> ConnectionGraph:
    """With so many scopes and links at most. An enumeration needs few."""
    scopes = [f"scope:{number}" for number in range(draw(st.integers(1, wide)))]
    devices = [f"client:{number}" for number in range(draw(st.integers(0, 3)))]
    ends = [(x, y) for x in scopes + devices for y in scopes + devices if x != y and (is_scope(x) or is_scope(y))]
    chosen = draw(st.lists(st.sampled_from(ends), unique=True, max_size=most)) if ends else []
    links = [
        Link(source=x, target=y, type=draw(st.sampled_from(TYPES)), trusted=draw(st.booleans())) for x, y in chosen
    ]
    return ConnectionGraph(links, scopes + devices, draw(st.frozensets(st.sampled_from(PAIRS))))


def pairs(reach: Reach) -> list[tuple[str, str]]:
    """Every pair of entities of which the first reaches the second, in order."""
    return [(source, target) for source in reach.entities for target in reach.reached(source)]


def is_flow(graph: ConnectionGraph, entities: tuple[str, ...], *, paths: bool, seed: bool = False) -> bool:
    """Whether a sequence x0 x1 … xn is a flow path, or a flow route (scopes, 3.4.1.1).

    `seed` as the seed has it; otherwise a device may get back its own messages (semantics, step 6).
    """
    if len(entities) < 2 or any(graph.link(x, y) is None for x, y in pairwise(entities)):
        return False
    for x, y, z in zip(entities, entities[1:], entities[2:], strict=False):
        if is_scope(y):
            first, second = graph.link(x, y), graph.link(y, z)
            assert first is not None
            assert second is not None
            if x == z and (seed or is_scope(z)):
                return False
            if not graph.allow(first.type, second.type):
                return False
        elif not paths:
            return False
    return True


def every_flow(graph: ConnectionGraph, *, paths: bool, seed: bool = False) -> Iterator[tuple[str, ...]]:
    """All sequences that cross no link twice. Any other has a shorter one between the same links."""
    waiting: list[tuple[str, ...]] = [(link.source, link.target) for link in graph.links]
    while waiting:
        here = waiting.pop()
        yield here
        crossed = set(pairwise(here))
        for link in graph.leaving(here[-1]):
            longer = (*here, link.target)
            if (link.source, link.target) not in crossed and is_flow(graph, longer, paths=paths, seed=seed):
                waiting.append(longer)


def all_link_pairs(graph: ConnectionGraph) -> list[list[bool]]:
    """The seed's appendix A: the matrix of A.1 and Algorithm 1, as printed."""
    links = graph.links
    matrix = [
        [
            one.target == other.source
            and is_scope(one.target)
            and one.source != other.target
            and graph.allow(one.type, other.type)
            for other in links
        ]
        for one in links
    ]
    size = range(len(links))
    for k in size:
        for i in size:
            for j in size:
                matrix[i][j] = matrix[i][j] or (matrix[i][k] and matrix[k][j])
    return matrix


def closed(graph: ConnectionGraph, *, paths: bool) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """What each link reaches, itself among it, hop by hop: for graphs too large to enumerate."""
    found = {}
    for start in graph.links:
        reached = {(start.source, start.target)}
        waiting = list(reached)
        while waiting:
            x, y = waiting.pop()
            for link in graph.leaving(y):
                ends = link.source, link.target
                if ends not in reached and is_flow(graph, (x, y, link.target), paths=paths):
                    reached.add(ends)
                    waiting.append(ends)
        found[start.source, start.target] = reached
    return found
