"""The stage normalise: payloads of all shapes become records of one.

Each message is read by the first mapping that fits its type and topic. Its payload is parsed once; what `records` leads
to is an element, or an array of them; each element makes one record for each value, in the order of elements, then of
values. `part` counts them from 0.

- Nothing is dropped. A message makes at least one row: what fits no mapping, is no JSON or has no value is one row with
  a `fault` that says why. The same holds for an element: if something that it needs is missing, or anything in it is
  wrong, it is one faulty row, and the elements beside it are not touched.
- `source`, `time` and `keep` are looked for in the element, then (with `records`) in the payload around it.
- The payload stands in the first faulty row of a message only. With a copy in each, a message of a megabyte could
  become gigabytes; so is what else is copied bounded (RECORDS, EXTRA, NAME).
- The same message makes the same rows, whenever and wherever: times are compared with `received_at`, never with now.

What it will not do: guess. A number in quotes is a text, a time without a form is none. No Python runs for a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tidegate.pipeline import json_values
from tidegate.pipeline.columns import RECORD, F, apart, topic_matches
from tidegate.pipeline.map_elements import MESSAGE, ROW, chosen, faulty, mapping_of, of_message, rows_of, single_steps
from tidegate.pipeline.rules import Mapping, Rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NOTHING: Final = "no value: none of those that the source may have is there"
_NO_SOURCE: Final = "fits no source of the rules; add one for its type or topic"
_NOT_JSON: Final = "the payload is not JSON, or nested too deep; send JSON, which has no NaN and no Infinity"
_NOT_STRICT: Final = (
    "the payload is not one strict JSON value: a key stands twice, quotes are not double, a text is broken, or more "
    "follows; send one value in a message"
)


def normalise(frame: DataFrame, rules: Rules, *, categories: Sequence[tuple[str, str]] = ()) -> DataFrame:
    """Ingested messages as records; `categories` are (topic filter, category), of which the first counts."""
    steps, records = _steps(rules.sources, tuple((filter, category) for filter, category in categories))
    if "sealed_fault" not in frame.columns:
        frame = frame.withColumn("sealed_fault", F.lit(None).cast("string"))
    rows = frame.select(F.struct("*").alias(MESSAGE))
    for columns, compiled_apart in steps:
        rows = rows.select("*", *columns)
        rows = apart(rows) if compiled_apart else rows
    # `outer` keeps Spark from adding a filter on the number of rows. There is always one.
    return rows.select("*", F.posexplode_outer("_rows").alias("part", "_row")).select(*records)


@lru_cache(maxsize=4)
def _steps(
    mappings: tuple[Mapping, ...], categories: tuple[tuple[str, str], ...]
) -> tuple[list[tuple[tuple[Column, ...], bool]], tuple[Column, ...]]:
    """The columns that are added one after the other, with whether Spark compiles what follows apart; and a record's.

    One column is made from the other, each in a projection of its own, so that nothing is computed twice. They are
    kept, because a batch comes every second and the rules seldom change: naming thousands of columns takes long.
    """
    text, mapping = of_message("payload").cast("string"), mapping_of(mappings)
    document = F.when(F.is_valid_utf8(text), json_values.document(text))
    rows = F.when(F.col("_single"), F.col("_alone")).otherwise(rows_of(mappings))
    return [
        ((_fit(mappings).alias("_fit"), document.alias("_document")), False),
        ((json_values.single(F.col("_document")).alias("_payload"),), False),
        ((chosen(mappings, _records, F.col("_payload")).alias("_here"),), False),
        ((json_values.elements(F.col("_here")).alias("_elements"),), False),
        ((_fault(mapping).alias("_fault"),), True),
        *((columns, number % 2 == 0) for number, columns in enumerate(single_steps(mappings))),
        ((F.when(F.col("_fault").isNull(), rows).alias("_made"),), True),
        ((_at_least_one(F.col("_made")).alias("_rows"),), False),
        # Before they are taken apart: after that it would be looked for again in each.
        ((F.array_position(F.col("_rows")["faulty"], True).alias("_first"),), True),
    ], tuple(_columns(mapping, categories))


def _fit(mappings: Sequence[Mapping]) -> Column:
    """The position of the first mapping that fits; null if none does."""
    position = F.lit(None).cast("int")
    for index, mapping in reversed(list(enumerate(mappings))):
        fits = F.lit(True)
        if mapping.types:
            fits = fits & of_message("source_kind").isin(*mapping.types)
        if mapping.topic is not None:
            fits = fits & topic_matches(of_message("topic"), mapping.topic)
        position = F.when(fits, F.lit(index)).otherwise(position)
    return position


def _records(mapping: Mapping) -> Column | None:
    return json_values.at(F.col("_payload"), mapping.records) if mapping.records else None


def _fault(mapping: Column) -> Column:
    """Why a message as a whole makes no record; null if it may."""
    payload = of_message("payload")
    text = payload.cast("string")
    unreadable = (
        F.when(payload.isNull() | (F.length(payload) == 0), F.lit("the payload is empty; send JSON"))
        .when(~F.is_valid_utf8(text), F.lit("the payload is not UTF-8; send JSON in UTF-8"))
        # That function is lenient: what it understands is nearly JSON.
        .when(F.get_json_object(text, "$").isNotNull(), F.lit(_NOT_STRICT))
        .otherwise(F.lit(_NOT_JSON))
    )
    many = F.concat(F.lit("more than "), mapping["most"].cast("string"), F.lit(" elements; send fewer at once"))
    return (
        F.when(of_message("sealed_fault").isNotNull(), of_message("sealed_fault"))
        .when(F.col("_fit").isNull(), F.lit(_NO_SOURCE))
        .when(F.col("_payload").isNull(), unreadable)
        .when(F.col("_here").isNull(), mapping["missing"])
        .when(F.size("_elements") > mapping["most"], many)
    )


def _at_least_one(rows: Column) -> Column:
    why = F.coalesce(F.col("_fault"), F.lit(_NOTHING))
    return F.when(F.size(rows) > 0, rows).otherwise(F.array(faulty(why)))


def _columns(mapping: Column, categories: Sequence[tuple[str, str]]) -> Iterator[Column]:
    row, part, category = F.col("_row"), F.col("part"), F.lit(None)
    for filter, name in reversed(categories):
        category = F.when(topic_matches(of_message("topic"), filter), F.lit(name)).otherwise(category)
    message = F.coalesce(
        of_message("id"), F.concat_ws("-", of_message("shard").cast("string"), of_message("offset").cast("string"))
    )
    computed = {
        "part": part,
        "id": F.concat(message, F.lit("."), (part + 1).cast("string")),
        "type": F.coalesce(mapping["becomes"], of_message("source_kind"), mapping["fallback"]),
        "schema": mapping["schema"],
        "owner": of_message("user"),
        "category": category,
        "payload": F.when(part + 1 == F.col("_first"), of_message("payload")),
        **{name: row[name] for name, _ in ROW if name != "faulty"},
    }
    for name, kind in RECORD:
        yield (computed[name] if name in computed else of_message(name)).cast(kind).alias(name)
