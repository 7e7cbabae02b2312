"""What is undone in time is never written, and bodies live exactly as long as something refers to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from store.trial import MAIN, Trial, counts, message, notes, tables
from tidegate.session.message import Delivery, State
from tidegate.store import batch as batches
from tidegate.store.batch import Batch
from tidegate.wire import Subscription


@pytest.fixture
def trial(tmp_path: Path):
    trial = Trial(tmp_path / "d" / "t.db", durability="async")
    yield trial
    trial.close()


def transactions(trial: Trial) -> list[str]:
    """From here on, every COMMIT."""
    seen: list[str] = []
    trial.connection.set_trace_callback(lambda sql: seen.append(sql) if sql.startswith("COMMIT") else None)
    return seen


def look(trial: Trial) -> dict[str, int]:
    trial.commit()
    return counts(trial.image())


def test_enqueue_and_done_leave_no_trace(trial: Trial) -> None:
    session = trial.session()
    trial.commit()
    commits = transactions(trial)
    deliveries = [Delivery(message(b"x" * 100), 1) for _ in range(10)]
    for delivery in deliveries:
        trial.store.enqueue(session.row, delivery)
        delivery.pid, delivery.state = 1, State.SENT
        trial.store.update(delivery)
    assert trial.store.backlog == 1000
    for delivery in deliveries:
        trial.store.done(delivery)
    assert trial.store.backlog == 0
    assert all(d.row == 0 and d.message.row == 0 and d.message.rows == 0 for d in deliveries)
    trial.commit()
    assert commits == []
    assert counts(trial.image()) == {"session": 1}


def test_a_body_is_written_if_one_of_its_deliveries_is_left(trial: Trial) -> None:
    sessions = [trial.session(f"c{n}") for n in range(3)]
    shared = message(b"shared")
    deliveries = [Delivery(shared, 1) for _ in sessions]
    for session, delivery in zip(sessions, deliveries, strict=True):
        trial.store.enqueue(session.row, delivery)
    trial.store.done(deliveries[0])
    trial.store.done(deliveries[2])
    assert shared.rows == 1
    assert look(trial) == {"session": 3, "message": 1, "delivery": 1}
    trial.store.done(deliveries[1])
    assert (shared.row, shared.rows) == (0, 0)
    assert look(trial) == {"session": 3}


def test_done_in_a_later_batch_deletes(trial: Trial) -> None:
    session = trial.session()
    deliveries = [Delivery(message(), 1) for _ in range(700)]
    for delivery in deliveries:
        trial.store.enqueue(session.row, delivery)
    assert look(trial) == {"session": 1, "message": 700, "delivery": 700}
    for delivery in deliveries[1:]:
        delivery.state = State.SENT
        trial.store.update(delivery)
        trial.store.done(delivery)
    assert look(trial) == {"session": 1, "message": 1, "delivery": 1}


def test_done_while_the_batch_is_being_written(trial: Trial) -> None:
    """The delivery is in the batch that was handed over; its end belongs to the next one."""
    session = trial.session()
    delivery = Delivery(message(), 1)
    trial.store.enqueue(session.row, delivery)
    trial.loop.turn()  # handed over
    assert trial.store._writing is not None
    trial.store.done(delivery)
    assert not trial.store._batch.void
    assert look(trial) == {"session": 1}


def test_a_batch_handed_over_does_not_see_what_comes_after(trial: Trial) -> None:
    """Two deliveries must never be found with one packet id: a batch holds the state at its end."""
    session = trial.session()
    first, second = Delivery(message(b"1"), 1), Delivery(message(b"2"), 1)
    first.pid, first.state = 7, State.SENT
    trial.store.enqueue(session.row, first)
    trial.store.enqueue(session.row, second)
    noted = trial.store._batch
    trial.store._batch = Batch()  # as _hand_over does, without the writer
    trial.store.done(first)
    second.pid, second.state, second.seen = 7, State.SENT, True
    trial.store.update(second)
    assert [(body, pid, state, seen) for body, _, pid, state, seen in noted.deliveries.values()] == [
        (1, 7, State.SENT, False),
        (2, 0, State.QUEUED, False),
    ]
    assert list(noted.bodies) == [1, 2]


def test_a_delivery_moves_to_another_session(trial: Trial) -> None:
    one, two = trial.session("one"), trial.session("two")
    delivery = Delivery(message(), 1)
    trial.store.enqueue(one.row, delivery)
    trial.commit()
    body = delivery.message.row
    trial.store.enqueue(two.row, delivery)
    trial.store.drop_session(one.row)
    assert (delivery.message.row, delivery.message.rows) == (body, 1), "the body need not be written again"
    trial.commit()
    content = tables(trial.image())
    assert [(row[1], row[2]) for row in content["delivery"]] == [(two.row, body)]
    assert len(content["message"]) == 1


def test_a_body_that_comes_back_is_written_again(trial: Trial) -> None:
    session = trial.session()
    m = message()
    delivery = Delivery(m, 1)
    trial.store.enqueue(session.row, delivery)
    trial.commit()
    trial.store.done(delivery)
    trial.store.enqueue(session.row, delivery)
    assert look(trial) == {"session": 1, "message": 1, "delivery": 1}
    assert tables(trial.image())["message"][0][0] == m.row


def test_what_was_never_stored_is_nothing_to_the_store(trial: Trial) -> None:
    delivery = Delivery(message(), 1)
    trial.store.update(delivery)
    trial.store.done(delivery)
    trial.store.retain(MAIN, "nothing", None)
    trial.store.release(1, 1)
    trial.store.drop_session(99)
    assert trial.store._batch.void
    assert not trial.store._woken
    with pytest.raises(KeyError):
        trial.store.enqueue(99, delivery)
    assert delivery.message.rows == 0


def test_retained(trial: Trial) -> None:
    commits = transactions(trial)
    first, second = message(b"1"), message(b"2")
    trial.store.retain(MAIN, "a/b", first)
    trial.store.retain(MAIN, "a/b", second)
    assert first.rows == 0
    assert second.rows == 1
    trial.store.retain(MAIN, "a/b", None)
    trial.commit()
    assert commits == [], "set and cleared: nothing to write"
    trial.store.retain(MAIN, "a/b", first)
    assert look(trial) == {"message": 1, "retained": 1}
    trial.store.retain(MAIN, "a/b", second)
    trial.store.retain(MAIN, "a/b", first)  # back again, while the tables still have it
    trial.commit()
    content = tables(trial.image())
    assert content["retained"] == [(MAIN, "a/b", first.row)]
    assert [row[0] for row in content["message"]] == [first.row]
    trial.store.retain(MAIN, "a/b", first)  # the very same
    assert first.rows == 1
    assert look(trial) == {"message": 1, "retained": 1}
    trial.store.retain(MAIN, "a/b", second)
    trial.store.retain(MAIN, "a/b", None)
    assert look(trial) == {}


def test_a_retained_message_that_is_also_queued(trial: Trial) -> None:
    session = trial.session()
    m = message()
    trial.store.retain(MAIN, m.topic, m)
    trial.commit()
    delivery = Delivery(m, 1, True)
    trial.store.enqueue(session.row, delivery)
    assert m.rows == 2
    trial.store.retain(MAIN, m.topic, None)
    assert look(trial) == {"session": 1, "message": 1, "delivery": 1}
    trial.store.done(delivery)
    assert look(trial) == {"session": 1}


def test_incoming(trial: Trial) -> None:
    session = trial.session()
    trial.commit()
    commits = transactions(trial)
    m = message()
    trial.store.receive(session.row, 3, (m,))
    trial.store.release(session.row, 3)
    assert m.rows == 0
    trial.commit()
    assert commits == []

    trial.store.receive(session.row, 3, (m,))
    assert look(trial) == {"session": 1, "message": 1, "incoming": 1}
    trial.store.release(session.row, 3)
    trial.store.receive(session.row, 3, (m,))  # the packet id is used again
    trial.commit()
    content = tables(trial.image())
    assert content["incoming"] == [(session.row << 16 | 3, m.row)]
    assert len(content["message"]) == 1
    trial.store.release(session.row, 3)
    trial.store.receive(session.row, 3, (m,))
    trial.store.release(session.row, 3)
    assert look(trial) == {"session": 1}


def test_a_packet_id_received_twice_keeps_the_last(trial: Trial) -> None:
    session = trial.session()
    first, second = message(b"1"), message(b"2")
    trial.store.receive(session.row, 3, (first,))
    trial.commit()
    trial.store.receive(session.row, 3, (second,))
    trial.commit()
    content = tables(trial.image())
    assert content["incoming"] == [(session.row << 16 | 3, second.row)]
    assert [row[2] for row in content["message"]] == [b"2"]
    trial.store.receive(session.row, 3, (second,))
    trial.store.release(session.row, 3)
    assert look(trial) == {"session": 1}


def test_a_session_that_comes_and_goes(trial: Trial) -> None:
    trial.commit()
    commits = transactions(trial)
    session = trial.session()
    trial.store.subscribe(session.row, Subscription(filter="a"), None)
    trial.store.subscribe(session.row, Subscription(filter="b"), None)
    trial.store.unsubscribe(session.row, "b")
    m = message()
    trial.store.enqueue(session.row, Delivery(m, 1))
    trial.store.receive(session.row, 1, (m,))
    trial.store.drop_session(session.row)
    assert m.rows == 0
    assert trial.store.backlog == 0
    trial.commit()
    assert commits == []
    assert counts(trial.image()) == {}


def test_subscriptions_last_word(trial: Trial) -> None:
    session = trial.session()
    trial.store.subscribe(session.row, Subscription(filter="a", qos=0), None)
    trial.store.subscribe(session.row, Subscription(filter="b", qos=0), None)
    trial.commit()
    trial.store.unsubscribe(session.row, "a")
    trial.store.subscribe(session.row, Subscription(filter="a", qos=2), 4, b"before")
    trial.store.subscribe(session.row, Subscription(filter="a", qos=2), 4, b"terms")
    trial.store.subscribe(session.row, Subscription(filter="b", qos=1), None)
    trial.store.unsubscribe(session.row, "b")
    trial.commit()
    assert tables(trial.image())["subscription"] == [(session.row, "a", 2, 0, 0, 0, 4, b"terms")]


def test_a_text_to_remember_is_something_to_write(trial: Trial) -> None:
    commits = transactions(trial)
    seen: list[str] = []
    trial.store.remember("policy", "1")
    trial.store.remember("policy", "2")
    trial.store.after(lambda: seen.append(notes(trial.image())["policy"]))
    assert trial.store.noted
    trial.loop.until(lambda: seen)
    assert seen == ["2"], "the last word, safe before the callback"
    assert len(commits) == 1


def test_a_long_queue_goes_in_slices(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "SLICE", 10)
    keep, drop, other = trial.session("keep"), trial.session("drop"), trial.session("other")
    shared = message(b"shared")
    trial.store.enqueue(keep.row, Delivery(shared, 1))
    for _ in range(35):
        trial.store.enqueue(drop.row, Delivery(shared, 1))
        trial.store.enqueue(drop.row, Delivery(message(), 1))
    moved = Delivery(message(b"moved"), 1)
    finished = Delivery(message(b"finished"), 1)
    for delivery in (moved, finished):
        trial.store.enqueue(drop.row, delivery)
    trial.store.enqueue(other.row, Delivery(message(), 1))
    trial.commit()
    trial.store.drop_session(drop.row)
    assert shared.rows == 36, "nothing was struck out yet"
    trial.store.drop_session(other.row)
    trial.store.enqueue(keep.row, moved)
    trial.store.done(finished)
    trial.loop.until(lambda: not trial.store._sweeping)
    assert shared.rows == 1
    assert look(trial) == {"session": 1, "message": 2, "delivery": 2}


def test_a_crash_between_two_slices(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "SLICE", 10)
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(trial.store, "_later", later.append)
    session = trial.session()
    for _ in range(35):
        trial.store.enqueue(session.row, Delivery(message(), 1))
    trial.commit()
    trial.store.drop_session(session.row)
    later.pop()()
    trial.commit()
    crashed = trial.image()
    assert counts(crashed) == {"message": 25, "delivery": 25}
    after = Trial(crashed)
    assert after.found.sessions == []
    after.close()
    assert counts(crashed) == {}
    while later:
        later.pop()()
    assert look(trial) == {}
