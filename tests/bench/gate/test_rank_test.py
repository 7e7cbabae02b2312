"""The rank test, against values that others computed."""

from __future__ import annotations

import itertools
import random

import pytest
from bench.gate.rank_test import compare
from hypothesis import given
from hypothesis import strategies as st

MALES, FEMALES = [19, 22, 16, 29, 24], [20, 11, 17, 12]
TIED = [1, 2, 2, 3, 3, 3, 4, 5, 5, 6], [2, 3, 4, 4, 5, 6, 6, 7, 7, 8]


def test_the_example_in_the_documentation_of_scipy() -> None:
    # scipy.stats.mannwhitneyu(males, females, method="asymptotic")
    found = compare(MALES, FEMALES)
    assert found.u == 17
    assert found.p == pytest.approx(0.11134688653314041)
    assert found.larger == pytest.approx(3 / 20)


def test_ties_share_their_rank() -> None:
    found = compare(*TIED)
    pairs = list(itertools.product(*TIED))
    assert found.u == sum((a > b) + 0.5 * (a == b) for a, b in pairs) == 23.5
    # by hand: sd = sqrt(100/12 * (21 - 162/380)), z = (50 - 23.5 - 0.5) / sd = 1.9848
    assert found.p == pytest.approx(0.04716, abs=1e-4)


def test_equal_samples_do_not_differ() -> None:
    assert compare([1, 1, 1], [1, 1]).p == 1.0
    assert compare([1, 2, 3, 4], [1, 2, 3, 4]).p == pytest.approx(1.0)


def test_nothing_to_compare() -> None:
    with pytest.raises(ValueError, match="empty"):
        compare([], [1.0])


def test_a_small_shift_is_found_by_500_runs_and_chance_is_not() -> None:
    source = random.Random(7)
    first = [source.gauss(100, 10) for _ in range(500)]
    assert compare(first, [source.gauss(103, 10) for _ in range(500)]).p < 0.001
    found = [compare(first, [source.gauss(100, 10) for _ in range(500)]).p for _ in range(40)]
    assert sum(p < 0.05 for p in found) <= 8


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_laws(first: list[int], second: list[int]) -> None:
    found, turned = compare(first, second), compare(second, first)
    assert found.u == sum((a > b) + 0.5 * (a == b) for a, b in itertools.product(first, second))
    assert found.u + turned.u == len(first) * len(second)
    assert found.p == pytest.approx(turned.p)
    assert 0 <= found.p <= 1
