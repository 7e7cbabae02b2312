"""Devices that are alike: joined to the same scopes by links of the same types.

What one of them reaches all of them reach, by the same way, and whoever reaches one reaches all. So one can stand for
all: in a picture, in a table, and in a search.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.flow.graph import ConnectionGraph

_FEW: Final = 6
"""Devices that are alike are shown one by one up to here,"""
_SMALL: Final = 40
"""unless they are more than this in all."""


def bundles(graph: ConnectionGraph, apart: Iterable[str] = ()) -> list[tuple[str, ...]]:
    """All devices: those that are shown as one together. Those that are to be seen are by themselves."""
    alone = frozenset(apart)
    alike: dict[object, list[str]] = {}
    for name in graph.devices:
        joined = tuple((link.target, link.type, link.trusted) for link in graph.leaving(name))
        heard = tuple((link.source, link.type, link.trusted) for link in graph.entering(name))
        alike.setdefault(name if name in alone else (joined, heard), []).append(name)
    few = _FEW if len(graph.devices) <= _SMALL else 1
    result: list[tuple[str, ...]] = []
    for names in alike.values():
        result += [tuple(names)] if len(names) > few else [(name,) for name in names]
    return result


def bundle_label(names: tuple[str, ...]) -> str:
    """What a bundle is called: `client:1 … client:9 (9)`."""
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names):,})"


class ThinnedGraph:
    """A graph with one device of each bundle. The flows between bundles are those of the whole graph."""

    def __init__(self, graph: ConnectionGraph, apart: Iterable[str] = ()) -> None:
        self.members = {names[0]: names for names in bundles(graph, apart)}
        kept = {*graph.scopes, *self.members}
        self.graph = within(graph, kept)

    def bundle_label(self, name: str) -> str:
        return bundle_label(self.members.get(name, (name,)))

    def size(self, name: str) -> int:
        return len(self.members.get(name, (name,)))


def within(graph: ConnectionGraph, names: Iterable[str]) -> ConnectionGraph:
    """These entities of a graph, and the links between them."""
    kept = frozenset(names)
    links = (link for name in kept for link in graph.leaving(name) if link.target in kept)
    return ConnectionGraph(links, entities=kept, allow=graph.allow)
