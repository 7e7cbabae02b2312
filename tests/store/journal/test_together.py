"""Rows that are written together: all of them or none, whatever happens in between."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from store.journal.trial import NOON, Trial
from tidegate.store.journal import INGEST, Together, ingest_row
from tidegate.store.journal.segment import segment_of


def rows(*names: str) -> list[Any]:
    return [ingest_row(NOON, id=name, payload=b"{}", source="s1", registered=True) for name in names]


def take(trial: Trial, *names: str) -> Together:
    made = trial.writer.append_all(rows(*names), 600 * len(names))
    assert made is not None
    return made


def batches(trial: Trial) -> list[list[str]]:
    """The ids in each batch, as any Arrow tool reads them."""
    with pa.OSFile(str(segment_of(trial.folder, 0))) as file, pa.ipc.open_stream(file) as stream:
        return [batch.column("id").to_pylist() for batch in stream]


def test_one_batch_however_many(tmp_path: Path) -> None:
    trial = Trial(tmp_path, INGEST)
    names = [f"m{number}" for number in range(10_000)]
    made = take(trial, *names)
    trial.commit()
    assert made.written
    assert not made.withdraw(), "too late"
    assert batches(trial) == [names]
    trial.writer.close()


def test_several_share_a_batch_in_their_order(tmp_path: Path) -> None:
    trial = Trial(tmp_path, INGEST, start=False)
    take(trial, "a", "b")
    assert trial.writer.append(*rows("c"))
    gone = take(trial, "d", "e")
    take(trial, "f")
    assert gone.withdraw()
    trial.writer.start()
    trial.commit()
    assert batches(trial) == [["a", "b", "c", "f"]]
    assert not gone.written
    assert trial.writer.backlog == 0
    trial.writer.close()


def test_they_can_be_withdrawn_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(tmp_path, INGEST)
    full, tried, write = Event(), Event(), os.pwrite

    def pwrite(file: int, data: Any, position: int) -> int:
        if full.is_set():
            tried.set()
            raise OSError(errno.ENOSPC, "no space")
        return write(file, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    full.set()
    first, second = take(trial, "a", "b"), take(trial, "c")
    done: list[int] = []
    trial.writer.after(done.append, 1)
    assert tried.wait(10)
    while not first.withdraw():  # it is claimed while the attempt lasts
        tried.clear()
        assert tried.wait(10)
    full.clear()
    trial.loop.until(lambda: done)
    assert (first.written, second.written) == (False, True)
    assert batches(trial) == [["c"]]
    assert trial.writer.trouble is None
    trial.writer.close()


def test_what_does_not_fit_is_left_out_whole(tmp_path: Path) -> None:
    trial = Trial(tmp_path, INGEST, start=False)
    good = take(trial, "a")
    bad = trial.writer.append_all([*rows("b"), ingest_row(NOON, id=object())], 1200)  # type: ignore[arg-type]
    last = take(trial, "c")
    trial.writer.start()
    trial.commit()
    assert bad is not None
    assert (good.written, bad.written, last.written) == (True, False, True)
    assert trial.writer.spoilt == 2
    assert [name for batch in batches(trial) for name in batch] == ["a", "c"]
    trial.writer.close()


def test_no_room(tmp_path: Path) -> None:
    trial = Trial(tmp_path, INGEST, start=False, backlog=1000)
    take(trial, "a", "b")
    assert trial.writer.full
    assert trial.writer.append_all(rows("c"), 600) is None
    trial.writer.start()
    trial.commit()
    take(trial, "c")
    trial.commit()
    assert batches(trial) == [["a", "b"], ["c"]]
    trial.writer.close()
