"""What a reader has not read stays; how far it has come is in a file that appears whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from store.journal.trial import Trial, audit, details, segments
from tidegate.errors import StoreError
from tidegate.store.journal import AUDIT, INGEST, Retention
from tidegate.store.journal import writer as module
from tidegate.store.journal.readers import commit, enrol, known, lowest, offsets_of, readers_of, withdraw

LITTLE = Retention(size=20_000)


def test_files(tmp_path: Path) -> None:
    folder = readers_of(tmp_path, INGEST)
    assert folder == tmp_path / "journal/ingest/readers"
    assert lowest(folder) is None
    enrol(folder, "pipeline")
    assert (folder / "pipeline.json").read_bytes() == b"{}"
    assert lowest(folder) == 0
    commit(folder, "pipeline", {"0": 12, "1": 3})
    enrol(folder, "pipeline")
    assert offsets_of(folder / "pipeline.json") == {"0": 12, "1": 3}
    commit(folder, "mine", {"0": 40})
    assert (lowest(folder), lowest(folder, shard=1), lowest(folder, shard=2)) == (12, 0, 0)
    assert sorted(known(folder)) == ["mine", "pipeline"]
    (folder / "pipeline.json").unlink()
    assert lowest(folder) == 40
    assert os.listdir(folder) == ["mine.json"], "nothing is left over"


@pytest.mark.parametrize("name", ["", "a/b", "..", "../x", ".hidden", "ü", "x" * 65])
def test_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="is no name of a reader"):
        commit(tmp_path, name, {})


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'{"0": -1}', b'{"0": "1"}', b'{"x": 1}', b'{"0": true}'])
def test_what_cannot_be_read_keeps_everything(tmp_path: Path, text: bytes) -> None:
    commit(tmp_path, "good", {"0": 12})
    (tmp_path / "bad.json").write_bytes(text)
    told: list[Path] = []
    assert lowest(tmp_path, broken=lambda path, why: told.append(path)) == 0
    assert told == [tmp_path / "bad.json"]
    with pytest.raises(StoreError, match="Remedy"):
        offsets_of(tmp_path / "bad.json")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tmp_path, "mine", {"0": 1})

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        commit(tmp_path, "mine", {"0": 2})
    monkeypatch.undo()
    assert offsets_of(tmp_path / "mine.json") == {"0": 1}
    assert os.listdir(tmp_path) == ["mine.json"]


def test_retention_waits_for_readers(tmp_path: Path) -> None:
    folder = readers_of(tmp_path, AUDIT)
    enrol(folder, "pipeline")
    trial = Trial(tmp_path, segment_size=5_000, retention=LITTLE)
    with capture_logs() as logs:
        for n in range(60):
            trial.write(audit(n))
    assert details(tmp_path)[0] == 0, "nobody has read anything"
    assert [entry["log_level"] for entry in logs] == ["warning"], "said once"
    commit(folder, "pipeline", {"0": 30})
    commit(folder, "mine", {"0": 20})
    for n in range(60, 80):
        trial.write(audit(n))
    first = details(tmp_path)[0]
    assert 10 < first <= 20, "whole segments, up to the slower one"
    (folder / "mine.json").unlink()
    for n in range(80, 100):
        trial.write(audit(n))
    assert 20 < details(tmp_path)[0] <= 30
    (folder / "pipeline.json").unlink()
    for n in range(100, 120):
        trial.write(audit(n))
    assert details(tmp_path)[0] > 90
    trial.close()


def test_what_is_read_stays_as_long_as_retention_says(tmp_path: Path) -> None:
    commit(readers_of(tmp_path, AUDIT), "pipeline", {"0": 1_000})
    trial = Trial(tmp_path, segment_size=5_000, retention=Retention(size=10 << 20))
    for n in range(60):
        trial.write(audit(n))
    trial.close()
    assert details(tmp_path) == list(range(60))
    assert len(segments(tmp_path)) > 3


def test_a_broken_file_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK", 0.01)
    folder = readers_of(tmp_path, AUDIT)
    commit(folder, "pipeline", {"0": 1_000})
    (folder / "bad.json").write_bytes(b"{")
    trial = Trial(tmp_path, segment_size=5_000, retention=LITTLE)
    with capture_logs() as logs:
        for n in range(60):
            trial.write(audit(n))
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert [entry["path"] for entry in errors] == [str(folder / "bad.json")]
    assert details(tmp_path) == list(range(60))
    (folder / "bad.json").unlink()
    for n in range(60, 80):
        trial.write(audit(n))
    assert details(tmp_path)[0] > 40
    trial.close()


def test_a_reader_that_withdraws_keeps_nothing(tmp_path: Path) -> None:
    folder = readers_of(tmp_path, INGEST)
    assert withdraw(folder, "pipeline") is None
    commit(folder, "pipeline", {"0": 7})
    commit(folder, "other", {"0": 9})
    assert withdraw(folder, "pipeline") == {"0": 7}
    assert (list(known(folder)), lowest(folder)) == (["other"], 9)
    (folder / "other.json").write_text("nonsense")
    assert withdraw(folder, "other") == {}
    assert lowest(folder) is None
