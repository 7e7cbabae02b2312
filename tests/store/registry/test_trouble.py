"""Whatever goes wrong: a StoreError with the remedy, nothing half done, and no password in it."""

from __future__ import annotations

import signal
import sqlite3
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

import postgres
from store.registry.places import NOW, Notices, Place, PostgresPlace, SqlitePlace, bodies, made, make, put
from store.registry.proxy import Cut, proxy
from store.registry.test_listening import cut
from tidegate.errors import StoreError, Uncertain
from tidegate.store.registry import Applied, registry
from tidegate.store.schema import TABLES as SESSIONS


class Holder:
    """Somebody else who holds the lock of the writers."""

    def __init__(self, place: Place) -> None:
        if isinstance(place, SqlitePlace):
            self._connection: Any = sqlite3.connect(place.path, isolation_level=None)
            self._connection.execute("BEGIN IMMEDIATE")
        else:
            assert isinstance(place, PostgresPlace)
            self._connection = place.server.connect(place.schema)
            self._connection.execute("BEGIN")
            self._connection.execute("SELECT 1 FROM tidegate_state FOR UPDATE")

    def release(self) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


def test_somebody_holds_the_lock(place: Place) -> None:
    one = place.registry(wait=0.2)
    made(one, put("a", "1", {}))
    holder = Holder(place)
    with pytest.raises(StoreError, match=r"Nothing was changed\. Remedy: find") as caught:
        make(one, put("a", "2", {}), id="x")
    assert not isinstance(caught.value, Uncertain)
    assert len(one.load().documents) == 1  # reading goes on
    holder.release()
    assert one.outcome("x") is None
    made(one, put("a", "2", {}), id="x")


def test_somebody_holds_the_lock_for_a_moment(place: Place) -> None:
    one = place.registry(wait=20.0)
    holder = Holder(place)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(make(one, put("a", "1", {}))))
    thread.start()
    thread.join(0.2)
    assert not done
    holder.release()
    thread.join()
    assert isinstance(done[0], Applied)


def test_who_waits_for_those_who_wait(place: Place) -> None:
    one = place.registry(wait=20.0, patience=0.2)
    holder = Holder(place)
    entered = threading.Event()
    connection = one._connection  # type: ignore[attr-defined]
    begin = connection.begin

    def told(mode: Any) -> None:
        entered.set()
        begin(mode)

    connection.begin = told
    first = threading.Thread(target=lambda: make(one, put("a", "1", {})))
    first.start()
    assert entered.wait(10)
    with pytest.raises(StoreError, match=r"is busy: .* Nothing was changed\. Remedy"):
        one.load()
    holder.release()
    first.join()
    assert len(one.load().documents) == 1


# PostgreSQL


def test_a_wrong_password_is_said_at_once(postgresql: PostgresPlace) -> None:
    url = postgresql.server.address(schema="public", password="hush-hush")
    begin = time.monotonic()
    with pytest.raises(StoreError, match=r"password authentication failed .* Remedy: mend user and password") as caught:
        postgresql.registry(url, patience=60.0)
    assert time.monotonic() - begin < 10
    assert "hush" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("url", ["postgresql://u:hush@[127/x", "postgresql://u:hu sh@h/x", "postgresql://h/x?hush=1"])
def test_a_url_that_cannot_be_read_is_not_quoted(url: str) -> None:
    with pytest.raises(StoreError, match="Remedy: write postgresql://") as caught:
        registry(url)
    assert "hush" not in "".join(traceback.format_exception(caught.value, chain=True)).replace(repr(url), "")
    assert caught.value.__suppress_context__


def test_an_unknown_database_or_user(postgresql: PostgresPlace) -> None:
    with pytest.raises(StoreError, match=r'database "nope" does not exist.* Remedy: create that database'):
        postgresql.registry(postgresql.server.address(schema="public", database="nope"))
    with pytest.raises(StoreError, match="Remedy: mend user and password"):
        postgresql.registry(postgresql.server.address(schema="public", user="nobody"))


def test_no_server(postgresql: PostgresPlace) -> None:
    url = postgresql.server.address(schema="public", port=9)
    with pytest.raises(StoreError, match=r"postgresql://127\.0\.0\.1:9/postgres cannot be .* Remedy: start the"):
        postgresql.registry(url, patience=0.3)


def test_a_database_that_cannot_hold_every_text(postgresql: PostgresPlace) -> None:
    postgresql.sql("CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(StoreError, match=r"encoding LATIN1.* Remedy: create the database with ENCODING 'UTF8'"):
            postgresql.registry(postgresql.server.address(schema="public", database="narrow"))
    finally:
        postgresql.sql("DROP DATABASE narrow WITH (FORCE)")


def test_a_user_who_may_too_little(postgresql: PostgresPlace) -> None:
    postgresql.sql("CREATE ROLE humble LOGIN PASSWORD 'humble'")
    try:
        postgresql.sql(f"GRANT USAGE ON SCHEMA {postgresql.schema} TO humble")
        url = postgresql.server.address(schema=postgresql.schema, user="humble", password="humble")
        with pytest.raises(StoreError, match=r"permission denied.* Remedy: grant it to the user"):
            postgresql.registry(url)
        # who has the tables made by somebody else needs no right to make any
        postgresql.registry().close()
        postgresql.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {postgresql.schema} TO humble")
        made(postgresql.registry(url), put("a", "1", {}))
    finally:
        postgresql.close()
        postgresql.sql("DROP OWNED BY humble CASCADE")
        postgresql.sql("DROP ROLE humble")


def test_the_servers_disk_is_full(postgresql: PostgresPlace) -> None:
    """The server itself says so, at the worst moment: with half of a change written."""
    one = postgresql.registry()
    version = made(one, put("a", "1", {}), put("a", "2", {}))
    postgresql.sql(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END $$"
    )
    postgresql.sql(
        "CREATE TRIGGER full_disk BEFORE INSERT ON tidegate_entry FOR EACH ROW WHEN (NEW.id = '2')"
        " EXECUTE FUNCTION full_disk()"
    )
    with pytest.raises(StoreError, match=r"No space left.*Nothing was changed\. Remedy: free some space"):
        make(one, put("a", "1", {"n": 1}, version), put("a", "2", {"n": 1}, version))
    assert bodies(one) == {("a", "1"): {}, ("a", "2"): {}}
    postgresql.sql("DROP TRIGGER full_disk ON tidegate_entry")
    made(one, put("a", "1", {"n": 1}, version), put("a", "2", {"n": 1}, version))
    postgresql.check()


def test_tables_that_are_gone(postgresql: PostgresPlace) -> None:
    one = postgresql.registry()
    postgresql.sql("DROP TABLE tidegate_entry")
    with pytest.raises(StoreError, match="Remedy: restore the registry's tables"):
        one.load()


def test_a_connection_that_was_cut_between_two_calls(postgresql: PostgresPlace) -> None:
    one = postgresql.registry()
    made(one, put("a", "1", {}))
    for call in (one.load, lambda: made(one, put("a", "2", {})), lambda: one.since(0), lambda: one.outcome("x")):
        cut(postgresql)
        call()


def test_the_server_is_restarted_between_two_calls(postgresql: PostgresPlace) -> None:
    one = postgresql.registry(patience=30.0)
    made(one, put("a", "1", {}))
    postgresql.server.restart()
    made(one, put("a", "2", {}))
    assert len(one.load().documents) == 2


def test_a_server_that_stays_away(postgresql: PostgresPlace) -> None:
    one = postgresql.registry(patience=0.3)
    postgresql.server.stop()
    try:
        with pytest.raises(StoreError, match="Remedy: start the server") as caught:
            make(one, put("a", "1", {}))
        assert not isinstance(caught.value, Uncertain)
    finally:
        postgresql.server.start()
    assert one.load().sequence == 0


def test_closing_does_not_wait_for_a_server_that_is_away(postgresql: PostgresPlace) -> None:
    one = postgresql.registry(patience=600.0)
    postgresql.server.stop()
    try:
        failed: list[BaseException] = []

        def call() -> None:
            try:
                one.load()
            except StoreError as error:
                failed.append(error)

        waiting = threading.Thread(target=call)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        one.close()
        waiting.join(10)
        assert failed
    finally:
        postgresql.server.start()


@pytest.mark.parametrize("how", list(Cut))
def test_the_connection_breaks_during_commit(postgresql: PostgresPlace, how: Cut) -> None:
    """Whether the server did it or not: it is done once, and the caller learns its number."""
    with proxy(postgresql.server.port) as network:
        one = postgresql.registry(postgresql.through(network.port))
        made(one, put("a", "n", {"n": 0}))
        network.cut(how)
        releasing = threading.Timer(0.5, network.released.set)
        releasing.start()
        answer = make(one, put("a", "n", {"n": 1}, 1), id="mine")
        releasing.join()
        assert answer == Applied(sequence=2, id="mine")
        assert network.cuts == 1
        assert [entry.body for entry in one.history("a", "n")] == [{"n": 0}, {"n": 1}]
        network.cut(how)
        assert isinstance(one.secrets.put("key", "k", b"1", expected=None, at=NOW), Applied)
        assert network.cuts == 2
        network.cut(how)
        assert len(one.load().documents) == 1
        one.close()
    postgresql.check()


@pytest.mark.parametrize("how", [Cut.BEFORE, Cut.AFTER])
def test_it_breaks_during_commit_and_stays_broken(postgresql: PostgresPlace, how: Cut) -> None:
    """Then it is said that nobody knows, and later what came of it."""
    with proxy(postgresql.server.port) as network:
        one = postgresql.registry(postgresql.through(network.port), patience=0.3)
        network.cut(how)
        network.refuse_after = True
        with pytest.raises(Uncertain, match=r"not known whether the change .* was made") as caught:
            make(one, put("a", "1", {}))
        network.refuse_after = network.refusing = False
        outcome = one.outcome(caught.value.id)
        assert outcome == (None if how is Cut.BEFORE else Applied(sequence=1, id=caught.value.id))
        # to say it again is right in either case
        again = make(one, put("a", "1", {}), id=caught.value.id)
        assert again == Applied(sequence=1, id=caught.value.id)
        one.close()
    postgresql.check()


def test_a_commit_that_is_still_under_way_is_waited_for(postgresql: PostgresPlace) -> None:
    """`outcome` must not say no to what the server is about to do."""
    with proxy(postgresql.server.port) as network:
        one = postgresql.registry(postgresql.through(network.port), wait=0.3)
        network.cut(Cut.LATE)
        with pytest.raises(Uncertain) as caught:
            make(one, put("a", "1", {}))
        with pytest.raises(StoreError, match="Remedy: find who holds the lock"):
            one.outcome(caught.value.id)
        network.released.set()
        other = postgresql.registry()
        assert other.outcome(caught.value.id) == Applied(sequence=1, id=caught.value.id)
        one.close()


def test_the_server_crashes_under_load(postgresql: PostgresPlace) -> None:
    """Everything that was acknowledged is there, everything once, and the other node hears of it."""
    one, other = postgresql.registry(patience=60.0), postgresql.registry()
    notices = Notices()
    other.listen(notices, after=0)
    made(one, put("a", "x", {"n": 0}), put("a", "y", {"n": 0}))
    acknowledged = [0]
    stop = threading.Event()
    enough = threading.Semaphore(0)

    def write() -> None:
        version = 1
        while not stop.is_set():
            n = acknowledged[-1] + 1
            version = made(one, put("a", "x", {"n": n}, version), put("a", "y", {"n": n}, version))
            acknowledged.append(n)
            enough.release()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for how in (signal.SIGQUIT, signal.SIGINT, signal.SIGQUIT):
            for _ in range(20):
                assert enough.acquire(timeout=60)
            postgresql.server.restart(how)
        for _ in range(20):
            assert enough.acquire(timeout=60)
    finally:
        stop.set()
        writer.join()
    last = acknowledged[-1]
    assert acknowledged == list(range(last + 1))
    assert bodies(other) == {("a", "x"): {"n": last}, ("a", "y"): {"n": last}}
    assert other.load().sequence == last + 1
    notices.wait_for(last + 1)
    postgresql.check()


def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "tidegate.store.registry.postgres", raising=False)
    with pytest.raises(StoreError, match=r"Remedy: pip install 'tidegate\[postgres\]'"):
        registry(f"postgresql://{postgres.USER}@127.0.0.1/x")


# SQLite


def test_the_disk_is_full(sqlite: SqlitePlace) -> None:
    one = sqlite.registry()
    version = made(one, put("a", "1", {}), put("a", "2", {}))
    connection = one._connection._connection  # type: ignore[attr-defined]
    most = connection.execute("PRAGMA max_page_count").fetchone()[0]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    big = {"text": "x" * 100_000}
    with pytest.raises(StoreError, match=r"full \(SQLITE_FULL\)\. Nothing was changed\. Remedy: free some space"):
        make(one, put("a", "1", {"n": 1}, version), put("a", "2", big, version))
    assert bodies(one) == {("a", "1"): {}, ("a", "2"): {}}
    connection.execute(f"PRAGMA max_page_count = {most}")
    made(one, put("a", "1", {"n": 1}, version), put("a", "2", big, version))
    sqlite.check()


def test_not_a_database(sqlite: SqlitePlace) -> None:
    sqlite.path.write_bytes(b"hello" * 1000)
    with pytest.raises(StoreError, match=r"SQLITE_NOTADB.* Remedy: restore it from a backup"):
        sqlite.registry()
    assert sqlite.path.read_bytes() == b"hello" * 1000


def test_somebody_elses_database(sqlite: SqlitePlace) -> None:
    sqlite.sql("CREATE TABLE t (a)")
    with pytest.raises(StoreError, match=r"but no registry. Remedy: name another file"):
        sqlite.registry()
    sqlite.sql("DROP TABLE t")
    sqlite.sql(SESSIONS[0])
    sqlite.sql(f"PRAGMA application_id = {0x54476174}")
    with pytest.raises(StoreError, match="but no registry"):
        sqlite.registry()


def test_a_damaged_one(sqlite: SqlitePlace) -> None:
    one = sqlite.registry()
    made(one, *(put("a", str(n), {"text": "x" * 3000}) for n in range(30)))
    one.close()
    with sqlite.path.open("r+b") as file:
        file.seek(4096 * 8)
        file.write(b"\xff" * 4096 * 10)
    with pytest.raises(StoreError, match=r"damaged|SQLITE_CORRUPT") as caught:
        sqlite.registry()
    assert "Remedy: restore it from a backup" in str(caught.value)


def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot be made.* Remedy"):
        registry(f"sqlite:///{tmp_path}/file/registry.db").open()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match=r"cannot be opened: Is a directory. Remedy: let the user"):
        registry(f"sqlite:///{tmp_path}/folder").open()


def test_only_the_owner_may_read_it(sqlite: SqlitePlace) -> None:
    one = sqlite.registry()
    made(one, put("a", "1", {}))
    for path in sqlite.path.parent.glob("registry.db*"):
        assert path.stat().st_mode & 0o077 == 0, path


# any


@pytest.mark.parametrize("url", ["", "sqlite:", "sqlite://x", "sqlite:///", "sqlite:///a?b=hush", "mysql://u:hush@h/d"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(StoreError, match=r"Remedy: write sqlite:///PATH or postgresql://") as caught:
        registry(url)
    assert "hush" not in str(caught.value)


def test_paths_in_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url, path in (
        ("sqlite:///var/registry.db", tmp_path / "var/registry.db"),
        (f"sqlite:///{tmp_path}/a%20b%3F.db", tmp_path / "a b?.db"),
    ):
        one = registry(url)
        one.open()
        one.close()
        assert path.exists()
