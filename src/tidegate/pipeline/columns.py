"""The columns that stages hand to each other, topics as conditions on a column, and `F`, which builds columns.

A frame of the stages has one row for each record: (shard, offset, part) is its name. A message that fits no mapping, or
is broken, is one row with a `fault`; it passes the other stages as it is.

`F` is pyspark.sql.functions, imported when the first column is built: rules are checked, and a lake is looked after,
without Spark, so modules that build columns must not import it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tidegate.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


class _Functions:
    def __getattr__(self, name: str) -> Any:
        from pyspark.sql import functions

        function = self.__dict__[name] = getattr(functions, name)
        return function


F: Final[Any] = _Functions()

_MANY: Final = 100_000
A = TypeVar("A")
B = TypeVar("B")

DIMENSIONS: Final = (
    *("confidentiality", "integrity", "privacy", "authentication"),
    *("accuracy", "precision", "timeliness", "completeness"),
)
"""Four of security, four of quality (AUPS, section 3)."""

KEY: Final = ("shard", "offset", "part")

Columns: TypeAlias = tuple[tuple[str, str], ...]  # name and type of each column, as Spark writes types


def columns(text: str) -> Columns:
    """Reads columns that are written as `name type, name type`."""
    return tuple((name, kind) for name, _, kind in (column.partition(" ") for column in text.split(", ")))


RECORD: Final = columns(
    "shard int, offset bigint, part int, id string, source string, type string, mode string, schema string, "
    "name string, value double, text string, unit string, measured_at timestamp, received_at timestamp, extra string, "
    "topic string, registered boolean, client string, owner string, category string, level string, floor string, "
    "context binary, policy_version string, payload binary, fault string"
)
SCORED: Final = columns(f"scores struct<{','.join(f'{name}:double' for name in DIMENSIONS)}>, rules_version string")
ASSIGNED: Final = columns("target string")
PROTECTED: Final = columns("message binary, key_id string, denied string")
INGEST: Final = columns(
    "shard int, offset bigint, received_at timestamp, id string, topic string, payload binary, qos tinyint, "
    "retain boolean, content_type string, properties array<struct<name:string,value:string>>, source string, "
    "source_kind string, registered boolean, mode string, client string, user string, level string, floor string, "
    "context binary, policy_version string"
)
"""The columns of the journal, as Spark sees them (store.journal.schema)."""


def apart(frame: DataFrame) -> DataFrame:
    """The frame; what is computed before and after this is compiled apart.

    Spark makes one method of a chain of columns. Beyond some size Java does not compile it, or takes seconds, and every
    row takes several times as long. Nothing is moved: there never are so many partitions.
    """
    return frame.coalesce(_MANY)


def remembered(make: Callable[[A], B]) -> Callable[[A], B]:
    """What was made of the last few objects is kept, and found by the object itself, not by its value.

    A batch comes every second, and rules seldom change: naming hundreds of columns takes Python longer than their rows
    take Spark.
    """
    kept: list[tuple[A, B]] = []

    def recall(of: A) -> B:
        for known, result in kept:
            if known is of:
                return result
        result = make(of)
        kept[:] = [(of, result), *kept[:3]]
        return result

    return recall


def ddl(*columns: tuple[str, str]) -> str:
    return ", ".join(f"`{name}` {type}" for name, type in columns)


@cache
def struct(columns: Columns) -> StructType:
    """A schema of such columns, all of which may be null."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(ddl(*columns))


def topic_matches(column: Column, filter: str) -> Column:
    """Whether a topic matches an MQTT filter; null for no topic. With a regular expression only if need be."""
    if filter in ("#", "+/#"):
        return ~column.startswith("$")
    expression = pattern(filter)
    begin, _, last = filter.rpartition("/")
    if "+" in begin or "#" in begin or (last in ("+", "#") and not begin):
        return column.rlike(expression)
    if last == "#":
        return column.startswith(f"{begin}/") | (column == begin)
    if last == "+":
        return column.startswith(f"{begin}/") & (F.locate("/", column, len(begin) + 2) == 0)
    return column == filter


@cache
def pattern(filter: str) -> str:
    """A regular expression for the topics of a filter, as Java reads them."""
    if "\0" in filter:
        raise PipelineError(f"the filter {filter!r} has a zero character; write it without")
    first, *others = filter.split("/")
    if first == "#":
        return r"(?s)\A(?!\$).*\z"
    expression = r"(?s)\A" + (r"(?!\$)[^/]*" if first == "+" else re.escape(first))
    for level in others:
        if level == "#":
            return expression + r"(?:/.*)?\z"
        expression += "/" + (r"[^/]*" if level == "+" else re.escape(level))
    return expression + r"\z"
