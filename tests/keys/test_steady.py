"""A clock that never goes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.keys import Steady


def test_it_shows_the_same_until_it_is_set_back() -> None:
    clock = Steady()
    assert [clock(now) for now in (10.0, 10.0, 12.5, 100.0)] == [10.0, 10.0, 12.5, 100.0]
    assert [clock(now) for now in (40.0, 41.0, 100.0)] == [100.0, 101.0, 160.0]


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1))
def test_it_goes_forward_by_just_what_the_other_does(steps: list[int]) -> None:
    clock, now, expected = Steady(), 1000.0, 1000.0
    assert clock(now) == expected
    for step in steps:
        now += step
        expected += max(0, step)
        assert clock(now) == expected
