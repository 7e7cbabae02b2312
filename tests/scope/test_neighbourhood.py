"""Groups of scopes over several nodes, and the topology test: SEC-REDS, 2.3 and 2.6, without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from scope.nodes import Cable, Node, node_link
from scope.spaces import both
from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.policy.known_nodes import MAX, NodeState, OpenLink
from tidegate.policy.scopes import ScopeGraph
from tidegate.scope import neighbourhood
from tidegate.scope.neighbourhood import BURST, STATE
from tidegate.wire import cbor


class Network:
    """Nodes with a scope of their name each, and links that are not all trusted."""

    def __init__(self, *links: tuple[str, str], forest: bool = False, untrusted: tuple[str, ...] = ()) -> None:
        names = sorted({name for link in links for name in link})
        self.nodes: dict[str, Node] = {}
        self.refused: list[str] = []
        for name in names:
            far = [other for link in links if name in link for other in link if other != name]
            node = self.nodes[name] = Node(name, *(node_link(name, each) for each in far))
            around = node.realm.node_links.neighbourhood
            around.name, around.forest = f"node-{name}", forest
            for end in node.realm.node_links.ends.values():
                end.refused = self.refused.append  # type: ignore[method-assign]
        self.cables: dict[str, Cable] = {}
        for one, other in links:
            level = "tls" if f"{one}{other}" in untrusted else "trusted"
            self.cables[one + other] = Cable(self.nodes[one], self.nodes[other], f"{one}->{other}", level=level)
            self.run()

    def around(self, name: str) -> Any:
        return self.nodes[name].realm.node_links.neighbourhood

    def group(self, name: str) -> str:
        """The scopes of the group that a node is in."""
        [members] = self.around(name).groups
        return "".join(member.partition("@")[0] for member in members)

    def run(self) -> None:
        for _ in range(5):
            for cable in self.cables.values():
                if not cable.why:
                    cable.run()


def test_figure_2_4_a_group_is_what_trusted_links_join() -> None:
    """A trusts B and C, which trust D; the links with E and F are not trusted."""
    links = (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "e"), ("d", "f"))
    network = Network(*links, untrusted=("ae", "df"))
    assert {name: network.group(name) for name in "abcdef"} == {
        **dict.fromkeys("abcd", "abcd"),
        "e": "e",
        "f": "f",
    }
    assert network.around("a").groups == [("a@node-a", "b@node-b", "c@node-c", "d@node-d")]


def test_figure_2_5_isolated_groups_and_what_changes_when_a_link_ends() -> None:
    links = (("a", "b"), ("b", "c"), ("c", "h"), ("h", "f"), ("f", "e"), ("e", "g"))
    network = Network(*links, untrusted=("ch", "hf"))
    assert [network.group(name) for name in "abcefgh"] == [*["abc"] * 3, *["efg"] * 3, "h"]
    network.cables["ab"].cut()
    network.run()
    assert [network.group(name) for name in "abc"] == ["a", "bc", "bc"]
    network.cables["ab"].plug()
    network.run()
    assert [network.group(name) for name in "abc"] == ["abc"] * 3


@pytest.mark.parametrize("order", [("ab", "bc", "ca"), ("bc", "ca", "ab"), ("ca", "ab", "bc")])
def test_of_links_that_open_at_the_same_moment_one_gives_way(
    order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as still:
        still.setattr(Network, "run", lambda network: None)
        still.setattr(Cable, "run", lambda cable: None)  # nobody hears of the others
        network = Network(*((link[0], link[1]) for link in order), forest=True)
    assert all(cable.why == "" for cable in network.cables.values())
    network.run()
    closed = {link for link, cable in network.cables.items() if cable.mine.closed or cable.theirs.closed}
    assert closed == {"bc"}  # whichever came first
    assert all("there is another way between" in why for why in network.refused)
    network.cables["bc"].cut()
    network.run()
    assert {network.group(name) for name in "abc"} == {"abc"}
    network.cables["bc"].plug()
    assert "there is another way" in str(network.cables["bc"].why)


def test_scopes_of_one_node_are_in_a_group_if_they_are_linked() -> None:
    space = ScopeGraph(scopes=("x", "y", "z"), links=both("x", "y"))
    a = Node("a", node_link("x", "far"), space=space)
    b = Node("b", node_link("far", "x"))
    for node in (a, b):
        node.realm.node_links.neighbourhood.name = node.name
    Cable(a, b, "x->far")
    assert a.realm.node_links.neighbourhood.groups == [("far@b", "x@a", "y@a"), ("z@a",)]
    assert b.realm.node_links.neighbourhood.groups == [("far@b", "x@a", "y@a")]


def test_in_a_forest_a_link_that_is_a_second_way_does_not_open() -> None:
    network = Network(("a", "b"), ("b", "c"), ("c", "a"), forest=True)
    assert "another way from" in str(network.cables["ca"].why)
    assert network.group("a") == "abc"
    network.cables["ab"].cut()
    network.run()
    network.cables["ca"].plug()
    assert network.cables["ca"].why == ""
    network.run()
    network.cables["ab"].plug()
    assert "another way from" in str(network.cables["ab"].why)
    network.cables["bc"].cut()  # it comes back: nothing else has taken its place
    network.run()
    network.cables["bc"].plug()
    assert network.cables["bc"].why == ""


def test_a_link_that_breaks_and_comes_back_at_once_is_not_a_second_way() -> None:
    network = Network(("a", "b"), forest=True)
    network.cables["ab"].plug()  # the other end has not noticed that the first connection is gone
    assert network.cables["ab"].why == ""


def test_a_link_does_not_open_a_flow_that_is_forbidden_beyond_its_other_end() -> None:
    network = Network(("b", "c"), ("a", "b"))
    asked: list[tuple[str, frozenset[str]]] = []

    def forbidden(far: str, names: frozenset[str]) -> str:
        asked.append((far, names))
        return "`x -> scope:c` is forbidden" if "c" in names else ""

    network.around("a").forbidden = forbidden
    cable = network.cables["ab"]
    cable.cut()
    cable.plug()
    assert "`x -> scope:c` is forbidden" in str(cable.why)
    assert asked[-1] == ("b", frozenset("bc"))
    network.cables["bc"].cut()
    for node in network.nodes.values():
        node.turn()
    network.around("a")._states.clear()  # it has heard of that otherwise
    cable.plug()
    assert cable.why == ""
    network.cables["bc"].plug()  # and now what lies beyond is more than it may be
    network.run()
    assert cable.mine.closed
    assert network.refused == ["topology: `x -> scope:c` is forbidden"]


# -- a neighbour that lies ---------------------------------------------------------------------------------------------


def state(number: int, node: str = "cd" * 8, **fields: Any) -> NodeState:
    return NodeState(node=node, **{"name": "c", "number": number, **fields})


def say(network: Network, said: NodeState) -> None:
    network.nodes["b"].realm.node_links.ends["b->a"].control.tell(STATE, said.encode())
    network.run()


def test_links_count_where_both_ends_say_so() -> None:
    network = Network(("a", "b"))
    a = network.nodes["a"].site.origin.node
    say(network, state(1, joined=(("c",),), links=(OpenLink("c", "a", a, True, True),)))
    assert network.group("a") == "ab"


def test_nobody_else_says_anything_of_this_node() -> None:
    network = Network(("a", "b"))
    say(network, state(2**52, network.nodes["a"].site.origin.node, name="evil"))
    assert network.group("a") == "ab"
    assert network.around("a").groups == [("a@node-a", "b@node-b")]


def test_a_flood_of_nodes_and_of_states_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbourhood, "MOST", 10)
    network = Network(("a", "b"))
    for number in range(20):
        say(network, state(1, f"{number:016x}"))
    assert len(network.around("a")._states) <= 10
    end = network.nodes["b"].realm.node_links.ends["b->a"]
    for number in range(int(BURST) + 20):
        end.control.tell(STATE, state(number + 2).encode())
    network.run()
    assert "too much at a time" in network.refused[-1]
    assert network.group("a") == "ab"


def test_over_a_link_that_is_not_trusted_nothing_is_said_or_believed() -> None:
    network = Network(("a", "b"), untrusted=("ab",))
    say(network, state(1))
    assert network.around("a").groups == [("a@node-a",)]


def test_forms() -> None:
    said = state(7, joined=(("x", "y"), ("z",)), links=(OpenLink("x", "far", "ab" * 8, True, False),))
    assert NodeState.decode(said.encode()) == said
    plain = cbor.plain(said.encode())
    assert isinstance(plain, list)
    for place, value in (
        (0, 2),
        (1, "x"),
        (2, ""),
        (3, -1),
        (3, 2**53),
        (4, ["x"]),
        (4, [[]]),
        (4, [["x" * 300]]),
        (5, [["x"]]),
        (5, [["x", "far", "nobody", True, True]]),
        (5, [["x", "", "ab" * 8, True, True]]),
    ):
        wrong = [*plain]
        wrong[place] = value
        with pytest.raises(MalformedPacket):
            NodeState.decode(cbor.canonical(wrong))
    with pytest.raises(MalformedPacket):
        NodeState.decode(b"x" * (MAX + 1))
    network = Network(("a", "b"))
    with pytest.raises(ProtocolError):
        network.nodes["a"].realm.node_links.ends["a->b"].control.take(STATE, b"garbage")
