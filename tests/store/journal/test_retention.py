"""Old segments go, the oldest first, and nothing that is still needed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from store.journal.trial import NOON, Trial, audit, details, segments
from tidegate.store.journal import AUDIT, Reader, Retention
from tidegate.store.journal import writer as module
from tidegate.store.journal.retention import Closed, expired


def closed(*highs: float) -> list[Closed]:
    """Segments of ten rows and 100 bytes."""
    return [Closed(first=n * 10, next=n * 10 + 10, size=100, high=high) for n, high in enumerate(highs)]


@pytest.mark.parametrize(
    ("highs", "retention", "keep_from", "gone"),
    [
        ([1, 2, 3], Retention(), None, 0),
        ([1, 2, 99], Retention(age=10), None, 2),
        ([1, 2, 3], Retention(age=10), None, 3),
        ([1, 99, 3], Retention(age=10), None, 1),  # never out of order
        ([1, 90, 91], Retention(age=10), None, 1),  # exactly as old as allowed stays
        ([1, 2, 3], Retention(size=350), None, 0),  # 3 * 100 and the 50 being written
        ([1, 2, 3], Retention(size=349), None, 1),
        ([1, 2, 3], Retention(size=0), None, 3),
        ([1, 2, 99], Retention(age=10, size=100), None, 3),
        ([1, 2, 3], Retention(age=10), 20, 2),
        ([1, 2, 3], Retention(age=10), 19, 1),
        ([1, 2, 3], Retention(size=0), 0, 0),
        ([], Retention(age=0, size=0), None, 0),
    ],
)
def test_which_go(highs: list[float], retention: Retention, keep_from: int | None, gone: int) -> None:
    segments = closed(*highs)
    assert expired(segments, retention, writing=50, now=100.0, keep_from=keep_from) == segments[:gone]


def test_by_size_while_writing(tmp_path: Path) -> None:
    trial = Trial(tmp_path, segment_size=5_000, retention=Retention(size=40_000))
    for n in range(200):
        trial.write(audit(n))
        assert trial.writer.size < 60_000
    size = sum(path.stat().st_size for path in trial.folder.iterdir() if path.suffix != ".lock")
    assert trial.writer.size == pytest.approx(size, abs=1000)
    trial.close()
    kept = details(tmp_path)
    assert kept == list(range(kept[0], 200))
    assert 5 < len(kept) < 30
    trial = Trial(tmp_path, retention=Retention(size=40_000))
    assert trial.writer.next == 200
    assert trial.writer.size == pytest.approx(size, abs=1000), "counted again from the files"
    trial.close()


def test_by_age_while_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is old; the last segment stays, and with it the count."""
    monkeypatch.setattr(module, "TICK", 0.01)
    trial = Trial(tmp_path, segment_age=0.2, retention=Retention(age=3600.0))
    trial.write(audit(0), audit(1))
    deadline = time.monotonic() + 20
    while [path.stem for path in segments(tmp_path)] != [f"{2:020d}"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    trial.close()
    trial = Trial(tmp_path)
    assert trial.writer.next == 2
    trial.write(audit(2))
    trial.close()
    assert details(tmp_path) == [2]
    assert not list(tmp_path.rglob(f"{0:020d}*")), "its index is gone, too"


def test_what_somebody_needs_is_kept(tmp_path: Path) -> None:
    trial = Trial(tmp_path, segment_age=0.0, retention=Retention(size=0), keep_from=0)
    for n in range(5):
        trial.write(audit(n))
    assert details(tmp_path) == list(range(5))
    trial.writer.keep_from(3)
    trial.write(audit(5))
    assert details(tmp_path) == [3, 4, 5]
    trial.writer.keep_from(None)
    trial.write(audit(6))
    trial.close()
    assert details(tmp_path) == []


def test_a_clock_set_ahead_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    trial = Trial(tmp_path, segment_age=0.0, retention=Retention(age=3600.0))
    trial.write(audit(0, at=now))
    monkeypatch.setattr(time, "time", lambda: now + 1e9)
    trial.write(audit(1, at=now + 1e9))
    trial.write(audit(2, at=now - 1e9))
    trial.write(audit(3, at=now))
    trial.close()
    assert details(tmp_path) == [0, 1, 2, 3]


def test_a_reader_that_was_too_slow_is_told(tmp_path: Path) -> None:
    trial = Trial(tmp_path, segment_age=0.0, retention=Retention(size=0), keep_from=0)
    for n in range(4):
        trial.write(audit(n))
    reader = Reader(tmp_path, AUDIT)
    beginning = Reader(tmp_path, AUDIT, start=1)
    first = reader._batch()
    assert first is not None
    assert first.column("detail").to_pylist() == ["0"]
    trial.writer.keep_from(3)
    trial.write(audit(4))
    assert [row["detail"] for row in reader.rows()] == ["3", "4"]
    assert reader.missed == 2
    assert [row["detail"] for row in beginning.rows()] == ["3", "4"]
    assert beginning.missed == 2
    with Reader(tmp_path, AUDIT) as oldest:
        assert [row["detail"] for row in oldest.rows()] == ["3", "4"]
        assert oldest.missed == 0, "it asked for what there is"
        assert oldest.bounds() == (3, 5)
    reader.close()
    beginning.close()
    trial.close()


def test_times_of_closed_segments_are_known_after_a_restart(tmp_path: Path) -> None:
    trial = Trial(tmp_path, segment_age=0.0)
    for n in range(3):
        trial.write(audit(n))
    for lost in trial.folder.glob("*.index"):
        lost.unlink()
    trial = trial.again()
    assert [segment.high for segment in trial.writer._closed.segments] == [NOON, NOON + 1, NOON + 2]
    trial.close()
