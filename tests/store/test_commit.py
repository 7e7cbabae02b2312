"""When commits happen, and in which order callbacks run."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from store.trial import MAIN, Trial, Turns, counts, message, stored, wait
from tidegate.errors import StoreError
from tidegate.session.message import Delivery
from tidegate.session.store import Store
from tidegate.store import SqliteStore


@pytest.fixture
def trial(tmp_path: Path):
    trial = Trial(tmp_path / "d" / "t.db")
    yield trial
    trial.close()


def test_it_is_a_store(tmp_path: Path) -> None:
    store: Store = SqliteStore(tmp_path / "t.db", call=Turns().call)
    assert not store.refusing
    assert store.backlog == 0


def test_nothing_noted_nothing_under_way(trial: Trial) -> None:
    seen: list[int] = []
    for n in range(3):
        trial.store.after(seen.append, n)
    assert seen == [], "never inside after()"
    trial.loop.turn()
    assert seen == [0, 1, 2], "one turn for all of them"
    assert trial.loop.queue.empty()


def test_a_callback_waits_for_the_commit(trial: Trial) -> None:
    seen: list[dict[str, int]] = []
    session = trial.session()
    trial.store.enqueue(session.row, Delivery(message(b"12345"), 1))
    trial.store.after(lambda: seen.append(counts(trial.image())))
    trial.loop.turn()
    assert seen == []
    assert trial.store.backlog == 5
    trial.loop.until(lambda: seen)
    assert seen == [{"session": 1, "message": 1, "delivery": 1}]
    assert trial.store.backlog == 0


def test_order_over_batches(trial: Trial) -> None:
    """Callbacks of a batch that waits, of one under way, and of none at all, run in the order they were given."""
    seen: list[int] = []
    given = 0

    def give(times: int = 3) -> None:
        nonlocal given
        for _ in range(times):
            trial.store.after(seen.append, given)
            given += 1

    give()
    session = trial.session()
    give()
    trial.loop.turn()
    trial.loop.turn()  # the first three ran, and the batch was handed over
    give()  # nothing noted since: they belong to the commit under way
    delivery = Delivery(message(), 1)
    trial.store.enqueue(session.row, delivery)
    give()
    trial.store.done(delivery)  # a batch without anything left in it
    give()
    trial.loop.until(lambda: len(seen) == given)
    assert seen == list(range(15))


def test_callbacks_may_note_and_ask_again(trial: Trial) -> None:
    session = trial.session()
    seen: list[int] = []

    def again(n: int) -> None:
        seen.append(n)
        if n < 5:
            trial.store.enqueue(session.row, Delivery(message(), 1))
            trial.store.after(again, n + 1)

    trial.store.after(again, 0)
    trial.loop.until(lambda: len(seen) == 6)
    assert seen == [0, 1, 2, 3, 4, 5]
    assert counts(trial.image()) == {"session": 1, "message": 5, "delivery": 5}


def test_many_callbacks_do_not_hold_up_the_loop(trial: Trial) -> None:
    seen: list[int] = []
    trial.session()
    for n in range(1700):
        trial.store.after(seen.append, n)
    steps = []
    while len(seen) < 1700:
        before = len(seen)
        trial.loop.turn()
        steps.append(len(seen) - before)
    assert max(steps) <= 500
    assert seen == list(range(1700))


def test_a_callback_that_fails_stops_nobody(trial: Trial) -> None:
    seen: list[int] = []

    def fail() -> None:
        raise ValueError("on purpose")

    trial.session()
    trial.store.after(seen.append, 1)
    trial.store.after(fail)
    trial.store.after(seen.append, 2)
    with capture_logs() as logs:
        trial.loop.until(lambda: len(seen) == 2)
    assert [(entry["log_level"], "fail" in entry["callback"]) for entry in logs] == [("error", True)]
    trial.commit()


def test_what_one_turn_notes_is_committed_together(tmp_path: Path) -> None:
    """The loop turns freely while each turn notes a pair; no image of the disk ever holds half of one."""
    trial = Trial(tmp_path / "d" / "t.db", durability="async")
    one, two = trial.session("one"), trial.session("two")
    for _ in range(200):
        m = message()
        trial.store.enqueue(one.row, Delivery(m, 1))
        time.sleep(0)  # an invitation to the writer
        trial.store.enqueue(two.row, Delivery(m, 1))
        while not trial.loop.queue.empty():
            trial.loop.turn()
        batch = trial.store._writing
        if batch is not None:
            assert len(batch.deliveries) % 2 == 0
    trial.close()


def test_commits_keep_their_distance(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "d" / "t.db", interval=0.05)
    starts: list[float] = []
    trial.connection.set_trace_callback(
        lambda sql: starts.append(time.monotonic()) if sql.startswith("BEGIN") else None
    )
    session = trial.session()
    for _ in range(4):
        trial.store.enqueue(session.row, Delivery(message(), 1))
        trial.commit()
    trial.close()
    gaps = [b - a for a, b in pairwise(starts)]
    assert len(gaps) >= 3
    assert min(gaps) >= 0.049


def test_an_online_subscriber_has_time_to_acknowledge(tmp_path: Path) -> None:
    """The first note after a pause does not start a commit at once: its undoing may be on the way."""
    trial = Trial(tmp_path / "d" / "t.db", interval=0.4)
    session = trial.session()
    trial.commit()
    commits: list[str] = []
    trial.connection.set_trace_callback(lambda sql: commits.append(sql) if sql.startswith("COMMIT") else None)
    time.sleep(0.45)  # the last commit is longer ago than the interval
    delivery = Delivery(message(), 1)
    trial.store.enqueue(session.row, delivery)
    time.sleep(0.1)  # sent, and acknowledged by the client
    assert trial.loop.queue.empty()
    trial.store.done(delivery)
    trial.commit()
    assert commits == []
    trial.close()


def test_close_commits_what_is_noted_and_runs_the_callbacks(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    trial = Trial(tmp_path / "d" / "t.db", interval=30.0)  # the writer would wait
    seen: list[int] = []
    session = trial.session()
    trial.store.after(seen.append, 1)
    trial.store.enqueue(session.row, Delivery(message(), 1))
    trial.store.after(seen.append, 2)
    started = time.monotonic()
    trial.close()
    assert time.monotonic() - started < 10
    assert seen == [1, 2]
    assert counts(trial.path) == {"session": 1, "message": 1, "delivery": 1}
    files = sorted(file.name for file in trial.path.parent.iterdir())
    assert files == ["t.db", "tidegate.lock"], "the log was emptied"
    trial.close()  # once more does no harm
    assert all(thread.name != "tidegate-store" for thread in set(threading.enumerate()) - before)


def test_close_while_the_writer_waits_for_the_batch(tmp_path: Path) -> None:
    """The writer has asked, the loop no longer answers."""
    trial = Trial(tmp_path / "d" / "t.db")
    trial.session()
    wait(lambda: not trial.loop.queue.empty(), "the writer asks for the batch")
    trial.close()
    assert counts(trial.path) == {"session": 1}
    trial.loop.turn()  # the loop gets to it when all is over
    assert counts(trial.path) == {"session": 1}


def test_close_with_a_batch_under_way_and_another_behind_it(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "d" / "t.db")
    seen: list[int] = []
    session = trial.session()
    trial.store.after(seen.append, 1)
    trial.loop.turn()
    trial.store.enqueue(session.row, Delivery(message(), 1))
    trial.store.after(seen.append, 2)
    trial.close()
    assert seen == [1, 2]
    assert counts(trial.path) == {"session": 1, "message": 1, "delivery": 1}


def test_close_without_start(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "d" / "t.db", start=False)
    seen: list[int] = []
    trial.session()
    trial.store.after(seen.append, 1)
    trial.close()
    assert seen == [1]
    assert counts(trial.path) == {"session": 1}


def test_a_loop_that_is_gone(tmp_path: Path) -> None:
    """The writer cannot reach a closed loop; close() still writes everything."""

    def call(function: object) -> None:
        raise RuntimeError("Event loop is closed")

    store = SqliteStore(tmp_path / "t.db", call=call, later=lambda *_: None, interval=0.0)
    store.open(first=MAIN)
    store.start()
    store.save_session(stored())
    store.close(10.0)
    assert counts(tmp_path / "t.db") == {"session": 1}


def test_order_of_life(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "t.db", call=Turns().call)
    with pytest.raises(StoreError, match="not open"):
        store.start()
    store.close()
    store.open(first=MAIN)
    with pytest.raises(StoreError, match="before"):
        store.open(first=MAIN)
    store.close()
    with pytest.raises(StoreError, match="before"):
        store.open(first=MAIN)
