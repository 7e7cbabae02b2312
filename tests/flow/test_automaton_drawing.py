"""Pictures: everything that a machine does is on them, and what others would read as markup is not."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from monitor.test_automaton import BY_HAND, WAITING
from monitor.test_sequence import A1
from monitor.traces import made
from tidegate.flow.drawing.automaton import dot, mermaid, svg

BRANCHING = {
    "automaton": {
        "start": "a",
        "states": {
            "a": [{"on": "1", "go": "b"}, {"on": "2", "go": "c"}, {"on": "3", "go": "d"}],
            "b": [{"on": "1", "go": "d"}, {"on": "2", "go": "c"}],
            "c": [{"on": "1", "go": "b"}, {"on": "2", "go": "d", "when": '"<&>" == "x;#\\""'}],
            "d": [{"on": "#", "go": "a", "emit": {"topic": "x", "payload": "a long text that has no room here"}}],
        },
    }
}
ROW = {"only": "x", "payload": "o.size > 0", "dedupe": "1s", "rate": "5/m", "silence": "3s", "emit": {"topic": "t"}}
ALL = [
    A1,
    BY_HAND,
    WAITING,
    BRANCHING,
    ROW,
    {"filter": ["a/#"]},
    {"map": {"a": "b"}},
    {"use": "complex_em"},
    {"use": "hsup_em"},
    {"use": "multi_em"},
    {"python": "monitor.mine:Counting"},
]


@pytest.mark.parametrize("written", ALL)
def test_svg_shows_every_state_and_arrow(written: Any) -> None:
    graph = made(**written).graph()
    picture = svg("the <title>", graph)
    root = ElementTree.fromstring(picture)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "the <title>" in texts
    while graph:
        assert set(graph.states) <= set(texts)
        assert {edge.label for edge in graph.edges} <= set(texts)
        graph = graph.then  # type: ignore[assignment]
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        if box.attrib.get("class") == "paper":
            continue  # it is as large as the picture
        assert 0 <= float(box.attrib["x"]) <= float(box.attrib["x"]) + float(box.attrib["width"]) <= width
        assert 0 <= float(box.attrib["y"]) <= float(box.attrib["y"]) + float(box.attrib["height"]) <= height


@pytest.mark.parametrize("written", ALL)
def test_states_do_not_overlap(written: Any) -> None:
    root = ElementTree.fromstring(svg("t", made(**written).graph()))
    boxes = [
        tuple(float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        for box in root.iter("{http://www.w3.org/2000/svg}rect")
        if box.attrib.get("class") == "state"
    ]
    for index, (x, y, width, height) in enumerate(boxes):
        for left, top, wide, high in boxes[:index]:
            assert x + width <= left or left + wide <= x or y + height <= top or top + high <= y


def test_arrows_end_at_feet_of_their_own() -> None:
    states = [f"s{number}" for number in range(12)]
    crowd = {each: [{"on": f"t{number}", "go": other} for number, other in enumerate(states)] for each in states}
    root = ElementTree.fromstring(svg("t", made(automaton={"start": "s0", "states": crowd}).graph()))
    paths = [each.attrib["d"] for each in root.iter("{http://www.w3.org/2000/svg}path") if "Q" in each.attrib["d"]]
    assert len(paths) == 12 * 11 - 11  # all but those that stay, and those to the next one
    ends = [re.match(r"M([\d.]+),.* ([\d.]+),[\d.]+ V", path) for path in paths]
    feet = [found[side] for found in ends if found for side in (1, 2)]
    assert len(feet) == len(set(feet)) == 2 * len(paths)


def test_mermaid() -> None:
    assert mermaid("door", made(**A1).graph()).splitlines()[3:] == [
        "stateDiagram-v2",
        "    direction LR",
        '    state "nothing seen" as s0_0',
        '    state "seen AccessRequest" as s0_1',
        '    state "seen AccessRequest, AccessGranted" as s0_2',
        "    [*] --> s0_0",
        "    s0_0 --> s0_0 : AccessDenied → same<br/>DL_unlock → nothing",
        "    s0_0 --> s0_1 : AccessRequest → same",
        "    s0_1 --> s0_0 : AccessDenied → same",
        "    s0_1 --> s0_1 : DL_unlock → nothing",
        "    s0_1 --> s0_2 : AccessGranted → same",
        "    s0_2 --> s0_0 : AccessDenied → same<br/>DL_unlock → same",
    ]


def test_mermaid_labels_hold_nothing_that_means_something() -> None:
    for line in mermaid("t", made(**BRANCHING).graph()).splitlines():
        if " : " in line:
            label = line.partition(" : ")[2].replace("<br/>", "")
            assert not re.search(r'[<>":]', label)
            assert not re.search(r";", re.sub(r"#\w+;", "", label))


def test_dot() -> None:
    made_of_it = dot('a "title"', made(**WAITING).graph())
    assert made_of_it.startswith('digraph "a \\"title\\"" {\n')
    assert "    s0_1 -> s0_2 [label=\"10 s of silence → reminder '?' QoS 1\"];\n" in made_of_it
    assert made_of_it.count("{") == made_of_it.count("}")
    row = dot("t", made(**ROW).graph())
    assert row.count("subgraph") == 4
    assert row.count('label="what passes"') == 3
