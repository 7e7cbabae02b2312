"""What is usual: against plain arithmetic, forgotten by time, bounded, and repeated from what was known before."""

from __future__ import annotations

import math
import statistics
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.frames import NOON, records
from tidegate.errors import PipelineError
from tidegate.pipeline import series_statistics
from tidegate.pipeline.series_statistics import StatisticsStore


def state(*rows: dict[str, Any]) -> pa.Table:
    usual = {
        "source": "t1",
        "name": "temperature",
        "count": 1,
        "weight": 1.0,
        "mean": 20.0,
        "m2": 0.0,
        "last_value": 20.0,
        "last_at": NOON,
        "seen_at": NOON,
        "run": 1,
        "constant": True,
        "decimals": 0.0,
    }
    return pa.Table.from_pylist([usual | row for row in rows], schema=series_statistics.schema())


def of(values: list[float], at: datetime = NOON, source: str = "t1") -> pa.Table:
    """The state after these values, all received at one time: plain arithmetic."""
    constant = len(set(values)) == 1
    return state(
        {
            "source": source,
            "count": len(values),
            "weight": float(len(values)),
            "mean": statistics.fmean(values),
            "m2": statistics.pvariance(values) * len(values),
            "last_value": values[-1],
            "seen_at": at,
            "last_at": at,
            "run": len(values) if constant else 1,
            "constant": constant,
        }
    )


def test_a_batch_is_aggregated(spark: SparkSession) -> None:
    rows: list[dict[str, Any]] = [
        {"value": 20.0, "measured_at": NOON + timedelta(seconds=9)},
        {"value": 21.25},
        {"value": 22.0, "received_at": NOON + timedelta(seconds=1)},
        {"source": "t2", "value": 5.0},
        {"source": "t2", "value": 5.0},
        {"source": "t3", "value": None, "text": "on"},
        {"source": "t3", "value": math.nan},
        {"source": "t3", "value": 1e200},
        {"source": None, "value": 1.0},
        {"name": None, "value": 1.0},
        {"value": 99.0, "fault": "broken"},
        {"source": "t2", "value": -math.inf},
    ]
    first, second = series_statistics.updated(
        series_statistics.empty(), series_statistics.observed(records(spark, rows))
    ).to_pylist()
    assert (first["source"], first["count"], first["last_value"], first["run"]) == ("t1", 3, 22.0, 1)
    assert first["mean"] == pytest.approx(statistics.fmean([20, 21.25, 22]))
    assert first["m2"] == pytest.approx(3 * statistics.pvariance([20, 21.25, 22]))
    assert (first["last_at"], first["seen_at"]) == (NOON + timedelta(seconds=9), NOON + timedelta(seconds=1))
    assert (first["decimals"], first["constant"]) == (2.0, False)
    assert (second["source"], second["count"], second["run"], second["constant"]) == ("t2", 2, 2, True)
    frame = series_statistics.frame(spark, series_statistics.merged(series_statistics.empty(), state(first, second)))
    found = {row.source: row for row in frame.collect()}
    assert found["t1"].deviation == pytest.approx(statistics.pstdev([20, 21.25, 22]))
    assert found["t1"].last_at.timestamp() == (NOON + timedelta(seconds=9)).timestamp()
    assert series_statistics.frame(spark, series_statistics.empty()).count() == 0


VALUES = st.lists(st.floats(-1e6, 1e6).map(lambda value: round(value, 3)), min_size=1, max_size=8)


@given(VALUES, VALUES)
@settings(deadline=None)
def test_at_one_time_merging_is_as_if_all_had_been_one(first: list[float], second: list[float]) -> None:
    (found,) = series_statistics.merged(of(first), of(second)).to_pylist()
    together = first + second
    assert found["count"] == len(together)
    assert found["mean"] == pytest.approx(statistics.fmean(together), rel=1e-9, abs=1e-6)
    assert found["m2"] == pytest.approx(statistics.pvariance(together) * len(together), rel=1e-6, abs=1e-3)
    assert found["last_value"] == second[-1]
    assert found["constant"] == (len(set(together)) == 1)


STATES = st.lists(
    st.tuples(
        st.lists(st.sampled_from([0.0, 1.0, 1.5, -7.25, 1e6]), min_size=1, max_size=4),
        st.integers(0, 10 * 86_400).map(lambda seconds: NOON + timedelta(seconds=seconds)),
        st.sampled_from(["t1", "t2", "t3"]),
    ),
    max_size=3,
    unique_by=lambda found: found[2],
).map(
    lambda found: (
        pa.concat_tables([series_statistics.empty(), *(of(*one) for one in found)]).sort_by("source").combine_chunks()
    )
)


@given(STATES, STATES, STATES)
@settings(deadline=None)
def test_merging_is_associative(a: pa.Table, b: pa.Table, c: pa.Table) -> None:
    left = series_statistics.merged(series_statistics.merged(a, b), c)
    right = series_statistics.merged(a, series_statistics.merged(b, c))
    for one, other in zip(left.to_pylist(), right.to_pylist(), strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            if isinstance(value, float):
                # what is left of a million squared is the measure of what rounding may do
                assert math.isclose(value, other[key], rel_tol=1e-6, abs_tol=1e-2), (key, one, other)
            else:
                assert value == other[key], (key, one, other)


def test_nothing_changes_nothing() -> None:
    known = state({"source": "a", "mean": 3.5, "m2": 2.0, "weight": 7.5}, {"source": "b"})
    assert series_statistics.merged(known, series_statistics.empty()).equals(known)
    assert series_statistics.merged(series_statistics.empty(), known).equals(known)


def test_the_past_is_forgotten_by_half() -> None:
    old = of([0.0] * 100)
    (found,) = series_statistics.merged(old, of([30.0] * 50, at=NOON + timedelta(days=1))).to_pylist()
    assert (found["weight"], found["mean"], found["count"]) == (100.0, 15.0, 150)
    (found,) = series_statistics.merged(old, of([30.0], at=NOON + timedelta(days=10_000))).to_pylist()
    assert (found["weight"], found["mean"], found["m2"]) == (1.0, 30.0, 0.0)
    # what arrives late from an older time weighs less, and makes nothing older
    (found,) = series_statistics.merged(of([30.0], at=NOON + timedelta(days=1)), old).to_pylist()
    assert found["weight"] == 51.0
    assert found["seen_at"] == found["last_at"] == NOON + timedelta(days=1)


def test_runs_go_on_over_batches() -> None:
    def run(*batches: list[float]) -> int:
        known = series_statistics.empty()
        for batch in batches:
            known = series_statistics.merged(known, of(batch))
        found: int = known["run"][0].as_py()
        return found

    assert run([5.0, 5.0], [5.0]) == 3
    assert run([5.0, 5.0], [6.0], [6.0, 6.0]) == 3
    assert run([5.0, 5.0], [5.0, 6.0], [6.0]) == 2


def test_the_largest_numbers_stay_numbers() -> None:
    huge = [series_statistics.LARGEST, -series_statistics.LARGEST]
    found = series_statistics.merged(of([huge[0]] * 1000), of([huge[1]] * 1000)).to_pylist()[0]
    assert all(math.isfinite(found[key]) for key in ("mean", "m2", "weight"))


def test_the_longest_silent_go_first() -> None:
    known = state(*({"source": f"s{n:03d}", "seen_at": NOON + timedelta(seconds=n % 50)} for n in range(100)))
    kept = series_statistics.bounded(known, 30)
    assert kept.num_rows == 30
    assert min(kept["seen_at"].to_pylist()) == NOON + timedelta(seconds=35)
    assert kept["source"].to_pylist() == sorted(kept["source"].to_pylist())
    assert series_statistics.bounded(known, 100) is known


def test_a_repeated_batch_starts_from_what_was_before_it(tmp_path: Path) -> None:
    kept = StatisticsStore(tmp_path / "baselines")
    assert kept.before(0).equals(series_statistics.empty())
    states = [of([float(number)]) for number in range(5)]
    for number, one in enumerate(states):
        kept.keep(number, one)
    assert sorted(path.name for path in (tmp_path / "baselines").iterdir()) == [
        "00000000000000000003.parquet",
        "00000000000000000004.parquet",
    ]
    assert kept.before(5).equals(states[4])
    assert kept.before(4).equals(states[3])
    kept.keep(4, states[0])  # once more
    assert kept.before(4).equals(states[3])
    assert kept.before(5).equals(states[0])


def test_a_past_that_begins_again_replaces_the_one_before(tmp_path: Path) -> None:
    kept = StatisticsStore(tmp_path)
    for number in (7, 8):
        kept.keep(number, of([1.0]))
    (tmp_path / "notes.txt").write_text("not ours")
    assert kept.before(0).num_rows == 0
    kept.keep(0, of([2.0]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000000000000000000.parquet", "notes.txt"]
    assert kept.before(1).equals(of([2.0]))


def test_sources_that_are_forgotten_leave_nothing_also_while_a_batch_is_made(tmp_path: Path) -> None:
    kept = StatisticsStore(tmp_path)
    assert StatisticsStore(tmp_path).forget({"t1"}) == 0
    both = series_statistics.merged(of([1.0, 2.0]), of([5.0], source="t2"))
    kept.keep(1, both)
    kept.keep(2, both)
    known = kept.before(3)
    assert StatisticsStore(tmp_path).forget({"t1", "nobody"}) == 1
    for batch in (2, 3):
        assert StatisticsStore(tmp_path).before(batch)["source"].to_pylist() == ["t2"]
    kept.keep(3, series_statistics.merged(known, of([6.0], source="t2")))
    assert kept.before(4)["source"].to_pylist() == ["t2"], "the batch knew t1 when it began"
    assert kept.before(4)["count"].to_pylist() == [2]
    kept.keep(4, series_statistics.merged(kept.before(4), of([1.5])))
    assert kept.before(5)["source"].to_pylist() == ["t1", "t2"], "what comes later is learnt anew"


def test_a_broken_file_is_told_with_the_remedy(tmp_path: Path) -> None:
    kept = StatisticsStore(tmp_path)
    kept.keep(1, of([1.0]))
    path = tmp_path / "00000000000000000001.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(PipelineError, match=r"0001\.parquet cannot be read: .*; remove it"):
        kept.before(2)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="cannot be written"):
        StatisticsStore(tmp_path / "file").keep(1, series_statistics.empty())


def test_what_was_cut_off_while_writing_is_not_read(tmp_path: Path) -> None:
    kept = StatisticsStore(tmp_path)
    kept.keep(1, of([1.0]))
    (tmp_path / "00000000000000000002.new").write_bytes(b"half")
    assert kept.before(3).equals(of([1.0]))
    kept.keep(2, of([2.0]))
    assert kept.before(3).equals(of([2.0]))
