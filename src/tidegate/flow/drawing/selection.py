"""What of a graph is drawn: only what one entity reaches, or what reaches one; or all of it, with the route of two."""

from __future__ import annotations

from tidegate.flow.bundles import within
from tidegate.flow.graph import ConnectionGraph
from tidegate.flow.reach import Reach
from tidegate.flow.route import Route, shortest


def selection(
    graph: ConnectionGraph, source: str | None, target: str | None, *, paths: bool
) -> tuple[ConnectionGraph, Route | None]:
    """The part of the graph, and the route between both, if there is one."""
    if source is not None and target is not None:
        return graph, shortest(graph, source, target, paths=paths)
    reach = Reach(graph, paths=paths)
    if source is not None:
        return within(graph, (source, *reach.reached(source))), None
    if target is not None:
        return within(graph, (target, *(name for name in graph.entities if reach.reaches(name, target)))), None
    return graph, None
