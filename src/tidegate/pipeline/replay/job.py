"""A replay on Spark: one task for each part of the journal, with the gate itself in `mapInArrow`.

Tasks are independent and keep a bounded number of sums, which Spark adds up. Only the largest groups come back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidegate.config import Config
from tidegate.errors import PipelineError
from tidegate.pipeline.columns import F
from tidegate.pipeline.replay import report
from tidegate.pipeline.replay.partitions import LEAST, Work, partitions, replay, span
from tidegate.pipeline.replay.report import Change, Decision, Group, Report, Series

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TOLD: Final = 1000  # groups that are told, the largest first
DRAWN: Final = 8  # names in a picture, the largest first; the rest is one
REST: Final = "others"
WAVES: Final = 4  # tasks for each that can run at once, so that none waits long for the slowest
LOOK: Final = 0.2  # seconds between two looks at how far it is
_KEYS: Final = report.COLUMNS[2 : report.COLUMNS.index("bucket")]

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
        whole=whole,
    )

    def decide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from replay(work, tasks[number])

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(decide, report.SPARK)
    sums_frame = added_up(frame, "kind", "name", *_KEYS, "bucket").persist()
    try:
        with watching(spark, progress, len(tasks)):
            sums = {row["name"]: row["count"] for row in sums_frame.filter(f"kind = '{report.TOTAL}'").collect()}
        undecided = sums_frame.filter(f"kind = '{report.UNDECIDED}'").orderBy("count", ascending=False)
        reasons = {row["name"]: row["count"] for row in undecided.collect()}
        changes = sums_frame.filter(f"kind = '{report.CHANGE}'")
        grouped, groups = _groups(changes)
        by_rule, by_subject = (_series(changes, name) for name in (_RULE, "who"))
    finally:
        sums_frame.unpersist()
    totals = dict.fromkeys(report.TOTALS, 0) | sums
    return Report(
        since=whole.low,
        until=whole.high,
        width=whole.width,
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


_RULE: Final = "if(after_allowed and not before_allowed, before_rule, after_rule)"
"""What a change is put down to: the rule that denies, then or now."""


def added_up(frame: DataFrame, *keys: str) -> DataFrame:
    return frame.groupBy(*keys).agg(
        F.sum("count").alias("count"), F.min("first").alias("first"), F.max("last").alias("last")
    )


def _groups(changes: DataFrame) -> tuple[int, tuple[Group, ...]]:
    alike = added_up(changes, *_KEYS)
    largest = alike.orderBy(F.desc("count"), *_KEYS).limit(TOLD).collect()
    number = len(largest) if len(largest) < TOLD else alike.count()
    groups = []
    for who, action, topic, publisher, *decisions, count, first, last in largest:
        change = Change(who, action, topic, publisher, Decision(*decisions[:3]), Decision(*decisions[3:]))
        groups.append(Group(change=change, count=count, first=first, last=last))
    return number, tuple(groups)


def _series(changes: DataFrame, by: str) -> Series:
    """By time, for the names with most changes; the rest together."""
    named = changes.select(F.expr(by).alias("label"), "bucket", "count")
    largest = named.groupBy("label").agg(F.sum("count").alias("count")).orderBy(F.desc("count"), "label").limit(DRAWN)
    names = [row["label"] for row in largest.collect()]
    label = F.when(F.col("label").isin(names), F.col("label")).otherwise(F.lit(REST)).alias("label")
    rows = named.select(label, "bucket", "count").groupBy("label", "bucket").agg(F.sum("count").alias("count"))
    series: dict[str, dict[int, int]] = {name: {} for name in names}
    for row in rows.collect():
        series.setdefault(row["label"], {})[row["bucket"]] = row["count"]
    return series


@contextmanager
def watching(spark: SparkSession, progress: Progress | None, partitions: int) -> Iterator[None]:
    """Tells how far Spark is, from a thread of its own, while something else waits for it."""
    if progress is None:
        yield
        return
    tracker = spark.sparkContext.statusTracker()
    known = set(tracker.getJobIdsForGroup(None))
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK):
            done = 0
            for job in set(tracker.getJobIdsForGroup(None)) - known:
                for stage in getattr(tracker.getJobInfo(job), "stageIds", ()):
                    info = tracker.getStageInfo(stage)
                    if info is not None and info.numTasks == partitions:
                        done = max(done, info.numCompletedTasks)
            progress(done, partitions)

    thread = threading.Thread(target=watch, name="tidegate-replay", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        progress(partitions, partitions)
