"""Why nothing flows: each way that there would be, and the step that closes it."""

from __future__ import annotations

from tidegate.flow.closed import WAYS, closed_ways
from tidegate.flow.graph import ConnectionGraph, connection
from tidegate.flow.route import shortest


def graph(*joined: tuple[str, str, str, str], never: tuple[str, str] = ("up", "down")) -> ConnectionGraph:
    """`(one, other, type there, type back)`; what came by the first of `never` may not leave by the second."""
    found = ConnectionGraph(allow=lambda first, second: (first, second) != never)
    for one, other, there, back in joined:
        for name in (one, other):
            found.join(name)
        for link in connection(one, other, there, back):
            found.add(link)
    return found


def test_the_step_that_closes_a_way() -> None:
    home = graph(("client:lamp", "scope:home", "up", "down"), ("scope:home", "client:phone", "down", "up"))
    assert shortest(home, "client:lamp", "client:phone") is None
    [way] = closed_ways(home, "client:lamp", "client:phone")
    assert way.entities == ("client:lamp", "scope:home", "client:phone")
    assert (way.at, way.came.type, way.leaves.type) == ("scope:home", "up", "down")


def test_every_way_has_its_step() -> None:
    joined = [("client:a", f"scope:s{number}", "up", "down") for number in range(WAYS + 3)]
    joined += [(f"scope:s{number}", "client:b", "down", "up") for number in range(WAYS + 3)]
    ways = closed_ways(graph(*joined), "client:a", "client:b")
    assert [way.at for way in ways] == [f"scope:s{number}" for number in range(WAYS)]


def test_what_is_not_joined_has_no_way() -> None:
    apart = graph(("client:a", "scope:one", "up", "down"), ("client:b", "scope:two", "up", "down"))
    assert closed_ways(apart, "client:a", "client:b") == []


def test_clients_pass_nothing_on_unless_by_paths() -> None:
    joined = graph(
        ("client:a", "scope:one", "up", "down"),
        ("scope:one", "client:relay", "down", "up"),
        ("client:relay", "scope:two", "up", "down"),
    )
    assert closed_ways(joined, "client:a", "scope:two") == []
    [way] = closed_ways(joined, "client:a", "scope:two", paths=True)
    assert way.at == "scope:one"
