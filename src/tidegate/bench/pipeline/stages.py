"""What each stage costs: stage after stage is added, and the rows go nowhere (Spark's `noop`).

The difference to the stage before is the stage's. All of it is computed in one go here, where the job keeps some of it
in between; so the figures tell stages from each other, and not how fast the job is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.bench.pipeline.site import Site
    from tidegate.pipeline.rules import Rules

READ, NORMALISE, SCORE, ASSIGN, PROTECT = STAGES = ("read", "normalise", "score", "assign", "protect")
FOREVER = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One, with all before it."""

    name: str
    seconds: tuple[float, ...]
    """Of each round."""


def measure(spark: SparkSession, site: Site, *, rounds: int, before: Callable[[str], None]) -> Iterator[Stage]:
    """Over everything in the journal. The job must have run over it: what is usual is known from there."""
    frame = read(spark, site)
    for name, add in _adding(spark, site):
        before(f"stages: {name}")
        frame = add(frame)
        times = [_run(frame) for _ in range(rounds + 1)]  # the first generates the code
        yield Stage(name=name, seconds=tuple(times[1:]))


def read(spark: SparkSession, site: Site) -> DataFrame:
    from tidegate.pipeline.source import register

    register(spark)
    return spark.read.format("tidegate").option("stream", "ingest").load(str(site.data))


def _adding(spark: SparkSession, site: Site) -> Iterator[tuple[str, Callable[[DataFrame], DataFrame]]]:
    from tidegate.pipeline import baseline
    from tidegate.pipeline.assign import assign
    from tidegate.pipeline.baseline import Baselines
    from tidegate.pipeline.folders import Folders
    from tidegate.pipeline.normalise import normalise
    from tidegate.pipeline.score import score

    config = site.config()
    rules = _rules(site)
    known = baseline.frame(spark, Baselines(Folders.of(config).baselines).before(FOREVER))
    yield READ, lambda frame: frame
    yield (
        NORMALISE,
        lambda frame: normalise(frame, rules, categories=[(one.topic, one.category) for one in config.classify]),
    )
    yield SCORE, lambda frame: score(frame, rules, baselines=known)
    yield ASSIGN, lambda frame: assign(frame, rules)
    yield PROTECT, lambda frame: _protected(spark, site, frame)


def _protected(spark: SparkSession, site: Site, frame: DataFrame) -> DataFrame:
    """With the keys that the node gives for these records."""
    from pyspark.sql import functions as F

    from tidegate.pipeline import protect
    from tidegate.pipeline.station import Station, Wanted

    addressed = frame.where(F.col("target").isNotNull())
    found = addressed.groupBy("target", "context", protect.origin().alias("origin")).count().collect()
    wanted = {Wanted(target=row[0], context=bytes(row[1]), origin=row[2]): row[3] for row in found}
    return protect.protect(frame, protect.keys(spark, Station(site.config().control_socket).keys(wanted)))


def _rules(site: Site) -> Rules:
    from tidegate.pipeline.rules import parse

    file = site.folder / "rules.yaml"
    return parse(file.read_text(), str(file))


def _run(frame: DataFrame) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def cost(stages: Sequence[Stage], messages: int) -> dict[str, float]:
    """Microseconds of each stage for one message; never less than nothing."""
    found, so_far = {}, 0.0
    for stage in stages:
        middle = median(stage.seconds)
        found[stage.name] = max(0.0, middle - so_far) / messages * 1e6
        so_far = max(so_far, middle)
    return found
