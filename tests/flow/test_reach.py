"""What reaches what is what its definition says, and takes few steps to find."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.worlds import all_link_pairs, closed, every_flow, graphs, is_flow, pairs
from tidegate.flow.graph import ConnectionGraph, Link, connection, is_scope
from tidegate.flow.reach import Reach
from tidegate.flow.route import Search, shortest


@given(graphs(), st.booleans())
def test_links_are_joined_as_an_enumeration_finds(graph: ConnectionGraph, paths: bool) -> None:
    found = {(each[:2], each[-2:]) for each in every_flow(graph, paths=paths)}
    reach = Reach(graph, paths=paths)
    for one in graph.links:
        beyond = [each for each in graph.links if ((one.source, one.target), (each.source, each.target)) in found]
        assert reach.beyond(one) == beyond
    assert reach.link_pairs == len(found)


@given(graphs(), st.booleans())
def test_entities_are_reached_as_an_enumeration_finds(graph: ConnectionGraph, paths: bool) -> None:
    found = {(each[0], each[-1]) for each in every_flow(graph, paths=paths)}
    reach = Reach(graph, paths=paths)
    names = graph.entities
    assert pairs(reach) == [(x, y) for x in names for y in names if (x, y) in found]
    assert {(x, y) for x in names for y in names if reach.reaches(x, y)} == found
    assert reach.entity_pairs == len(found)


@given(graphs(), st.booleans())
def test_a_witness_is_a_shortest_flow(graph: ConnectionGraph, paths: bool) -> None:
    shortest_of: dict[tuple[str, str], int] = {}
    for each in every_flow(graph, paths=paths):
        ends = each[0], each[-1]
        shortest_of[ends] = min(len(each), shortest_of.get(ends, len(each)))
    for x in graph.entities:
        search = Search(graph, x, paths=paths)
        every = search.all()
        assert list(every) == [y for y in graph.entities if (x, y) in shortest_of]
        assert search.reached() == set(every)
        for y in graph.entities:
            route = search.to(y)
            if (x, y) not in shortest_of:
                assert route is None
                continue
            for witness in (route, every[y]):
                assert witness is not None
                assert (witness.entities[0], witness.entities[-1]) == (x, y)
                assert len(witness.entities) == shortest_of[x, y]
                assert is_flow(graph, witness.entities, paths=paths)
                assert all(graph.link(link.source, link.target) == link for link in witness.links)
                assert paths or all(map(is_scope, witness.entities[1:-1]))


@given(graphs(wide=7, most=45), st.booleans())
def test_scopes_with_many_links(graph: ConnectionGraph, paths: bool) -> None:
    found = closed(graph, paths=paths)
    reach = Reach(graph, paths=paths)
    for link in graph.links:
        assert {(each.source, each.target) for each in reach.beyond(link)} == found[link.source, link.target]
    for x in graph.entities:
        beyond = {y for link in graph.leaving(x) for _, y in found[link.source, link.target]}
        assert set(Search(graph, x, paths=paths).all()) == set(reach.reached(x)) == beyond
        for y in graph.entities:
            assert (shortest(graph, x, y, paths=paths) is not None) == (y in beyond)


@given(graphs())
def test_the_seeds_algorithm_differs_only_where_said(graph: ConnectionGraph) -> None:
    """It leaves out the route of one link, and that a device gets back what it sent."""
    matrix = all_link_pairs(graph)
    reach = Reach(graph)
    links = graph.links
    seeds = {(each[:2], each[-2:]) for each in every_flow(graph, paths=False, seed=True)}
    for at, one in enumerate(links):
        beyond = reach.beyond(one)
        for to, other in enumerate(links):
            pair = (one.source, one.target), (other.source, other.target)
            assert (matrix[at][to] or one == other) == (pair in seeds)
            own = one.source == other.target and not is_scope(one.source)
            if (other in beyond) != (pair in seeds):
                assert other in beyond
                assert own


@given(graphs(), st.booleans())
def test_routes_are_paths(graph: ConnectionGraph, paths: bool) -> None:
    routes, every = Reach(graph), Reach(graph, paths=True)
    assert set(pairs(routes)) <= set(pairs(every))
    if not graph.devices:
        assert pairs(routes) == pairs(every)


def test_nothing_reaches_or_is_reached_by_strangers() -> None:
    graph = ConnectionGraph(connection("client:a", "scope:s"))
    reach = Reach(graph)
    assert reach.reached("client:x") == []
    assert not reach.reaches("client:x", "scope:s")
    assert not reach.reaches("client:a", "scope:x")
    assert shortest(graph, "client:x", "scope:s") is None
    assert shortest(graph, "client:a", "client:x") is None
    assert pairs(Reach(ConnectionGraph())) == []


def test_a_reach_is_of_its_moment() -> None:
    graph = ConnectionGraph(connection("client:a", "scope:s"))
    reach = Reach(graph)
    graph.add(Link(source="scope:s", target="client:b"))
    assert reach.reached("client:a") == ["scope:s", "client:a"]
    assert Reach(graph).reached("client:a") == ["scope:s", "client:a", "client:b"]


def test_a_route_that_no_message_goes_twice() -> None:
    """By its definition a route may pass a scope twice. A scope refuses what it had, so that is told."""
    round_trip = ["scope:s", "scope:t", "scope:u", "scope:s"]
    links = [
        Link(source="client:a", target="scope:s", type="in"),
        *(
            Link(source=x, target=y, type=kind)
            for x, y, kind in zip(round_trip, round_trip[1:], ("one", "two", "three"), strict=False)
        ),
        Link(source="scope:s", target="client:b", type="out"),
    ]
    graph = ConnectionGraph(links, allow=[("in", "one"), ("one", "two"), ("two", "three"), ("three", "out")])
    route = shortest(graph, "client:a", "client:b")
    assert route is not None
    assert str(route) == "client:a -> scope:s -> scope:t -> scope:u -> scope:s -> client:b"
    assert route.repeated == ("scope:s",)
    # a device publishes another message: nothing is passed twice
    graph = ConnectionGraph(connection("client:a", "scope:s") + connection("client:b", "scope:s"))
    graph.remove("scope:s", "client:a")
    path = Search(graph, "client:a", paths=True).to("scope:s")
    assert path is not None
    assert path.repeated == ()


def star(clients: int) -> ConnectionGraph:
    """One scope with many clients."""
    return ConnectionGraph([link for at in range(clients) for link in connection(f"client:{at}", "scope:s", "i", "o")])


def bus(scopes: int) -> ConnectionGraph:
    """One scope with many scopes, each of which may not get back what it sent."""
    return ConnectionGraph([link for at in range(scopes) for link in connection(f"scope:{at}", "scope:bus")])


def row(scopes: int) -> ConnectionGraph:
    return ConnectionGraph([link for at in range(scopes) for link in connection(f"scope:{at}", f"scope:{at + 1}")])


def tree(scopes: int) -> ConnectionGraph:
    """A component hierarchy, every scope with a client."""
    links = [link for at in range(1, scopes) for link in connection(f"scope:{at}", f"scope:{at // 3}", "up", "down")]
    links += [link for at in range(scopes) for link in connection(f"client:{at}", f"scope:{at}", "up", "down")]
    return ConnectionGraph(links, allow=[("up", "up"), ("up", "down"), ("down", "down")])


@pytest.mark.parametrize("scopes", [1, 2, 3, 7])
def test_a_scope_never_gets_back_what_it_sent(scopes: int) -> None:
    graph = bus(scopes)
    reach = Reach(graph)
    for at in range(scopes):
        link = graph.link(f"scope:{at}", "scope:bus")
        assert link is not None
        others = {f"scope:{other}" for other in range(scopes) if other != at}
        assert {each.target for each in reach.beyond(link)} == {"scope:bus"} | others


@pytest.mark.parametrize("paths", [False, True])
@pytest.mark.parametrize("shape", [star, bus, row, tree])
def test_work_grows_like_the_links(shape: Callable[[int], ConnectionGraph], paths: bool) -> None:
    """Not like their pairs, of which there are as many as each scope has links in and out."""
    for size in (10, 100, 1000):
        graph = shape(size)
        links = len(graph.links)
        assert Reach(graph, paths=paths).work <= 7 * links
        first, last = graph.entities[0], graph.entities[-1]
        for search in (Search(graph, first, paths=paths), Search(graph, last, paths=paths)):
            assert search.all()
            assert search.steps <= 2 * links


def test_work_with_every_type_its_own() -> None:
    """As if what may follow what were said link by link: then it is said so, pair by pair of one scope."""
    links = [
        Link(source=x, target=y, type=f"{x}>{y}")
        for at in range(40)
        for x, y in ((f"client:{at}", "scope:s"), ("scope:s", f"client:{at}"))
    ]
    graph = ConnectionGraph(links, allow=lambda first, second: first < second)
    assert Reach(graph).work <= 40 * 40 + 4 * len(links)


def test_a_route_is_found_without_looking_at_other_clients() -> None:
    graph = star(2000)
    for link in connection("scope:s", "scope:t", "o", "i"):
        graph.add(link)
    graph.add(Link(source="scope:t", target="client:far"))
    search = Search(graph, "client:7")
    route = search.to("client:far")
    assert str(route) == "client:7 -> scope:s -> scope:t -> client:far"
    assert search.steps <= 10
