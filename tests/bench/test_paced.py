"""Percentiles and histograms."""

from __future__ import annotations

import pytest
from bench.load.paced import histogram, percentile


def test_percentiles_by_nearest_rank() -> None:
    ordered = [number * 1_000_000 for number in range(1, 101)]
    assert percentile(ordered, 0.5) == pytest.approx(0.050)
    assert percentile(ordered, 0.99) == pytest.approx(0.099)
    assert percentile(ordered, 0.999) == pytest.approx(0.100)
    assert percentile(ordered, 1.0) == pytest.approx(0.100)
    assert percentile([], 0.99) == 0.0


def test_histogram_bounds_hold_what_they_count() -> None:
    values = [1, 999, 1000, 1001, 50_000, 1_000_000]
    made = histogram(values)
    assert sum(count for _, count in made) == len(values)
    assert [bound for bound, _ in made] == sorted(bound for bound, _ in made)
    for number, value in enumerate(values, 1):
        below = sum(count for bound, count in made if bound * 1e9 < value * 0.9999)
        assert below < number
