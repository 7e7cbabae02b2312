"""Some of the last messages of every source type are kept, within bounds, and nobody's who was erased."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.lake.rows import NOON
from tidegate.pipeline import sample
from tidegate.pipeline.lake import erase
from tidegate.pipeline.lake.tables import Place
from tidegate.pipeline.sample import Sample, types_of
from tidegate.store.journal import schema, stream_named


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    said = [{"shard": 0, "offset": place, "received_at": NOON, **row} for place, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(said, schema(stream_named("ingest")))


def keep(kept: Sample, *batches: pa.RecordBatch) -> None:
    assert list(kept.passing(batches)) == list(batches)
    kept.save()


@pytest.fixture
def kept(tmp_path: Path) -> Sample:
    Place.open(tmp_path / "lake", create=True)
    return Sample(tmp_path / "sample.parquet", tmp_path / "lake")


def test_the_newest_of_each_type(kept: Sample, tmp_path: Path) -> None:
    assert kept.rows().num_rows == 0
    many = [{"source_kind": "temperature", "topic": "raw/a", "payload": b"%d" % number} for number in range(80)]
    keep(kept, batch({"source_kind": "heart", "topic": "raw/b", "payload": b"old"}), batch(*many))
    keep(kept, batch({"topic": "raw/new/7"}, {"topic": "raw/new/8"}, {"topic": None}))
    rows = Sample(tmp_path / "sample.parquet", tmp_path / "lake").rows()
    assert Counter(types_of(rows).to_pylist()) == {"heart": 1, "temperature": 50, "raw/new/#": 2, "/#": 1}
    assert rows["payload"].to_pylist()[:3] == [b"old", b"30", b"31"]
    assert (tmp_path / "sample.parquet").stat().st_mode & 0o077 == 0


def test_it_is_bounded(kept: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "TYPES", 3)
    keep(kept, batch(*({"topic": f"raw/{number}", "payload": b"x" * 1000} for number in range(9))))
    assert sorted(types_of(kept.rows()).to_pylist()) == ["raw/6/#", "raw/7/#", "raw/8/#"]
    keep(kept, batch({"topic": "raw/9", "payload": b"x" * (sample.LARGE + 1)}))
    assert "raw/9/#" not in types_of(kept.rows()).to_pylist()
    monkeypatch.setattr(sample, "SIZE", 2500)
    keep(kept, batch({"topic": "raw/10", "payload": b"x" * 1000}))
    assert types_of(kept.rows()).to_pylist() == ["raw/8/#", "raw/10/#"]


def test_of_whom_was_erased_nothing_stays(kept: Sample, tmp_path: Path) -> None:
    keep(kept, batch({"topic": "raw/a", "user": "mary"}, {"topic": "raw/a", "user": "bob"}, {"topic": "raw/a"}))
    kept.forget({"mary"})
    assert kept.rows()["user"].to_pylist() == ["bob", None]
    erase(tmp_path / "lake", "bob")
    keep(kept, batch({"topic": "raw/a", "user": "bob"}))
    assert kept.rows()["user"].to_pylist() == [None]


def test_a_damaged_one_is_gathered_again(kept: Sample, tmp_path: Path) -> None:
    (tmp_path / "sample.parquet").write_bytes(b"nonsense")
    assert kept.rows().num_rows == 0
    keep(kept, batch({"topic": "raw/a"}))
    assert kept.rows().num_rows == 1
