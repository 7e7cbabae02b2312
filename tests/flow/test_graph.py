"""Connection graphs: what they refuse, and that order and history do not matter."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.worlds import graphs
from tidegate.errors import ConfigError
from tidegate.flow.graph import ConnectionGraph, Link, connection
from tidegate.policy.brokering import Brokering


@given(graphs(), st.randoms(use_true_random=False))
def test_the_order_of_coming_does_not_matter(graph: ConnectionGraph, random: Random) -> None:
    links, names = graph.links, graph.entities
    random.shuffle(links)
    random.shuffle(names)
    again = ConnectionGraph(links, names, graph.allow)
    assert (again.entities, again.links) == (graph.entities, graph.links)
    for name in names:
        assert again.leaving(name) == graph.leaving(name) == [each for each in graph.links if each.source == name]
        assert again.entering(name) == graph.entering(name)
        assert sorted(map(str, graph.entering(name))) == sorted(str(e) for e in graph.links if e.target == name)


@given(graphs(), st.data())
def test_what_left_is_as_if_it_had_never_been(graph: ConnectionGraph, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(graph.entities))
    links = [link for link in graph.links if name not in (link.source, link.target)]
    rest = [each for each in graph.entities if each != name]
    graph.leave(name)
    assert name not in graph
    assert (graph.links, graph.entities) == (links, rest)
    assert graph.scopes + graph.devices == rest


def test_a_link_is_replaced_and_removed() -> None:
    graph = ConnectionGraph(connection("client:a", "scope:s", "up", "down"))
    graph.add(Link(source="client:a", target="scope:s", type="other", trusted=True))
    assert [link.type for link in graph.links] == ["down", "other"]
    graph.remove("client:a", "scope:s")
    graph.remove("client:a", "scope:s")
    graph.remove("client:b", "scope:t")
    graph.leave("client:b")
    assert [str(link) for link in graph.links] == ["scope:s -> client:a"]
    assert graph.entities == ["scope:s", "client:a"]


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("scope:a", "scope:a", "`scope:a -> scope:a` joins an entity to itself: name two"),
        ("client:a", "service:b", "`client:a -> service:b` joins two devices: put a scope between them"),
        ("a", "scope:b", "`a` names no entity: write `client:NAME`, `scope:NAME` or `service:NAME`"),
        ("scope:b", "scope:", "`scope:` names no entity: write `client:NAME`, `scope:NAME` or `service:NAME`"),
    ],
)
def test_what_no_graph_has(source: str, target: str, said: str) -> None:
    graph = ConnectionGraph()
    with pytest.raises(ConfigError) as refused:
        graph.add(Link(source=source, target=target))
    assert str(refused.value) == said
    assert graph.links == []


def test_brokering_says_what_follows_what() -> None:
    brokering = Brokering([("up", "down")])
    graph = ConnectionGraph(
        [*connection("client:a", "scope:s", "up", "down"), *connection("scope:s", "scope:t", "up", "down")],
        allow=brokering.allow,
    )
    assert list(graph.pairs()) == [("up", "down")]
    there = graph.link("client:a", "scope:s")
    assert there is not None
    assert [str(each) for each in graph.links if graph.follows(there, each)] == ["scope:s -> client:a"]
