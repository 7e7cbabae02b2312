"""A store that cannot be opened says why and what helps, and leaves everything as it found it."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from store.trial import MAIN, Trial, Turns, counts, message, tables
from tidegate.errors import StoreError
from tidegate.session.message import Delivery
from tidegate.store import SqliteStore, schema
from tidegate.store.lock import NAME


def filled(path: Path, deliveries: int = 300) -> Path:
    """A closed store with something in it."""
    trial = Trial(path)
    session = trial.session()
    for _ in range(deliveries):
        trial.store.enqueue(session.row, Delivery(message(os.urandom(200)), 1))
    trial.close()
    return path


def logged(path: Path, commits: int = 6) -> Path:
    """A store as a crash left it: several commits that are only in the log."""
    trial = Trial(path)
    session = trial.session()
    for _ in range(commits):
        trial.store.enqueue(session.row, Delivery(message(os.urandom(3000)), 1))
        trial.commit()
    image = trial.image()
    trial.close()
    return image


def refused(path: Path, **options) -> str:
    """The words with which it is refused, having checked that nothing changed."""
    before = (
        {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()} if path.parent.is_dir() else {}
    )
    before.pop(path.with_name(NAME), None)
    store = SqliteStore(path, call=Turns().call, **options)
    with pytest.raises(StoreError) as caught:
        store.open(first=MAIN)
    words = str(caught.value)
    assert "Remedy" in words
    for file, content in before.items():
        assert file.read_bytes() == content, f"{file.name} was touched"
    return words


def test_made_with_its_folder_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "t.db"
    trial = Trial(path)
    trial.session()
    trial.commit()
    modes = {file.name: file.stat().st_mode & 0o077 for file in path.parent.iterdir()}
    assert set(modes) >= {"t.db", "t.db-wal", NAME}
    assert set(modes.values()) == {0}
    trial.close()


@pytest.mark.parametrize(("durability", "level"), [("sync", 2), ("async", 1)])
def test_every_commit_is_forced_to_the_disk_in_sync_mode(tmp_path: Path, durability: str, level: int) -> None:
    trial = Trial(tmp_path / "t.db", durability=durability)
    assert trial.connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert trial.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    trial.close()


def test_no_database_at_all(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    path.write_bytes(b"this is a diary, not a database\n" * 200)
    assert "not a database" in refused(path)


def test_a_foreign_database(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE diary (day TEXT)")
    foreign.close()
    assert "not one of Tidegate's" in refused(path)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_pages(tmp_path: Path, seed: int) -> None:
    """Either the damage is found or, where it hit a payload or free space, every row is there."""
    chance = random.Random(seed)
    path = filled(tmp_path / "d" / "t.db")
    good = tables(path)
    data = bytearray(path.read_bytes())
    start = 100 if seed % 2 else chance.randrange(len(data) // 4096) * 4096
    data[start : start + 512] = chance.randbytes(512)
    path.write_bytes(data)
    store = SqliteStore(path, call=Turns().call)
    words = ""
    try:
        store.open(first=MAIN)
    except StoreError as error:
        words = str(error)
    if words:
        assert "Remedy" in words
        assert path.read_bytes() == data
        return
    store.close()
    lost = {name: len(rows) - len(tables(path)[name]) for name, rows in good.items()}
    assert not any(lost.values())


def test_a_body_that_is_missing(tmp_path: Path) -> None:
    path = filled(tmp_path / "d" / "t.db", 3)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM message WHERE id = 2")
    connection.close()
    assert "refers to message 2, which is not there" in refused(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE message SET properties = x'05ff' WHERE id = 1", "table message, row 1"),
        ("UPDATE delivery SET state = 9 WHERE id = 1", "table delivery, row 1"),
        ("UPDATE delivery SET ids = 'x' WHERE id = 1", "table delivery, row 1"),
        ("UPDATE delivery SET share = 'x' WHERE id = 1", "table delivery, row 1"),
        ("UPDATE session SET will_topic = 'x'", "table session, row 1"),
    ],
)
def test_values_that_make_no_sense(tmp_path: Path, change: str, words: str) -> None:
    path = filled(tmp_path / "d" / "t.db", 3)
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    assert words in refused(path)


def test_cut_short(tmp_path: Path) -> None:
    path = filled(tmp_path / "d" / "t.db")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    assert "malformed" in refused(path) or "page" in refused(path)


@pytest.mark.parametrize("how", ["emptied", "removed"])
def test_gone(tmp_path: Path, how: str) -> None:
    """A missing file is a first start only where there never was one."""
    path = filled(tmp_path / "d" / "t.db")
    path.unlink()
    if how == "emptied":
        path.touch()
    assert "there was a store here before" in refused(path)
    assert not path.exists() or path.stat().st_size == 0
    path.with_name(NAME).unlink()
    Trial(path).close()


def test_gone_but_for_its_log(tmp_path: Path) -> None:
    path = logged(tmp_path / "d" / "t.db")
    path.unlink()
    path.with_name(NAME).unlink()
    assert "its log t.db-wal is not" in refused(path)


def test_a_crash_before_the_tables_were_made(tmp_path: Path) -> None:
    """A file without content and without a past is a first start."""
    path = tmp_path / "t.db"
    path.touch()
    trial = Trial(path)
    assert trial.found.boot == 1
    trial.close()


def test_damage_in_the_middle_of_the_log(tmp_path: Path) -> None:
    """SQLite would take it for the end of the log and say nothing."""
    path = logged(tmp_path / "d" / "t.db")
    log = path.with_name("t.db-wal")
    data = bytearray(log.read_bytes())
    data[32 + 24 + 1000] ^= 1
    log.write_bytes(data)
    assert "frame 1 is damaged" in refused(path)
    assert refused(path), "also the second time"


def test_damage_in_the_header_of_the_log(tmp_path: Path) -> None:
    path = logged(tmp_path / "d" / "t.db")
    log = path.with_name("t.db-wal")
    data = bytearray(log.read_bytes())
    data[20] ^= 1
    log.write_bytes(data)
    assert "header is damaged" in refused(path)


def test_a_torn_end_of_the_log_is_no_damage(tmp_path: Path) -> None:
    """What a power failure leaves of the commit that was under way."""
    path = logged(tmp_path / "d" / "t.db", 6)
    log = path.with_name("t.db-wal")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 100)
    trial = Trial(path)
    assert len(trial.found.sessions[0].deliveries) == 5
    trial.close()


def test_gaps_in_the_log_are_the_price_of_async(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "d" / "t.db", durability="async")
    session = trial.session()
    for _ in range(6):
        trial.store.enqueue(session.row, Delivery(message(os.urandom(3000)), 1))
        trial.commit()
    path = trial.image()
    trial.close()
    log = path.with_name("t.db-wal")
    data = bytearray(log.read_bytes())
    data[-15000] ^= 1
    log.write_bytes(data)
    after = Trial(path)
    assert 0 < len(after.found.sessions[0].deliveries) < 6
    after.close()


def test_a_newer_version(tmp_path: Path) -> None:
    path = filled(tmp_path / "d" / "t.db", 1)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.close()
    words = refused(path)
    assert "newer Tidegate" in words
    assert f"store version {schema.VERSION + 1}" in words


def test_migration(tmp_path: Path) -> None:
    """Older versions are brought up to date, others are refused; a migration that fails changes nothing."""
    path = filled(tmp_path / "d" / "t.db", 1)
    version = schema.VERSION
    steps = {version: ["ALTER TABLE session ADD COLUMN colour TEXT", "UPDATE session SET colour = :first"]}
    connection = sqlite3.connect(path, isolation_level=None)
    assert schema.check(connection, path, version=version + 1) == version
    with pytest.raises(StoreError, match="much older"):
        schema.check(connection, path, version=version + 2, oldest=version + 1)

    connection.execute("BEGIN")
    broken = {version: [*steps[version], "SYNTAX ERROR"]}
    with pytest.raises(sqlite3.Error):
        schema.prepare(connection, version, first="red", version=version + 1, migrations=broken)
    connection.execute("ROLLBACK")
    assert schema.check(connection, path) == version

    connection.execute("BEGIN")
    schema.prepare(connection, version, first="red", version=version + 1, migrations=steps)
    connection.execute("COMMIT")
    assert connection.execute("SELECT colour FROM session").fetchall() == [("red",)]
    assert schema.check(connection, path, version=version + 1) == version + 1
    with pytest.raises(StoreError, match="newer"):
        schema.check(connection, path)
    connection.close()


OPEN = """
import os, sys
from pathlib import Path
from tidegate.errors import StoreError
from tidegate.store import SqliteStore
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)  # permissions mean nothing to root
try:
    SqliteStore(Path(sys.argv[1]), call=print).open(first="main")
except StoreError as error:
    print(error)
else:
    print("opened")
"""


def opened_by_somebody_else(path: Path) -> str:
    """What an unprivileged process is told."""
    command = [sys.executable, "-c", OPEN, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


@pytest.fixture
def reachable(tmp_path: Path):
    """A folder that an unprivileged process can get to, wherever pytest puts its own."""
    for place in (tmp_path, *tmp_path.parents):
        if Path(tempfile.gettempdir()) in place.parents:
            place.chmod(place.stat().st_mode | 0o011)
    return tmp_path


def test_a_file_that_may_not_be_written(reachable: Path) -> None:
    path = filled(reachable / "d" / "t.db", 1)
    path.parent.chmod(0o777)
    path.chmod(0o444)
    path.with_name(NAME).chmod(0o666)
    words = opened_by_somebody_else(path)
    assert "cannot be opened for writing: Permission denied" in words
    assert "Remedy" in words
    assert counts(path) == {"session": 1, "message": 1, "delivery": 1}


def test_a_folder_that_may_not_be_written(reachable: Path) -> None:
    folder = reachable / "d"
    folder.mkdir()
    folder.chmod(0o555)
    words = opened_by_somebody_else(folder / "t.db")
    assert "cannot be opened: Permission denied" in words
    assert "Remedy" in words
    assert list(folder.iterdir()) == []
    words = opened_by_somebody_else(folder / "deeper" / "t.db")
    assert "cannot be made: Permission denied" in words


def test_a_path_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be made" in refused(tmp_path / "file" / "t.db")
    (tmp_path / "folder.db").mkdir()
    assert "Is a directory" in refused(tmp_path / "folder.db")


def test_a_second_process(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    script = f"""
        import sys
        from pathlib import Path
        from tidegate.store import SqliteStore
        store = SqliteStore(Path({str(path)!r}), call=print)
        store.open(first={MAIN!r})
        print("open", flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        words = refused(path)
        assert f"in use by process {first.pid}" in words
        first.kill()
        first.wait()
    Trial(path).close()  # the lock ends with the process


def test_two_stores_in_one_process(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "t.db")
    assert "in use" in refused(tmp_path / "other.db")
    trial.close()


def test_another_program_has_the_database_open(tmp_path: Path) -> None:
    path = filled(tmp_path / "d" / "t.db", 1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM delivery")
    words = refused(path)
    assert "locked" in words
    assert "stop the program" in words
    other.close()
