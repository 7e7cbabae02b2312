"""The log is judged as SQLite reads it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tidegate.store.wal import damage


@pytest.fixture(params=[512, 4096, 65536])
def log(tmp_path: Path, request: pytest.FixtureRequest):
    """A log of ten commits, and how to read what SQLite makes of it."""
    path = tmp_path / "x.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {request.param}")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
    for n in range(9):
        connection.execute("INSERT INTO t VALUES (?, randomblob(300))", (n,))
    data = (tmp_path / "x.db-wal").read_bytes()
    connection.close()
    copy = tmp_path / "copy-wal"
    copy.write_bytes(data)
    return copy


def test_whole(log: Path) -> None:
    assert damage(log) is None


def test_absent_empty_or_unwritten(tmp_path: Path) -> None:
    log = tmp_path / "wal"
    assert damage(log) is None
    log.touch()
    assert damage(log) is None
    log.write_bytes(bytes(5000))
    assert damage(log) is None


def test_torn_anywhere_in_the_last_commit(log: Path) -> None:
    data = log.read_bytes()
    for cut in (1, 100, 400):
        log.write_bytes(data[:-cut])
        assert damage(log) is None
        log.write_bytes(data[:-cut] + bytes(cut))
        assert damage(log) is None


def test_damaged_before_the_last_two_commits(log: Path) -> None:
    data = log.read_bytes()
    for place in (40, 60, len(data) // 2):
        broken = bytearray(data)
        broken[place] ^= 0x10
        log.write_bytes(broken)
        assert "commits come after it" in str(damage(log)), place
    log.write_bytes(data[:60] + bytes(300) + data[360:])
    assert "frame 1 is damaged" in str(damage(log))


def test_frames_of_an_earlier_round_do_not_count(tmp_path: Path) -> None:
    """After a checkpoint the log is written from the start again; what is left of the old round has other salts."""
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (v BLOB)")
    for _ in range(20):
        connection.execute("INSERT INTO t VALUES (randomblob(300))")
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    connection.execute("INSERT INTO t VALUES (randomblob(300))")
    data = (tmp_path / "x.db-wal").read_bytes()
    connection.close()
    copy = tmp_path / "copy-wal"
    copy.write_bytes(data)
    assert len(data) > 20 * 4096
    assert damage(copy) is None
