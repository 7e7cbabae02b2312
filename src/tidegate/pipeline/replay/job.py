"""A replay on Spark: one task for each part of the journal, with the gate itself in `mapInArrow`.

Tasks are independent and keep a bounded number of sums, which Spark adds up. Only the largest groups come back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from tidegate.config import Config
from tidegate.errors import PipelineError
from tidegate.pipeline.replay import report, tally
from tidegate.pipeline.replay.partitions import BUCKETS, LEAST, Partition, Work, partitions, replay, span
from tidegate.pipeline.replay.report import Group, Report, Series
from tidegate.pipeline.replay.tally import Decision

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

TOLD: Final = 1000  # groups that are told, the largest first
DRAWN: Final = 8  # names in a picture, the largest first; the rest is one
REST: Final = "others"
WAVES: Final = 4  # tasks for each that can run at once, so that none waits long for the slowest
LOOK: Final = 0.2  # seconds between two looks at how far it is
_KEYS: Final = tally.COLUMNS[2 : tally.COLUMNS.index("bucket")]

Progress = Callable[[int, int], None]


def run(
    spark: SparkSession,
    before: Config,
    after: Config,
    *,
    since: float,
    until: float,
    progress: Progress | None = None,
    least: int = LEAST,
) -> Report:
    """Decides the recorded traffic of a time by two configurations. `progress` is told parts done, and all of them."""
    data = before.node.data
    if data is None:
        raise PipelineError("the configuration has no `node.data`, so nothing was recorded; set it, and record traffic")
    begun = time.monotonic()
    whole = span(data, since, until)
    tasks = partitions(data, whole, WAVES * spark.sparkContext.defaultParallelism, least)
    work = Work(
        data=data.absolute(),
        node=before.node.name,
        before=before.built.rules,
        after=after.built.rules,
        since=since,
        until=until,
        low=whole.low,
        width=max((whole.high - whole.low) / BUCKETS, 1e-3),
    )
    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_decided(work, tasks), tally.SPARK)
    sums_frame = frame.groupBy("kind", "name", *_KEYS, "bucket").agg(
        {"count": "sum", "first": "min", "last": "max"}  # columns are named after what is done with them
    )
    sums_frame = sums_frame.withColumnsRenamed(
        {"sum(count)": "count", "min(first)": "first", "max(last)": "last"}
    ).persist()
    try:
        with _Watching(spark, progress, len(tasks)):
            sums = {row["name"]: row["count"] for row in sums_frame.filter(f"kind = '{tally.TOTAL}'").collect()}
        undecided = sums_frame.filter(f"kind = '{tally.UNDECIDED}'").orderBy("count", ascending=False)
        reasons = {row["name"]: row["count"] for row in undecided.collect()}
        changes = sums_frame.filter(f"kind = '{tally.CHANGE}'")
        grouped, groups = _groups(changes)
        by_rule, by_subject = (_series(changes, name) for name in (_RULE, "who"))
    finally:
        sums_frame.unpersist()
    totals = dict.fromkeys(tally.TOTALS, 0) | sums
    return Report(
        since=whole.low,
        until=whole.high,
        width=work.width,
        totals=totals,
        groups=groups,
        grouped=grouped,
        undecided=reasons,
        by_rule=by_rule,
        by_subject=by_subject,
        notes=tuple(report.notes(totals, cut=whole.cut)),
        seconds=time.monotonic() - begun,
        rows=whole.stop - whole.start,
    )


def _decided(work: Work, tasks: list[Partition]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decided(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from replay(work, tasks[number])

    return decided


_RULE: Final = "if(after_allowed and not before_allowed, before_rule, after_rule)"
"""What a change is put down to: the rule that denies, then or now."""


def _groups(changes: DataFrame) -> tuple[int, tuple[Group, ...]]:
    from pyspark.sql import functions as f

    alike = changes.groupBy(*_KEYS).agg(
        f.sum("count").alias("count"), f.min("first").alias("first"), f.max("last").alias("last")
    )
    largest = alike.orderBy(f.desc("count"), *_KEYS).limit(TOLD).collect()
    number = len(largest) if len(largest) < TOLD else alike.count()
    return number, tuple(map(_group, largest))


def _group(row: Row) -> Group:
    return Group(
        who=row["who"],
        action=row["action"],
        topic=row["topic"],
        publisher=row["publisher"],
        before=Decision(row["before_allowed"], row["before_rule"], row["before_sees"]),
        after=Decision(row["after_allowed"], row["after_rule"], row["after_sees"]),
        count=row["count"],
        first=row["first"],
        last=row["last"],
    )


def _series(changes: DataFrame, by: str) -> tuple[Series, ...]:
    """By time, for the names with most changes; the rest together."""
    from pyspark.sql import functions as f

    named = changes.select(f.expr(by).alias("label"), "bucket", "count")
    largest = named.groupBy("label").agg(f.sum("count").alias("count")).orderBy(f.desc("count"), "label").limit(DRAWN)
    names = [row["label"] for row in largest.collect()]
    label = f.when(f.col("label").isin(names), f.col("label")).otherwise(f.lit(REST)).alias("label")
    rows = named.select(label, "bucket", "count").groupBy("label", "bucket").agg(f.sum("count").alias("count"))
    series: dict[str, dict[int, int]] = {name: {} for name in names}
    for row in rows.collect():
        series.setdefault(row["label"], {})[row["bucket"]] = row["count"]
    return tuple(Series(name=name, counts=counts) for name, counts in series.items())


class _Watching:
    """Tells how far Spark is, from a thread of its own, while something else waits for it."""

    def __init__(self, spark: SparkSession, progress: Progress | None, partitions: int) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._known = set(self._tracker.getJobIdsForGroup(None))
        self._progress = progress
        self._parts = partitions
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tidegate-replay", daemon=True)

    def __enter__(self) -> None:
        if self._progress is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._progress is not None:
            self._thread.join()
            self._progress(self._parts, self._parts)

    def _watch(self) -> None:
        assert self._progress is not None
        while not self._over.wait(LOOK):
            done = 0
            for job in set(self._tracker.getJobIdsForGroup(None)) - self._known:
                for stage in getattr(self._tracker.getJobInfo(job), "stageIds", ()):
                    info = self._tracker.getStageInfo(stage)
                    if info is not None and info.numTasks == self._parts:
                        done = max(done, info.numCompletedTasks)
            self._progress(done, self._parts)
