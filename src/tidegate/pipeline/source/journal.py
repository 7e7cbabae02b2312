"""The format `tidegate`: a journal of a node as a batch or a stream of Spark.

    spark.readStream.format("tidegate").load("var/node")

Options
- `path`: the data folder of the node, also as the argument of `load`
- `stream`: `ingest` (the default), `audit` or `traffic`
- `failOnDataLoss`: whether rows that are gone are an error (the default) or a warning
- of a stream: `name` (of a reader that retention waits for), `maxRowsPerBatch`, and `startingOffsets`: `earliest` (the
  default), `latest`, or JSON such as `{"0": 1200}`, with `"journal": "<id>"` if it must be that journal. It is only
  looked at by a query that has no checkpoint yet
- of a batch: `since` and `until`, a time or how long ago

The columns are those of the stream; with a schema that has only some of them, only those are handed to Spark.

Spark makes a reader twice: one in a process beside the driver that lives as long as the query and is asked for offsets,
one that is sent to the workers and only ever reads. What one learns the other does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidegate.errors import PipelineError
from tidegate.pipeline.source import options
from tidegate.pipeline.source.shards import Offsets, QueryOffset, Shards, signed
from tidegate.store.journal import Selection, readers, schema, stream_named

OPTIONS: Final = ("path", "failOnDataLoss", "startingOffsets", "maxRowsPerBatch", "name")


class TidegateSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "tidegate"

    def schema(self) -> StructType:
        return columns(self._stream)

    def reader(self, schema: StructType) -> JournalReader:
        self._check()
        select = Selection(since=options.instant(self.options, "since"), until=options.instant(self.options, "until"))
        return JournalReader(opened(self.options, self._stream), schema, select)

    def streamReader(self, schema: StructType) -> JournalStreamReader:
        self._check()
        return JournalStreamReader(opened(self.options, self._stream), schema, self.options)

    def _check(self) -> None:
        options.known(self.options, *OPTIONS, "stream", "since", "until")

    @property
    def _stream(self) -> str:
        return str(self.options.get("stream", "ingest"))


class JournalReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, shards: Shards, schema: StructType, select: Selection) -> None:
        shards.check()
        self._shards = shards
        self._schema = checked(schema, shards.stream)
        self._select = select

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(each) for each in self._shards.ranges(self._shards.oldest(), self._shards.newest())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # Spark makes one of its own of none
            yield from fitted(self._shards.read(partition.value, self._select), self._schema)


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, shards: Shards, schema: StructType, given: Mapping[str, str]) -> None:
        self._shards = shards
        self._schema = checked(schema, shards.stream)
        self._starting = options.starting_offsets(given)
        self._limit = options.count(given, "maxRowsPerBatch")
        self._name = given.get("name")
        self._initial: QueryOffset | None = None
        self._target: Offsets | None = None
        self._begun = False

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    def initialOffset(self) -> QueryOffset:
        self._begin()
        if self._initial is None:
            # Spark asks again until there is a first batch; `latest` must not run away from it.
            journal = self._shards.journal()
            if isinstance(self._starting, dict):
                offsets = self._shards.own(self._starting, journal)
            elif self._starting == options.LATEST:
                offsets = self._shards.newest()
            else:
                offsets = self._shards.oldest()
            self._initial = signed(offsets, journal)
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        self._begin()
        self._target = self._shards.newest()

    def latestOffset(self, start: QueryOffset, limit: ReadLimit) -> QueryOffset:
        self._begin()
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        journal = self._shards.journal()  # before the rows are counted: whoever replaces it now is seen the next time
        offsets = self._shards.own(start, journal)
        end = self._shards.latest(offsets, rows=rows, target=self._target)
        # An offset without an id gets it with the next row: another offset would be a batch of no rows.
        return start if end == offsets else signed(end, journal)

    def reportLatestOffset(self) -> QueryOffset:
        return signed(self._shards.newest(), self._shards.journal())

    def partitions(self, start: QueryOffset, end: QueryOffset) -> list[InputPartition]:
        journal = self._shards.journal()
        ranges = self._shards.ranges(self._shards.own(start, journal), self._shards.own(end, journal))
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return fitted(self._shards.read(partition.value), self._schema)

    def commit(self, end: QueryOffset) -> None:
        """Spark is done with what is before `end`, and will not ask for it again."""
        if self._name is not None:
            readers.commit(self._readers, self._name, self._shards.own(end, self._shards.journal()))

    def _begin(self) -> None:
        """Once, in the process beside the driver."""
        if self._begun:
            return
        self._shards.check()
        if self._name is not None:
            readers.enrol(self._readers, self._name)
        self._begun = True

    @property
    def _readers(self) -> Path:
        return readers.readers_of(self._shards.path, stream_named(self._shards.stream))


def opened(given: Mapping[str, str], stream: str) -> Shards:
    path = Path(options.needed(given, "path", '.load("var/node")')).absolute()
    return Shards(path=path, stream=stream, strict=options.switch(given, "failOnDataLoss", default=True))


def columns(stream: str) -> StructType:
    return from_arrow_schema(schema(stream_named(stream)))


def checked(wanted: StructType, stream: str) -> StructType:
    """PipelineError if a column is not there, or is of another type."""
    there = {field.name: field.dataType.simpleString() for field in columns(stream)}
    for field in wanted:
        if field.name not in there:
            raise PipelineError(f"the stream {stream!r} has no column {field.name!r}; it has {', '.join(there)}")
        if field.dataType.simpleString() != there[field.name]:
            raise PipelineError(
                f"the column {field.name!r} is {there[field.name]}, not {field.dataType.simpleString()}; "
                "read it as that, and cast it afterwards"
            )
    return wanted


def fitted(batches: Iterator[pa.RecordBatch], wanted: StructType) -> Iterator[pa.RecordBatch]:
    """Only the wanted columns, and exactly of the types that Spark expects."""
    layout = to_arrow_schema(wanted, timezone="UTC")
    for batch in batches:
        if batch.schema.equals(layout):
            yield batch
        else:
            arrays = [batch.column(field.name).cast(field.type) for field in layout]
            yield pa.RecordBatch.from_arrays(arrays, schema=layout)
