"""All stages for one batch: what came in becomes records, which go to the lake and to the node.

Both at once: a record may be read by a subscriber a moment before it is in the lake. A batch that fails in between is
made again, alike (see `ledger`), and neither has anything twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from tidegate.config import Config
from tidegate.pipeline import baseline, checks, opening, protect
from tidegate.pipeline.assign import assign
from tidegate.pipeline.baseline import Baselines
from tidegate.pipeline.folders import Folders
from tidegate.pipeline.lake import Counts, Lake
from tidegate.pipeline.ledger import Batch, Ledger
from tidegate.pipeline.normalise import normalise
from tidegate.pipeline.opening import Questions
from tidegate.pipeline.publish import Outcome, publish
from tidegate.pipeline.rules import Rules
from tidegate.pipeline.score import needs_history, score
from tidegate.pipeline.station import StaleKeys, Station, Wanted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ATTEMPTS: Final = 3  # at sealing a batch
A = TypeVar("A")

log = structlog.get_logger("tidegate.pipeline")


class Stages:
    """Those of one job."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        station: Station,
        ledger: Ledger,
        lake: Lake,
        *,
        publishing: bool = True,
    ) -> None:
        self.categories = [(one.topic, one.category) for one in config.classify]
        self._spark = spark
        self._config = config
        self._station = station
        self._ledger = ledger
        self._lake = lake
        self._publishing = publishing
        self._baselines = Baselines(Folders.of(config).baselines)

    def through(self, rows: DataFrame, questions: Questions, rules: Rules, batch: Batch) -> tuple[Counts, Outcome]:
        """The messages of a batch, with the questions that those among them pose which are sealed."""
        with ExitStack() as kept:
            made = self._made(self._opened(self._lake.remaining(rows), questions), rules, batch, kept)
            return self._out(made, batch, publishing=self._publishing and bool(rules.topics))

    def _opened(self, rows: DataFrame, questions: Questions) -> DataFrame:
        if not questions.found or not self._config.keys.any:
            return rows
        return opening.opened(self._spark, rows, self._station.open(sorted(questions.found)))

    def _made(self, rows: DataFrame, rules: Rules, batch: Batch, kept: ExitStack) -> DataFrame:
        """The records, scored and with their topics; and what they add to the history. Kept for as long as said."""
        records = normalise(rows, rules, categories=self.categories)
        if checks.needed(rules.scores):
            records = _persisted(records, kept)  # they are read for what is usual among them, and once more
        if not needs_history(rules):
            return _persisted(assign(score(records, rules), rules), kept)
        known = self._baselines.before(batch.number)
        with _meanwhile(lambda: baseline.updated(known, records)) as later:
            scored = score(records, rules, baselines=baseline.frame(self._spark, known))
            made = _persisted(assign(scored, rules), kept)
        self._baselines.keep(batch.number, later.result())
        return made

    def _out(self, made: DataFrame, batch: Batch, *, publishing: bool) -> tuple[Counts, Outcome]:
        """Protected, into the lake, and to the node. Keys may be gone before that is done; then with others."""
        wanted, faulty = _addressed(made)
        for attempt in range(1, ATTEMPTS + 1):
            protected, refused = self._protected(made, wanted, batch)
            kept = opening.concealed(protected, (*self._config.keys.protect, *self._config.keys.end_to_end))
            write = partial(self._lake.write_records, kept, batch.name, rows=batch.messages, faulty=bool(faulty))
            try:
                with _meanwhile(write) as written:
                    outcome = publish(protected, self._station, self._ledger, batch) if publishing else Outcome()
                counts = written.result()
                for rule, count in refused.items():
                    outcome.denied[rule] = outcome.denied.get(rule, 0) + count
            except StaleKeys:
                if attempt == ATTEMPTS:
                    raise
                log.warning("the keys of a batch are gone; it is sealed again", batch=batch.name)
                self._station.forget()
                batch = self._ledger.renewed(batch)
            else:
                return counts, outcome
        raise AssertionError

    def _protected(
        self, made: DataFrame, wanted: Mapping[Wanted, int], batch: Batch
    ) -> tuple[DataFrame, dict[str, int]]:
        """Also how many are refused already, by which rule: they have no message, and go to the lake only."""
        if not wanted:
            return protect.unprotected(made), {}
        answers = self._station.keys(wanted, again=batch.keys)
        self._ledger.keyed(batch, [one.key_id for one in answers if one.key_id is not None])
        refused: dict[str, int] = {}
        for one in answers:
            if one.denied is not None:
                asked = Wanted(target=one.target, context=one.context, origin=one.origin)
                refused[one.denied] = refused.get(one.denied, 0) + wanted[asked]
        return protect.protect(made, protect.keys(self._spark, answers)), refused


def _addressed(made: DataFrame) -> tuple[dict[Wanted, int], int]:
    """Which topics records go to, from where, and how many; and how many records are faulty."""
    from pyspark.sql import functions as F

    goes = F.col("target").isNotNull()
    groups = (
        "target",
        F.when(goes, F.col("context")).alias("context"),
        F.when(goes, protect.origin()).alias("origin"),
        F.col("fault").isNotNull().alias("faulty"),
    )
    wanted, faulty = {}, 0
    for target, context, origin, wrong, count in made.groupBy(*groups).count().collect():
        if wrong:
            faulty += count
        elif target is not None and context is not None:
            wanted[Wanted(target=target, context=bytes(context), origin=origin)] = count
    return wanted, faulty


def _persisted(frame: DataFrame, kept: ExitStack) -> DataFrame:
    """The frame as its rows only: what is made of it is planned without what it was made of, which is long."""
    frame = frame.localCheckpoint(eager=False)
    kept.callback(lambda: frame._jdf.queryExecution().logical().rdd().unpersist(False))
    return frame


@contextmanager
def _meanwhile(do: Callable[[], A]) -> Iterator[Future[A]]:
    """Done beside the block, and at its end: half of what a small batch takes is Spark thinking, on one core."""
    with ThreadPoolExecutor(1, thread_name_prefix="tidegate-meanwhile") as thread:
        yield thread.submit(do)
