"""What checks need to know besides the record: gathered once for a batch, and laid beside each record.

Everything is aggregated to one row for each series or group and joined by broadcast, or within the one partition that
there is, so that the records themselves are not shuffled. The join is by keys that are unique on the other side: no
record is lost or doubled. Only good rows are evidence. A frame is read once more for each kind of evidence but HISTORY.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from tidegate.pipeline.checks import grade
from tidegate.pipeline.checks.registry import Evidence
from tidegate.pipeline.columns import F, columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HISTORY: Final = columns(
    "count bigint, mean double, deviation double, last_value double, last_at timestamp, run bigint, decimals double"
)
"""What a check may read of a baseline."""
_SERIES: Final = ("source", "name")
_GROUP: Final = ("type", "name")
_IN_BATCH: Final = frozenset((Evidence.SERIES, Evidence.STEPS, Evidence.GAPS))
_NORMAL: Final = 1.4826  # a standard deviation of normal values, in median absolute deviations


def gathered(
    frame: DataFrame, needed: Collection[Evidence], baselines: DataFrame | None, *, single: bool = False
) -> DataFrame:
    """The frame with a struct for each kind of evidence that is needed. `single`: both are one partition each."""
    good = frame.where("fault is null")
    if Evidence.HISTORY in needed:
        frame = _with_history(frame, baselines, single=single)
    if in_batch := _IN_BATCH.intersection(needed):
        frame = _beside(frame, _series(good, in_batch), _SERIES, single=single)
    if Evidence.NEIGHBOURS in needed:
        frame = _beside(frame, _neighbours(good), _GROUP, single=single)
    return frame


def _with_history(frame: DataFrame, baselines: DataFrame | None, *, single: bool) -> DataFrame:
    if baselines is None:
        ddl = ",".join(f"{name}:{type}" for name, type in HISTORY)
        return frame.withColumn(Evidence.HISTORY.value, F.lit(None).cast(f"struct<{ddl}>"))
    known = F.struct(*(F.col(name).cast(type).alias(name) for name, type in HISTORY))
    return _beside(frame, baselines.select(*_SERIES, known.alias(Evidence.HISTORY.value)), _SERIES, single=single)


def _beside(frame: DataFrame, other: DataFrame, keys: tuple[str, ...], *, single: bool) -> DataFrame:
    """Joined on the keys, of which `other` has each combination once."""
    renamed = {key: f"_{key}_of_evidence" for key in keys}
    right = other.withColumnsRenamed(renamed).hint("shuffle_hash" if single else "broadcast")
    same = [F.col(key) == F.col(renamed[key]) for key in keys]
    return frame.join(right, same, "left").drop(*renamed.values())


def _series(good: DataFrame, needed: frozenset[Evidence]) -> DataFrame:
    return good.groupBy(*_SERIES).agg(*_of_series(needed))


@lru_cache(maxsize=4)
def _of_series(needed: frozenset[Evidence]) -> list[Column]:
    number = grade.finite(F.col("value"))
    at = grade.seconds(F.col("measured_at"))
    columns: list[Column] = [
        F.struct(
            F.count(F.lit(1)).alias("count"),
            F.min(at).alias("first_at"),
            F.max(at).alias("last_at"),
            F.min(number).alias("low"),
            F.max(number).alias("high"),
            F.max(grade.decimals(number)).alias("decimals"),
        ).alias(Evidence.SERIES.value)
    ]
    if Evidence.STEPS in needed:
        values = F.sort_array(F.collect_set(number))
        steps = F.struct(F.size(values).alias("distinct"), F.array_min(_apart(values)).alias("step"))
        columns.append(steps.alias(Evidence.STEPS.value))
    if Evidence.GAPS in needed:
        gap = F.array_max(_apart(F.sort_array(F.collect_list(at))))
        columns.append(F.struct(gap.alias("gap")).alias(Evidence.GAPS.value))
    return columns


def _neighbours(good: DataFrame) -> DataFrame:
    """The median of sources and their median distance from it: each source counts once, however much it says."""
    mean, usable, means, median, off, known = _of_neighbours()
    sources = good.groupBy(*_GROUP, "source").agg(mean)
    groups = sources.where(usable).groupBy(*_GROUP).agg(means).withColumn("median", median)
    return groups.withColumn("off", off).select(*_GROUP, known)


@cache
def _of_neighbours() -> tuple[Column, ...]:
    number = grade.finite(F.col("value"))
    deviation = grade.finite(_median("off") * F.lit(_NORMAL))
    known = F.struct(F.size("values").alias("sources"), "median", deviation.alias("deviation"))
    return (
        F.avg(number).alias("value"),
        number.isNotNull() & F.col("source").isNotNull(),
        F.sort_array(F.collect_list("value")).alias("values"),
        _median("values"),
        F.sort_array(F.transform("values", lambda value: F.abs(value - F.col("median")))),
        known.alias(Evidence.NEIGHBOURS.value),
    )


def _median(name: str) -> Column:
    """Of a sorted array that is not empty. Halved before they are added: two large numbers may have no sum."""
    size = F.size(name)
    lower, upper = F.floor((size - 1) / 2).cast("int"), F.floor(size / 2).cast("int")
    return F.get(name, lower) / 2 + F.get(name, upper) / 2


def _apart(values: Column) -> Column:
    """The differences between neighbours of a sorted array."""
    return F.zip_with(
        F.slice(values, 2, F.greatest(F.size(values) - 1, F.lit(0))),
        F.slice(values, 1, F.greatest(F.size(values) - 1, F.lit(0))),
        lambda later, sooner: later - sooner,
    )
