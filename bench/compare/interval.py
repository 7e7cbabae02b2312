"""Pairs of measurements as a ratio with its 95 % confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# 97.5 % quantiles of Student's t distribution for 1, 2, 3 ... degrees of freedom; beyond the table, the normal one's.
# fmt: off
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
      2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)
# fmt: on
_NORMAL = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and the bounds of its 95 % interval."""

    mean: float
    low: float
    high: float


def ratio(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    """The geometric mean of first / second over the pairs, with Student's interval of the logarithms.

    None with fewer than two pairs, which have no interval.
    """
    logs = [math.log(first / second) for first, second in pairs if first > 0 and second > 0]
    if len(logs) < 2:
        return None
    mean = statistics.fmean(logs)
    freedom = len(logs) - 1
    quantile = _T[freedom - 1] if freedom <= len(_T) else _NORMAL
    margin = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return Interval(mean=math.exp(mean), low=math.exp(mean - margin), high=math.exp(mean + margin))
