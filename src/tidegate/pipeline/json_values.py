"""JSON in Spark: a payload as a VARIANT column, what a pointer leads to in it, and what that is.

VARIANT is chosen for what it tells, not for speed: `from_json` to typed columns costs a little less, but makes the same
null of a missing value and a wrong one, and takes the last of two equal keys. To columns of VARIANT it costs about as
much as this.

Everything here is null for null, and nothing raises for any bytes.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidegate.pipeline.columns import F
from tidegate.pipeline.rules import is_index
from tidegate.policy.pointers import Pointer

if TYPE_CHECKING:
    from pyspark.sql import Column

_END: Final = 10**17 + secrets.randbelow(10**17)  # a number that nobody can know who writes a payload
_PLAIN: Final = re.compile(r"\w[\w-]*")
"""Keys that mean themselves in a path of Spark; all others are looked up in a map."""


def document(text: Column) -> Column:
    """An array of what stands in a text and `_END`; null if the text is no JSON.

    The parser stops at the end of the first value and would not see what follows. In an array it must see it, unless
    the text closes that array itself; then `_END` is not there.
    """
    return elements(F.try_parse_json(F.concat(F.lit("["), text, F.lit(f",{_END}]"))))


def single(array: Column) -> Column:
    """The only value of a `document`; null if there were several, or more than JSON.

    Looking for what is not there, such as a third, is slow: inside Spark it is an exception.
    """
    whole = (F.size(array) == 2) & (F.to_json(F.get(array, F.lit(1))) == str(_END))
    return F.when(whole, F.get(array, F.lit(0)))


def at(value: Column, pointer: Pointer) -> Column:
    """What a pointer leads to; null if nothing is there (a JSON null is something)."""
    ways = [_along(value, steps) for steps in _ways(pointer)]
    return ways[0] if len(ways) == 1 else F.coalesce(*ways)


def elements(value: Column) -> Column:
    """The elements of an array; null for anything else."""
    return F.try_variant_get(value, F.lit("$"), "array<variant>")


def kind(value: Column) -> Column:
    """The type that Spark tells for a value, such as BIGINT, DECIMAL(3,1) or OBJECT<…>; VOID is the JSON null."""
    return F.schema_of_variant(value)


def is_number(kind: Column) -> Column:
    return kind.isin("BIGINT", "DOUBLE") | kind.startswith("DECIMAL")


def type_name(kind: Column) -> Column:
    return (
        F.when(kind == "STRING", F.lit("a text"))
        .when(kind == "BOOLEAN", F.lit("a boolean"))
        .when(kind == "VOID", F.lit("null"))
        .when(kind.startswith("OBJECT"), F.lit("an object"))
        .when(kind.startswith("ARRAY"), F.lit("an array"))
        .otherwise(F.lit("a number"))
    )


def number(value: Column) -> Column:
    """A number, or 1 or 0 for a boolean; only those have one (Spark would read texts, too).

    By way of its text: to turn one kind of number into another Spark builds an expression for each value. It still does
    for what is too large, and for booleans.
    """
    return F.coalesce(F.to_json(value).try_cast("double"), F.try_variant_get(value, F.lit("$"), "double"))


def text(value: Column) -> Column:
    """A text, or a scalar written as one."""
    return F.try_variant_get(value, F.lit("$"), "string")


def _ways(pointer: Pointer) -> Iterator[tuple[str | int, ...]]:
    """A step that is a number means a position in an array and a name in an object (RFC 6901, section 4)."""
    return itertools.product(*((int(step), step) if is_index(step) else (step,) for step in pointer))


def _along(value: Column, steps: tuple[str | int, ...]) -> Column:
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _PLAIN.fullmatch(step):
            path += f".{step}"
        else:
            entries = F.try_variant_get(value, F.lit(path), "map<string,variant>")
            value, path = F.try_element_at(entries, F.lit(step)), "$"
    return value if path == "$" else F.try_variant_get(value, F.lit(path), "variant")
