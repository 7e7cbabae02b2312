"""The id of a journal: made once, whoever asks first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from store.journal.trial import NOON, Trial
from tidegate.errors import StoreError
from tidegate.store.journal import AUDIT, INGEST, audit_row, journal_id, known_journal


def test_it_is_made_with_the_first_stream_and_stays(tmp_path: Path) -> None:
    assert known_journal(tmp_path) is None
    assert not (tmp_path / "journal").exists()
    ids = set()
    for stream in (AUDIT, INGEST, AUDIT):
        trial = Trial(tmp_path, stream)
        if stream is AUDIT:
            trial.write(audit_row(NOON))
        trial.close()
        ids.add(known_journal(tmp_path))
    assert ids == {journal_id(tmp_path)}
    assert len(journal_id(tmp_path)) == 32
    assert journal_id(tmp_path / "another") != journal_id(tmp_path)


def test_all_who_ask_at_once_are_told_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        ids = set(threads.map(lambda _: journal_id(tmp_path), range(40)))
    assert ids == {known_journal(tmp_path)}
    assert [path.name for path in (tmp_path / "journal").iterdir()] == ["id"]


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 32, b"g" * 32])
def test_a_damaged_one_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "id").write_bytes(content)
    with pytest.raises(StoreError, match=r"id is damaged: .* Remedy: restore it"):
        journal_id(tmp_path)
    with pytest.raises(StoreError, match="damaged"):
        Trial(tmp_path, INGEST)
    assert (tmp_path / "journal" / "id").read_bytes() == content
