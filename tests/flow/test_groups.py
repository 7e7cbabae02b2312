"""Groups of scopes that trust each other (SEC-REDS, figures 2.4 and 2.5)."""

from __future__ import annotations

from hypothesis import given

from flow.worlds import graphs
from tidegate.flow.graph import ConnectionGraph, Link, connection, is_scope
from tidegate.flow.groups import groups


def scopes(trusted: str, untrusted: str = "") -> ConnectionGraph:
    graph = ConnectionGraph()
    for pairs, trust in ((trusted, True), (untrusted, False)):
        for pair in pairs.split():
            for link in connection(f"scope:{pair[0]}", f"scope:{pair[1]}", trusted=trust):
                graph.add(link)
    return graph


def named(graph: ConnectionGraph) -> list[str]:
    return ["".join(name.partition(":")[2] for name in group) for group in groups(graph)]


def test_figure_2_4() -> None:
    assert named(scopes("AB AC BD CD", "AE DF")) == ["ABCD", "E", "F"]


def test_figure_2_5_isolated_groups() -> None:
    assert named(scopes("AB BC CD EF FG", "CH FH")) == ["ABCD", "EFG", "H"]


def test_trust_of_one_side_only_joins_nobody() -> None:
    graph = scopes("AB")
    graph.add(Link(source="scope:B", target="scope:A"))
    assert named(graph) == ["A", "B"]
    graph.remove("scope:B", "scope:A")
    assert named(graph) == ["AB"]


@given(graphs())
def test_groups_are_the_classes_of_being_joined(graph: ConnectionGraph) -> None:
    together = {name: {name} for name in graph.scopes}
    for _ in graph.scopes:
        for one in graph.links:
            back = graph.link(one.target, one.source)
            if is_scope(one.source) and is_scope(one.target) and one.trusted and (back is None or back.trusted):
                both = together[one.source] | together[one.target]
                together.update(dict.fromkeys(both, both))
    assert groups(graph) == sorted({tuple(sorted(each)) for each in together.values()})
