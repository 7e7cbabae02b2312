"""All pairs of links at once: over which links can flow what came over a link (scopes, appendix A).

The seed makes links the vertices of a graph and closes it with Floyd-Warshall, in cubic time. Here
1. a vertex for each link; between the links that enter a scope and those that leave it stand a few vertices more, so
   that 10,000 clients of one scope are 20,000 edges and not 100 million (`_Steps`);
2. strongly connected vertices are one (Tarjan, without recursion): what one of them reaches all of them reach;
3. from the last to the first, what a component reaches is itself and what its successors reach: one union of bitsets,
   which are integers, for each edge.
With m links and few types that is a small multiple of m unions of m bits each.

A link reaches itself, by the route that it alone is; the seed's matrix leaves that out. Where the seed and semantics.md
differ (a client's own messages, `ConnectionGraph.follows`), semantics.md counts.

It is a picture of the graph at one moment: a later change of the graph does not change it. For a question about one
pair `route.shortest` is the cheaper way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, cached_property

from tidegate.flow.graph import ConnectionGraph, Link, is_scope


class Reach:
    """What reaches what, by routes, or by paths."""

    def __init__(self, graph: ConnectionGraph, *, paths: bool = False) -> None:
        self.paths = paths
        self.entities = graph.entities
        self.links = graph.links
        self._number = {link.ends: at for at, link in enumerate(self.links)}
        self._place = {name: at for at, name in enumerate(self.entities)}
        self._steps = _Steps(graph, self.links, paths)
        self._order = _Condensed(self._steps.after)

    @property
    def work(self) -> int:
        """How many edges there are, each of which is one union."""
        return sum(map(len, self._steps.after))

    def beyond(self, link: Link) -> list[Link]:
        """The links that can be crossed by what crosses this one, itself among them."""
        row = self._by_link[self._number[link.ends]]
        return [self.links[at] for at in _bits(row)]

    @property
    def link_pairs(self) -> int:
        """How many pairs of links there are of which the first reaches the second."""
        return sum(row.bit_count() for row in self._by_link)

    def reaches(self, source: str, target: str) -> bool:
        """Whether there is a route, or a path, from one entity to another."""
        at = self._place.get(target)
        return at is not None and bool(self._by_entity.get(source, 0) >> at & 1)

    def reached(self, source: str) -> list[str]:
        """The entities that one reaches. Itself, only if something comes back to it."""
        return [self.entities[at] for at in _bits(self._by_entity.get(source, 0))]

    @property
    def entity_pairs(self) -> int:
        """How many pairs of entities there are of which the first reaches the second."""
        return sum(row.bit_count() for row in self._by_entity.values())

    @cached_property
    def _by_link(self) -> list[int]:
        return self._order.closure([1 << at for at in range(len(self.links))])

    @cached_property
    def _by_entity(self) -> dict[str, int]:
        rows = self._order.closure([1 << self._place[link.target] for link in self.links])
        reached = dict.fromkeys(self.entities, 0)
        for link, row in zip(self.links, rows, strict=True):
            reached[link.source] |= row
        return reached


class _Group:
    """The links of one type that leave a scope.

    `every` leads to all of them. All but the one to scope x are the devices, and the bridges before and after x:
    `up_to[k]` leads to the bridges up to the k-th, and `up_from[k]` to those from the k-th on.
    """

    __slots__ = ("bridges", "devices", "every", "up_from", "up_to")

    def __init__(self, steps: _Steps, bridges: list[int], devices: list[int]) -> None:
        self.bridges = {number: at for at, number in enumerate(bridges)}
        self.devices = [steps.vertex(devices)] if devices else []
        self.up_to: list[int] = []
        for number in bridges:
            self.up_to.append(steps.vertex([number, *self.up_to[-1:]]))
        self.up_from: list[int] = []
        for number in reversed(bridges):
            self.up_from.append(steps.vertex([number, *self.up_from[-1:]]))
        self.up_from.reverse()
        self.every = steps.vertex([*self.devices, *self.up_to[-1:]])

    def without(self, number: int) -> list[int]:
        at = self.bridges[number]
        vertices = list(self.devices)
        if at > 0:
            vertices.append(self.up_to[at - 1])
        if at + 1 < len(self.up_from):
            vertices.append(self.up_from[at + 1])
        return vertices


class _Steps:
    """Which vertex comes after which. The first ones are the links, in their order."""

    def __init__(self, graph: ConnectionGraph, links: list[Link], paths: bool) -> None:
        self.after: list[list[int]] = [[] for _ in links]
        self._links = links
        self._allow = cache(graph.allow)
        entering: dict[str, list[int]] = {}
        leaving: dict[str, list[int]] = {}
        for number, link in enumerate(links):
            entering.setdefault(link.target, []).append(number)
            leaving.setdefault(link.source, []).append(number)
        for name, arriving in entering.items():
            if is_scope(name):
                self._scope(arriving, leaving.get(name, []))
            elif paths:
                hub = self.vertex(leaving.get(name, []))
                for number in arriving:
                    self.after[number].append(hub)

    def vertex(self, after: Iterable[int]) -> int:
        self.after.append(list(after))
        return len(self.after) - 1

    def _scope(self, entering: list[int], leaving: list[int]) -> None:
        links = self._links
        by_type: dict[str, tuple[list[int], list[int]]] = {}
        back: dict[str, int] = {}
        for number in leaving:
            link = links[number]
            bridges, devices = by_type.setdefault(link.type, ([], []))
            if is_scope(link.target):
                bridges.append(number)
                back[link.target] = number
            else:
                devices.append(number)
        groups = {type: _Group(self, *numbers) for type, numbers in by_type.items()}

        @cache
        def hub(types: tuple[str, ...]) -> int:
            return self.vertex([groups[each].every for each in types])

        following = {
            type: tuple(each for each in groups if self._allow(type, each))
            for type in dict.fromkeys(links[number].type for number in entering)
        }
        for number in entering:
            link = links[number]
            types = following[link.type]
            returning = back.get(link.source)
            if returning is None or links[returning].type not in types:
                self.after[number].append(hub(types))
            else:
                other = links[returning].type
                self.after[number].append(hub(tuple(each for each in types if each != other)))
                self.after[number] += groups[other].without(returning)


class _Condensed:
    """The strongly connected components of a graph, those that come last first (Tarjan)."""

    def __init__(self, after: list[list[int]]) -> None:
        self._after = after
        self.components: list[list[int]] = []
        self.component = [-1] * len(after)
        low = [0] * len(after)
        stack: list[int] = []
        count = 0
        for start in range(len(after)):
            if low[start]:
                continue
            count += 1
            low[start] = count
            stack.append(start)
            way = [(start, count, iter(after[start]))]
            while way:
                here, index, rest = way[-1]
                for there in rest:
                    if not low[there]:
                        count += 1
                        low[there] = count
                        stack.append(there)
                        way.append((there, count, iter(after[there])))
                        break
                    if self.component[there] < 0:
                        low[here] = min(low[here], low[there])
                else:
                    way.pop()
                    if way:
                        low[way[-1][0]] = min(low[way[-1][0]], low[here])
                    if low[here] == index:
                        self._close(here, stack)

    def _close(self, root: int, stack: list[int]) -> None:
        members: list[int] = []
        while not members or members[-1] != root:
            members.append(stack.pop())
            self.component[members[-1]] = len(self.components)
        self.components.append(members)

    def closure(self, marks: list[int]) -> list[int]:
        """For each of the first vertices, the marks of all of them that it reaches, its own among them."""
        rows: list[int] = []
        for number, members in enumerate(self.components):
            row = 0
            for member in members:
                if member < len(marks):
                    row |= marks[member]
                for there in self._after[member]:
                    if self.component[there] != number:
                        row |= rows[self.component[there]]
            rows.append(row)
        return [rows[self.component[vertex]] for vertex in range(len(marks))]


def _bits(row: int) -> Iterator[int]:
    """The places of the ones. By way of a text, which takes time by length and not by length for each one."""
    digits = bin(row)[:1:-1]
    at = digits.find("1")
    while at >= 0:
        yield at
        at = digits.find("1", at + 1)
