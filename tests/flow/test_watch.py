"""Who may connect without opening a forbidden flow: as if all were computed from scratch each time, but cheap."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.flow.assertions import Assertion, Expect
from tidegate.flow.presence import Presence
from tidegate.flow.route import Search
from tidegate.flow.watch import Watch, connection_graph, violated
from tidegate.policy.brokering import OPEN, UNTYPED, Brokering
from tidegate.policy.scopes import NodeLink, ScopeGraph, ScopeLink, Way

COMPONENT = Brokering([("up", "up"), ("up", "down"), ("down", "down")])


def hierarchy(**parents: str) -> ScopeGraph:
    """`hierarchy(H2="H1 H4")`: scopes and both links to each parent."""
    links = []
    for child, some in parents.items():
        for parent in some.split():
            links.append(ScopeLink(source=child, target=parent, type="up", way=Way.UP))
            links.append(ScopeLink(source=parent, target=child, type="down", way=Way.DOWN))
    return ScopeGraph(
        scopes=tuple(parents),
        parents={child: tuple(some.split()) for child, some in parents.items()},
        links=tuple(links),
    )


HOME = hierarchy(I="", H1="I", H4="", H2="H1 H4", H3="H1")


def at(scope: str, client: str, inward: str = "up", outward: str = "down") -> Presence:
    return Presence(client=f"client:{client}", enters=scope, leaves=scope, inward=inward, outward=outward)


def forbid(flow: str, *, paths: bool = False) -> Assertion:
    return Assertion.parse(flow, Expect.FORBID, paths=paths)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From whom somebody searched."""
    found: list[str] = []
    real = Search._fronts

    def counted(self: Search, *, devices: bool) -> object:
        found.append(self._source)
        return real(self, devices=devices)

    monkeypatch.setattr(Search, "_fronts", counted)
    return found


def test_the_graph_of_a_node() -> None:
    operator = Presence(client="client:d", enters="op.pub", leaves="op.sub", inward="DevUp", outward="DevDown")
    space = ScopeGraph(
        scopes=("bus", "op.pub", "op.sub"),
        links=(
            ScopeLink(source="op.pub", target="bus", type="PubUp"),
            ScopeLink(source="bus", target="op.sub", type="SubDown"),
        ),
    )
    brokering = Brokering([("DevUp", "PubUp"), ("PubUp", "SubDown"), ("SubDown", "DevDown")])
    graph = connection_graph(space, brokering, [operator])
    assert [(str(link), link.type, link.trusted) for link in graph.links] == [
        ("scope:bus -> scope:op.sub", "SubDown", True),
        ("scope:op.pub -> scope:bus", "PubUp", True),
        ("scope:op.sub -> client:d", "DevDown", False),
        ("client:d -> scope:op.pub", "DevUp", False),
    ]
    assert violated(space, brokering, [operator], [Assertion.parse("client:d -> client:d", Expect.REQUIRE)]) == []


def test_open_brokering_passes_everything() -> None:
    space = ScopeGraph(scopes=("a", "b"), links=(ScopeLink(source="a", target="b"),))
    there = [at("a", "x", "in", "out"), at("b", "y", "in", "out")]
    found = violated(space, OPEN, there, [forbid("client:x -> client:y"), forbid("client:y -> client:x")])
    assert [str(one) for one in found] == [
        "`client:x -> client:y` is forbidden, and there is the route client:x -> scope:a -> scope:b -> client:y"
    ]


def test_what_has_no_type_passes_nothing() -> None:
    assertions = [forbid("client:x -> scope:H1"), forbid("client:x -> scope:H2")]
    found = violated(HOME, COMPONENT, [at("H2", "x", UNTYPED, UNTYPED)], assertions)
    assert [one.assertion for one in found] == assertions[1:]  # it is connected, and no further


def test_a_client_that_is_there_twice_has_the_types_of_both() -> None:
    """Whoever comes second must not hide what the first may do."""
    space = ScopeGraph(scopes=("s",))
    brokering = Brokering([("a", "c"), ("b", "d")])
    first, second = at("s", "x", "a", "z"), at("s", "x", "b", "z")
    graph = connection_graph(space, brokering, [first, second, at("s", "y", "z", "c"), at("s", "w", "z", "d")])
    link = graph.link("client:x", "scope:s")
    assert link is not None
    assert link.type == "a or b"
    assert [name for name in graph.devices if Search(graph, "client:x").to(name)] == ["client:w", "client:y"]


def test_an_objection_shows_the_route() -> None:
    watch = Watch(HOME, COMPONENT, [forbid("client:MD -> scope:I")])
    assert watch.objection(at("H4", "MD")) == ""
    assert watch.objection(at("H3", "MD")) == (
        "flows: `client:MD -> scope:I` is forbidden, and there is the route "
        "client:MD -> scope:H3 -> scope:H1 -> scope:I"
    )
    assert watch.objection(at("H3", "SC")) == ""


def test_the_other_endconcerns_only_while_it_is_there() -> None:
    watch = Watch(HOME, COMPONENT, [forbid("client:MD -> client:DB")])
    reader, sensor = at("H2", "DB"), at("H4", "MD")
    assert watch.objection(reader) == ""
    watch.came(sensor)
    assert "client:MD -> scope:H4 -> scope:H2 -> client:DB" in watch.objection(reader)
    watch.came(sensor)
    watch.left(sensor)
    assert watch.objection(reader)
    watch.left(sensor)
    assert watch.objection(reader) == ""


def test_who_is_configured_counts_without_being_connected() -> None:
    sensor, reader = at("H4", "MD"), at("H2", "DB")
    watch = Watch(HOME, COMPONENT, [forbid("client:MD -> client:DB")], [sensor])
    assert watch.objection(reader)
    watch.came(sensor)
    watch.left(sensor)
    assert watch.objection(reader)
    with pytest.raises(KeyError):
        watch.left(reader)


def test_a_required_flow_keeps_nobody_out() -> None:
    watch = Watch(HOME, COMPONENT, [Assertion.parse("client:SP -> client:DL", Expect.REQUIRE)])
    assert watch.objection(at("I", "SP")) == ""
    watch.came(at("I", "SP"))
    assert not watch._there


def test_devices_on_the_way_are_refused_only_by_paths() -> None:
    leak = at("H2", "DB")
    routes = Watch(HOME, COMPONENT, [forbid("client:MD -> scope:I")], [at("H4", "MD")])
    assert routes.objection(leak) == ""
    paths = Watch(HOME, COMPONENT, [forbid("client:MD -> scope:I", paths=True)], [at("H4", "MD")])
    assert "the path client:MD -> scope:H4 -> scope:H2 -> client:DB -> scope:H2 -> scope:H1" in paths.objection(leak)
    assert paths.objection(at("H2", "quiet", UNTYPED, "down")) == ""


def test_somebody_at_two_scopes_carries_over() -> None:
    """Each presence alone is harmless, and both together are not. Others at each of them change nothing."""
    space = ScopeGraph(scopes=("a", "b"))
    watch = Watch(space, OPEN, [forbid("scope:a -> scope:b", paths=True)], [at("a", "other"), at("b", "another")])
    watch.came(at("a", "x"))
    assert "scope:a -> client:x -> scope:b" in watch.objection(at("b", "x"))
    watch.left(at("a", "x"))
    assert watch.objection(at("b", "x")) == ""


def test_what_was_open_before_is_not_held_against_anybody() -> None:
    watch = Watch(HOME, COMPONENT, [forbid("client:MD -> scope:I", paths=True)], [at("H3", "MD")])
    assert watch.objection(at("H2", "x")) == ""


def test_without_forbidden_flows_nothing_is_kept(searches: list[str]) -> None:
    watch = Watch(HOME, COMPONENT, [])
    for number in range(100):
        assert watch.objection(at("H2", str(number))) == ""
        watch.came(at("H2", str(number)))
    watch.left(at("H2", "never came"))
    assert not watch._there
    assert not watch._graph.entities
    assert not searches


def test_ten_thousand_clients_that_nobody_names_cost_no_search(searches: list[str]) -> None:
    watch = Watch(HOME, COMPONENT, [forbid("client:MD -> scope:I")], [at("H4", "MD")])
    crowd = [at("H2", str(number)) for number in range(10_000)]
    for one in crowd:
        assert watch.objection(one) == ""
        watch.came(one)
    for one in crowd:
        watch.left(one)
    assert not searches
    assert list(watch._there) == ["client:MD"]


@pytest.mark.parametrize("backwards", [False, True])
def test_by_paths_those_who_are_alike_cost_one_search(searches: list[str], backwards: bool) -> None:
    watch = Watch(HOME, COMPONENT, [forbid("client:MD -> scope:I", paths=True)], [at("H4", "MD")])
    crowd = [at(("H3", "H4")[number % 2], str(number)) for number in range(10_000)]
    for one in crowd:
        assert watch.objection(one) == ""
        watch.came(one)
    assert len(searches) < 10
    assert len(watch._graph.devices) == 3
    for one in crowd[::-1] if backwards else crowd:
        watch.left(one)
    assert watch._graph.devices == ["client:MD"]
    assert not watch._alike
    assert len(searches) < 10


def test_whoever_is_refused_again_costs_no_search(searches: list[str]) -> None:
    watch = Watch(HOME, COMPONENT, [forbid("client:MD -> scope:I")])
    first = watch.objection(at("H3", "MD"))
    count = len(searches)
    assert all(watch.objection(at("H3", "MD")) == first for _ in range(100))
    assert len(searches) == count


def test_what_is_remembered_of_the_refused_is_bounded() -> None:
    watch = Watch(ScopeGraph(scopes=("a", "b")), OPEN, [forbid("scope:a -> scope:b", paths=True)])
    for number in range(2_500):
        both = Presence(client=f"client:{number}", enters="b", leaves="a", inward="x", outward="y")
        assert f"scope:a -> client:{number} -> scope:b" in watch.objection(both)
    assert len(watch._refused) <= 1_000


SCOPES = ("a", "b", "c")
TYPES = ("t", "u")
CLIENTS = ("client:m", "client:n", "client:o")


@st.composite
def spaces(draw: st.DrawFn) -> ScopeGraph:
    pairs = [(x, y) for x, y in product(SCOPES, SCOPES) if x != y]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=4))
    links = [ScopeLink(source=x, target=y, type=draw(st.sampled_from(TYPES))) for x, y in chosen]
    return ScopeGraph(scopes=SCOPES, links=tuple(links))


brokerings = st.one_of(
    st.just(OPEN), st.builds(Brokering, st.frozensets(st.sampled_from(tuple(product(TYPES, TYPES)))))
)
presences = st.builds(
    Presence,
    client=st.sampled_from(CLIENTS),
    enters=st.sampled_from(SCOPES),
    leaves=st.sampled_from(SCOPES),
    inward=st.sampled_from(TYPES),
    outward=st.sampled_from(TYPES),
)
ends = st.sampled_from((*CLIENTS[:2], *(f"scope:{name}" for name in SCOPES)))  # nobody names the third client
asserted = st.builds(
    Assertion,
    source=ends,
    target=ends,
    expect=st.sampled_from((Expect.FORBID, Expect.FORBID, Expect.REQUIRE)),
    paths=st.booleans(),
)


@settings(max_examples=400)
@given(
    spaces(),
    brokerings,
    st.lists(asserted, min_size=1, max_size=4),
    st.lists(presences, max_size=2),
    st.lists(st.tuples(presences, st.sampled_from(("came", "asked", "left"))), max_size=12),
)
def test_a_watch_agrees_with_what_is_computed_from_scratch(
    space: ScopeGraph,
    brokering: Brokering,
    assertions: list[Assertion],
    configured: list[Presence],
    steps: list[tuple[Presence, str]],
) -> None:
    watch = Watch(space, brokering, assertions, configured)
    there = Counter[Presence]()

    def broken(*more: Presence) -> dict[Assertion, str]:
        found = violated(space, brokering, [*configured, *there.elements(), *more], assertions)
        return {one.assertion: str(one) for one in found if one.assertion.expect is Expect.FORBID}

    for presence, what in steps:
        opened = broken(presence).keys() - broken().keys()
        said = watch.objection(presence)
        assert bool(said) == bool(opened)
        if said:
            assert any(f"`{one}` is forbidden, and there is the" in said for one in opened)
        if what == "came":
            watch.came(presence)
            there[presence] += 1
        elif what == "left" and there[presence]:
            watch.left(presence)
            there[presence] -= 1


def test_a_scope_of_another_node_is_a_vertex() -> None:
    """Both directions of a link to it, with their types; what is beyond it is not known here."""
    out = ScopeLink(source="H1", target="remote", type="up")
    into = ScopeLink(source="remote", target="H1", type="down")
    space = replace(
        HOME,
        remote=(
            NodeLink(near="H1", far="remote", out=out, into=into, peer="CN=remote"),
            NodeLink(near="H4", far="outer", out=replace(out, source="H4", target="outer"), into=None, peer="CN=outer"),
        ),
    )
    graph = connection_graph(space, COMPONENT)
    assert graph.scopes == [f"scope:{name}" for name in ("H1", "H2", "H3", "H4", "I", "outer", "remote")]
    assert [(str(link), link.type, link.trusted) for link in graph.links if "remote" in str(link)] == [
        ("scope:H1 -> scope:remote", "up", True),
        ("scope:remote -> scope:H1", "down", True),
    ]
    assert [(link.target, link.trusted) for link in graph.leaving("scope:H4") if "outer" in str(link)] == [
        ("scope:outer", True)
    ]
    assert graph.leaving("scope:outer") == []
    flows = [
        "client:x -> scope:remote",
        "scope:remote -> scope:I",
        "scope:remote -> scope:H3",
        "scope:outer -> scope:H2",
    ]
    violations = violated(space, COMPONENT, [at("H3", "x")], [forbid(flow) for flow in flows])
    # up to H1 and out; from there down to H3, and never up again
    assert [str(each.assertion) for each in violations] == ["client:x -> scope:remote", "scope:remote -> scope:H3"]
    assert violations[0].route is not None
    assert str(violations[0].route) == "client:x -> scope:H3 -> scope:H1 -> scope:remote"
    watch = Watch(space, COMPONENT, [forbid("client:x -> scope:remote")])
    assert watch.objection(at("H3", "x"))
    assert not watch.objection(at("H4", "x"))
