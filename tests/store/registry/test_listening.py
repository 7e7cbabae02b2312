"""Notices: of every change, within a second, also after trouble."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from unittest.mock import Mock

import pytest

from harness import PATIENCE
from store.registry.places import NOW, Notices, Place, PostgresPlace, SqlitePlace, drop, made, put
from tidegate.errors import StoreError
from tidegate.store.registry import Listener, Registry, schema


def wait_until(listening: Listener, trouble: bool) -> None:
    deadline = time.monotonic() + PATIENCE
    while (listening.trouble is not None) != trouble:
        assert time.monotonic() < deadline, listening.trouble
        time.sleep(0.01)


def test_another_nodes_change_is_told_within_a_second(place: Place) -> None:
    one, other = place.registry(), place.registry()
    notices = Notices()
    one.listen(notices, after=0)
    for number in range(4):
        sequence = made(other, put("a", str(number), {}))
        begin = time.monotonic()  # from here: how long the disk takes is not the listener's
        assert notices.wait_for(sequence) - begin < 1.0
        assert [entry.sequence for entry in one.since(sequence - 1) or ()] == [sequence]
    other.secrets.put("key", "k", b"1", expected=None, at=NOW)
    notices.wait_for(5)
    assert one.secrets.changed(4) == {"key"}
    made(one, drop("a", "1"))
    notices.wait_for(6)
    assert notices.told == sorted(set(notices.told))


def test_what_happened_before_listening(place: Place) -> None:
    one, other = place.registry(), place.registry()
    sequence = one.load().sequence
    made(other, put("a", "1", {}))
    made(other, put("a", "2", {}))
    notices, quiet = Notices(), Notices()
    one.listen(notices, after=sequence)
    one.listen(quiet, after=2)
    notices.wait_for(2)
    made(other, put("a", "3", {}))
    quiet.wait_for(3)
    assert quiet.told == [3]


def test_a_callback_that_fails_is_called_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    one = place.registry()
    notices = Notices()

    def fail(sequence: int) -> None:
        notices(sequence)
        raise ValueError("this one is wrong")

    log = Mock()
    monkeypatch.setattr("tidegate.store.registry.listener.log", log)
    listening = one.listen(fail, after=0)
    for sequence in (1, 2):
        made(one, put("a", str(sequence), {}))
        notices.wait_for(sequence)
    listening.close()
    assert [each.args[0] for each in log.exception.call_args_list] == ["a callback after a change failed"] * 2


def test_the_end(place: Place) -> None:
    before = threading.active_count()
    one, other = place.registry(), place.registry()
    notices = Notices()
    closed = threading.Event()

    def close(sequence: int) -> None:
        listening.close()
        closed.set()

    listening = one.listen(close, after=0)
    later = one.listen(notices, after=0)
    made(other, put("a", "1", {}))
    assert closed.wait(PATIENCE)
    notices.wait_for(1)
    later.close()
    made(other, put("a", "2", {}))
    one.listen(notices, after=2)
    one.close()
    assert notices.told == [1]
    assert threading.active_count() == before
    with pytest.raises(StoreError, match="not open"):
        one.listen(notices, after=0)


def test_a_database_that_was_put_back(place: Place) -> None:
    one = place.registry()
    for number in range(3):
        made(one, put("a", str(number), {}))
    notices = Notices()
    one.listen(notices, after=3)
    place.sql("UPDATE tidegate_state SET sequence = 2")
    notices.wait_for(2)
    assert notices.told == [2]


def test_tables_of_a_newer_tidegate_are_left_alone(place: Place) -> None:
    one = place.registry()
    notices = Notices()
    listening = one.listen(notices, after=0)
    made(one, put("a", "1", {}))
    notices.wait_for(1)
    place.sql(f"UPDATE tidegate_schema SET version = {schema.VERSION + 1}")
    wait_until(listening, True)
    assert "newer Tidegate" in (listening.trouble or "")
    for call in (one.load, lambda: one.since(0), lambda: made(one, put("a", "2", {}))):
        with pytest.raises(StoreError, match="newer Tidegate"):
            call()
    place.sql(f"UPDATE tidegate_schema SET version = {schema.VERSION}")
    wait_until(listening, False)


def test_another_process(sqlite: SqlitePlace) -> None:
    one = sqlite.registry()
    notices = Notices()
    one.listen(notices, after=0)
    script = (
        "import sys, time\n"
        "from tidegate.store.registry import Change, registry\n"
        "one = registry(sys.argv[1])\n"
        "one.open()\n"
        "one.apply([Change(kind='a', id='1', body={})], by='ann', why='', at=1.0)\n"
        "print(time.monotonic())\n"
        "one.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, sqlite.url], capture_output=True, text=True, check=True)
    assert notices.wait_for(1) - float(done.stdout) < 1.0


def test_notices_do_not_wait_for_the_next_look(postgresql: PostgresPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.store.registry.postgres.BEAT", 60.0)
    one, other = postgresql.registry(), postgresql.registry()
    notices = Notices()
    listening = one.listen(notices, after=-1)
    notices.wait_for(0)
    for number in range(3):
        sequence = made(other, put("a", str(number), {}))
        begin = time.monotonic()  # from here: how long the disk takes is not the listener's
        assert notices.wait_for(sequence) - begin < 1.0
    closing = threading.Thread(target=listening.close)
    closing.start()
    while not listening.closed:  # type: ignore[attr-defined]
        time.sleep(0.001)
    made(other, put("a", "last", {}))  # wakes it up
    closing.join()


def test_a_lost_notice_is_made_up_for(postgresql: PostgresPlace) -> None:
    one = postgresql.registry()
    notices = Notices()
    one.listen(notices, after=0)
    postgresql.sql("UPDATE tidegate_state SET sequence = 7")  # and nobody is told
    begin = time.monotonic()
    assert notices.wait_for(7) - begin < 1.0


def test_the_server_goes_and_comes_back(postgresql: PostgresPlace) -> None:
    one, other = postgresql.registry(), postgresql.registry(patience=30.0)
    notices = Notices()
    listening = one.listen(notices, after=0)
    made(other, put("a", "1", {}))
    notices.wait_for(1)
    postgresql.server.stop()
    try:
        wait_until(listening, True)
        assert "postgresql://127.0.0.1" in (listening.trouble or "")
    finally:
        postgresql.server.start()
    made(other, put("a", "2", {}))
    notices.wait_for(2)
    assert listening.trouble is None
    made(other, put("a", "3", {}))
    begin = time.monotonic()
    assert notices.wait_for(3) - begin < 1.0


def test_a_listener_whose_connection_is_cut(postgresql: PostgresPlace) -> None:
    one, other = postgresql.registry(), postgresql.registry()
    notices = Notices()
    one.listen(notices, after=0)
    made(other, put("a", "1", {}))
    notices.wait_for(1)
    cut(postgresql)
    made(other, put("a", "2", {}))
    begin = time.monotonic()
    assert notices.wait_for(2) - begin < 1.0
    assert bodies_of(one) == 2


def bodies_of(where: Registry) -> int:
    return len(where.load().documents)


def cut(place: PostgresPlace) -> None:
    """Every connection of ours."""
    place.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'tidegate' AND pid <> pg_backend_pid()"
    )
