"""A disk that is full, fails or goes away: rows wait, nothing is lost or doubled, and it mends by itself."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store.journal.trial import Trial, audit, audits, details, one_line, segments
from tidegate.errors import StoreError
from tidegate.store.journal import AUDIT, Reader
from tidegate.store.journal import writer as module

CALLS = ("pwrite", "fdatasync", "ftruncate", "fsync", "replace", "unlink")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 0.002)


class Disk:
    """Stands before the system's calls on the writer's thread and lets some of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails: Callable[[str, int], OSError | None] = lambda name, number: None
        self.number = 0
        self.failed = threading.Event()
        for name in CALLS:
            real = getattr(os, name)
            monkeypatch.setattr(os, name, self._standing_before(name, real))

    def _standing_before(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if not threading.current_thread().name.startswith("tidegate-"):
                return real(*args, **options)
            self.number += 1
            error = self.fails(name, self.number)
            if error is None:
                return real(*args, **options)
            if name == "pwrite" and len(args[1]) > 1:
                return real(args[0], bytes(args[1][: len(args[1]) // 2]), args[2])  # half of it, and the rest fails
            self.failed.set()
            raise error

        return call


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def test_full_for_a_while(tmp_path: Path, disk: Disk) -> None:
    trial = Trial(tmp_path)
    trial.write(*audits(range(3)))
    disk.fails = lambda name, _: full() if name in ("pwrite", "fdatasync", "fsync") else None
    done: list[int] = []
    for n in range(3, 500):
        assert trial.writer.append(audit(n))
        trial.writer.after(done.append, n)
    assert disk.failed.wait(20.0)
    disk.failed.clear()
    assert disk.failed.wait(20.0), "it goes on trying"
    assert trial.writer.trouble is not None
    assert "No space left" in trial.writer.trouble
    assert done == []
    assert trial.writer.backlog == 497
    assert details(tmp_path) == [0, 1, 2], "readers see only what is whole"
    disk.fails = lambda name, number: None
    trial.loop.until(lambda: done and done[-1] == 499)
    assert done == list(range(3, 500))
    assert trial.writer.trouble is None
    trial.close()
    assert details(tmp_path) == list(range(500))
    assert one_line(segments(tmp_path)[0]).num_rows == 500


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_every_so_many_calls_fail(tmp_path: Path, disk: Disk, name: str, every: int) -> None:
    """Also in the middle of a new segment, of its index, and of cutting off what a failed write has left."""
    trial = Trial(tmp_path, segment_size=6_000)
    seen = 0

    def fails(called: str, _: int) -> OSError | None:
        nonlocal seen
        seen += called == name
        return full() if called == name and seen % every == 0 and seen < 40 else None

    disk.fails = fails
    for n in range(0, 60, 2):
        trial.write(audit(n), audit(n + 1))
    trial.close()
    assert trial.writer.trouble is None
    assert details(tmp_path) == list(range(60))
    assert details(tmp_path, settled=True) == list(range(60))
    assert sum(one_line(path).num_rows for path in segments(tmp_path)) == 60
    again = Trial(tmp_path)
    assert again.writer.next == 60
    again.close()


def test_each_call_fails_once(tmp_path: Path, disk: Disk) -> None:
    for nth in range(1, 40):
        data = tmp_path / str(nth)
        disk.number, disk.fails = 0, lambda _, number, nth=nth: full() if number == nth else None  # type: ignore[misc]
        trial = Trial(data, segment_size=4_000)
        for n in range(6):
            trial.write(audit(n))
        trial.close()
        assert details(data) == list(range(6))
    assert disk.number < 39, "every call was tried"


def test_closing_gives_up_after_a_while(tmp_path: Path, disk: Disk) -> None:
    trial = Trial(tmp_path)
    trial.write(audit(0))
    disk.fails = lambda name, _: full() if name == "fdatasync" else None
    done: list[int] = []
    trial.writer.append(audit(1))
    trial.writer.append(audit(2))
    trial.writer.after(done.append, 1)
    assert disk.failed.wait(20.0)
    with pytest.raises(StoreError, match=r"the last 2 rows could not be written \(.*No space left.*Remedy: free"):
        trial.writer.close(timeout=0.05)
    assert done == []
    disk.fails = lambda name, number: None
    again = Trial(tmp_path)
    assert again.writer.next == 1, "what was not acknowledged is not there"
    again.write(audit(1))
    again.close()
    assert details(tmp_path) == [0, 1]


def test_a_disk_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(tmp_path, interval=0.0)
    hanging, released = threading.Event(), threading.Event()
    fdatasync = os.fdatasync

    def hang(file: int) -> None:
        hanging.set()
        released.wait(20.0)
        fdatasync(file)

    monkeypatch.setattr(os, "fdatasync", hang)
    trial.writer.append(audit(0))
    assert hanging.wait(20.0)
    with pytest.raises(StoreError, match="did not answer"):
        trial.writer.close(timeout=0.01)
    with pytest.raises(StoreError, match="in use"):
        Trial(tmp_path)
    released.set()
    assert trial.writer._thread is not None
    trial.writer._thread.join()
    trial.writer._lock.release()


def test_somebody_deletes_the_files(tmp_path: Path) -> None:
    """What was in them is gone; what comes is not written into the void."""
    trial = Trial(tmp_path)
    trial.write(*audits(range(5)))
    shutil.rmtree(tmp_path / "journal")
    trial.write(*audits(range(5, 8)))
    assert trial.writer.trouble is None
    assert trial.writer.size == sum(path.stat().st_size for path in trial.folder.iterdir())
    trial.close()
    assert [path.stem for path in segments(tmp_path)] == [f"{5:020d}"]
    assert details(tmp_path) == [5, 6, 7]


def test_a_failed_sync_is_not_believed_the_second_time(tmp_path: Path, disk: Disk) -> None:
    """The kernel forgets what it could not write; only writing it again helps."""
    trial = Trial(tmp_path)
    calls: list[str] = []

    def fails(name: str, _: int) -> OSError | None:
        calls.append(name)
        return (
            OSError(errno.EIO, "Input/output error") if calls.count("fdatasync") == 1 and name == "fdatasync" else None
        )

    disk.fails = fails
    trial.write(audit(0))
    trial.close()
    first = calls.index("fdatasync")
    assert calls[: first + 4] == ["pwrite", "fdatasync", "ftruncate", "pwrite", "fdatasync"]
    assert details(tmp_path) == [0]


def test_backlog_while_the_disk_is_full(tmp_path: Path, disk: Disk) -> None:
    disk.fails = lambda name, _: full() if name == "pwrite" else None
    trial = Trial(tmp_path, backlog=50 * 520)
    accepted = [n for n in range(200) if trial.writer.append(audit(n))]
    assert accepted == list(range(len(accepted)))
    assert 40 <= len(accepted) <= 60
    assert trial.writer.dropped == 200 - len(accepted)
    assert disk.failed.wait(20.0)
    disk.fails = lambda name, number: None
    trial.loop.until(lambda: not trial.writer._lost)
    assert trial.writer.append(audit(999))
    trial.close()
    with Reader(tmp_path, AUDIT) as reader:
        rows = list(reader.rows())
    assert [row["detail"] for row in rows[: len(accepted)]] == [str(n) for n in accepted]
    assert rows[len(accepted)]["count"] == 200 - len(accepted)
    assert rows[-1]["detail"] == "999"
    assert len(rows) == len(accepted) + 2
