"""All stages for one batch: what came in becomes records, which go to the lake and to the node.

Both at once: a record may be read by a subscriber a moment before it is in the lake. A batch that fails in between is
made again, alike (see `ledger`), and neither has anything twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from tidegate.config import Config
from tidegate.pipeline import decrypt, plans, protect, series_statistics
from tidegate.pipeline.columns import RECORD, F
from tidegate.pipeline.decrypt import KeyRequests
from tidegate.pipeline.folders import Folders
from tidegate.pipeline.lake import Counts, Lake
from tidegate.pipeline.ledger import Batch, Ledger
from tidegate.pipeline.node_client import NodeClient, Outcome, StaleKeys
from tidegate.pipeline.plans import Plan, Plans, persisted
from tidegate.pipeline.protect import Wanted
from tidegate.pipeline.publish import publish
from tidegate.pipeline.rules import Rules
from tidegate.pipeline.score import needs_history
from tidegate.pipeline.series_statistics import StatisticsStore
from tidegate.pipeline.source.shards import Range, Shards, pieces

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SMALL: Final = 20_000
"""Messages up to which a batch is one task. At about so many that takes as long as a new plan and all cores."""
ATTEMPTS: Final = 3  # at sealing a batch
ROOM: Final = 64 << 20  # bytes of records that are taken from Spark at once
A = TypeVar("A")

log = structlog.get_logger("tidegate.pipeline")


class Stages:
    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        node: NodeClient,
        ledger: Ledger,
        lake: Lake,
        *,
        publishing: bool = True,
    ) -> None:
        self.categories = [(each.topic, each.category) for each in config.classify]
        self._spark = spark
        self._config = config
        self._node = node
        self._ledger = ledger
        self._lake = lake
        self._publishing = publishing
        self._folders = Folders.of(config)
        self.journal = Shards(path=self._folders.data.absolute(), stream="ingest")
        self._baselines = StatisticsStore(self._folders.baselines(ledger.journal))
        self._plans = Plans(spark, self.categories)
        self._here = spark.sparkContext.master.partition("[")[0] == "local"  # and not on a cluster

    def through(
        self, ranges: Sequence[Range], key_requests: KeyRequests, rules: Rules, batch: Batch, *, messages: int
    ) -> tuple[Counts, Outcome]:
        """The messages of a batch, with the questions that those among them pose which are sealed.

        `messages`: how many there are, without those of people who have been erased. RuntimeError if Spark has read
        others.
        """
        known = self._baselines.before(batch.number) if needs_history(rules) else None
        plans.set_input(self._spark, ranges, self._baselines.began)
        with ExitStack() as kept:
            with self._plan(ranges, key_requests, rules, known) as plan:
                after = None
                with ExitStack() as beside:
                    if known is not None and plan.observed is not None:
                        update = partial(series_statistics.updated, known, plan.observed)
                        after = beside.enter_context(_meanwhile(self._spark, update))
                    records = persisted(plan.made, kept, single=plan.single)
                    goes = _addressed(records, ranges)
                learnt = None if after is None else after.result()
                if goes.messages != messages:
                    raise RuntimeError(f"of {messages} messages {goes.messages} were read")
            if learnt is not None:
                self._baselines.keep(batch.number, learnt)
            publishing = self._publishing and bool(rules.topics)
            return self._out(records, goes, batch, publishing=publishing)

    def _plan(
        self, ranges: Sequence[Range], key_requests: KeyRequests, rules: Rules, known: pa.Table | None
    ) -> AbstractContextManager[Plan]:
        sealed = bool(key_requests.found) and self._config.keys.any  # then there is another table in it each time
        few = sum(each.stop - each.start for each in ranges) <= SMALL
        if few and not sealed and self._here:
            return self._plans.again(partial(self.messages, 1), rules, known)
        rows = self.messages(sum(len(pieces(each)) for each in ranges))
        if sealed:
            rows = decrypt.decrypt(self._spark, rows, self._node.open(sorted(key_requests.found)))
        return self._plans.once(rows, rules, known)

    def close(self) -> None:
        self._plans.forget()

    def messages(self, tasks: int) -> DataFrame:
        """Those that `reading` is told of."""
        return plans.messages(self._spark, self.journal, self._folders.lake.absolute(), tasks=tasks)

    def _out(
        self, records_made: DataFrame, goes: _Addressed, batch: Batch, *, publishing: bool
    ) -> tuple[Counts, Outcome]:
        """Protected, into the lake, and to the node. Keys may be gone before that is done; then with others."""
        for attempt in range(1, ATTEMPTS + 1):
            protected, refused = self._protected(records_made, goes.wanted, batch)
            records = decrypt.redact(protected, (*self._config.keys.protect, *self._config.keys.end_to_end))
            rows = records.toArrow() if goes.few else records  # a table is one plan for both
            try:
                with _meanwhile(self._spark, partial(self._lake.write_records, rows, batch.name)) as written:
                    outcome = publish(rows, self._node, self._ledger, batch) if publishing else Outcome()
                counts = written.result()
                outcome.denied.update(refused)
            except StaleKeys:
                if attempt == ATTEMPTS:
                    raise
                log.warning("the keys of a batch are gone; it is sealed again", batch=batch.name)
                self._node.forget()
                batch = self._ledger.renewed(batch)
            else:
                return counts, outcome
        raise AssertionError

    def _protected(
        self, records: DataFrame, wanted: Mapping[Wanted, int], batch: Batch
    ) -> tuple[DataFrame, Counter[str]]:
        """Also how many are refused already, by which rule: they have no message, and go to the lake only."""
        if not wanted:
            return protect.unprotected(records), Counter()
        answers = self._node.keys(wanted, again=batch.keys)
        self._ledger.keyed(batch, [answer.key_id for answer in answers if answer.key_id is not None])
        refused: Counter[str] = Counter()
        for answer in answers:
            if answer.denied is not None:
                refused[answer.denied] += wanted[answer.wanted]
        return protect.protect(records, protect.keys(self._spark, answers)), refused


@dataclass(slots=True)
class _Addressed:
    """Which topics records go to, from where, and how many; and what else they come to."""

    wanted: Counter[Wanted] = field(default_factory=Counter)
    messages: int = 0
    records: int = 0
    size: int = 0  # bytes, about

    @property
    def few(self) -> bool:
        return self.records <= SMALL and self.size <= ROOM


def _addressed(records: DataFrame, ranges: Sequence[Range]) -> _Addressed:
    """RuntimeError if a record is not of these messages: Spark would have read another batch."""
    goes = F.col("target").isNotNull()
    groups = (
        "shard",
        "target",
        F.when(goes, F.col("context")).alias("context"),
        F.when(goes, protect.origin()).alias("origin"),
    )
    size = F.lit(0)
    for name, kind in RECORD:
        if kind in ("string", "binary"):
            size = size + 2 * F.coalesce(F.octet_length(name), F.lit(0))  # once more, in the message
    figures = (
        F.count("*"),
        F.count_if(F.col("part") == 0),  # each message has one
        F.min("offset"),
        F.max("offset"),
        F.sum(size),
    )
    rows = records.groupBy(*groups).agg(*figures).collect()
    seen = _Addressed()
    for shard, target, context, origin, count, messages, first, last, room in rows:
        if not any(each.shard == shard and each.start <= first and last < each.stop for each in ranges):
            raise RuntimeError(f"rows of shard {shard} from {first} to {last} are not of this batch")
        seen.messages += messages
        seen.records += count
        seen.size += room
        if target is not None and context is not None:
            asked = Wanted(target=target, context=bytes(context), origin=origin)
            seen.wanted[asked] += count
    return seen


@contextmanager
def _meanwhile(spark: SparkSession, do: Callable[[], A]) -> Iterator[Future[A]]:
    """Done beside the block, and at its end: half of what a small batch takes is Spark thinking, on one core."""
    from pyspark import inheritable_thread_target

    with ThreadPoolExecutor(1, thread_name_prefix="tidegate-meanwhile") as thread:
        yield thread.submit(inheritable_thread_target(spark)(do))
