"""Checks of quality: accuracy, precision, timeliness, completeness.

Time is that of the record against its reception, never the clock of now: a batch that is repeated scores the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.pipeline.checks import grade
from tidegate.pipeline.checks.registry import Columns, Duration, Evidence, Number, check
from tidegate.pipeline.columns import F
from tidegate.pipeline.conditions import COLUMNS, Kind

if TYPE_CHECKING:
    from pyspark.sql import Column


def _known(evidence: Evidence, field: str) -> Column:
    return F.col(f"{evidence.value}.{field}")


@check(dimension="accuracy", ascending=[("min", "max")], least={"soft": 0})
def in_range(column: Number = "value", *, min: float, max: float, soft: float = 0.0) -> Column:
    """1 from `min` to `max`; outside it falls to 0 at a distance of `soft`. What is no number scores 0."""
    off = F.greatest(F.lit(min) - column, column - F.lit(max), F.lit(0.0))
    if soft == 0:
        graded = grade.yes(off <= 0)
    else:
        graded = grade.falling(off, 0.0, soft)
    return F.when(grade.finite(column).isNotNull(), graded).when(column.isNotNull(), F.lit(0.0))


@check(
    dimension="accuracy",
    needs=[Evidence.HISTORY],
    ascending=[("good", "bad")],
    least={"good": 0, "count": 2, "floor": 0},
)
def deviates_from_history(
    column: Number = "value", *, good: float = 3.0, bad: float = 6.0, count: int = 20, floor: float = 0.0
) -> Column:
    """1 within `good` standard deviations of what the source has said before, 0 from `bad` on.

    Says nothing until there are `count` records. `floor` is the least deviation to expect, for sources that hardly
    vary.
    """
    mean, deviation = _known(Evidence.HISTORY, "mean"), _known(Evidence.HISTORY, "deviation")
    graded = grade.falling(grade.distance(column, mean, deviation, floor), good, bad)
    return F.when(_known(Evidence.HISTORY, "count") >= count, graded)


@check(
    dimension="accuracy",
    needs=[Evidence.NEIGHBOURS],
    ascending=[("good", "bad")],
    least={"good": 0, "count": 2, "floor": 0},
)
def deviates_from_neighbours(
    column: Number = "value", *, good: float = 3.0, bad: float = 6.0, count: int = 3, floor: float = 0.0
) -> Column:
    """1 within `good` deviations of the median of the sources of the same type and name in the batch, 0 from `bad` on.

    The deviation is the median absolute one, scaled to be a standard deviation where values are normal. Says nothing
    with fewer than `count` other sources. `floor` is the least deviation to expect.
    """
    median, deviation = _known(Evidence.NEIGHBOURS, "median"), _known(Evidence.NEIGHBOURS, "deviation")
    graded = grade.falling(grade.distance(column, median, deviation, floor), good, bad)
    return F.when(_known(Evidence.NEIGHBOURS, "sources") > count, graded)


@check(dimension="accuracy", needs=[Evidence.HISTORY, Evidence.SERIES], ascending=[("good", "bad")], least={"good": 1})
def not_stuck(*, good: int = 20, bad: int = 100) -> Column:
    """1 while a source has repeated one value at most `good` times in a row, 0 from `bad` times on."""
    low, high = _known(Evidence.SERIES, "low"), _known(Evidence.SERIES, "high")
    before = F.when(_known(Evidence.HISTORY, "last_value") == low, _known(Evidence.HISTORY, "run")).otherwise(F.lit(0))
    run = F.when(low == high, F.coalesce(before, F.lit(0)) + _known(Evidence.SERIES, "count")).otherwise(F.lit(1))
    return F.when(low.isNotNull(), grade.falling(run.cast("double"), float(good), float(bad)))


@check(dimension="precision", needs=[Evidence.HISTORY, Evidence.SERIES], ascending=[("bad", "good")], least={"bad": 0})
def decimals(column: Number = "value", *, good: int = 1, bad: int = 0) -> Column:
    """1 if the source writes its values with `good` decimals or more, 0 with `bad` or fewer.

    The most decimals that it has used lately count, since any value may end in zeros. They are those of the
    normalised value: one that was converted from another unit has many.
    """
    before = F.coalesce(F.rint(_known(Evidence.HISTORY, "decimals")), F.lit(0.0))
    used = F.greatest(before, _known(Evidence.SERIES, "decimals"))
    return F.when(grade.finite(column).isNotNull(), grade.rising(used, float(bad), float(good)))


@check(dimension="precision", needs=[Evidence.STEPS], ascending=[("good", "bad")], least={"good": 0, "count": 2})
def resolution(*, good: float, bad: float, count: int = 5) -> Column:
    """1 if the smallest step between values of the source in the batch is at most `good`, 0 from `bad` on.

    Says nothing with fewer than `count` different values.
    """
    graded = grade.falling(_known(Evidence.STEPS, "step"), good, bad)
    return F.when(_known(Evidence.STEPS, "distinct") >= count, graded)


@check(dimension="precision", needs=[Evidence.HISTORY], ascending=[("good", "bad")], least={"good": 0, "count": 2})
def spread_under(*, good: float, bad: float, count: int = 20) -> Column:
    """1 if the standard deviation of what the source has said lately is at most `good`, 0 from `bad` on.

    For what should repeat itself. Says nothing until there are `count` records.
    """
    graded = grade.falling(_known(Evidence.HISTORY, "deviation"), good, bad)
    return F.when(_known(Evidence.HISTORY, "count") >= count, graded)


@check(dimension="timeliness", ascending=[("good", "bad")])
def age_under(*, good: Duration, bad: Duration) -> Column:
    """1 if the record was measured at most `good` before it was received, 0 from `bad` on."""
    return grade.falling(grade.seconds(F.col("received_at")) - grade.seconds(F.col("measured_at")), good, bad)


@check(dimension="timeliness", ascending=[("skew", "bad")])
def not_in_future(*, skew: Duration = 1.0, bad: Duration = 60.0) -> Column:
    """1 if the record was measured at most `skew` after it was received, 0 from `bad` on: the source's clock is off."""
    return grade.falling(grade.seconds(F.col("measured_at")) - grade.seconds(F.col("received_at")), skew, bad)


@check(dimension="completeness")
def present(*, columns: Columns) -> Column:
    """The share of these columns that hold something; an empty text and what is no number hold nothing."""
    total = F.lit(0.0)
    for name in columns:
        column = F.col(name)
        match COLUMNS[name]:
            case Kind.NUMBER:
                there = grade.finite(column).isNotNull()
            case Kind.TEXT:
                there = F.coalesce(column != "", F.lit(False))
            case Kind.BOOLEAN | Kind.TIME:
                there = column.isNotNull()
        total = total + grade.yes(there)
    return total / F.lit(float(len(columns)))


@check(dimension="completeness")
def has_unit() -> Column:
    """1 if a number comes with a unit, 0 if not; nothing of a text."""
    return F.when(F.col("value").isNotNull(), grade.yes(F.coalesce(F.col("unit") != "", F.lit(False))))


@check(dimension="completeness", needs=[Evidence.HISTORY, Evidence.SERIES], least={"interval": 0.001})
def expected_rate(*, interval: Duration) -> Column:
    """Records of the source in the batch, of those that one every `interval` since the batch before would make."""
    first, last = _known(Evidence.SERIES, "first_at"), _known(Evidence.SERIES, "last_at")
    before = grade.seconds(_known(Evidence.HISTORY, "last_at"))
    start = F.when(before < first, before).otherwise(first - F.lit(interval))
    expected = F.greatest(F.rint((last - start) / F.lit(interval)), F.lit(1.0))
    return F.when(last.isNotNull(), _known(Evidence.SERIES, "count").cast("double") / expected)


@check(dimension="completeness", needs=[Evidence.HISTORY, Evidence.SERIES, Evidence.GAPS], ascending=[("good", "bad")])
def no_gaps(*, good: Duration, bad: Duration) -> Column:
    """1 if the source was silent for at most `good` in the batch and since the one before, 0 from `bad` on."""
    since = _known(Evidence.SERIES, "first_at") - grade.seconds(_known(Evidence.HISTORY, "last_at"))
    return grade.falling(F.greatest(since, _known(Evidence.GAPS, "gap")), good, bad)
