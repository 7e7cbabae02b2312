"""Groups: maximal sets of scopes joined by trusted links (semantics, *Trust*; SEC-REDS, 2.6).

Two scopes are joined if there is a trusted link between them and none that is not: where only one side trusts the
other, what comes back is not protected. A scope that nobody is joined to is a group of its own, so that every scope is
in exactly one.
"""

from __future__ import annotations

from tidegate.flow.graph import ConnectionGraph, is_scope


def groups(graph: ConnectionGraph) -> list[tuple[str, ...]]:
    """The groups, in the order of their first members, each in order."""
    result: list[tuple[str, ...]] = []
    placed: set[str] = set()
    for scope in graph.scopes:
        if scope in placed:
            continue
        members = [scope]
        placed.add(scope)
        for member in members:
            for other in _joined(graph, member):
                if other not in placed:
                    placed.add(other)
                    members.append(other)
        result.append(tuple(sorted(members)))
    return result


def _joined(graph: ConnectionGraph, scope: str) -> list[str]:
    trusted: dict[str, bool] = {}
    for link in graph.bridges(scope):
        trusted[link.target] = link.trusted
    for link in graph.entering(scope):
        if is_scope(link.source):
            trusted[link.source] = trusted.get(link.source, True) and link.trusted
    return [name for name, joined in trusted.items() if joined]
