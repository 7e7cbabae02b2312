"""Whether two samples differ: the rank test of Mann and Whitney (also called Wilcoxon's rank sum).

Two-sided, by the normal approximation with corrections for ties and for continuity, which is good from some twenty
values a side on. It compares ranks, so it does not care how times are distributed, nor about single slow ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """`u` counts the pairs in which the first sample has the larger value; equal ones count half."""

    u: float
    p: float
    """How likely ranks that differ at least so much are, if there is no difference."""
    larger: float
    """The share of pairs in which the second sample has the larger value: 0.5 if there is no difference."""


def compare(first: Sequence[float], second: Sequence[float]) -> Ranks:
    """Raises ValueError if there is nothing to compare."""
    n, m = len(first), len(second)
    if not n or not m:
        raise ValueError("an empty sample has no ranks")
    together = sorted([(value, True) for value in first] + [(value, False) for value in second])
    total = n + m
    rank_sum = tied = 0.0
    place = 0
    while place < total:
        end = place
        while end < total and together[end][0] == together[place][0]:
            end += 1
        count = end - place
        rank = (place + 1 + end) / 2  # the middle of those that are equal
        rank_sum += rank * sum(mine for _, mine in together[place:end])
        tied += count**3 - count
        place = end
    u = rank_sum - n * (n + 1) / 2
    variance = n * m / 12 * (total + 1 - tied / (total * (total - 1)))
    if variance <= 0:
        return Ranks(u=u, p=1.0, larger=0.5)  # all values are equal
    z = max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return Ranks(u=u, p=math.erfc(z / math.sqrt(2)), larger=1 - u / (n * m))
