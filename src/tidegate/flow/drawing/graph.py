"""Flows and the connection graph for people and programs: rows of a table, a document, Mermaid, Graphviz (dot), SVG.

All list things in the order of the graph, so that two pictures of one graph are the same text.

SVG is laid out and drawn without any other program. Scopes are boxes, devices have round ends. Each link is a line with
its tip at the target, in the colour of its type; the two links of a connection run side by side. Below is said what the
colours are and which type may follow which. Devices that are alike are drawn as one when they are many. A route that is
to be seen is drawn thick, and everything else pale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

from tidegate.flow.bundles import bundle_label, bundles
from tidegate.flow.drawing.elements import LINE, MARGIN, box, mermaid_label, page, quoted, text, tip, tip_id
from tidegate.flow.drawing.layout import Layout, PlacedNode, lay_out, ranks
from tidegate.flow.graph import ConnectionGraph, Link, bare_name, is_scope
from tidegate.flow.groups import groups
from tidegate.flow.route import Route, Search, shown_links

_CHARACTER: Final = 7.3
_HEIGHT: Final = 26.0
_TOP: Final = 44.0
_PORT: Final = 9.0
_APART: Final = 4.0
_COLOURS: Final = (
    "#c62828", "#1565c0", "#2e7d32", "#8e24aa", "#ef6c00", "#00838f", "#6d4c41", "#ad1457", "#558b2f", "#4527a0",
)  # fmt: skip
_GREY: Final = "#52606d"
_LISTED: Final = len(_COLOURS)
"""With more types than colours, a list of types says little."""
_STYLE: Final = """\
rect.scope { fill: #e3f2fd; stroke: #1565c0; stroke-width: 1.4; }
rect.device { fill: #f5f7fa; stroke: #7b8794; stroke-width: 1.2; }
rect.shown { stroke: #1f2933; stroke-width: 2.6; }
path { fill: none; stroke-width: 1.2; }
path.trusted { stroke-width: 2.2; }
path.shown { stroke-width: 3; }
.pale { opacity: 0.22; }"""


def flows(
    graph: ConnectionGraph, *, source: str | None = None, target: str | None = None, paths: bool = False
) -> Iterator[Route]:
    """A shortest way from each to whom it reaches, in order: all, those from one, or those to one."""
    for name in graph.entities if source is None else (source,):
        search = Search(graph, name, paths=paths)
        if target is None:
            yield from search.all().values()
        elif (route := search.to(target)) is not None:
            yield route


def rows(routes: Iterable[Route]) -> Iterator[tuple[str, str, str]]:
    """From, to, by which entities."""
    for route in routes:
        source, *between, target = route.entities
        yield source, target, " -> ".join(between) if between else "directly"


def document(graph: ConnectionGraph, routes: Iterable[Route], *, paths: bool = False) -> dict[str, object]:
    """Everything, as it goes into JSON."""
    return {
        "scopes": graph.scopes,
        "devices": graph.devices,
        "links": [
            {"from": link.source, "to": link.target, "type": link.type, "trusted": link.trusted} for link in graph.links
        ],
        "allow": [list(pair) for pair in graph.pairs()],
        "groups": [list(group) for group in groups(graph)],
        "by": "paths" if paths else "routes",
        "flows": [
            {"from": route.entities[0], "to": route.entities[-1], "route": list(route.entities)}
            | ({"repeated": list(route.repeated)} if route.repeated else {})
            for route in routes
        ],
    }


def mermaid(
    title: str, graph: ConnectionGraph, parents: Mapping[str, Iterable[str]] | None = None, show: Route | None = None
) -> str:
    """A flowchart in Mermaid. The two links of a connection are one line, with the type of each direction."""
    names = {name: f"n{number}" for number, name in enumerate(graph.entities)}
    lines = ["---", f"title: {quoted(title)}", "---", "flowchart LR"]
    for name, short in names.items():
        label = mermaid_label(bare_name(name))
        lines.append(f'    {short}["{label}"]' if is_scope(name) else f'    {short}(["{label}"])')
    shown = shown_links(show)
    thick: list[int] = []
    for number, (there, back) in enumerate(_connections(graph, parents or {})):
        label = " / ".join(mermaid_label(link.type) for link in (there, back) if link is not None and link.type)
        arrow = "<-->" if back is not None else "-->"
        lines.append(f"    {names[there.source]} {arrow}{f'|{label}|' if label else ''} {names[there.target]}")
        if there.ends in shown or (back is not None and back.ends in shown):
            thick.append(number)
    if thick:
        lines.append(f"    linkStyle {','.join(map(str, thick))} stroke-width:4px")
    return "\n".join(lines) + "\n"


def dot(
    title: str, graph: ConnectionGraph, parents: Mapping[str, Iterable[str]] | None = None, show: Route | None = None
) -> str:
    """A directed graph for Graphviz, with an arrow for each link."""
    lines = [f"digraph {quoted(title)} {{", f"  label={quoted(title)}; rankdir=LR; node [fontname=monospace];"]
    for name in graph.entities:
        shape = "shape=box" if is_scope(name) else 'shape=box, style="rounded"'
        lines.append(f"  {quoted(name)} [label={quoted(bare_name(name))}, {shape}];")
    shown = shown_links(show)
    for there, back in _connections(graph, parents or {}):
        for link in (there, back):
            if link is not None:
                options = [f"label={quoted(link.type)}"] if link.type else []
                options += ["penwidth=3"] if link.ends in shown else ["style=bold"] if link.trusted else []
                # what comes back would turn the ranks round
                options += ["constraint=false"] if link is back else []
                inside = f" [{', '.join(options)}]" if options else ""
                lines.append(f"  {quoted(link.source)} -> {quoted(link.target)}{inside};")
    return "\n".join([*lines, "}"]) + "\n"


def _connections(graph: ConnectionGraph, parents: Mapping[str, Iterable[str]]) -> Iterator[tuple[Link, Link | None]]:
    """Each two entities that are joined, once: the link away from the parent, or from the scope, first."""
    for link in graph.links:
        back = graph.link(link.target, link.source)
        if back is None or _first(link, parents):
            yield link, back


def _first(link: Link, parents: Mapping[str, Iterable[str]]) -> bool:
    if link.source in parents.get(link.target, ()):
        return True
    if link.target in parents.get(link.source, ()):
        return False
    if is_scope(link.source) != is_scope(link.target):
        return is_scope(link.source)
    return link.source < link.target


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """What is drawn as one: an entity, or several devices that are joined alike."""

    label: str
    scope: bool
    members: tuple[str, ...]


def svg(
    title: str, graph: ConnectionGraph, parents: Mapping[str, Iterable[str]] | None = None, show: Route | None = None
) -> str:
    """The picture of a graph. Parents, by name of entity, stand left of their children."""
    return _Picture(title, graph, parents or {}, show).page()


class _Picture:
    """Where everything stands, and its elements."""

    def __init__(
        self, title: str, graph: ConnectionGraph, parents: Mapping[str, Iterable[str]], show: Route | None
    ) -> None:
        self.title = title
        self.graph = graph
        self.shown = shown_links(show)
        self.through = frozenset(show.entities) if show else frozenset()
        self.colours = {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(t for t in graph.types if t)}
        self.nodes = {node.members[0]: node for node in _nodes(graph, self.through)}
        pairs = _pairs(graph, self.nodes)
        column = ranks(list(self.nodes), pairs, parents)
        self.layout = lay_out(_heights(self.nodes, pairs, column), pairs, column)
        self.wide = [
            max((_width(self.nodes[each.name].label) for each in column if each.name), default=0.0)
            for column in self.layout.columns
        ]
        self.left, self.width = self._across()
        self.ports = _ports(self.layout)

    def page(self) -> str:
        lines, boxes, right, bottom = self._lines(), self._boxes(), self.width, self._bottom()
        notes = _legend(self.graph, self.colours)
        height = bottom + MARGIN + LINE * len(notes)
        for at, (colour, note) in enumerate(notes):
            y = bottom + MARGIN + LINE * at
            if colour:
                boxes.append(
                    f'<path stroke="{colour}" d="M{MARGIN:g},{y - 4:g} h22" marker-end="url(#{tip_id(colour)})"/>'
                )
            boxes.append(text("note", MARGIN + (30 if colour else 0), y, note))
        widest = max((len(note) for _, note in notes), default=0)
        right = max(right, MARGIN * 2 + 30 + widest * 6.2, MARGIN * 2 + len(self.title) * 8.6)
        tips = "".join(map(tip, (*self.colours.values(), _GREY)))
        return page(self.title, right, height, _STYLE, tips, [*lines, *boxes])

    def _across(self) -> tuple[list[float], float]:
        """Where the columns begin, and the width of all. Where much goes from one to the next there is more room."""
        lefts, x = [], MARGIN
        for column, wide in zip(self.layout.columns, self.wide, strict=True):
            lefts.append(x)
            spread = max((abs(each.middle - other.middle) for each in column for other in each.right), default=0.0)
            x += wide + 70 + min(spread / 4, 180)
        beside = any(way[0].column == way[-1].column for way in self.layout.ways.values())
        right = lefts[-1] + self.wide[-1] if lefts else 0.0
        return lefts, right + MARGIN + (60 if beside else 0)

    def _bottom(self) -> float:
        return _TOP + max((each.y + each.height for column in self.layout.columns for each in column), default=0.0)

    def _boxes(self) -> list[str]:
        boxes = []
        for name, placed in self.layout.nodes.items():
            node = self.nodes[name]
            x, y, wide = self.left[placed.column], placed.y + _TOP, _width(node.label)
            kind = ("scope" if node.scope else "device") + (" shown" if name in self.through else "")
            pale = ' class="pale"' if self.shown and name not in self.through else ""
            corner = 4.0 if node.scope else _HEIGHT / 2
            boxes.append(f"<g{pale}>{box(kind, x, y, wide, placed.height, corner, node.label)}</g>")
        return boxes

    def _lines(self) -> list[str]:
        """Those that are shown come last, on top of the others."""
        lines: list[tuple[bool, str]] = []
        for (one, other), way in self.layout.ways.items():
            there, back = self.graph.link(one, other), self.graph.link(other, one)
            apart = _APART / 2 if there and back else 0.0
            for link, side in ((there, -apart), (back, apart)):
                if link is not None:
                    shown = link.ends in self.shown
                    lines.append((shown, self._line(link, (one, other), way, side, shown)))
        return [text for _, text in sorted(lines, key=lambda each: each[0])]

    def _line(self, link: Link, pair: tuple[str, str], way: list[PlacedNode], side: float, shown: bool) -> str:
        points = self._points(pair, way, side)
        if way[0].name != link.source:
            points.reverse()
        d = f"M{points[0][0]:g},{points[0][1]:g}"
        for (x1, y1), (x2, y2) in pairwise(dict.fromkeys(points)):  # a tip at a line without length would turn
            if y1 == y2:
                d += f" L{x2:g},{y2:g}"
            elif x1 == x2:
                out = x1 + 30 + min(abs(y2 - y1) / 8, 30)
                d += f" C{out:g},{y1:g} {out:g},{y2:g} {x2:g},{y2:g}"
            else:
                middle = (x1 + x2) / 2
                d += f" C{middle:g},{y1:g} {middle:g},{y2:g} {x2:g},{y2:g}"
        colour = self.colours.get(link.type, _GREY)
        words = (("trusted", link.trusted), ("shown", shown), ("pale", self.shown and not shown))
        kind = " ".join(word for word, holds in words if holds)
        kind = f' class="{kind}"' if kind else ""
        title = f"{link}{': ' + link.type if link.type else ''}"
        return (
            f'<path{kind} stroke="{colour}" d="{d}" '
            f'marker-end="url(#{tip_id(colour)})"><title>{escape(title)}</title></path>'
        )

    def _points(self, pair: tuple[str, str], way: list[PlacedNode], side: float) -> list[tuple[float, float]]:
        """Where a line touches its two boxes, and the edges of columns between which it may bend.

        Inside a column it is straight, so that it does not run behind a wider box.
        """
        first, last = way[0], way[-1]
        start, end = (
            placed.middle + _TOP + port + side for placed, port in zip((first, last), self.ports[pair], strict=True)
        )
        points = [(self._right(first), start), (self._edge(first), start)]
        for joint in way[1:-1]:
            y = joint.middle + _TOP + side
            points += [(self.left[joint.column], y), (self._edge(joint), y)]
        if first.column == last.column:
            points += [(self._edge(last), end), (self._right(last), end)]
        else:
            points.append((self.left[last.column], end))
        return points

    def _right(self, placed: PlacedNode) -> float:
        return self.left[placed.column] + _width(self.nodes[placed.name].label)

    def _edge(self, placed: PlacedNode) -> float:
        """The right end of its column."""
        return self.left[placed.column] + self.wide[placed.column]


def _nodes(graph: ConnectionGraph, apart: frozenset[str]) -> list[_Node]:
    """Scopes, and devices: those that are alike together, if they are many and none of them is shown."""
    nodes = [_Node(label=bare_name(name), scope=True, members=(name,)) for name in graph.scopes]
    for names in bundles(graph, apart):
        nodes.append(_Node(label=bundle_label(tuple(map(bare_name, names))), scope=False, members=names))
    return nodes


def _pairs(graph: ConnectionGraph, nodes: Mapping[str, _Node]) -> list[tuple[str, str]]:
    """Who is joined to whom, each two once."""
    pairs: dict[tuple[str, str], None] = {}
    for link in graph.links:
        if link.source in nodes and link.target in nodes and (link.target, link.source) not in pairs:
            pairs[link.source, link.target] = None
    return list(pairs)


def _heights(
    nodes: Mapping[str, _Node], pairs: Iterable[tuple[str, str]], column: Mapping[str, int]
) -> dict[str, float]:
    """A box has room for the lines at its sides."""
    sides: dict[tuple[str, bool], int] = {}
    for one, other in pairs:
        for name, far in ((one, other), (other, one)):
            side = name, column[far] >= column[name]
            sides[side] = sides.get(side, 0) + 1
    return {
        name: max(_HEIGHT, 8 + _PORT * max(sides.get((name, True), 0), sides.get((name, False), 0))) for name in nodes
    }


def _ports(layout: Layout) -> dict[tuple[str, str], tuple[float, float]]:
    """Where on its two boxes each line begins and ends, from the middle: so that lines of one side do not cross."""
    sides: dict[tuple[str, bool], list[tuple[float, tuple[str, str], int]]] = {}
    for pair, way in layout.ways.items():
        beside = way[0].column == way[-1].column
        sides.setdefault((way[0].name, True), []).append((way[1].middle, pair, 0))
        sides.setdefault((way[-1].name, beside), []).append((way[-2].middle, pair, 1))
    ports: dict[tuple[str, str], list[float]] = {pair: [0.0, 0.0] for pair in layout.ways}
    for lines in sides.values():
        lines.sort()
        for at, (_, pair, end) in enumerate(lines):
            ports[pair][end] = (at - (len(lines) - 1) / 2) * _PORT
    return {pair: (ends[0], ends[1]) for pair, ends in ports.items()}


def _legend(graph: ConnectionGraph, colours: Mapping[str, str]) -> list[tuple[str, str]]:
    """Colours and what they say."""
    if not colours or len(colours) > _LISTED:
        return []
    after: dict[str, list[str]] = {name: [] for name in colours}
    for first, second in graph.pairs():
        if first in after and second in after:
            after[first].append(second)
    notes = [
        (colours[name], f"{name}, then {' or '.join(some)}" if some else f"{name}, then nothing")
        for name, some in after.items()
    ]
    if any(link.trusted for link in graph.links):
        notes.append(("", "Thick lines are trusted links."))
    return notes


def _width(label: str) -> float:
    return max(len(label) * _CHARACTER + 20, 40.0)
