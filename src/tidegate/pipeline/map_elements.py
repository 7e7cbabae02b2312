"""What the elements of a message are made into by the mapping that fits: rows of records, or of what is wrong.

A mapping is data (`mapping`) as far as it can be, and an expression only in its paths into the payload: expressions for
each mapping grow beyond what Java compiles, and take seconds.

`rows_of` is for every message. It uses functions over arrays, which Spark interprets; `single_steps` makes the same
rows of the usual message (one element, alone or in an array, with a few values) with plain columns, which Spark
compiles.

The columns of a frame that are read here are those of the message (`of_message`) and `_fit`, `_payload`, `_here` and
`_elements` of `normalise`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidegate.pipeline import json_values
from tidegate.pipeline.columns import F, columns
from tidegate.pipeline.rules import Form, Kind, Mapping, Value, kept_name
from tidegate.pipeline.units import Conversion, conversion
from tidegate.policy import pointers
from tidegate.policy.pointers import Pointer
from tidegate.session.message import OUTPUTS

if TYPE_CHECKING:
    from pyspark.sql import Column

RECORDS: Final = OUTPUTS  # records that one message may make: the node tells no more apart by their ids
EXTRA: Final = 4096  # characters of what is kept besides, for each record
LONG: Final = f"what is kept has more than {EXTRA} characters; keep less"
NAME: Final = 256  # characters that the name of a source may have
EARLIEST: Final = "2000-01-01T00:00:00Z"
"""A time before it comes from a clock that was never set, or is read in the wrong form."""
AHEAD: Final = "INTERVAL 1 DAY"
"""How far after its arrival a message may have been measured. Less is for scores to judge."""

_ISO: Final = r"\A\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?\z"
_ZONE: Final = r"(Z|[+-]\d\d:?\d\d)\z"
_MICROSECONDS: Final = {Form.S: 1e6, Form.MS: 1e3, Form.US: 1.0}
_LAST: Final = 253_402_300_799e6  # the end of the year 9999

MESSAGE: Final = "_message"  # the message as it was read
_TABLE: Final = (
    "array<struct<schema:string,becomes:string,fallback:string,most:int,missing:string,"
    "time:struct<label:string,scale:double,form:string>,source:string,"
    "values:array<struct<name:string,unit:string,label:string,kind:string,factor:double,offset:double,required:boolean>>>>"
)
ROW: Final = columns(
    "name string, value double, text string, unit string, measured_at timestamp, source string, extra string, "
    "fault string, faulty boolean"
)
"""What the elements of a message are made into, before they are taken apart."""


def of_message(name: str) -> Column:
    """A column of the message, which goes through `normalise` as one: so it is copied in one piece, and often."""
    return F.col(MESSAGE)[name]


def sender() -> Column:
    return F.coalesce(of_message("source"), of_message("client"))


def mapping_of(mappings: Sequence[Mapping]) -> Column:
    """The row of the table for the mapping that fits; null if none does. Constant, but for the position."""
    table = json.dumps([_described(mapping) for mapping in mappings])
    return F.get(F.from_json(F.lit(table), _TABLE), F.col("_fit"))


def _described(mapping: Mapping) -> dict[str, Any]:
    time = mapping.time
    if time is not None:
        written = "in ISO 8601, such as 2026-03-02T09:30:00Z" if time.form is Form.ISO else f"a number of {time.form}"
    return {
        "schema": mapping.schema,
        "becomes": mapping.becomes,
        "fallback": mapping.id,
        "most": RECORDS // len(mapping.values),
        "missing": f"`{pointers.text(mapping.records)}` is missing, where the records of `{mapping.id}` should be",
        "time": time
        and {"label": f"the time at {_shown(time.at)}", "scale": _MICROSECONDS.get(time.form), "form": written},
        "source": None if mapping.source is None else f"the source at {_shown(mapping.source)}",
        "values": [_described_value(value) for value in mapping.values],
    }


def _described_value(value: Value) -> dict[str, Any]:
    turn = conversion(value.unit, value.to) if value.unit is not None and value.to is not None else Conversion()
    return {
        "name": value.name,
        "unit": value.to or value.unit,
        "label": f"`{value.name}` at {_shown(value.at)}",
        "kind": value.kind.value,
        "factor": turn.factor,
        "offset": turn.offset,
        "required": value.required,
    }


def _shown(pointer: Pointer) -> str:
    return f"`{pointers.text(pointer)}`" if pointer else "the top"


def chosen(
    mappings: Sequence[Mapping], of: Callable[[Mapping], Column | None], otherwise: Column | None = None
) -> Column:
    """What `of` says for the mapping that fits; `otherwise` (null) where that is nothing."""
    choice = F.lit(None) if otherwise is None else otherwise
    for index, mapping in enumerate(mappings):
        if (column := of(mapping)) is not None:
            choice = F.when(F.col("_fit") == index, column).otherwise(choice)
    return choice


def rows_of(mappings: Sequence[Mapping]) -> Column:
    several = F.col("_elements").isNotNull()
    elements = F.coalesce(F.col("_elements"), F.array(F.col("_here")))
    # A function of an element is the only way to name something in between, so that it is computed once.
    leaves = F.transform(elements, lambda element: _leaves(mappings, element))
    known = F.transform(leaves, lambda leaf: _known(mapping_of(mappings), leaf))
    judged = F.transform(known, lambda leaf: _judged(mapping_of(mappings), leaf))
    return F.flatten(F.transform(judged, lambda leaf, index: _element(leaf, several, index)))


def _leaves(mappings: Sequence[Mapping], element: Column) -> Column:
    """What the pointers of the mapping lead to."""

    def values(mapping: Mapping) -> Column:
        return F.array(*(json_values.at(element, value.at) for value in mapping.values))

    return F.struct(chosen(mappings, values).cast("array<variant>").alias("values"), *besides(mappings, element))


def besides(mappings: Sequence[Mapping], element: Column) -> tuple[Column, ...]:
    """What stands beside the values: `time`, `source` and `extra`."""

    def around(mapping: Mapping, pointer: Pointer) -> Column:
        value = json_values.at(element, pointer)
        return F.coalesce(value, json_values.at(F.col("_payload"), pointer)) if mapping.records else value

    def time(mapping: Mapping) -> Column | None:
        return around(mapping, mapping.time.at) if mapping.time is not None else None

    def source(mapping: Mapping) -> Column | None:
        return around(mapping, mapping.source) if mapping.source is not None else None

    def extra(mapping: Mapping) -> Column | None:
        if not mapping.keep:
            return None
        kept = F.struct(*(around(mapping, pointer).alias(kept_name(pointer)) for pointer in mapping.keep))
        return F.nullif(F.to_json(kept), F.lit("{}"))

    return (
        chosen(mappings, time).cast("variant").alias("time"),
        chosen(mappings, source).cast("variant").alias("source"),
        chosen(mappings, extra).cast("string").alias("extra"),
    )


def _known(mapping: Column, leaf: Column) -> Column:
    """The same with the kind of each."""
    return F.struct(
        F.transform(
            mapping["values"],
            lambda spec, index: F.struct(
                spec.alias("said"),
                F.get(leaf["values"], index).alias("found"),
                json_values.kind(F.get(leaf["values"], index)).alias("kind"),
            ),
        ).alias("values"),
        json_values.kind(leaf["time"]).alias("time_kind"),
        moment(mapping["time"], leaf["time"], json_values.kind(leaf["time"])).alias("time"),
        json_values.kind(leaf["source"]).alias("source_kind"),
        leaf["source"].alias("source"),
        leaf["extra"].alias("extra"),
    )


def _judged(mapping: Column, leaf: Column) -> Column:
    """Each value as it is recorded, and the first thing that is wrong with the element."""

    def judged(leaf_value: Column) -> Column:
        return value_of(leaf_value["said"], leaf_value["found"], leaf_value["kind"])

    named = F.when(leaf["source_kind"].isin("STRING", "BIGINT"), json_values.text(leaf["source"]))
    source = F.when(mapping["source"].isNull(), sender()).otherwise(named)
    values = F.transform(leaf["values"], judged)
    wrong = F.array(
        untimely(mapping["time"], leaf["time_kind"], leaf["time"]),
        unnamed(mapping["source"], leaf["source_kind"], named),
        F.when(F.length(leaf["extra"]) > EXTRA, F.lit(LONG)),
    )
    mistakes = F.transform(
        leaf["values"], lambda leaf_value: mistaken(leaf_value["said"], leaf_value["kind"], judged(leaf_value))
    )
    return F.struct(
        F.filter(values, lambda value: value["value"].isNotNull() | value["text"].isNotNull()).alias("values"),
        F.get(F.array_compact(F.concat(wrong, mistakes)), F.lit(0)).alias("wrong"),
        F.when(mapping["time"].isNull(), of_message("received_at")).otherwise(leaf["time"]).alias("time"),
        source.alias("source"),
        leaf["extra"].alias("extra"),
    )


def value_of(spec: Column, value_found: Column, kind: Column) -> Column:
    """A value as it is recorded; nothing if it is of another kind."""
    boolean = (spec["kind"] == Kind.BOOLEAN.value) & (kind == "BOOLEAN")
    number = json_values.number(value_found) * spec["factor"] + spec["offset"]
    value = F.when((spec["kind"] == Kind.NUMBER.value) & json_values.is_number(kind), number).when(
        boolean, json_values.number(value_found)
    )
    text = F.when(boolean | ((spec["kind"] == Kind.TEXT.value) & (kind == "STRING")), json_values.text(value_found))
    return F.struct(spec["name"].alias("name"), value.alias("value"), text.alias("text"), spec["unit"].alias("unit"))


def mistaken(spec: Column, kind: Column, value: Column) -> Column:
    """What is wrong with a value; null if nothing is."""
    label, absent = spec["label"], kind.isNull() | (kind == "VOID")
    other = F.concat(label, F.lit(" is "), json_values.type_name(kind), F.lit(", not a "), spec["kind"])
    return (
        F.when(absent & ~spec["required"], F.lit(None).cast("string"))
        .when(kind.isNull(), F.concat(label, F.lit(" is missing")))
        .when(kind == "VOID", F.concat(label, F.lit(" is null")))
        .when(value["value"].isNull() & value["text"].isNull(), other)
        .when(F.abs(value["value"]) == F.lit(math.inf), F.concat(label, F.lit(" is too large for a number")))
    )


def moment(time: Column, value: Column, kind: Column) -> Column:
    """A time; null if it is none."""
    text, microseconds = json_values.text(value), json_values.number(value) * time["scale"]
    # Spark would read a time of day as one of today, and a time without a zone in that of the session.
    zoned = F.when(text.rlike(_ZONE), text).otherwise(F.concat(text, F.lit("Z")))
    iso = F.when((kind == "STRING") & text.rlike(_ISO), F.try_to_timestamp(zoned))
    whole = F.when(json_values.is_number(kind) & (F.abs(microseconds) <= _LAST), F.rint(microseconds).cast("bigint"))
    return F.when(time["scale"].isNull(), iso).otherwise(F.timestamp_micros(whole))


def untimely(time: Column, kind: Column, at: Column) -> Column:
    label, late = time["label"], of_message("received_at") + F.expr(AHEAD)
    return (
        F.when(time.isNull(), F.lit(None).cast("string"))
        .when(kind.isNull(), F.concat(label, F.lit(" is missing")))
        .when(
            at.isNull() & time["scale"].isNotNull() & json_values.is_number(kind),
            F.concat(label, F.lit(" is out of range; is `form` right?")),
        )
        .when(at.isNull(), F.concat(label, F.lit(" is not "), time["form"]))
        .when(
            at < F.lit(EARLIEST).cast("timestamp"),
            F.concat(label, F.lit(f" is before {EARLIEST[:4]}; is `form` right?")),
        )
        .when(at > late, F.concat(label, F.lit(" is more than a day after its arrival; is `form` right?")))
    )


def unnamed(label: Column, kind: Column, named: Column) -> Column:
    return (
        F.when(label.isNull(), F.lit(None).cast("string"))
        .when(kind.isNull(), F.concat(label, F.lit(" is missing")))
        .when(named.isNull(), F.concat(label, F.lit(" is "), json_values.type_name(kind), F.lit(", not a text")))
        .when(~F.length(named).between(1, NAME), F.concat(label, F.lit(f" must have 1 to {NAME} characters")))
    )


def _element(leaf: Column, several: Column, index: Column) -> Column:
    """The rows of an element: one for each value that is there, or one that says what is wrong."""
    place = F.when(several, F.concat(F.lit("element "), index.cast("string"), F.lit(": "))).otherwise(F.lit(""))
    good = F.transform(leaf["values"], lambda value: _record(value, leaf["time"], leaf["source"], leaf["extra"]))
    return F.when(leaf["wrong"].isNotNull(), F.array(faulty(F.concat(place, leaf["wrong"])))).otherwise(good)


def _record(value: Column, time: Column, source: Column, extra: Column) -> Column:
    named = {name: value[name] for name in ("name", "value", "text", "unit")}
    return row(**named, measured_at=time, source=source, extra=extra, faulty=F.lit(False))


def faulty(fault: Column) -> Column:
    return row(fault=fault, faulty=F.lit(True), source=sender())


def row(**known: Column) -> Column:
    return F.struct(*(known.get(name, F.lit(None)).cast(type).alias(name) for name, type in ROW))


_ROWS: Final = f"array<struct<{','.join(f'{name}:{type}' for name, type in ROW)}>>"

MOST: Final = 4  # values of a mapping; with more, what has to be compiled grows beyond what Java takes


def single_steps(mappings: Sequence[Mapping]) -> tuple[tuple[Column, ...], ...]:
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
        record = _record(recorded, time, source, F.col("_extra"))
        rows.append(F.when(there, F.array(record)).otherwise(F.array().cast(_ROWS)))
    good = rows[0] if len(rows) == 1 else F.concat(*rows)
    place = F.when(F.col("_elements").isNull(), F.lit("")).otherwise(F.lit("element 0: "))
    wrong = F.array(faulty(F.concat(place, F.col("_wrong"))))
    return F.when(F.col("_wrong").isNotNull(), wrong).otherwise(good)
