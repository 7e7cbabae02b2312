"""The uses of recorded traffic: of all parts of the journal on Spark, or of all of it here.

Both add up the same rows (`uses.collect`), so that the same proposals come of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.config import Config
from tidegate.learn.table import Row
from tidegate.pipeline.replay.partitions import LEAST, Work, partitions, span
from tidegate.pipeline.replay.uses import SPARK, as_rows, collect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Progress = Callable[[int, int], None]
_PIECES: Final = 20
"""Parts of a journal that is read here, so that there is progress to tell."""
_KEYS: Final = ("user", "client", "action", "topic", "hour", "rule", "detail")


def _work(config: Config, data: Path, since: float, until: float) -> Work:
    rules = config.built.rules
    whole = span(data, since, until)
    return Work(
        data=data.absolute(),
        node=config.node.name,
        before=rules,
        after=rules,
        since=since,
        until=until,
        whole=whole,
    )


def uses_here(
    config: Config, data: Path, *, since: float, until: float, progress: Progress | None = None
) -> Iterator[Row]:
    work = _work(config, data, since, until)
    parts = partitions(data, work.whole, _PIECES)
    for number, part in enumerate(parts, 1):
        for batch in collect(work, part, config.node.timezone):
            yield from as_rows(batch)
        if progress is not None:
            progress(number, len(parts))


def uses_on_spark(
    spark: SparkSession,
    config: Config,
    data: Path,
    *,
    since: float,
    until: float,
    progress: Progress | None = None,
    least: int = LEAST,
) -> Iterator[Row]:
    from tidegate.pipeline.replay.job import WAVES, added_up, watching

    work = _work(config, data, since, until)
    zone = config.node.timezone
    tasks = partitions(data, work.whole, WAVES * spark.sparkContext.defaultParallelism, least)

    def decide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from collect(work, tasks[number], zone)

    frame = added_up(spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(decide, SPARK), *_KEYS)
    with watching(spark, progress, len(tasks)):
        yield from (tuple(row) for row in frame.toLocalIterator())
