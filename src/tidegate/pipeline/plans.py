"""Spark's plans for what becomes of messages: made anew for many, and once for a set of rules for few.

Planning the stages takes Spark half a second to a second, whatever there is to read. A batch of a second's messages
would spend most of its time on that, so its plan is made once and run again for every batch: which messages it reads is
said when it runs (`reading`). That needs care, for Spark remembers what a plan has already done:

- Rows that are moved between tasks would be taken for those of the next run. So there is one partition, from which
  nothing is moved, and a plan in which something is (`_moves`) is not kept.
- Records that are read several times are kept while a run lasts and let go before it ends.
- Whatever fails ends the plan, and the next batch has a new one. The job looks at whether rows are of their batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.pipeline import batch_input, checks, series_statistics
from tidegate.pipeline.assign import assign
from tidegate.pipeline.normalise import normalise
from tidegate.pipeline.rules import Rules
from tidegate.pipeline.score import needs_history, score

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What becomes of messages."""

    made: DataFrame
    """Records, scored and with their topics."""
    observed: DataFrame | None
    """What they add to the history; None if the rules ask for none."""
    single: bool
    """Whether all is one partition."""


class Plans:
    """Those of one job."""

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
        """The next batch has a new plan."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _repeatable(self, messages: DataFrame, rules: Rules) -> _Kept | None:
        """None if it cannot be run twice."""
        records, rows = normalise(messages, rules, categories=self._categories).coalesce(1), None
        history = batch_input.history(self._spark) if needs_history(rules) else None
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
