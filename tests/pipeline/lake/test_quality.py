"""Scores by day: computed from the records, again with the same result, and shown."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.lake.rows import DAY, JOURNAL, NOON, records
from tidegate.errors import PipelineError
from tidegate.pipeline.columns import DIMENSIONS
from tidegate.pipeline.lake import Lake, Trend, erase, plot, read, summarise, trends
from tidegate.pipeline.lake.quality import by_dimension


def scores(**known: float) -> tuple[float | None, ...]:
    return tuple(known.get(name) for name in DIMENSIONS)


def record(
    offset: int, accuracy: float | None, *, source: str = "s1", owner: str = "mary", day: int = 0
) -> dict[str, object]:
    known = {} if accuracy is None else {"accuracy": accuracy}
    return {
        "offset": offset, "source": source, "type": "temperature", "name": "t", "owner": owner, "category": "generic",
        "scores": scores(timeliness=1.0, **known), "received_at": NOON + day * DAY,
    }  # fmt: skip


def test_by_day_source_and_dimension(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path, journal=JOURNAL)
    values = [0.0, 0.5, 1.0, None]
    rows = [record(offset, value) for offset, value in enumerate(values)]
    rows += [record(10, 0.25, source="s2", owner="bob"), record(11, 0.75, day=1)]
    lake.write_records(records(spark, rows), "0-0")
    done = summarise(spark, tmp_path)
    assert (done.dates, done.rows) == ((date(2026, 3, 1), date(2026, 3, 2)), 3 * len(DIMENSIONS))
    one, two, other = trends(tmp_path, dimension="accuracy")
    assert one == Trend(
        date=date(2026, 3, 1), source="s1", type="temperature", name="t", owner="mary", category="generic",
        dimension="accuracy", count=4, assessed=3, mean=0.5, min=0.0, p05=pytest.approx(0.05), p50=0.5,
    )  # fmt: skip
    assert (two.date.day, two.mean, other.source, other.owner, other.mean) == (2, 0.75, "s2", "bob", 0.25)
    (nothing,) = trends(tmp_path, source="s2", dimension="privacy")
    assert (nothing.count, nothing.assessed, nothing.mean, nothing.p50) == (1, 0, None, None)
    assert len(trends(tmp_path, since=date(2026, 3, 2))) == len(DIMENSIONS)

    before = trends(tmp_path)
    assert summarise(spark, tmp_path, {date(2026, 3, 1)}).dates == (date(2026, 3, 1),)
    assert trends(tmp_path) == before
    assert read(spark, tmp_path, "quality_daily").count() == len(before)

    erase(tmp_path, "bob")
    assert {row.owner for row in trends(tmp_path)} == {"mary"}
    summarise(spark, tmp_path)
    assert {row.owner for row in trends(tmp_path)} == {"mary"}

    for file in (tmp_path / "normalised").rglob("part-*.parquet"):
        file.unlink()
    assert summarise(spark, tmp_path).rows == 0
    assert len(trends(tmp_path)) == 2 * len(DIMENSIONS)  # it outlives the records
    lake.close()


def test_an_unknown_dimension(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no dimension 'acuracy'; take one of confidentiality,"):
        trends(tmp_path, dimension="acuracy")


def trend(day: int, source: str | None, dimension: str, mean: float | None, **more: object) -> Trend:
    known: dict[str, object] = {"assessed": 0 if mean is None else 10, "p05": mean, "name": "t", **more}
    return Trend(
        date=date(2026, 3, 1) + timedelta(days=day), source=source, type="x", owner=None, category=None,
        dimension=dimension, count=10, mean=mean, min=mean, p50=mean, **known,  # type: ignore[arg-type]
    )  # fmt: skip


def test_what_is_drawn() -> None:
    rows = [
        trend(0, "s1", "accuracy", 0.5, assessed=30, p05=0.1),
        trend(0, "s1", "accuracy", 0.9, name="u", p05=0.8),
        trend(0, "s1", "privacy", None),
        trend(0, None, "integrity", 1.0),
    ]
    drawn = by_dimension(rows)
    assert list(drawn) == ["integrity", "accuracy"]
    assert drawn["accuracy"] == {"s1": {date(2026, 3, 1): (pytest.approx(0.6), 0.1)}}
    assert list(drawn["integrity"]) == ["(unknown)"]


def test_the_picture(tmp_path: Path) -> None:
    rows = [
        trend(day, f"sensor-{number}", dimension, max(0.0, 1 - number / 15 - (day % 5) / 20))
        for day in range(14)
        for number in range(11)
        for dimension in ("accuracy", "timeliness", "completeness")
    ]
    assert plot(rows, tmp_path / "plots" / "q.png").read_bytes().startswith(b"\x89PNG")
    assert plot(rows[:1], tmp_path / "one.png").stat().st_size > 1000
    with pytest.raises(PipelineError, match="nothing was scored in that time"):
        plot([trend(0, "s", "privacy", None)], tmp_path / "none.png")
