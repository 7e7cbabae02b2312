"""Tables, documents and pictures of flows: everything is on them, and what others would read as markup is not."""

from __future__ import annotations

import json
import random
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given

from flow.figures import (
    COMPONENTS,
    CONJOINED,
    DIRECTED_ACYCLIC,
    HOME,
    LABELS,
    Parents,
    component,
    entities,
    labelled,
    rbac,
)
from flow.worlds import graphs
from tidegate.flow.drawing.graph import document, dot, flows, mermaid, rows, svg
from tidegate.flow.graph import ConnectionGraph, connection
from tidegate.flow.route import Route, shortest

SVG = "{http://www.w3.org/2000/svg}"


def town() -> Parents:
    """200 scopes in a hierarchy, some with several parents, and 600 clients."""
    chance = random.Random(3)
    parents: dict[str, tuple[str, ...]] = {f"scope:{at}": (f"scope:{(at - 3) // 4}",) for at in range(3, 200)}
    parents |= {f"scope:{at}": () for at in range(3)}
    parents |= {f"scope:{at}": (*parents[f"scope:{at}"], f"scope:{at % 3}") for at in range(27, 200, 40)}
    return parents | {f"client:{at}": (f"scope:{chance.randrange(200)}",) for at in range(600)}


ROLES = rbac(["r1", "r2"], {"d1": "r1", "d2": "r2"})
ALL: list[tuple[ConnectionGraph, Parents | None]] = [
    (component(COMPONENTS), COMPONENTS),
    (component(DIRECTED_ACYCLIC), DIRECTED_ACYCLIC),
    (component(CONJOINED), CONJOINED),
    (labelled({label: (label, label) for label in LABELS}), None),
    (ROLES, None),
    (component(HOME), HOME),
    (component(HOME), None),
    (component(town()), town()),
    (ConnectionGraph([link for at in range(9) for link in connection(f"scope:{at}", f"scope:{(at + 4) % 9}")]), None),
    (ConnectionGraph(connection("client:<&>", 'scope:"#;|', "<", "&")), None),
    (ConnectionGraph(entities=["scope:alone", "client:lonely"]), None),
    (ConnectionGraph(), None),
]


def boxes(root: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    return [
        (float(box.attrib["x"]), float(box.attrib["y"]), float(box.attrib["width"]), float(box.attrib["height"]))
        for box in root.iter(f"{SVG}rect")
        if box.attrib["class"] != "paper"
    ]


@pytest.mark.parametrize(("graph", "parents"), ALL)
def test_svg_shows_everything_and_nothing_overlaps(graph: ConnectionGraph, parents: Parents | None) -> None:
    root = ElementTree.fromstring(svg("the <title>", graph, parents))
    wide, high = float(root.attrib["width"]), float(root.attrib["height"])
    texts = [each.text or "" for each in root.iter(f"{SVG}text")]
    assert "the <title>" in texts
    assert {name.partition(":")[2] for name in graph.scopes} <= set(texts)
    alike = sum(int(found[1]) for text in texts if (found := re.search(r"\((\d+)\)$", text)))
    single = sum(1 for box in root.iter(f"{SVG}rect") if box.attrib["class"] == "device")
    bundles = sum(1 for text in texts if re.search(r" … .*\(\d+\)$", text))
    assert alike + single - bundles == len(graph.devices)
    placed = boxes(root)
    for at, (x, y, width, height) in enumerate(placed):
        assert 0 <= x <= x + width <= wide
        assert 0 <= y <= y + height <= high
        for left, top, across, down in placed[:at]:
            assert x + width <= left or left + across <= x or y + height <= top or top + down <= y


@pytest.mark.parametrize(("graph", "parents"), ALL[:7])
def test_svg_has_a_line_from_box_to_box_for_each_link(graph: ConnectionGraph, parents: Parents | None) -> None:
    root = ElementTree.fromstring(svg("t", graph, parents))
    at = {
        f"{'scope' if group[0].attrib['class'] == 'scope' else 'client'}:{group[1].text}": group[0].attrib
        for group in root.iter(f"{SVG}g")
    }
    lines = {line[0].text: line for line in root.iter(f"{SVG}path") if len(line)}
    assert set(lines) == {f"{link}: {link.type}" for link in graph.links}
    for link in graph.links:
        numbers = [float(each) for each in re.findall(r"-?[\d.]+", lines[f"{link}: {link.type}"].attrib["d"])]
        for (x, y), name in ((numbers[:2], link.source), (numbers[-2:], link.target)):
            box = {key: float(at[name][key]) for key in ("x", "y", "width", "height")}
            assert min(abs(x - box["x"]), abs(x - box["x"] - box["width"])) < 0.1
            assert box["y"] <= y <= box["y"] + box["height"]


def test_parents_stand_left_of_their_children() -> None:
    root = ElementTree.fromstring(svg("t", component(HOME), HOME))
    x = {group[1].text: float(group[0].attrib["x"]) for group in root.iter(f"{SVG}g")}
    for child, parents in HOME.items():
        assert all(x[each.partition(":")[2]] < x[child.partition(":")[2]] for each in parents)


def test_lines_of_one_side_do_not_cross() -> None:
    scopes = {name: parents for name, parents in town().items() if name.startswith("scope:")}
    root = ElementTree.fromstring(svg("t", component(scopes), scopes))
    sides: dict[str, list[tuple[float, float]]] = {}
    for line in root.iter(f"{SVG}path"):
        numbers = [float(each) for each in re.findall(r"-?[\d.]+", line.attrib["d"])]
        if len(line) and line.attrib["d"].count("C") == 1 and (line[0].text or "").endswith("down"):
            sides.setdefault((line[0].text or "").partition(" ")[0], []).append((numbers[1], numbers[-1]))
    assert len(sides) > 40
    for ends in sides.values():
        assert [there for _, there in sorted(ends)] == sorted(there for _, there in ends)


def test_lines_bend_only_between_columns() -> None:
    """So that none runs behind a box that is wider than the one where it begins."""
    parents = entities({"a": "", "b": "a", "c": "b"}) | entities(
        {"a-very-long-name": "a", "x": "b", "y": "b"}, "client"
    )
    root = ElementTree.fromstring(svg("t", component(parents), parents))
    right = max(x + width for x, _, width, _ in boxes(root) if width > 60)
    drawn = {each[0].text: each.attrib["d"] for each in root.iter(f"{SVG}path") if len(each)}
    for child in ("scope:c", "client:y"):
        line = drawn[f"scope:b -> {child}: down"]
        straight = re.findall(r"L(-?[\d.]+),", line)
        assert [float(x) for x in straight] == [pytest.approx(right, abs=0.01)]
        assert line.index("L") < line.index("C")


def test_colours_are_explained() -> None:
    texts = [each.text for each in ElementTree.fromstring(svg("t", ROLES)).iter(f"{SVG}text")]
    assert "PubUp, then SubDown" in texts
    assert "PubDown, then nothing" in texts


def leak() -> Route:
    route = shortest(component(HOME), "client:MD", "scope:I", paths=True)
    assert route is not None
    return route


def test_a_route_stands_out() -> None:
    root = ElementTree.fromstring(svg("t", component(HOME), HOME, leak()))
    shown = [line[0].text for line in root.iter(f"{SVG}path") if "shown" in line.attrib.get("class", "")]
    assert set(shown) == {f"{link}: {link.type}" for link in leak().links}
    through = {
        group[1].text for group in root.iter(f"{SVG}g") if "shown" in group[0].attrib["class"] and not group.attrib
    }
    assert through == {"MD", "H4", "H2", "DB", "H1", "I"}
    assert "    linkStyle 0,2,4,5,7 stroke-width:4px" in mermaid("t", component(HOME), HOME, leak()).splitlines()
    assert dot("t", component(HOME), HOME, leak()).count("penwidth=3") == len(leak().links)


def test_a_client_that_is_shown_is_drawn_apart() -> None:
    graph = ConnectionGraph([link for at in range(60) for link in connection(f"client:{at:02}", "scope:s")])
    route = shortest(graph, "client:05", "client:17")
    texts = [each.text for each in ElementTree.fromstring(svg("t", graph, None, route)).iter(f"{SVG}text")]
    assert {"05", "17", "00 … 59 (58)"} <= set(texts)


def test_mermaid() -> None:
    assert mermaid("roles", rbac(["r"], {"d": "r"})).splitlines() == [
        "---",
        'title: "roles"',
        "---",
        "flowchart LR",
        '    n0["bus"]',
        '    n1["r-pub"]',
        '    n2["r-sub"]',
        '    n3(["d"])',
        "    n0 <-->|PubDown / PubUp| n1",
        "    n0 <-->|SubDown / SubUp| n2",
        "    n1 <-->|DevDown / DevUp| n3",
        "    n2 <-->|DevDown / DevUp| n3",
    ]


def test_mermaid_labels_hold_nothing_that_means_something() -> None:
    lines = mermaid("t", ALL[9][0]).splitlines()[4:]
    assert lines == [
        '    n0["#quot;#35;#59;#124;"]',
        '    n1(["#lt;&#gt;"])',
        "    n0 <-->|& / #lt;| n1",
    ]


def test_dot() -> None:
    assert dot('the "title"', component({"scope:a": (), "client:b": ("scope:a",)})).splitlines() == [
        'digraph "the \\"title\\"" {',
        '  label="the \\"title\\""; rankdir=LR; node [fontname=monospace];',
        '  "scope:a" [label="a", shape=box];',
        '  "client:b" [label="b", shape=box, style="rounded"];',
        '  "scope:a" -> "client:b" [label="down"];',
        '  "client:b" -> "scope:a" [label="up", constraint=false];',
        "}",
    ]


def test_rows() -> None:
    graph = component(HOME)
    assert list(rows(flows(graph, source="client:MD"))) == [
        ("client:MD", "scope:H2", "scope:H4"),
        ("client:MD", "scope:H4", "directly"),
        ("client:MD", "client:DB", "scope:H4 -> scope:H2"),
        ("client:MD", "client:MD", "scope:H4"),
        ("client:MD", "client:SC", "scope:H4"),
    ]
    assert [source for source, _, _ in rows(flows(graph, target="client:DL"))] == [
        "scope:H1", "scope:H2", "scope:H3", "scope:I", "client:DB", "client:DL", "client:SP",
    ]  # fmt: skip
    assert list(rows(flows(graph, source="client:MD", target="scope:I"))) == []
    assert list(rows(flows(graph, source="client:MD", target="scope:I", paths=True))) == [
        ("client:MD", "scope:I", "scope:H4 -> scope:H2 -> client:DB -> scope:H2 -> scope:H1")
    ]


def test_document() -> None:
    graph = component({"scope:a": (), "client:b": ("scope:a",)})
    made = document(graph, flows(graph, source="client:b"))
    assert json.loads(json.dumps(made)) == {
        "scopes": ["scope:a"],
        "devices": ["client:b"],
        "links": [
            {"from": "scope:a", "to": "client:b", "type": "down", "trusted": False},
            {"from": "client:b", "to": "scope:a", "type": "up", "trusted": False},
        ],
        "allow": [["down", "down"], ["up", "down"], ["up", "up"]],
        "groups": [["scope:a"]],
        "by": "routes",
        "flows": [
            {"from": "client:b", "to": "scope:a", "route": ["client:b", "scope:a"]},
            {"from": "client:b", "to": "client:b", "route": ["client:b", "scope:a", "client:b"]},
        ],
    }


@given(graphs())
def test_every_graph_can_be_drawn(graph: ConnectionGraph) -> None:
    ElementTree.fromstring(svg("t", graph))
    assert dot("t", graph).count(" -> ") == len(graph.links)
    joined = {frozenset((link.source, link.target)) for link in graph.links}
    assert len(re.findall(r" <?-->", mermaid("t", graph))) == len(joined)
    found = [(source, target) for source, target, _ in rows(flows(graph))]
    assert found == sorted(
        set(found),
        key=lambda pair: (graph.entities.index(pair[0]), graph.entities.index(pair[1])),
    )
