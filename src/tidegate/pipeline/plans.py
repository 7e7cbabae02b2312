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

from tidegate.pipeline import baseline, checks, reading
from tidegate.pipeline.assign import assign
from tidegate.pipeline.normalise import normalise
from tidegate.pipeline.rules import Rules
from tidegate.pipeline.score import needs_history, score

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What becomes of messages."""

    made: DataFrame
    """Records, scored and with their topics."""
    observed: DataFrame | None
    """What they add to the history; None if the rules ask for none."""


class Plans:
    """Those of one job."""

    def __init__(self, spark: SparkSession, categories: Sequence[tuple[str, str]]) -> None:
        self._spark = spark
        self._categories = categories
        self._kept: _Kept | None = None

    @contextmanager
    def once(self, messages: DataFrame, rules: Rules) -> Iterator[Plan]:
        """A new one, which is run until the end of the block."""
        with ExitStack() as kept:
            records = normalise(messages, rules, categories=self._categories)
            if checks.needed(rules.scores):
                records = persisted(records, kept)  # they are read for what is usual among them, and once more
            yield self._planned(records, rules, single=False)

    @contextmanager
    def again(self, messages: Callable[[], DataFrame], rules: Rules) -> Iterator[Plan]:
        """That which was made before, if the rules are the same; `messages` are one partition.

        Nothing that is made of it may be read after the block but what was computed in it.
        """
        if self._kept is None or self._kept.version != rules.version_text:
            self.forget()
            self._kept = self._repeatable(messages(), rules)
        if self._kept is None:
            with self.once(messages(), rules) as plan:
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
        if checks.needed(rules.scores):
            rows = records.persist()
            records = rows.coalesce(1)
        made = _Kept(rules.version_text, self._planned(records, rules, single=True), rows)
        if made.moves:
            made.close()
            return None
        return made

    def _planned(self, records: DataFrame, rules: Rules, *, single: bool) -> Plan:
        history = reading.history(self._spark) if needs_history(rules) else None
        made = assign(score(records, rules, baselines=history, single=single), rules)
        return Plan(made=made, observed=None if history is None else baseline.observed(records))


class _Kept:
    """A plan that is run again and again, and the records in it that are computed once in each run."""

    def __init__(self, version: str, plan: Plan, records: DataFrame | None) -> None:
        self.version = version
        self._plan = plan
        self._records = records
        self._rows = None if records is None else _rows(records)
        self._level = None if self._rows is None else self._rows.getStorageLevel()

    @property
    def moves(self) -> bool:
        frames = [self._plan.made] if self._plan.observed is None else [self._plan.made, self._plan.observed]
        return any(_moves(frame._jdf.queryExecution().executedPlan()) for frame in frames)

    @contextmanager
    def running(self) -> Iterator[Plan]:
        if self._rows is None:
            yield self._plan
            return
        self._rows.persist(self._level)
        try:
            yield self._plan
        finally:
            self._rows.unpersist(True)  # it waits until they are gone

    def close(self) -> None:
        if self._records is not None:
            with suppress(Exception):  # Spark may be gone
                self._records.unpersist()


def persisted(frame: DataFrame, kept: ExitStack) -> DataFrame:
    """The frame as its rows only: what is made of it is planned without what it was made of, which is long."""
    frame = frame.localCheckpoint(eager=False)
    kept.callback(lambda: frame._jdf.queryExecution().logical().rdd().unpersist(False))
    return frame


def _rows(frame: DataFrame) -> Any:
    """Where Spark keeps the rows of a frame that is persisted."""
    return frame._jdf.queryExecution().withCachedData().cacheBuilder().cachedColumnBuffers()


def _moves(plan: Any) -> bool:
    """Whether rows go from one task to another in it."""
    if "Exchange" in plan.nodeName():
        return True
    below = plan.children()
    return any(_moves(below.apply(number)) for number in range(below.size()))
