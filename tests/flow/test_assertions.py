"""Flows that are forbidden or required."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.worlds import every_flow, graphs
from tidegate.errors import ConfigError
from tidegate.flow.assertions import Assertion, Expect, violations
from tidegate.flow.graph import ConnectionGraph, connection


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        ("client:MD -> scope:internet", "client:MD", "scope:internet"),
        ("  client:MD->scope:internet ", "client:MD", "scope:internet"),
        ("client:a->b -> client:c -> d", "client:a->b", "client:c -> d"),
        ("service:http -> client:a b", "service:http", "client:a b"),
        ("client:x -> client:x", "client:x", "client:x"),
    ],
)
def test_reading(text: str, source: str, target: str) -> None:
    read = Assertion.parse(text, Expect.REQUIRE, paths=True)
    assert read == Assertion(source=source, target=target, expect=Expect.REQUIRE, paths=True)
    assert Assertion.parse(str(read), Expect.REQUIRE, paths=True) == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("client:MD", "`client:MD` is no flow: write it as in `client:MD -> scope:internet`"),
        ("client:MD -> internet", "`client:MD -> internet` is no flow: write it as in `client:MD -> scope:internet`"),
        ("MD -> scope:i", "`MD` names no entity: write `client:NAME`, `scope:NAME` or `service:NAME`"),
        ("client:a -> scope:", "`scope:` names no entity: write `client:NAME`, `scope:NAME` or `service:NAME`"),
        (
            "client:a -> scope:b -> scope:c",
            "`client:a -> scope:b -> scope:c` has more than two ends: write one flow for each two of them",
        ),
    ],
)
def test_what_is_no_flow(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Assertion.parse(text, Expect.FORBID)
    assert str(refused.value) == said


@given(graphs(), st.booleans(), st.data())
def test_a_flow_is_either_forbidden_or_missing(graph: ConnectionGraph, paths: bool, data: st.DataObject) -> None:
    names = [*graph.entities, "client:absent"]
    source, target = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
    forbid = Assertion(source=source, target=target, expect=Expect.FORBID, paths=paths)
    require = Assertion(source=source, target=target, expect=Expect.REQUIRE, paths=paths)
    possible = any((each[0], each[-1]) == (source, target) for each in every_flow(graph, paths=paths))
    (found,) = violations([forbid, require], graph)
    assert found.assertion is (forbid if possible else require)
    assert (found.route is not None) == possible
    assert ("client:absent" in found.absent) == ("client:absent" in (source, target))


def test_what_is_said_of_a_flow_that_is_missing() -> None:
    graph = ConnectionGraph(connection("client:a", "scope:s"), ["scope:t"])
    required = [Assertion.parse(f"client:a -> {name}", Expect.REQUIRE) for name in ("scope:t", "client:b", "scope:s")]
    assert [str(each) for each in violations(required, graph)] == [
        "`client:a -> scope:t` is required, and there is no route",
        "`client:a -> client:b` is required, and there is no route: `client:b` not in the graph",
    ]
