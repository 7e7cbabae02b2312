"""Machines as pictures: Mermaid, Graphviz (dot), and SVG, which is laid out and drawn without any other program.

All show the same: states, the first one marked, and arrows labelled `event → what is put out`. Arrows between the same
two states are one arrow with several lines. What has no arrow passes and leaves the state.

In SVG states stand in a row, in the order in which they are reached. An arrow to the next one is a straight line;
others go round below, each in a lane of its own, the shortest first; what stays in a state is listed above it. States
are as far apart as the label between them is wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidegate.flow.drawing.elements import LINE, MARGIN, box, centred, mermaid_label, page, quoted, text, tip, tip_id
from tidegate.monitor.machine import Graph

_CHARACTER: Final = 7.0
_HEIGHT: Final = 36.0
_LOOP: Final = 22.0
_LANE: Final = 14.0
_FOOT: Final = 14.0
_GREY: Final = "#52606d"
_STYLE: Final = f"""\
rect.state {{ fill: #e3f2fd; stroke: #1565c0; stroke-width: 1.4; }}
path.arrow {{ fill: none; stroke: {_GREY}; stroke-width: 1.3; marker-end: url(#{tip_id(_GREY)}); }}
.label rect {{ fill: #ffffff; fill-opacity: 0.9; }}
circle {{ fill: #1f2933; }}"""
_NOTE: Final = "Events without an arrow pass and leave the state."


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


@dataclass(slots=True)
class _Box:
    """A state, or what is drawn of it: its place and width."""

    x: float
    y: float
    width: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + _HEIGHT


def svg(title: str, graph: Graph) -> str:
    body: list[str] = []
    top, widest = 40.0, MARGIN * 2 + max(len(title), len(_NOTE)) * _CHARACTER
    for number, part in enumerate(stages(graph)):
        if number:
            body.append(text("note", MARGIN, top + 6, "then, with what passes:"))
            top += 16
        drawn = _Stage(part, top)
        body += drawn.body
        top, widest = drawn.bottom + MARGIN, max(widest, drawn.right + MARGIN)
    body.append(text("note", MARGIN, top, _NOTE))
    return page(title, widest, top + MARGIN / 2, _STYLE, tip(_GREY), body)


class _Stage:
    """One graph below a line: where everything stands, and its elements."""

    def __init__(self, graph: Graph, top: float) -> None:
        self.arrows = arrows(graph)
        self.order = {state: index for index, state in enumerate(_row(graph))}
        self.body: list[str] = []
        self.labels: list[str] = []
        self.right = 0.0
        around = [pair for pair in self.arrows if self._length(pair) not in (0, 1)]
        around.sort(key=lambda pair: abs(self._length(pair)))
        self.feet = self._ordered(around)
        self.boxes = self._placed(top)
        self.bottom = next(iter(self.boxes.values())).bottom
        for pair in around:
            self._around(pair)
        for pair in self.arrows:
            match self._length(pair):
                case 0:
                    self._stays(pair[0])
                case 1:
                    self._straight(pair)
        first = self.boxes[graph.start]
        y = first.y + _HEIGHT / 2
        self.body.append(f'<circle cx="{MARGIN:g}" cy="{y:g}" r="5"/>')
        self.body.append(f'<path class="arrow" d="M{MARGIN + 5:g},{y:g} H{first.x:g}"/>')
        self.body += [box("state", at.x, at.y, at.width, _HEIGHT, 10, state) for state, at in self.boxes.items()]
        self.body += self.labels

    def _length(self, pair: tuple[str, str]) -> int:
        return self.order[pair[1]] - self.order[pair[0]]

    def _ordered(self, around: list[tuple[str, str]]) -> dict[str, dict[tuple[str, str], int]]:
        """The arrows at the lower edge of each state, from the left: those on one side do not cross each other."""
        touching: dict[str, list[tuple[str, str]]] = {state: [] for state in self.order}
        for pair in around:
            for state in pair:
                touching[state].append(pair)

        def side(state: str, pair: tuple[str, str]) -> tuple[int, int]:
            other = pair[0] if pair[1] == state else pair[1]
            length = abs(self._length(pair))
            return (0, length) if self.order[other] < self.order[state] else (1, -length)

        return {
            state: {pair: place for place, pair in enumerate(sorted(pairs, key=lambda pair: side(state, pair)))}
            for state, pairs in touching.items()
        }

    def _placed(self, top: float) -> dict[str, _Box]:
        boxes: dict[str, _Box] = {}
        loops = [labels for (source, target), labels in self.arrows.items() if source == target]
        y = top + max((_LOOP + LINE * len(labels) for labels in loops), default=0.0)
        x = MARGIN + 40
        states = list(self.order)
        for state, following in zip(states, [*states[1:], ""], strict=True):
            width = max(len(state) * _CHARACTER + 20, (len(self.feet[state]) + 1) * _FOOT)
            room = max(width, _width(self.arrows.get((state, state), [])))
            boxes[state] = _Box(x + (room - width) / 2, y, width)
            self.right = max(self.right, x + room)
            x += room + max(60.0, _width(self.arrows.get((state, following), [])) + 40)
        return boxes

    def _foot(self, state: str, pair: tuple[str, str]) -> float:
        """Where an arrow touches the lower edge of a state."""
        feet = self.feet[state]
        return self.boxes[state].middle + (feet[pair] - (len(feet) - 1) / 2) * _FOOT

    def _straight(self, pair: tuple[str, str]) -> None:
        source, target = self.boxes[pair[0]], self.boxes[pair[1]]
        y = source.y + _HEIGHT / 2
        self.body.append(f'<path class="arrow" d="M{source.right:g},{y:g} H{target.x:g}"/>')
        lines = self.arrows[pair]
        self._label((source.right + target.x) / 2, y - LINE * len(lines) / 2 - 6, lines)

    def _around(self, pair: tuple[str, str]) -> None:
        """An arrow along a lane of its own below all states and lanes so far."""
        lines = self.arrows[pair]
        lane = self.bottom + _LANE + LINE * len(lines) / 2
        edge = self.boxes[pair[0]].bottom
        out, into = self._foot(pair[0], pair), self._foot(pair[1], pair)
        side = -10.0 if into < out else 10.0
        self.body.append(
            f'<path class="arrow" d="M{out:g},{edge:g} V{lane - 10:g} Q{out:g},{lane:g} {out + side:g},{lane:g} '
            f'H{into - side:g} Q{into:g},{lane:g} {into:g},{lane - 10:g} V{edge:g}"/>'
        )
        self._label(max((out + into) / 2, _width(lines) / 2 + 4), lane, lines)
        self.bottom = lane + LINE * len(lines) / 2

    def _stays(self, state: str) -> None:
        at = self.boxes[state]
        left, right, top = at.middle - 14, at.middle + 14, at.y - _LOOP
        self.body.append(
            f'<path class="arrow" d="M{left:g},{at.y:g} C{left - 6:g},{top:g} {right + 6:g},{top:g} '
            f'{right:g},{at.y:g}"/>'
        )
        lines = self.arrows[state, state]
        self._label(at.middle, at.y - _LOOP + 4 - LINE * len(lines) / 2, lines)

    def _label(self, x: float, y: float, lines: list[str]) -> None:
        width, height = _width(lines), LINE * len(lines)
        self.right = max(self.right, x + width / 2)
        top = y - height / 2
        texts = "".join(centred(x, top + LINE * index + 12, line) for index, line in enumerate(lines))
        back = f'<rect x="{x - width / 2:g}" y="{top:g}" width="{width:g}" height="{height:g}"/>'
        self.labels.append(f'<g class="label">{back}{texts}</g>')


def _row(graph: Graph) -> list[str]:
    """States in the order in which they are reached."""
    targets: dict[str, list[str]] = {}
    for edge in graph.edges:
        targets.setdefault(edge.source, []).append(edge.target)
    reached = {graph.start: None}
    waiting = [graph.start]
    for state in waiting:
        new = [target for target in dict.fromkeys(targets.get(state, ())) if target not in reached]
        reached.update(dict.fromkeys(new))
        waiting += new
    return waiting


def _width(lines: list[str]) -> float:
    return max((len(line) for line in lines), default=0) * _CHARACTER + 8
