"""What is usual for each series (source, name): the history that accuracy is judged by.

A row holds how much was seen, its mean and spread, the last value and time, how often that value came in a row, and how
many decimals were used. The past is forgotten by half every HALF_LIFE of reception, so that usual means usual lately.

- `merged(merged(a, b), c)` is `merged(a, merged(b, c))`: both halves are brought to the newer one's time. Records of
  one batch count alike.
- Numbers beyond LARGEST, NaN and the infinities leave no trace, so nothing here overflows.
- At most LIMIT series are kept; those that were silent longest go.
- The state after batch n is one Parquet file, written whole or not at all; the one before it stays, so that a batch
  that is repeated starts from what was known before it. Those after it were made by an abandoned past and go.
- A series that is forgotten while a batch is being made is not kept with it.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.errors import PipelineError
from tidegate.pipeline.checks import grade
from tidegate.pipeline.columns import F
from tidegate.store.disk import sync_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

HALF_LIFE: Final = 86_400.0  # seconds: a day, so that what changes with the hour stays usual
LIMIT: Final = 100_000  # series that are remembered
LARGEST: Final = 1e140  # squares of such numbers, many times over, are still numbers

_KEYS: Final = ("source", "name")
_FILE: Final = re.compile(r"[0-9]{20}\.parquet")
_VERSION: Final = b"1"


def schema() -> pa.Schema:
    time = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            pa.field("source", pa.string(), nullable=False),
            pa.field("name", pa.string(), nullable=False),
            pa.field("count", pa.int64()),  # of all records ever
            pa.field("weight", pa.float64()),  # of those not forgotten
            pa.field("mean", pa.float64()),
            pa.field("m2", pa.float64()),  # weighted sum of squared distances from the mean
            pa.field("last_value", pa.float64()),  # as they arrived
            pa.field("last_at", time),  # the newest measured_at
            pa.field("seen_at", time),  # the newest received_at
            pa.field("run", pa.int64()),  # how often the last value came in a row, at least
            pa.field("constant", pa.bool_()),  # whether there was no other value at all
            pa.field("decimals", pa.float64()),
        ],
        metadata={b"tidegate": _VERSION},
    )


def empty() -> pa.Table:
    return schema().empty_table()


def frame(spark: SparkSession, state: pa.Table) -> DataFrame:
    # Spark knows times without a name for the zone as its own; the session's is UTC
    return with_deviation(spark.createDataFrame(state.replace_schema_metadata(None)))


def with_deviation(state: DataFrame) -> DataFrame:
    return state.withColumn("deviation", F.sqrt(F.try_divide("m2", "weight")))


def updated(before: pa.Table, observations: DataFrame) -> pa.Table:
    """The state after a batch, from the state before it and what was observed in it."""
    return bounded(merged(before, _sorted(observations.toArrow().cast(schema()))))


def observed(batch: DataFrame) -> DataFrame:
    """The state of a batch alone: one aggregate over its good rows."""
    good, figures = _figures()
    return batch.where(good).groupBy(*_KEYS).agg(*figures)


@cache
def _figures() -> tuple[Column, tuple[Column, ...]]:
    """Which rows count, and what is computed of them."""
    value = F.col("value")
    good = (
        F.col("fault").isNull()
        & value.between(-LARGEST, LARGEST)
        & F.col("source").isNotNull()
        & F.col("name").isNotNull()
        & F.col("received_at").isNotNull()
    )
    count = F.count(F.lit(1))
    arrival = F.struct("received_at", "shard", "offset", "part")
    constant = F.min(value) == F.max(value)
    return good, (
        count.alias("count"),
        count.cast("double").alias("weight"),
        F.avg(value).alias("mean"),
        (F.var_pop(value) * count).alias("m2"),
        F.max_by(value, arrival).alias("last_value"),
        F.max("measured_at").alias("last_at"),
        F.max("received_at").alias("seen_at"),
        F.when(constant, count).otherwise(F.lit(1)).alias("run"),
        constant.alias("constant"),
        F.max(grade.decimals(value)).alias("decimals"),
    )


def merged(before: pa.Table, later: pa.Table) -> pa.Table:
    """What is known after both, the second having arrived after the first."""
    both = before.join(
        later, list(_KEYS), join_type="full outer", left_suffix="_before", right_suffix="_later", use_threads=False
    )
    a, b = _Half(both, "before"), _Half(both, "later")
    seen = np.maximum(a.seen, b.seen)
    kept_a, kept_b = a.kept(seen), b.kept(seen)
    weight_a, weight_b = a.weight * kept_a, b.weight * kept_b
    weight = weight_a + weight_b
    apart = b.mean - a.mean
    share = weight_b / weight
    again = b.there & b.constant & (a.there & (a.last_value == b.last_value))
    only_a, only_b = ~b.there, ~a.there
    columns = {
        "source": both["source"],
        "name": both["name"],
        "count": a.count + b.count,
        "weight": weight,
        "mean": np.where(only_a, a.mean, np.where(only_b, b.mean, a.mean + apart * share)),
        "m2": a.m2 * kept_a + b.m2 * kept_b + np.where(only_a | only_b, 0.0, apart * apart * weight_a * share),
        "last_value": np.where(only_a, a.last_value, b.last_value),
        "last_at": _newer(both["last_at_before"], both["last_at_later"]),
        "seen_at": pa.array(seen, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "run": np.where(only_a, a.run, np.where(again, a.run + b.run, b.run)),
        "constant": np.where(only_a, a.constant, np.where(only_b, b.constant, again & a.constant)),
        "decimals": np.maximum(a.decimals * kept_a, b.decimals * kept_b),
    }
    return _sorted(pa.table(columns).cast(schema()))


def bounded(state: pa.Table, limit: int = LIMIT) -> pa.Table:
    """At most so many series, those that were heard of last."""
    if state.num_rows <= limit:
        return state
    latest = state.sort_by([("seen_at", "descending"), ("source", "ascending"), ("name", "ascending")])
    return _sorted(latest.slice(0, limit))


class StatisticsStore:
    """The states after the last two batches, in a folder. One process keeps them, another may forget at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._began: tuple[Path, int, pa.Table] | None = None  # file, its inode, and what was in it for this batch

    def before(self, batch: int) -> pa.Table:
        """What was known when a batch began, whether or not it has run before. PipelineError if it cannot be read."""
        earlier = [path for number, path in self._files() if number < batch]
        if not earlier:
            self._began = None
            return empty()
        inode = earlier[-1].stat().st_ino
        state = read(earlier[-1])
        self._began = (earlier[-1], inode, state)
        return state

    @property
    def began(self) -> Path | None:
        """The file of what was known, which `before` has read; None if nothing was."""
        return None if self._began is None else self._began[0]

    def keep(self, batch: int, state: pa.Table) -> None:
        """Makes this the state after a batch; durable when it returns. Batches count from 0."""
        path = self._folder / f"{batch:020d}.parquet"
        with self._written(path):
            _write(self._remembered(state), path)
            before = [number for number, _ in self._files() if number < batch][-1:]
            for number, other in self._files():
                if number not in (batch, *before):
                    other.unlink()
            sync_path(self._folder)

    def forget(self, sources: Collection[str]) -> int:
        """Nothing is known of them any more; how many series that were. PipelineError if that cannot be written."""
        gone: set[tuple[str, str]] = set()
        if not sources or not self._files():
            return 0
        with self._written(self._folder):
            for _, path in self._files():
                state = read(path)
                theirs = pc.is_in(state["source"], value_set=pa.array(sorted(sources), pa.string()))
                if series := _series(state.filter(theirs)):
                    gone |= series
                    _write(state.filter(pc.invert(theirs)), path)
            sync_path(self._folder)
        return len(gone)

    def _remembered(self, state: pa.Table) -> pa.Table:
        """Without what has been forgotten since the batch began."""
        if self._began is None:
            return state
        path, inode, began = self._began
        if not path.exists() or path.stat().st_ino == inode:
            return state
        gone = _series(began) - _series(read(path))
        return state.filter(pa.array([key not in gone for key in _listed(state)], pa.bool_()))

    @contextmanager
    def _written(self, path: Path) -> Iterator[None]:
        """While it lasts nobody else writes. What fails is told of this path."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
            finally:
                os.close(file)
        except OSError as error:
            raise PipelineError(
                f"{path} cannot be written: {error}; make room, or let this user write there"
            ) from error

    def _files(self) -> list[tuple[int, Path]]:
        """The states that are there, oldest first; other files are not looked at."""
        if not self._folder.is_dir():
            return []
        paths = [path for path in self._folder.iterdir() if _FILE.fullmatch(path.name)]
        return sorted((int(path.stem), path) for path in paths)


class _Half:
    """One side of a join as arrays; a series that is not there has no weight."""

    def __init__(self, both: pa.Table, side: str) -> None:
        def column(name: str, absent: object) -> np.ndarray:
            values = both[f"{name}_{side}"]
            if pa.types.is_timestamp(values.type):
                values = values.cast(pa.int64())
            array: np.ndarray = values.fill_null(absent).to_numpy()
            return array

        self.there = both[f"count_{side}"].is_valid().to_numpy()
        self.count = column("count", 0)
        self.weight = column("weight", 0.0)
        self.mean = column("mean", 0.0)
        self.m2 = column("m2", 0.0)
        self.last_value = column("last_value", 0.0)
        self.seen = column("seen_at", -(2**62))
        self.run = column("run", 0)
        self.constant = column("constant", False)
        self.decimals = column("decimals", 0.0)

    def kept(self, until: np.ndarray) -> np.ndarray:
        """Which part of it is not forgotten at these times."""
        part: np.ndarray = np.exp2((self.seen - until) / (HALF_LIFE * 1e6))
        return part


def _newer(a: pa.ChunkedArray, b: pa.ChunkedArray) -> pa.ChunkedArray:
    numbers = pc.max_element_wise(a.cast("int64"), b.cast("int64"))  # Arrow compares no instants here
    return numbers.cast(a.type)


def read(path: Path) -> pa.Table:
    """A state. PipelineError if it cannot be read."""
    try:
        # its content, not its path: other folders are no part of it
        state = pq.read_table(pa.BufferReader(path.read_bytes()))
        return state.select(schema().names).cast(schema())
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise PipelineError(
            f"{path} cannot be read: {error}; remove it, and what is usual will be learnt anew"
        ) from error


def _write(state: pa.Table, path: Path) -> None:
    """Whole, or not at all. OSError if it cannot be written."""
    fresh = path.with_suffix(".new")
    pq.write_table(state, fresh, compression="zstd")
    sync_path(fresh)
    fresh.replace(path)


def _listed(state: pa.Table) -> list[tuple[str, str]]:
    return list(zip(*(state[key].to_pylist() for key in _KEYS), strict=True))


def _series(state: pa.Table) -> set[tuple[str, str]]:
    return set(_listed(state))


def _sorted(state: pa.Table) -> pa.Table:
    return state.sort_by([(key, "ascending") for key in _KEYS]).combine_chunks()
