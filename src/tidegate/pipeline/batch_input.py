"""Frames whose rows are chosen when they are read, not when they are planned.

Spark takes longer to plan the stages than to run them over a small batch. So a plan is made once and run for many
batches. `set_input` sets what it reads, in a property of the calling thread that Spark passes to every task. A task
without that property fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import PipelineError
from tidegate.pipeline import series_statistics
from tidegate.pipeline.columns import INGEST, struct
from tidegate.pipeline.lake import remaining
from tidegate.pipeline.source.journal import fitted
from tidegate.pipeline.source.shards import Range, Shards, pieces

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_INPUT_PROPERTY: Final = "tidegate.reading"
COLUMNS: Final = tuple(column for column in INGEST if column[0] not in ("qos", "retain", "content_type", "properties"))
"""Of a message. What no stage reads goes to the lake only, which it does without Spark."""


def set_input(spark: SparkSession, messages: Iterable[Range], history: Path | None = None) -> None:
    """Sets the input of all jobs that this thread, or a thread that inherits its properties, starts from now on."""
    chosen = {"messages": list(messages), "history": None if history is None else str(history.absolute())}
    spark.sparkContext.setLocalProperty(_INPUT_PROPERTY, json.dumps(chosen))


def messages(spark: SparkSession, journal: Shards, lake: Path, *, tasks: int) -> DataFrame:
    """Messages of the journal, in so many partitions; without those of people who have been erased."""
    columns = struct(COLUMNS)
    read = partial(_messages, journal=journal, lake=lake, tasks=tasks, columns=columns)
    return spark.range(0, tasks, 1, tasks).mapInArrow(read, columns)


def kept(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Messages that were kept, in the same columns; their places are of no journal."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    numbered = rows.set_column(
        rows.schema.get_field_index("shard"), "shard", pa.repeat(pa.scalar(-1, pa.int32()), rows.num_rows)
    )
    numbered = numbered.set_column(
        rows.schema.get_field_index("offset"), "offset", pa.array(range(rows.num_rows), pa.int64())
    )
    columns = struct(COLUMNS)
    layout = to_arrow_schema(columns, timezone="UTC")
    return spark.createDataFrame(pa.Table.from_batches(fitted(iter(numbered.to_batches()), columns), layout), columns)


def history(spark: SparkSession) -> DataFrame:
    """What was usual before, as `score` takes it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    read = spark.range(0, 1, 1, 1).mapInArrow(_history, from_arrow_schema(series_statistics.schema()))
    return series_statistics.with_deviation(read.coalesce(1))


def _messages(
    numbers: Iterator[pa.RecordBatch], *, journal: Shards, lake: Path, tasks: int, columns: StructType
) -> Iterator[pa.RecordBatch]:
    wanted = [piece for bounds in _input()["messages"] for piece in pieces(Range(*bounds))]
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from fitted(remaining(lake, journal.rows(wanted[number::tasks])), columns)


def _history(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    path = _input()["history"]
    state = series_statistics.empty() if path is None else series_statistics.read(Path(path))
    for _ in numbers:
        yield from state.replace_schema_metadata(None).to_batches()


def _input() -> dict[str, Any]:
    from pyspark import TaskContext

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_INPUT_PROPERTY)
    if text is None:
        raise PipelineError("a task was not told what to read")
    chosen: dict[str, Any] = json.loads(text)
    return chosen
