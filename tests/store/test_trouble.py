"""A disk that is full or broken: nothing is lost, nothing is acknowledged early, and it mends by itself."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from store.trial import MAIN, Trial, counts, message, notes, tables, wait
from tidegate.errors import StoreError
from tidegate.session.message import Delivery
from tidegate.store import sqlite as store_sqlite
from tidegate.store import write as store_write


def fill(trial: Trial, row: int, number: int, size: int = 2000) -> list[Delivery]:
    deliveries = [Delivery(message(os.urandom(size)), 1) for _ in range(number)]
    for delivery in deliveries:
        trial.store.enqueue(row, delivery)
    return deliveries


def limit(trial: Trial, pages: int) -> None:
    trial.connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()


def test_full_and_free_again(tmp_path: Path) -> None:
    """A real SQLITE_FULL."""
    trial = Trial(tmp_path / "d" / "t.db", retry=0.02)
    seen: list[int] = []
    session = trial.session()
    trial.commit()
    limit(trial, 30)
    with capture_logs() as logs:
        deliveries = fill(trial, session.row, 100)
        trial.store.after(seen.append, 1)
        trial.loop.turn()
        wait(lambda: trial.store.refusing, "the store finds out")
        # what is noted meanwhile is accepted, and waits its turn
        more = fill(trial, session.row, 5)
        trial.store.after(seen.append, 2)
        for delivery in (*deliveries[:40], more[0]):
            trial.store.done(delivery)
        attempts = time.monotonic() + 0.1
        wait(lambda: time.monotonic() > attempts, "several attempts")
        assert trial.store.refusing
        assert seen == []
        assert trial.loop.queue.empty()
        assert trial.store.backlog == 104 * 2000
        assert counts(trial.image()) == {"session": 1}
        limit(trial, 100_000)
        trial.loop.until(lambda: len(seen) == 2)
    assert seen == [1, 2]
    assert not trial.store.refusing
    assert trial.store.backlog == 0
    assert [entry["log_level"] for entry in logs] == ["error", "info"], "said once, and once that it is over"
    assert "full" in logs[0]["error"]
    assert counts(trial.image()) == {"session": 1, "message": 64, "delivery": 64}
    trial.close()


def test_closing_while_it_is_full(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "d" / "t.db", retry=0.02)
    seen: list[int] = []
    session = trial.session()
    fill(trial, session.row, 3)
    trial.commit()
    limit(trial, 20)
    fill(trial, session.row, 100)
    trial.store.after(seen.append, 1)
    trial.loop.turn()
    wait(lambda: trial.store.refusing, "the store finds out")
    fill(trial, session.row, 1)
    trial.store.after(seen.append, 2)
    with pytest.raises(StoreError, match=r"could not be written.*not acknowledged"):
        trial.store.close(0.1)
    assert seen == [], "what is not safe is not acknowledged"
    again = Trial(trial.path)
    assert len(again.found.sessions[0].deliveries) == 3
    again.close()


def test_full_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(connection: sqlite3.Connection, meta: dict[str, str]) -> tuple[str, int]:
        connection.execute("PRAGMA max_page_count = 1").fetchone()
        connection.execute("CREATE TABLE more (x)")
        raise AssertionError

    monkeypatch.setattr("tidegate.store.load._identity", full)
    with pytest.raises(StoreError, match=r"full.*free some space"):
        Trial(tmp_path / "t.db")
    monkeypatch.undo()
    Trial(tmp_path / "t.db").close()


BATCH_STATEMENTS = 22  # of the batch in the next test; the last one is the COMMIT


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, BATCH_STATEMENTS + 1))
def test_an_error_at_any_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, when: str) -> None:
    """Also at a COMMIT that is reported as failed although it succeeded: the batch is simply written again."""
    trial = Trial(tmp_path / "d" / "t.db", retry=0.0, durability="async")
    session, other = trial.session("one"), trial.session("two")
    deliveries = fill(trial, session.row, 9, 10)
    fill(trial, other.row, 2, 10)
    trial.store.receive(session.row, 1, (message(), message()))
    trial.store.retain(MAIN, "a", message(topic="a"))
    trial.store.keep("monitor", "a", b"a")
    trial.commit()

    class Faulty:
        """The connection, but for one error."""

        def __init__(self, real: sqlite3.Connection) -> None:
            self.real = real
            self.calls = 0
            self.last = ""

        def execute(self, sql: str, *args: object) -> object:
            if sql.startswith("ROLLBACK"):
                return self.real.execute(sql)
            self.calls += 1
            if self.calls == nth:
                self.last = sql
            if self.calls == nth and when == "before":
                raise sqlite3.OperationalError("disk I/O error")
            result = self.real.execute(sql, *args)
            if self.calls == nth:
                raise sqlite3.OperationalError("disk I/O error")
            return result

        def __getattr__(self, name: str) -> object:
            return getattr(self.real, name)

    faulty = Faulty(trial.connection)
    monkeypatch.setattr(
        store_sqlite, "write", lambda connection, batch, offset: store_write.write(faulty, batch, offset)
    )
    for delivery in deliveries[:2]:
        trial.store.done(delivery)
    deliveries[2].pid = 5
    trial.store.update(deliveries[2])
    fill(trial, session.row, 6, 10)
    trial.store.release(session.row, 1)
    trial.store.receive(session.row, 2, (message(), message()))
    trial.store.retain(MAIN, "a", None)
    trial.store.retain(MAIN, "b", message(topic="b"))
    trial.store.drop_session(other.row)
    trial.store.save_session(session)
    trial.store.remember("policy", "17")
    trial.store.keep("monitor", "a", None)
    trial.store.keep("monitor", "b", b"b")
    with capture_logs() as logs:
        trial.commit()
    assert (faulty.last == "COMMIT") == (nth == BATCH_STATEMENTS)
    assert faulty.calls == nth + BATCH_STATEMENTS, "broken off, then written whole"
    assert [entry["log_level"] for entry in logs] == ["error", "info"]
    content = tables(trial.image())
    assert {name: len(rows) for name, rows in content.items() if rows} == {
        "session": 1,
        "message": 16,
        "delivery": 13,
        "incoming": 2,
        "retained": 1,
        "record": 1,
    }
    assert content["record"] == [("monitor", "b", b"b")]
    assert notes(trial.image())["policy"] == "17"
    trial.close()


LITTLE_SPACE = """
    import resource, sys, time
    from pathlib import Path
    from store.trial import Trial, counts, wait
    from store.test_trouble import fill
    folder, how = Path(sys.argv[1]), sys.argv[2]
    ballast = folder / "ballast"
    if how == "space":
        ballast.write_bytes(bytes(3_500_000))
    trial = Trial(folder / "t.db", retry=0.02)
    session = trial.session()
    trial.commit()
    if how == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    seen = []
    fill(trial, session.row, 300)
    trial.store.after(seen.append, 1)
    trial.loop.turn()
    wait(lambda: trial.store.refusing, "the store finds out")
    assert not seen
    if how == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    else:
        ballast.unlink()
    trial.loop.until(lambda: seen)
    assert not trial.store.refusing
    again = trial.again()
    assert len(again.found.sessions[0].deliveries) == 300
    again.close()
    print("recovered")
"""


def short_of_space(folder: Path, how: str) -> str:
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", textwrap.dedent(LITTLE_SPACE), str(folder), how]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=os.environ | {"PYTHONPATH": paths}, check=False
    )
    return result.stdout + result.stderr


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """The system refuses to write (EFBIG): a real I/O error, for everybody."""
    assert short_of_space(tmp_path, "limit").endswith("recovered\n")


def can_mount(folder: Path) -> bool:
    if os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_small_disk(tmp_path: Path) -> None:
    """A file system of four megabytes, where this may be mounted."""
    if not can_mount(tmp_path):
        # Without the privilege there is no small disk to be had; the test before this one ran the same way.
        assert short_of_space(tmp_path, "limit").endswith("recovered\n")
        return
    try:
        assert short_of_space(tmp_path, "space").endswith("recovered\n")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
