"""How good becomes bad: straight lines between two points, and numbers that are numbers.

Spark orders NaN above everything, and a division by zero is an error there; so what is not finite is sorted out first,
and nothing is divided by a column that may be zero. `greatest` and `least` pass over nulls: what may be absent is asked
for first, or nothing known would become a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.pipeline.columns import F

if TYPE_CHECKING:
    from pyspark.sql import Column

_LARGEST: Final = 1.7976931348623157e308
DECIMALS: Final = 6  # as many decimals are looked for; a value with more has this many


def finite(number: Column) -> Column:
    """The number, or null for NaN and the infinities."""
    return F.when(number.between(-_LARGEST, _LARGEST), number)


def falling(number: Column, good: float, bad: float) -> Column:
    """1 at `good`, 0 at `bad`, and the straight line through both; good is below bad.

    It goes on above 1 and below 0: the bounds are applied to every check, once, by whoever asks it.
    """
    return (F.lit(bad) - number) / F.lit(bad - good)


def rising(number: Column, bad: float, good: float) -> Column:
    """0 at `bad`, 1 at `good`, and the straight line through both; bad is below good."""
    return (number - F.lit(bad)) / F.lit(good - bad)


def yes(condition: Column) -> Column:
    """1 where it is true, 0 where not, null where it is not known."""
    return condition.cast("double")


def seconds(time: Column) -> Column:
    """A time as seconds: differences of times far apart stay numbers."""
    return time.cast("double")


def decimals(number: Column) -> Column:
    """With how many decimals a number is written, at most DECIMALS; it tells 9 digits apart."""
    count = F.lit(float(DECIMALS))
    for places in reversed(range(DECIMALS)):
        scaled = F.abs(number) * F.lit(10.0**places)
        off = F.abs(scaled - F.rint(scaled))
        count = F.when(off <= F.greatest(F.lit(1.0), scaled) * F.lit(1e-9), F.lit(float(places))).otherwise(count)
    return F.when(number.isNotNull(), count)


def distance(number: Column, centre: Column, deviation: Column, floor: float) -> Column:
    """How many deviations a number is off; a deviation is at least `floor`, and never that of rounding alone."""
    width = F.greatest(deviation, F.abs(centre) * F.lit(1e-9), F.lit(max(floor, 1e-150)))
    return F.when(deviation.isNotNull(), F.abs(finite(number) - centre) / width)
