"""The seed's figures 3.1 to 3.7: who reaches whom (scopes, 3.4 and 3.5)."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from flow.figures import (
    COMPONENTS,
    CONJOINED,
    DIRECTED_ACYCLIC,
    HIERARCHY,
    HOME,
    HOME_DEVICES,
    HOME_SCOPES,
    LABELS,
    Parents,
    component,
    labelled,
    rbac,
)
from tidegate.flow.assertions import Assertion, Expect, violations
from tidegate.flow.forest import TwoPaths, forest_fault
from tidegate.flow.graph import ConnectionGraph, connection, is_scope
from tidegate.flow.reach import Reach
from tidegate.flow.route import shortest


def reached(graph: ConnectionGraph, source: str, *, paths: bool = False) -> str:
    return " ".join(name.partition(":")[2] for name in Reach(graph, paths=paths).reached(source))


def ancestors(parents: Parents, name: str) -> set[str]:
    return {name}.union(*(ancestors(parents, each) for each in parents[name]))


def test_figure_3_1_a_message_is_seen_where_there_is_a_common_ancestor() -> None:
    graph = component(COMPONENTS)
    assert reached(graph, "client:1") == "B E F 1 2 3"
    assert reached(graph, "client:3") == "A B C D E F 1 2 3 4 5 6"
    reach = Reach(graph)
    for device, scope in product(graph.devices, graph.scopes):
        above = set().union(*(ancestors(COMPONENTS, each) for each in COMPONENTS[device]))
        assert reach.reaches(device, scope) == bool(above & ancestors(COMPONENTS, scope))


def test_figures_3_2_and_3_3_conjoined_forests() -> None:
    assert forest_fault(HIERARCHY) is None
    assert forest_fault(CONJOINED) is None
    assert forest_fault(DIRECTED_ACYCLIC) == TwoPaths(
        ("scope:D", "scope:B", "scope:A"), ("scope:D", "scope:C", "scope:A")
    )


def test_information_flow_with_four_labels() -> None:
    """Nobody with a label gets what comes from a higher one."""
    graph = labelled({label: (label, label) for label in LABELS})
    # the link to the office is labelled secret, and so is what came over it
    assert reached(graph, "client:unclassified") == "field office secret top secret unclassified"
    assert reached(graph, "client:confidential") == "office confidential top secret"
    assert reached(graph, "client:secret") == "field office secret top secret"
    assert reached(graph, "client:top secret") == "office top secret"


ORDERED = st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)).map(
    lambda pair: tuple(sorted(pair, key=LABELS.index))
)


@given(st.dictionaries(st.sampled_from("abcdef"), ORDERED, min_size=2))
def test_labels_never_fall_on_any_path(devices: dict[str, tuple[str, str]]) -> None:
    graph = labelled(devices)
    reach = Reach(graph, paths=True)
    for one in graph.links:
        for other in reach.beyond(one):
            assert LABELS.index(one.type) <= LABELS.index(other.type)


def test_figures_3_4_to_3_6_roles_around_a_bus() -> None:
    graph = rbac(["r1", "r2"], {"d1": "r1", "d2": "r2"})
    assert len(graph.links) == 16
    # it is unavoidable for devices to listen to their own publications (3.4.3), but by the bus only
    assert reached(graph, "client:d1") == "bus r1-pub r1-sub r2-sub d1 d2"
    assert str(shortest(graph, "client:d1", "client:d2")) == (
        "client:d1 -> scope:r1-pub -> scope:bus -> scope:r2-sub -> client:d2"
    )
    assert str(shortest(graph, "client:d1", "client:d1")) == (
        "client:d1 -> scope:r1-pub -> scope:bus -> scope:r1-sub -> client:d1"
    )
    # what somebody publishes to a sub scope goes nowhere, and nothing gets into the pub scope of another role
    assert shortest(graph, "client:d1", "scope:r2-pub") is None
    assert shortest(graph, "client:d1", "scope:r2-pub", paths=True) is not None


def test_figure_3_7_the_smart_home() -> None:
    graph = component(HOME)
    assert forest_fault(HOME_SCOPES) is None
    assert {device: reached(graph, device) for device in HOME_DEVICES} == {
        "client:SP": "H1 H2 H3 I DB DL SP",
        "client:DB": "H1 H2 H3 H4 I DB DL MD SC SP",
        "client:DL": "H1 H2 H3 I DB DL SP",
        "client:MD": "H2 H4 DB MD SC",
        "client:SC": "H2 H4 DB MD SC",
    }


def test_figure_3_7_motion_stays_at_home() -> None:
    """By no route. But the door bell is told of it, and speaks to the Internet: by a path it could get out."""
    graph = component(HOME)
    private = Assertion.parse("client:MD -> scope:I", Expect.FORBID)
    unlock = Assertion.parse("client:SP -> client:DL", Expect.REQUIRE)
    assert violations([private, unlock], graph) == []
    told = Assertion.parse("client:MD -> scope:I", Expect.FORBID, paths=True)
    (found,) = violations([told], graph)
    assert str(found) == (
        "`client:MD -> scope:I` is forbidden, and there is the path "
        "client:MD -> scope:H4 -> scope:H2 -> client:DB -> scope:H2 -> scope:H1 -> scope:I"
    )
    for link in connection("scope:H4", "scope:H1", "up", "down"):
        graph.add(link)
    (found,) = violations([private, unlock], graph)
    assert found.assertion is private
    assert str(found.route) == "client:MD -> scope:H4 -> scope:H1 -> scope:I"


def test_figure_3_7_whatever_reaches_the_lock_passes_the_monitored_link() -> None:
    graph = component(HOME)
    graph.remove("scope:H1", "scope:H3")
    others = [name for name in graph.entities if not is_scope(name) and name != "client:DL"]
    assert all(shortest(graph, name, "client:DL", paths=True) is None for name in others)
