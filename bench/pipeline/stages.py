"""What each stage costs: stage after stage is added, and the rows go nowhere (Spark's `noop`).

The difference to the stage before is the stage's. What the job keeps in order to read it twice is kept here, too; what
it keeps for the tables of the lake is not: the figures tell stages from each other, and not how fast the job is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bench.pipeline.deployment import Site
    from tidegate.pipeline.rules import Rules

READ, NORMALISE, SCORE, ASSIGN, PROTECT = STAGES = ("read", "normalise", "score", "assign", "protect")
FOREVER = 1 << 62

Add: TypeAlias = "Callable[[DataFrame, ExitStack], DataFrame]"
"""One stage more; what it keeps is let go with the stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One, with all before it."""

    name: str
    seconds: tuple[float, ...]
    """Of each round."""


def measure(spark: SparkSession, site: Site, *, rounds: int, before: Callable[[str], None]) -> Iterator[Stage]:
    """Over everything in the journal. The job must have run over it: what is usual is known from there."""
    added: list[Add] = []
    for name, add in _adding(spark, site):
        before(f"stages: {name}")
        added.append(add)
        times = [_run(spark, site, added) for _ in range(rounds + 1)]  # the first generates the code
        yield Stage(name=name, seconds=tuple(times[1:]))


def read(spark: SparkSession, site: Site) -> DataFrame:
    from tidegate.pipeline.source import register

    register(spark)
    return spark.read.format("tidegate").option("stream", "ingest").load(str(site.data))


def _adding(spark: SparkSession, site: Site) -> Iterator[tuple[str, Add]]:
    from tidegate.pipeline import checks, protect, series_statistics
    from tidegate.pipeline.assign import assign
    from tidegate.pipeline.folders import Folders
    from tidegate.pipeline.normalise import normalise
    from tidegate.pipeline.plans import persisted
    from tidegate.pipeline.score import score
    from tidegate.pipeline.series_statistics import StatisticsStore
    from tidegate.store.journal import journal_id

    config, rules = site.config(), _rules(site)
    categories = [(one.topic, one.category) for one in config.classify]
    folders = Folders.of(config)
    history = StatisticsStore(folders.baselines(journal_id(folders.data)))
    known = series_statistics.frame(spark, history.before(FOREVER))

    def normalised(frame: DataFrame, _: ExitStack) -> DataFrame:
        return normalise(frame, rules, categories=categories)

    def scored(frame: DataFrame, kept: ExitStack) -> DataFrame:
        records = persisted(frame, kept) if checks.needed(rules.scores) else frame  # as the job does
        return score(records, rules, baselines=known)

    def assigned(frame: DataFrame, _: ExitStack) -> DataFrame:
        return assign(frame, rules)

    yield READ, lambda frame, _: frame
    yield NORMALISE, normalised
    yield SCORE, scored
    yield ASSIGN, assigned
    with ExitStack() as kept:
        keys = _keys(spark, site, _made(spark, site, (normalised, scored, assigned), kept))
    yield PROTECT, lambda frame, _: protect.protect(frame, keys)


def _keys(spark: SparkSession, site: Site, made: DataFrame) -> DataFrame:
    """Those that the node gives for these records."""
    from pyspark.sql import functions as F

    from tidegate.pipeline import protect
    from tidegate.pipeline.node_client import NodeClient
    from tidegate.pipeline.protect import Wanted

    addressed = made.where(F.col("target").isNotNull())
    found = addressed.groupBy("target", "context", protect.origin().alias("origin")).count().collect()
    wanted = {Wanted(target=row[0], context=bytes(row[1]), origin=row[2]): row[3] for row in found}
    return protect.keys(spark, NodeClient(site.config().control_socket).keys(wanted))


def _made(spark: SparkSession, site: Site, added: Sequence[Add], kept: ExitStack) -> DataFrame:
    frame = read(spark, site)
    for add in added:
        frame = add(frame, kept)
    return frame


def _rules(site: Site) -> Rules:
    from tidegate.pipeline.rules import parse

    file = site.folder / "rules.yaml"
    return parse(file.read_text(), str(file))


def _run(spark: SparkSession, site: Site, added: Sequence[Add]) -> float:
    with ExitStack() as kept:
        frame = _made(spark, site, added, kept)
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
