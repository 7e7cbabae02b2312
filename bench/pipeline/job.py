"""The real job over a journal, and the clock beside it.

What counts is the time between the end of the first batch and the end of the last: reading the journal, all stages,
the lake, the ledger, Spark's plans and checkpoints, and what passes between two batches. The start of the query and
its first batch, for which code is generated, do not count; they are told beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness import procfs
from bench.pipeline.deployment import Site, confined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bench.harness.servers import Server
    from tidegate.config import Config
    from tidegate.pipeline.job import Done

CORES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The end of a batch: how many messages are done, and when. What is needed for later is counted, too."""

    messages: int
    seconds: float
    own: float
    """CPU of Spark, of its workers and of this process, so far."""
    node: float
    machine: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """A journal that was worked off."""

    records: int
    quarantined: int
    published: int
    batches: float
    """Seconds inside of batches, the first one left out."""
    marks: tuple[Mark, ...]

    @property
    def messages(self) -> int:
        return self.marks[-1].messages

    @property
    def counted(self) -> int:
        """Messages after the first batch."""
        return self.messages - self.marks[0].messages

    @property
    def seconds(self) -> float:
        return self.marks[-1].seconds - self.marks[0].seconds

    @property
    def rate(self) -> float:
        return self.counted / self.seconds

    @property
    def in_batches(self) -> float:
        """The rate, if nothing but the insides of batches counted."""
        return self.counted / self.batches

    @property
    def first(self) -> float:
        """Seconds from the start of the query to the end of the first batch."""
        return self.marks[0].seconds

    @property
    def micros(self) -> float:
        """CPU of everything but the node, for one message."""
        return (self.marks[-1].own - self.marks[0].own) / self.counted * 1e6

    @property
    def foreign(self) -> float:
        """Cores that neighbours used."""
        first, last = self.marks[0], self.marks[-1]
        ours = last.own - first.own + last.node - first.node
        return max(0.0, last.machine - first.machine - ours) / self.seconds


def worked(spark: SparkSession, site: Site, server: Server, *, publishing: bool = False) -> Worked:
    """Everything that is in the journal, from the beginning, into an empty lake."""
    from tidegate.pipeline.job import Job

    site.forget()
    done: list[Done] = []
    marks: list[Mark] = []

    def told(one: Done) -> None:
        done.append(one)
        marks.append(_mark(sum(each.batch.messages for each in done), began, server))

    began = time.perf_counter()
    Job(spark, site.config(), told, publishing=publishing).once()
    return Worked(
        records=sum(one.records for one in done),
        quarantined=sum(one.quarantined for one in done),
        published=sum(one.published for one in done),
        batches=sum(one.seconds for one in done[1:]),
        marks=tuple(marks),
    )


def _mark(messages: int, began: float, server: Server) -> Mark:
    return Mark(
        messages=messages,
        seconds=time.perf_counter() - began,
        own=procfs.cpu_seconds(os.getpid()) - procfs.cpu_seconds(server.process.pid),
        node=procfs.cpu_seconds(server.process.pid),
        machine=procfs.machine_seconds()[0],
    )


_sessions: dict[str, SparkSession] = {}
"""By memory: the one that runs, if any."""


@contextmanager
def spark_for(config: Config, cores: tuple[int, int]) -> Iterator[SparkSession]:
    """A session on these two cores, with the memory that the configuration says; kept for whoever comes next."""
    from tidegate.pipeline.spark import session

    assert config.pipeline is not None
    memory = config.pipeline.spark.memory
    with confined(cores):
        if memory not in _sessions:
            end_spark()
            _sessions[memory] = session("tidegate bench", master=f"local[{CORES}]", memory=memory)
        yield _sessions[memory]


def end_spark() -> None:
    while _sessions:
        _sessions.popitem()[1].stop()
