"""Devices that are alike: one of them stands for all, and nothing is lost by it."""

from __future__ import annotations

from hypothesis import given

from flow.worlds import graphs, pairs
from tidegate.flow.bundles import ThinnedGraph, bundle_label, bundles, within
from tidegate.flow.graph import ConnectionGraph, connection, is_scope
from tidegate.flow.reach import Reach


def crowd(number: int, kind: str = "") -> list[str]:
    return [f"client:{kind}{at:02}" for at in range(number)]


def gathered(*names: str, there: str = "a", back: str = "b") -> ConnectionGraph:
    return ConnectionGraph([link for name in names for link in connection(name, "scope:s", there, back)])


def test_a_few_are_shown_one_by_one_and_many_as_one() -> None:
    few, many = crowd(6), crowd(7)
    assert bundles(gathered(*few)) == [(name,) for name in few]
    assert bundles(gathered(*many)) == [tuple(many)]
    assert bundle_label(tuple(many)) == "client:00 … client:06 (7)"
    assert bundle_label(("client:x",)) == "client:x"


def test_where_there_are_many_two_are_shown_as_one() -> None:
    graph = gathered(*crowd(40))
    for link in connection("client:x", "scope:s", "a", "other"):
        graph.add(link)
    assert bundles(graph) == [tuple(crowd(40)), ("client:x",)]


def test_who_is_to_be_seen_is_not_in_a_bundle() -> None:
    found = bundles(gathered(*crowd(9)), apart=["client:03", "scope:s"])
    assert ("client:03",) in found
    assert sorted(map(len, found)) == [1, 8]


def test_a_thinned_graph_knows_how_many_it_stands_for() -> None:
    thin = ThinnedGraph(gathered(*crowd(9)))
    assert thin.graph.entities == ["scope:s", "client:00"]
    assert [thin.size(name) for name in thin.graph.entities] == [1, 9]
    assert thin.bundle_label("scope:s") == "scope:s"
    assert thin.bundle_label("client:00") == "client:00 … client:08 (9)"


def test_a_part_of_a_graph() -> None:
    part = within(gathered(*crowd(3)), ["scope:s", "client:01"])
    assert list(map(str, part.links)) == ["scope:s -> client:01", "client:01 -> scope:s"]


@given(graphs())
def test_flows_between_bundles_are_those_of_the_whole_graph(graph: ConnectionGraph) -> None:
    """With two more beside each device, and 41 of another kind, so that they are put together."""
    for name in graph.devices:
        for link in (*graph.leaving(name), *graph.entering(name)):
            for more in ("x", "y"):
                ends = [end if is_scope(end) else end + more for end in (link.source, link.target)]
                graph.add(type(link)(source=ends[0], target=ends[1], type=link.type, trusted=link.trusted))
    for name in crowd(41, "crowd"):
        graph.join(name)
    thin = ThinnedGraph(graph)
    assert all(graph.link(link.source, link.target) == link for link in thin.graph.links)
    stands = {name: kept for kept, names in thin.members.items() for name in names}
    for paths in (False, True):
        whole, thinned = Reach(graph, paths=paths), Reach(thin.graph, paths=paths)
        expected = {(stands.get(one, one), stands.get(other, other)) for one, other in pairs(whole)}
        assert set(pairs(thinned)) == expected
        sizes = {name: thin.size(name) for name in thin.graph.entities}
        assert sum(sizes[one] * sizes[other] for one, other in pairs(thinned)) == whole.entity_pairs
