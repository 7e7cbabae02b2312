"""Spark's plans for what becomes of messages: made anew for many, and once for a set of rules for few.

Planning the stages takes Spark half a second to a second, whatever there is to read. A batch of a second's messages
would spend most of its time on that, so its plan is made once and run again for every batch: which messages it reads is
set when it runs (`set_input`), in a property of the calling thread that Spark passes to every task. A task without that
property fails. Running a plan again needs care, for Spark remembers what a plan has already done:

- Rows that are moved between tasks would be taken for those of the next run. So there is one partition, from which
  nothing is moved, and a plan in which something is (`_moves`) is not kept.
- Records that are read several times are kept while a run lasts and let go before it ends.
- Whatever fails ends the plan, and the next batch has a new one. The job looks at whether rows are of their batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import PipelineError
from tidegate.pipeline import checks, series_statistics
from tidegate.pipeline.assign import assign
from tidegate.pipeline.columns import INGEST, struct
from tidegate.pipeline.lake import remaining
from tidegate.pipeline.normalise import normalise
from tidegate.pipeline.rules import Rules
from tidegate.pipeline.score import needs_history, score
from tidegate.pipeline.source.journal import fitted
from tidegate.pipeline.source.shards import Range, Shards, pieces

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_INPUT_PROPERTY: Final = "tidegate.reading"
COLUMNS: Final = tuple(column for column in INGEST if column[0] not in ("qos", "retain", "content_type", "properties"))
"""Of a message. What no stage reads goes to the lake only, which it does without Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    made: DataFrame  # records, scored and with their topics
    observed: DataFrame | None  # what they add to the history; None if the rules ask for none
    single: bool  # whether all is one partition


class Plans:
    def __init__(self, spark: SparkSession, categories: Sequence[tuple[str, str]]) -> None:
        self._spark = spark
        self._categories = categories
        self._kept: _Kept | None = None
        self._refused = ""  # rules whose plan cannot be run twice

    @contextmanager
    def once(self, messages: DataFrame, rules: Rules, known: pa.Table | None) -> Iterator[Plan]:
        """A new one, which is run until the end of the block. `known` is the history, if the rules ask for it."""
        with ExitStack() as kept:
            records = normalise(messages, rules, categories=self._categories)
            if checks.needed(rules.scores):
                records = persisted(records, kept)  # they are read for what is usual among them, and once more
            history = None if known is None else series_statistics.frame(self._spark, known)
            yield _planned(records, rules, history, single=False)

    @contextmanager
    def again(self, messages: Callable[[], DataFrame], rules: Rules, known: pa.Table | None) -> Iterator[Plan]:
        """That which was made before, if the rules are the same; `messages` are one partition, and `reading` is told
        of the file of what is known.

        Nothing that is made of it may be read after the block but what was computed in it. Only for Spark in this
        process: on a cluster a worker that was away for a moment may have rows of another batch.
        """
        if self._kept is None or self._kept.version != rules.version_text:
            self.forget()
            if rules.version_text != self._refused:
                self._kept = self._repeatable(messages(), rules)
                self._refused = rules.version_text if self._kept is None else ""
        if self._kept is None:
            with self.once(messages(), rules, known) as plan:
                yield plan
            return
        try:
            with self._kept.running() as plan:
                yield plan
        except BaseException:
            self.forget()
            raise

    def forget(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _repeatable(self, messages: DataFrame, rules: Rules) -> _Kept | None:
        """None if it cannot be run twice."""
        records, rows = normalise(messages, rules, categories=self._categories).coalesce(1), None
        history = history_frame(self._spark) if needs_history(rules) else None
        with ExitStack() as undo:
            if checks.needed(rules.scores):
                rows = records.persist()
                undo.callback(rows.unpersist)
                records = rows.coalesce(1)
            kept = _Kept(rules.version_text, _planned(records, rules, history, single=True), rows)
            if kept.moves:
                return None
            undo.pop_all()
            return kept


def _planned(records: DataFrame, rules: Rules, history: DataFrame | None, *, single: bool) -> Plan:
    records_made = assign(score(records, rules, baselines=history, single=single), rules)
    return Plan(
        made=records_made, observed=None if history is None else series_statistics.observed(records), single=single
    )


class _Kept:
    """A plan that is run again and again, and the records in it that are computed once in each run."""

    def __init__(self, version: str, plan: Plan, records: DataFrame | None) -> None:
        self.version = version
        self._plan = plan
        self._records = records
        self._cache = None if records is None else records._jdf.queryExecution().withCachedData().cacheBuilder()

    @property
    def moves(self) -> bool:
        frames = [self._plan.made] if self._plan.observed is None else [self._plan.made, self._plan.observed]
        plans = [frame._jdf.queryExecution().executedPlan() for frame in frames]
        return any(map(_moves, plans if self._cache is None else [*plans, self._cache.cachedPlan()]))

    @contextmanager
    def running(self) -> Iterator[Plan]:
        try:
            yield self._plan
        finally:
            if self._cache is not None:  # only the rows go; it waits until they are gone
                rows = self._cache.cachedColumnBuffers()
                rows.sparkContext().unpersistRDD(rows.id(), True)

    def close(self) -> None:
        if self._records is not None:
            with suppress(Exception):  # Spark may be gone
                self._records.unpersist()


def persisted(frame: DataFrame, kept: ExitStack, *, single: bool = False) -> DataFrame:
    """The frame as its rows only: what is made of it is planned without what it was made of, which is long.

    `single`: it is one partition, and Spark is to know that.
    """
    rows = frame.localCheckpoint(eager=False)
    kept.callback(_let_go, rows, frame)  # the frame, too: its plan counts rows, and Spark complains if it is gone
    return rows.coalesce(1) if single else rows


def _let_go(rows: DataFrame, _: DataFrame) -> None:
    rows._jdf.queryExecution().logical().rdd().unpersist(False)


def _moves(plan: Any) -> bool:
    """Whether rows go from one task to another in it, or may: what is adaptive is not known before it runs."""
    if "Exchange" in plan.nodeName() or "Adaptive" in plan.nodeName():
        return True
    below = plan.children()
    return any(_moves(below.apply(number)) for number in range(below.size()))


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


def history_frame(spark: SparkSession) -> DataFrame:
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
