"""One route at a time: the shortest way from an entity to another, to be shown (scopes, 3.4.1.1).

A flow path is a sequence of entities, each joined to the next, in which every scope passes on what it got
(`ConnectionGraph.follows`). A device passes on whatever it knows: it reads a message and publishes another. A flow
route is a flow path with devices only at its ends. One link alone is a route: the definition says so, although the
seed's Algorithm 2 does not count it.

Searched breadth first from link to link. A scope is looked at twice for each type of link at most: the first message
of that type goes everywhere but back to where it came from, and the second one, from elsewhere, goes back there too.
So a search takes as many steps as there are links, and one by routes does not look at devices on the way at all.

A route may pass a scope twice, as in the seed's definition. A scope refuses a message that it had before (semantics,
*Envelope*), so such a route is an upper bound: `Route.repeated` names the scopes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.flow.graph import ConnectionGraph, Link, in_order, is_scope


@dataclass(frozen=True, slots=True)
class Route:
    """The links of a way, at least one, each beginning where the one before ends."""

    links: tuple[Link, ...]

    @property
    def entities(self) -> tuple[str, ...]:
        return (self.links[0].source, *(link.target for link in self.links))

    @property
    def repeated(self) -> tuple[str, ...]:
        """Scopes that one and the same message would pass again. What a device publishes is another message."""
        again: dict[str, None] = {}
        passed: set[str] = set()
        for name in self.entities:
            if not is_scope(name):
                passed.clear()
            elif name in passed:
                again[name] = None
            passed.add(name)
        return tuple(again)

    def __str__(self) -> str:
        return " -> ".join(self.entities)


class Search:
    """The shortest routes, or paths, from one entity."""

    def __init__(self, graph: ConnectionGraph, source: str, *, paths: bool = False) -> None:
        self.steps = 0
        """How many links were looked at."""
        self._graph = graph
        self._paths = paths
        self._source = source
        self._before: dict[Link, Link | None] = {}
        self._seen: dict[tuple[str, str], str | None] = {}
        """Of a scope and a type: from where the first message over such a link came; None if others came too."""
        self._spoken: set[str] = set()
        """Devices on the way."""

    def to(self, target: str) -> Route | None:
        direct = self._graph.link(self._source, target)
        if direct is not None:
            return Route((direct,))
        # by routes a device is asked for only where it can be next, and no other device is looked at
        last_hop = not self._paths and not is_scope(target)
        for front in self._fronts(devices=self._paths):
            for link in front:
                if link.target == target:
                    return self._back(link)
                if last_hop:
                    self.steps += 1
                    last = self._graph.link(link.target, target)
                    if last is not None and self._graph.follows(link, last):
                        return Route((*self._back(link).links, last))
        return None

    def all(self) -> dict[str, Route]:
        """The shortest one to each entity that is reached, in the order of entities."""
        first_links: dict[str, Link] = {}
        for front in self._fronts(devices=True):
            for link in front:
                first_links.setdefault(link.target, link)
        return {name: self._back(first_links[name]) for name in in_order(first_links)}

    def reached(self) -> set[str]:
        return {link.target for front in self._fronts(devices=True) for link in front}

    def _fronts(self, *, devices: bool) -> Iterator[list[Link]]:
        """The links that are found first after one hop, after two, and so on; with or without those to devices."""
        self._seen.clear()
        self._spoken.clear()
        front = self._leaving(self._source, devices)
        self._before = dict.fromkeys(front)
        while front:
            yield front
            following_front: list[Link] = []
            for link in front:
                for following in self._next(link, devices):
                    self.steps += 1
                    if following not in self._before:
                        self._before[following] = link
                        following_front.append(following)
            front = following_front

    def _leaving(self, name: str, devices: bool) -> list[Link]:
        return self._graph.leaving(name) if devices else self._graph.bridges(name)

    def _next(self, link: Link, devices: bool) -> Iterator[Link]:
        graph, here = self._graph, link.target
        if not is_scope(here):
            if self._paths and here not in self._spoken:
                self._spoken.add(here)
                yield from graph.leaving(here)
            return
        key = here, link.type
        if key not in self._seen:
            self._seen[key] = link.source
            yield from (each for each in self._leaving(here, devices) if graph.follows(link, each))
            return
        first = self._seen[key]
        if first is not None and first != link.source:
            self._seen[key] = None
            back = graph.link(here, first)
            if back is not None and graph.follows(link, back):
                yield back

    def _back(self, link: Link) -> Route:
        links = [link]
        while (before := self._before[links[-1]]) is not None:
            links.append(before)
        return Route(tuple(reversed(links)))


def shortest(graph: ConnectionGraph, source: str, target: str, *, paths: bool = False) -> Route | None:
    """The shortest route from one entity to another, or path; None if nothing flows."""
    return Search(graph, source, paths=paths).to(target)


def shown_links(route: Route | None) -> frozenset[tuple[str, str]]:
    """The ends of each link of a route that a picture is to show."""
    return frozenset(link.ends for link in route.links) if route else frozenset()
