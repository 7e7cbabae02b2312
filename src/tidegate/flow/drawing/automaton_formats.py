"""Machines as pictures: Mermaid, Graphviz (dot) and, in `automaton_svg`, SVG.

All show the same: states, the first one marked, and arrows labelled `event → what is put out`. Arrows between the same
two states are one arrow with several lines. What has no arrow passes and leaves the state.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.flow.drawing.elements import mermaid_label, quoted
from tidegate.monitor.machine import Graph


def stages(graph: Graph) -> Iterator[Graph]:
    """The graph, and those that get what passes it, in order."""
    here: Graph | None = graph
    while here is not None:
        yield here
        here = here.then


def arrows(graph: Graph) -> dict[tuple[str, str], list[str]]:
    """The labels of each pair of states that has arrows."""
    labels: dict[tuple[str, str], list[str]] = {}
    for edge in graph.edges:
        labels.setdefault((edge.source, edge.target), []).append(edge.label)
    return labels


def mermaid(title: str, graph: Graph) -> str:
    lines = ["---", f"title: {quoted(title)}", "---", "stateDiagram-v2", "    direction LR"]
    parts = list(stages(graph))
    for number, part in enumerate(parts):
        names = {state: f"s{number}_{index}" for index, state in enumerate(part.states)}
        if len(parts) > 1:
            lines.append(f'    state "{number + 1}" as stage{number} {{')
        lines += [f'    state "{mermaid_label(state)}" as {name}' for state, name in names.items()]
        lines.append(f"    [*] --> {names[part.start]}")
        for (source, target), labels in arrows(part).items():
            lines.append(f"    {names[source]} --> {names[target]} : {'<br/>'.join(map(mermaid_label, labels))}")
        if len(parts) > 1:
            lines.append("    }")
    lines += [f"    stage{number} --> stage{number + 1} : what passes" for number in range(len(parts) - 1)]
    return "\n".join(lines) + "\n"


def dot(title: str, graph: Graph) -> str:
    lines = [f"digraph {quoted(title)} {{", "  rankdir=LR; compound=true;", '  node [shape=box, style="rounded"];']
    parts = list(stages(graph))
    for number, part in enumerate(parts):
        names = {state: f"s{number}_{index}" for index, state in enumerate(part.states)}
        lines.append(f"  subgraph cluster_{number} {{ label={quoted(str(number + 1) if len(parts) > 1 else title)};")
        lines.append(f"    start{number} [shape=point];")
        lines += [f"    {name} [label={quoted(state)}];" for state, name in names.items()]
        lines.append(f"    start{number} -> {names[part.start]};")
        for (source, target), labels in arrows(part).items():
            lines.append(f"    {names[source]} -> {names[target]} [label={quoted(chr(10).join(labels))}];")
        lines.append("  }")
        if number:
            ends = f"ltail=cluster_{number - 1}, lhead=cluster_{number}"
            lines.append(f'  s{number - 1}_0 -> s{number}_0 [label="what passes", style=dashed, {ends}];')
    return "\n".join([*lines, "}"]) + "\n"
