"""The job: batches of the journal go through the stages, into the lake, and to the node.

A batch, in this order: its offsets and rules are written to the ledger; its messages go to the lake as they came; its
records go there and to the node (see `stages`); it counts as done. A crash at any moment makes the batch again from the
start: the lake overwrites, the node is sent what is missing (see `ledger`).

The job holds a lock: one for a node. It stops between batches.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from tidegate.config import Config
from tidegate.errors import PipelineError
from tidegate.pipeline import plans
from tidegate.pipeline.active_rules import ActiveRules
from tidegate.pipeline.assign import assign
from tidegate.pipeline.columns import INGEST, F, struct
from tidegate.pipeline.decrypt import KeyRequests
from tidegate.pipeline.folders import READER, Folders, alone
from tidegate.pipeline.lake import Lake
from tidegate.pipeline.lake.maintenance import maintain
from tidegate.pipeline.ledger import Batch, Ledger, name_of
from tidegate.pipeline.node_client import NodeClient
from tidegate.pipeline.normalise import normalise
from tidegate.pipeline.rules import Rules
from tidegate.pipeline.sample import Sample, types_of
from tidegate.pipeline.score import score
from tidegate.pipeline.source import register
from tidegate.pipeline.source.shards import Range, Shards, span
from tidegate.pipeline.spark import ENDED, ended, first_line
from tidegate.pipeline.stages import Stages
from tidegate.pipeline.status import Status
from tidegate.store.journal import journal_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

NAMED: Final = 10  # source types that new rules break, by name
RECENT: Final = 500  # messages of a shard on which new rules are tried
HEARTBEAT: Final = 3.0  # seconds
LOOK: Final = 0.2
UPKEEP: Final = 3600.0
STARTS: Final = 5  # of streams, while Spark finds the machine too slow
SLOW: Final = "Python worker failed to connect back"
"""Spark's words for a reader of the journal that took longer than 10 seconds to start, which cannot be set."""

_LEAST: Final = tuple(column for column in INGEST if column[0] in ("shard", "offset"))
"""Of Spark's streams the job takes where a batch begins and ends; rows it reads itself, see `reading`."""

_PAUSE: Final = {"ingest": 0.0, "audit": 10.0}
"""Seconds between two batches, at least: messages are waited for, the audit is not."""

Triggers = Mapping[str, Mapping[str, Any]]

log = structlog.get_logger("tidegate.pipeline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    batch: Batch
    records: int
    quarantined: int
    published: int
    denied: Mapping[str, int]
    seconds: float


class Job:
    """One pipeline. `on_batch` is called after each batch. Without `publishing` records go to the lake only.

    `stopping` is set by whoever wants it to end after the batch that it is at.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        on_batch: Callable[[Done], None] = lambda done: None,
        *,
        publishing: bool = True,
        stopping: threading.Event | None = None,
    ) -> None:
        folders = Folders.of(config)
        assert config.pipeline is not None
        self.spark = spark
        self.config = config
        self.folders = folders
        self.said = config.pipeline
        self.stopping = stopping or threading.Event()
        self.status = Status(folders.status)
        self._on_batch = on_batch
        Shards(path=folders.data, stream="ingest").check()
        self.journal = journal_id(folders.data)
        self._ledger = Ledger(folders.ledger, self.journal)
        self._lake = Lake(folders.lake, journal=self.journal)
        self._node = NodeClient(
            config.control_socket, waiting=lambda why: self.status.write(waiting=why), stopped=self.stopping.is_set
        )
        self._stages = Stages(spark, config, self._node, self._ledger, self._lake, publishing=publishing)
        self._active_rules = ActiveRules(self._ledger, self.said.rules, self._node.documents, self._try)
        self._recent: Sequence[Range] = ()
        self._sample = Sample(folders.sample, folders.lake)
        self._denying: set[str] = set()
        self._failure: BaseException | None = None
        self._turn = threading.Lock()  # one batch at a time: the streams share the machine, and the lake
        register(spark)

    # -- running -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until `stopping` is set. PipelineError if it cannot go on."""
        self._go(
            {stream: {"processingTime": f"{max(self.said.trigger, pause)} seconds"} for stream, pause in _PAUSE.items()}
        )

    def once(self) -> None:
        self._go({stream: {"availableNow": True} for stream in _PAUSE})

    def _go(self, triggers: Triggers) -> None:
        try:
            with alone(self.folders):
                self._follow(triggers)
        except Exception as error:
            if ended(self.spark):  # then this is only where it was noticed
                raise PipelineError(ENDED) from error
            raise

    def _follow(self, triggers: Triggers) -> None:
        self._recover()
        if self._ledger.last_rules() is None:
            self._active_rules.look()  # now, not when the first messages come
        self._write("running")
        queries: dict[str, StreamingQuery] = {}
        with ExitStack() as last:  # all of it, whatever fails
            last.callback(self._lake.close)
            last.callback(self._ledger.close)
            last.callback(self._write, "stopped")
            last.callback(self._stages.close)
            last.callback(self._end, queries)
            for stream in ("ingest", "audit") if self.said.audit else ("ingest",):
                queries[stream] = self._start(stream, triggers[stream])
            self._watch(queries, triggers)

    def _end(self, queries: Mapping[str, StreamingQuery]) -> None:
        self.stopping.set()
        with self._turn:  # after the batches that are being made, and no other begins
            for query in queries.values():
                query.stop()

    def _start(self, stream: str, trigger: Mapping[str, Any]) -> StreamingQuery:
        take = {"ingest": self._messages, "audit": self._audit}[stream]
        options = {
            "stream": stream,
            "name": READER,
            "maxRowsPerBatch": str(self.said.batch),
            **({"failOnDataLoss": "false"} if stream == "audit" else {}),
        }
        source = self.spark.readStream.format("tidegate").options(**options).schema(struct(_LEAST))
        return (
            source.load(str(self.folders.data))
            .writeStream.foreachBatch(self._guarded(take))
            .option("checkpointLocation", str(self.folders.checkpoint(self.journal, stream)))
            .queryName(f"tidegate-{stream}")
            .trigger(**trigger)
            .start()
        )

    def _guarded(self, take: Callable[[int], None]) -> Callable[[DataFrame, int], None]:
        """Spark tells of an exception in many lines; the first is kept as it is.

        A batch that is not made must not look as if it were: what returns from here is done, to Spark.
        """

        def guarded(_: DataFrame, number: int) -> None:
            while not self._turn.acquire(timeout=LOOK):
                self._go_on()
            try:
                self._go_on()
                run(number)
            finally:
                self._turn.release()

        def run(number: int) -> None:
            try:
                try:
                    take(number)
                except Exception as error:
                    if isinstance(error, PipelineError) or self.stopping.is_set() or ended(self.spark):
                        raise
                    # maybe a worker of the cluster is gone, and rows that it kept; a batch can be made again
                    log.warning("a batch failed; it is made again", reason=first_line(error))
                    take(number)
            except BaseException as error:
                self._failure = self._failure or error
                raise

        return guarded

    def _go_on(self) -> None:
        if self.stopping.is_set():
            self.spark.sparkContext.setLogLevel("OFF")  # it would print where this comes from, as if it were a failure
            raise PipelineError("the pipeline is being stopped")

    def _watch(self, queries: dict[str, StreamingQuery], triggers: Triggers) -> None:
        beat = kept = time.monotonic()
        starts = STARTS
        active = True
        while active:
            active = any(query.isActive for query in queries.values())  # first: one may end while this looks
            for stream, query in queries.items():
                if (error := query.exception()) is None:
                    continue
                starts -= 1
                if self._failure is not None or SLOW not in str(error) or not starts:
                    raise _trouble(self._failure or error)
                log.warning("the machine is busy, and Spark gave up starting; it starts again", stream=stream)
                queries[stream] = self._start(stream, triggers[stream])
                active = True
            if self.stopping.wait(LOOK if active else 0.0):
                self._write("stopping")
                return
            if time.monotonic() > beat + HEARTBEAT:
                beat = time.monotonic()
                self.status.write()
            if time.monotonic() > kept + UPKEEP:
                kept = time.monotonic()
                with self._turn:
                    maintain(self.spark, self.config)

    def _recover(self) -> None:
        """A ledger that is lost is made again from the lake: its last batch may not be whole, and is made again."""
        self.folders.adopt(self.journal, _PAUSE)
        ends = self._stages.journal.newest()
        for shard, following in self._ledger.progress.items():
            if following > (end := ends.get(str(shard), 0)):
                raise PipelineError(
                    f"shard {shard} of the journal is done up to offset {following}, and it ends at {end}: it is not "
                    "the journal that was worked on. Remedy: put that one back, or move all of it away "
                    f"({self.folders.data / 'journal'}), so that another begins; the lake keeps its rows"
                )
        self._lake.recover(adopt=bool(self._ledger.progress))
        if not self._ledger.progress and (progress := self._lake.progress()):
            log.warning("the ledger is new and the lake is not; going on from what the lake has", offsets=progress)
            self._ledger.adopt(progress)

    # -- batches -------------------------------------------------------------------------------------------------

    def _messages(self, number: int) -> None:
        began = time.monotonic()
        ranges = self._new(number)
        if not ranges:
            return
        self._recent = [each._replace(start=max(each.start, each.stop - RECENT)) for each in ranges]
        rules = self._active_rules.look()
        batch = self._ledger.begin(
            {each.shard: each.start for each in ranges},
            {each.shard: each.stop for each in ranges},
            rules=rules.version_text,
            messages=sum(each.stop - each.start for each in ranges),
        )
        rules = self._active_rules.version(batch.rules)
        key_requests = KeyRequests()
        stages = self._stages
        messages = self._lake.write_raw(
            lambda: self._sample.passing(key_requests.passing(stages.journal.rows(ranges))),
            batch.name,
            categories=stages.categories,
        )
        self._sample.save()
        counts, outcome = stages.through(ranges, key_requests, rules, batch, messages=messages)
        sums = {"records": counts.records, "quarantined": counts.quarantined, "published": outcome.published}
        self._ledger.done(batch, **sums, denied=sum(outcome.denied.values()))
        done = Done(batch=batch, **sums, denied=outcome.denied, seconds=time.monotonic() - began)
        self._warn(outcome.denied)
        self.status.done(batch.messages, counts.records)
        self._write("running", last=done)
        self._on_batch(done)

    def _warn(self, denied: Mapping[str, int]) -> None:
        """Once of each rule: the audit tells of all."""
        for rule in denied.keys() - self._denying:
            log.warning(
                "records are in the lake and not published: a rule denies it",
                rule=rule,
                remedy="let `service:pipeline` write their topics, or take them from `topics` of the rules",
            )
        self._denying |= denied.keys()

    def _new(self, number: int) -> list[Range]:
        """What of a batch is not done yet. After a lost checkpoint Spark begins anew."""
        before, stop = span(self.folders.checkpoint(self.journal, "ingest"), number)
        oldest, progress = self._stages.journal.oldest(), self._ledger.progress
        ranges = []
        for shard, end in stop.items():
            begin, done = before.get(shard, oldest.get(shard, 0)), progress.get(int(shard), 0)
            if max(begin, done) < end:
                ranges.append(Range(int(shard), max(begin, done), end))
        return ranges

    def _audit(self, number: int) -> None:
        shards = replace(self._stages.journal, stream="audit", strict=False)
        before, stop = span(self.folders.checkpoint(self.journal, "audit"), number)
        ranges = shards.ranges(before or shards.oldest(), stop)
        if ranges:
            start = {each.shard: each.start for each in reversed(ranges)}
            self._lake.write_audit(lambda: shards.rows(ranges), name_of(self.journal, start))

    # -- rules and status ----------------------------------------------------------------------------------------

    def _try(self, rules: Rules, before: Rules | None) -> None:
        """New rules, on recent messages: they must work, and leave something of every source type that passes now.

        Recent are those of this batch, and some of each source type that was seen before.
        """
        if not self._recent:
            return
        plans.set_input(self.spark, self._recent)
        messages = self._stages.messages(1).unionByName(plans.kept(self.spark, self._sample.rows()))
        try:
            passes = self._passing(messages, rules)
        except PipelineError:
            raise
        except Exception as error:
            raise PipelineError(f"tried on recent messages the rules failed: {first_line(error)}") from error
        if before is None:
            return
        now = self._passing(messages, before)
        if broken := sorted(now.keys() - passes.keys()):
            raise PipelineError(
                "tried on recent messages the rules put all of these source types into quarantine, of which records "
                f"pass now: {', '.join(f'{name} ({now[name]})' for name in broken[:NAMED])}"
            )

    def _passing(self, messages: DataFrame, rules: Rules) -> Counter[str]:
        records = assign(score(normalise(messages, rules, categories=self._stages.categories), rules), rules)
        figures = (F.count("scores").alias("scored"), F.count("*").alias("count"))  # scores, too, are tried
        good = records.where(F.col("fault").isNull()).groupBy("shard", "offset").agg(*figures)
        named = good.join(messages.select("shard", "offset", "source_kind", "topic"), ["shard", "offset"]).toArrow()
        passing: Counter[str] = Counter()
        for name, count in zip(types_of(named).to_pylist(), named["count"].to_pylist(), strict=True):
            passing[name] += count
        return passing

    def _write(self, state: str, last: Done | None = None) -> None:
        refused = self._active_rules.refused
        state_facts: dict[str, Any] = {
            "state": state,
            "journal": self.journal,
            "totals": self._ledger.totals,
            "lost": dict(self._node.lost),
            "next": {str(shard): following for shard, following in self._ledger.progress.items()},
            "rules": {
                "in_force": None if (known := self._ledger.last_rules()) is None else known[0],
                "refused": None if refused is None else {"version": refused.version, "why": refused.why},
            },
        }
        if last is not None:
            state_facts |= {
                "batch": {
                    "name": last.batch.name,
                    "messages": last.batch.messages,
                    "records": last.records,
                    "quarantined": last.quarantined,
                    "published": last.published,
                    "denied": dict(last.denied),
                    "seconds": round(last.seconds, 3),
                    "rules": last.batch.rules,
                }
            }
        self.status.write(waiting=None, **state_facts)


def _trouble(error: BaseException) -> PipelineError:
    return error if isinstance(error, PipelineError) else PipelineError(f"the pipeline failed: {first_line(error)}")
