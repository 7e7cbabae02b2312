"""Hierarchies: at most one directed path from one to another."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from tidegate.flow.forest import Cycle, TwoPaths, forest_fault

HIERARCHIES = st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3), max_size=6)


def ways(parents: dict[str, list[str]], here: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every directed path, until it meets itself."""
    for parent in dict.fromkeys(parents.get(here[-1], ())):
        yield (*here, parent)
        if parent not in here:
            yield from ways(parents, (*here, parent))


@given(HIERARCHIES)
def test_a_fault_is_found_iff_there_is_one(parents: dict[str, list[str]]) -> None:
    paths = [path for child in parents for path in ways(parents, (child,))]
    ends = [(path[0], path[-1]) for path in paths]
    sound = len(set(ends)) == len(ends) and all(first != last for first, last in ends)
    fault = forest_fault(parents)
    match fault:
        case None:
            assert sound
        case Cycle(path):
            assert path in paths
            assert path[0] == path[-1]
        case TwoPaths(first, second):
            assert first in paths
            assert second in paths
            assert (first[0], first[-1]) == (second[0], second[-1])
            assert not set(first[1:-1]) & set(second[1:-1])
            assert first != second
    assert (fault is None) == sound


def test_what_is_said() -> None:
    assert str(forest_fault({"a": ["b"], "b": ["c"], "c": ["a"]})) == (
        "`a` is above itself (a > b > c > a): take one of these parents away"
    )
    assert str(forest_fault({"a": ["a"]})) == "`a` is above itself (a > a): take one of these parents away"
    assert str(forest_fault({"d": ["b", "c"], "b": ["a"], "c": ["a"]})) == (
        "there are two paths from `d` to `a`, d > b > a and d > c > a: take a parent away from one of them"
    )
    assert forest_fault({"d": ["b", "b"], "b": ["a"]}) is None


def test_two_paths_are_shown_up_to_where_they_meet() -> None:
    found = forest_fault({"top": [], "a": ["top"], "b": ["a"], "c": ["a"], "d": ["b", "c"]})
    assert found == TwoPaths(("d", "b", "a"), ("d", "c", "a"))


def test_long_chains() -> None:
    parents = {str(at): [str(at + 1)] for at in range(5000)}
    assert forest_fault(parents) is None
    parents["0"] = ["1", "4999"]
    found = forest_fault(parents)
    assert isinstance(found, TwoPaths)
    assert found.second == ("0", "4999")
    assert len(found.first) == 5000
    parents = {str(at): [str((at + 1) % 5000)] for at in range(5000)}
    assert isinstance(forest_fault(parents), Cycle)
