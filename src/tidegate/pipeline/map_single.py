"""The fast path of `map_elements` for the usual message: one element, alone or in an array, with a few values.

`map_elements` uses functions over arrays, which Spark interprets. This module computes the same rows with plain
columns, which Spark compiles. What a row means is defined there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tidegate.pipeline import json_values
from tidegate.pipeline.map_elements import (
    EXTRA,
    LONG,
    ROW,
    besides,
    chosen,
    faulty,
    mapping_of,
    mistaken,
    moment,
    of_message,
    row,
    sender,
    unnamed,
    untimely,
    value_of,
)
from tidegate.pipeline.rules.model import Mapping
from tidegate.pipeline.spark_functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column

_ROWS: Final = f"array<struct<{','.join(f'{name}:{type}' for name, type in ROW)}>>"

MOST: Final = 4
"""Values of a mapping; with more, what has to be compiled grows beyond what Java takes."""


def steps(mappings: Sequence[Mapping]) -> tuple[tuple[Column, ...], ...]:
    """Columns to be added one after the other, the last of which is `_alone`: the rows of a message if `_single`."""
    fitting = [index for index, mapping in enumerate(mappings) if len(mapping.values) <= MOST]
    if not fitting:
        return ((F.lit(False).alias("_single"), F.lit(None).alias("_alone")),)
    several = range(max(len(mappings[index].values) for index in fitting))
    bare = F.col("_elements").isNull()
    single = F.col("_fault").isNull() & (bare | (F.size("_elements") == 1)) & F.col("_fit").isin(*fitting)
    mapping = mapping_of(mappings)
    here = F.when(F.col("_single"), F.when(bare, F.col("_here")).otherwise(F.get("_elements", F.lit(0))))
    specs = [F.get(mapping["values"], F.lit(number)) for number in several]
    values_found = [F.col(f"_found{number}") for number in several]
    kind = [F.col(f"_kind{number}") for number in several]
    value = [F.col(f"_value{number}") for number in several]
    time, source, extra = besides(mappings, F.col("_alone_here"))
    named = F.when(F.col("_source_kind").isin("STRING", "BIGINT"), json_values.text(F.col("_source")))
    return (
        (single.alias("_single"),),
        (here.alias("_alone_here"),),
        (
            *(chosen(mappings, _at(number)).cast("variant").alias(f"_found{number}") for number in several),
            time.alias("_time"),
            source.alias("_source"),
            extra.alias("_extra"),
        ),
        (
            *(json_values.kind(values_found[number]).alias(f"_kind{number}") for number in several),
            json_values.kind(F.col("_time")).alias("_time_kind"),
            json_values.kind(F.col("_source")).alias("_source_kind"),
        ),
        (
            *(
                value_of(specs[number], values_found[number], kind[number]).alias(f"_value{number}")
                for number in several
            ),
            moment(mapping["time"], F.col("_time"), F.col("_time_kind")).alias("_moment"),
            named.alias("_named"),
        ),
        (
            F.coalesce(
                untimely(mapping["time"], F.col("_time_kind"), F.col("_moment")),
                unnamed(mapping["source"], F.col("_source_kind"), F.col("_named")),
                F.when(F.length("_extra") > EXTRA, F.lit(LONG)),
                *(
                    F.when(specs[number].isNotNull(), mistaken(specs[number], kind[number], value[number]))
                    for number in several
                ),
            ).alias("_wrong"),
        ),
        (_rows(mapping, specs, value).alias("_alone"),),
    )


def _at(number: int) -> Callable[[Mapping], Column | None]:
    def value_at(mapping: Mapping) -> Column | None:
        if number >= len(mapping.values):
            return None
        return json_values.at(F.col("_alone_here"), mapping.values[number].at)

    return value_at


def _rows(mapping: Column, specs: Sequence[Column], value: Sequence[Column]) -> Column:
    source = F.when(mapping["source"].isNull(), sender()).otherwise(F.col("_named"))
    time = F.when(mapping["time"].isNull(), of_message("received_at")).otherwise(F.col("_moment"))
    rows = []
    for spec, recorded in zip(specs, value, strict=True):
        there = spec.isNotNull() & (recorded["value"].isNotNull() | recorded["text"].isNotNull())
        record = row(
            name=recorded["name"],
            value=recorded["value"],
            text=recorded["text"],
            unit=recorded["unit"],
            measured_at=time,
            source=source,
            extra=F.col("_extra"),
            faulty=F.lit(False),
        )
        rows.append(F.when(there, F.array(record)).otherwise(F.array().cast(_ROWS)))
    good = rows[0] if len(rows) == 1 else F.concat(*rows)
    place = F.when(F.col("_elements").isNull(), F.lit("")).otherwise(F.lit("element 0: "))
    wrong = F.array(faulty(F.concat(place, F.col("_wrong"))))
    return F.when(F.col("_wrong").isNotNull(), wrong).otherwise(good)
