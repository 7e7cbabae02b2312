"""Flows and the connection graph for people and programs: rows of a table, a document, Mermaid, Graphviz (dot).

SVG is in `graph_svg`. All list things in the order of the graph, so that two pictures of one graph are the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidegate.flow.drawing.elements import mermaid_label, quoted
from tidegate.flow.graph import ConnectionGraph, Link, bare_name, is_scope
from tidegate.flow.groups import groups
from tidegate.flow.route import Route, Search, shown_links


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
