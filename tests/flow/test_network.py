"""The connection graph of several nodes, from their files and from what they tell of themselves."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.flow.assertions import Assertion, Expect, violations
from tidegate.flow.network import THEN, Member, Network, add_told
from tidegate.flow.presence import Presence
from tidegate.flow.route import shortest
from tidegate.flow.watch import connection_graph
from tidegate.policy.brokering import Brokering
from tidegate.policy.known_nodes import NodeState, OpenLink
from tidegate.policy.scopes import NodeLink, ScopeGraph, ScopeLink

UPWARDS = Brokering(allow=frozenset((("in", "out"), ("in", "up"), ("up", "up"), ("up", "out"), ("down", "out"))))
FAR_ID, FURTHER_ID, OWN_ID = "b" * 16, "c" * 16, "a" * 16


def remote(near: str, far: str, out: str | None = "in", into: str | None = "in") -> NodeLink:
    return NodeLink(
        near=near,
        far=far,
        out=None if out is None else ScopeLink(source=near, target=far, type=out),
        into=None if into is None else ScopeLink(source=far, target=near, type=into),
    )


def member(
    name: str, *links: NodeLink, scopes: Iterable[str], brokering: Brokering | None = None, client: str = ""
) -> Member:
    there = [Presence(client=client, enters=scope, leaves=scope, inward="in", outward="out") for scope in scopes]
    space = ScopeGraph(scopes=tuple(scopes), remote=links)
    return Member(name=name, space=space, brokering=brokering or Brokering(), presences=there if client else ())


def way(network: Network, source: str, target: str) -> str:
    return str(shortest(network.graph(), source, target) or "none")


def test_a_route_over_three_nodes() -> None:
    a = member("a", remote("x", "y"), scopes=["x"], client="client:one")
    b = member("b", remote("y", "x"), remote("y", "z"), scopes=["y"])
    c = member("c", remote("z", "y"), scopes=["z"], client="client:two")
    network = Network([a, b, c])
    assert way(network, "client:one", "client:two") == "client:one -> scope:x -> scope:y -> scope:z -> client:two"
    assert network.graph().scopes == ["scope:x", "scope:y", "scope:z"]
    assert network.title == "a, b, c"
    alone = Network([a])
    assert alone.graph().scopes == ["scope:x", "scope:y"]  # a remote scope is a vertex


def test_it_is_that_of_one_node_if_there_is_one() -> None:
    a = member("a", remote("x", "y", into=None), scopes=["x", "w"], client="client:one")
    graph, own = Network([a]).graph(), connection_graph(a.space, a.brokering, a.presences)
    assert (graph.entities, graph.links, [*graph.pairs()]) == (own.entities, own.links, [*own.pairs()])


def test_something_crosses_if_both_ends_say_so() -> None:
    a = member("a", remote("x", "y"), scopes=["x"])
    b = member("b", remote("y", "x", out=None), scopes=["y"])
    network = Network([a, b])
    assert way(network, "scope:x", "scope:y") != "none"
    assert way(network, "scope:y", "scope:x") == "none"


def test_each_node_decides_by_its_own_types() -> None:
    """What a sends upwards arrives at b as something that may not go on."""
    a = member("a", remote("x", "y", out="up", into="down"), scopes=["x"], brokering=UPWARDS, client="client:one")
    b = member("b", remote("y", "x", out="down", into="down"), remote("y", "z"), scopes=["y"], brokering=UPWARDS)
    c = member("c", remote("z", "y"), scopes=["z"], client="client:two")
    network = Network([a, b, c])
    graph = network.graph()
    link = graph.link("scope:x", "scope:y")
    assert link is not None
    assert link.type == f"a:up{THEN}b:down"
    assert way(network, "client:one", "scope:y") != "none"
    assert way(network, "client:one", "client:two") == "none"
    forbidden = Assertion.parse("client:one -> scope:y", Expect.FORBID)
    assert len(violations(network.asserted(a, [forbidden]), graph)) == 1


def test_scopes_of_one_name() -> None:
    a = member("a", remote("main", "hub"), scopes=["main"])
    b = member("b", remote("main", "hub"), scopes=["main"])
    hub = Member(
        name="h",
        space=ScopeGraph(scopes=("hub", "top"), parents={"hub": ("top",)}, remote=(remote("hub", "main"),)),
        brokering=Brokering(),
    )
    network = Network([a, b, hub])
    assert network.graph().scopes == ["scope:hub", "scope:main@a", "scope:main@b", "scope:top"]
    assert network.parents == {"scope:hub": ("scope:top",)}
    said = network.asserted(b, [Assertion.parse("scope:main -> scope:hub", Expect.REQUIRE)])
    assert (said[0].source, said[0].target) == ("scope:main@b", "scope:hub")


def told(back: bool = True) -> dict[str, NodeState]:
    """Our neighbour b has two scopes that are linked, and a neighbour c of its own."""
    own = NodeState(node=OWN_ID, name="a", joined=(("x",),), links=(OpenLink("x", "y", FAR_ID, True, True),))
    links = (OpenLink("y", "x", OWN_ID, True, True), OpenLink("y2", "z", FURTHER_ID, True, False))
    far = NodeState(node=FAR_ID, name="b", joined=(("y", "y2"),), links=links)
    further = NodeState(node=FURTHER_ID, name="c", joined=(("z",),), links=(OpenLink("z", "y2", FAR_ID, False, back),))
    return {each.node: each for each in (own, far, further)}


def test_what_neighbours_tell_is_used() -> None:
    a = member("a", remote("x", "y"), scopes=["x"], client="client:one")
    graph = Network([a]).graph()
    add_told(graph, a.space, OWN_ID, told())
    route = shortest(graph, "client:one", "scope:z@c")
    assert str(route) == "client:one -> scope:x -> scope:y -> scope:y2@b -> scope:z@c"
    assert shortest(graph, "scope:z@c", "scope:x") is None  # nothing comes back
    graph = Network([a]).graph()
    add_told(graph, a.space, OWN_ID, told(back=False))
    assert shortest(graph, "client:one", "scope:z@c") is None  # one end alone says so
