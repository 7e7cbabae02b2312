"""Incoming QoS 2: a packet id hands on one message, several or none, and is in use until it is released."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.trial import Trial, counts, message, tables, waiting
from tidegate.session.message import Delivery, Message, State
from tidegate.session.store import StoredSession
from tidegate.store.batch import PID, POSITION
from tidegate.store.load import load

LATE = -1e9  # long before any boot


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(tmp_path / "d" / "t.db", durability="async")
    yield trial
    trial.close()


def several(*payloads: bytes) -> tuple[Message, ...]:
    return tuple(message(payload, qos=2) for payload in payloads)


def key(session: StoredSession, pid: int, position: int = 0) -> int:
    return position << POSITION | session.row << PID | pid


def rows(trial: Trial) -> list[tuple[int, bytes | None]]:
    """What is on the disk: each entry and the payload of its body. Every body has an entry."""
    trial.commit()
    content = tables(trial.image())
    payloads = {row[0]: row[2] for row in content["message"]}
    assert {row[1] for row in content["incoming"]} - {None} == payloads.keys()
    return [(row[0], None if row[1] is None else payloads[row[1]]) for row in content["incoming"]]


def test_each_has_its_place(trial: Trial) -> None:
    one, two = trial.session("one"), trial.session("two")
    trial.store.receive(one.row, 65535, several(b"a", b"b", b"c"))
    trial.store.receive(one.row, 1, ())
    trial.store.receive(two.row, 65535, several(b"d", b"e"))
    expected = [
        (key(one, 1), None),
        (key(one, 65535), b"a"),
        (key(one, 65535, 1), b"b"),
        (key(one, 65535, 2), b"c"),
        (key(two, 65535), b"d"),
        (key(two, 65535, 1), b"e"),
    ]
    assert rows(trial) == sorted(expected)


def test_found_in_their_order(trial: Trial) -> None:
    session = trial.session()
    shared = message(b"shared", qos=2)
    many = tuple(message(b"%d" % n) for n in range(1000))  # the most that monitors put out for one
    given: dict[int, tuple[Message, ...]] = {
        1: several(b"b", b"a"),
        2: (),
        3: (shared, message(b"between"), shared),
        4: (shared,),
        5: many,
    }
    for pid in (5, 3, 1, 2, 4):
        trial.store.receive(session.row, pid, given[pid])
    assert shared.rows == 3
    trial.commit()
    after = Trial(trial.image())
    (found,) = after.found.sessions
    assert waiting(found.incoming) == waiting(given)
    again = found.incoming[3][0]
    assert again is found.incoming[3][2]
    assert again is found.incoming[4][0]
    assert again.rows == 3
    for pid in given:
        after.store.release(found.row, pid)
    after.close()
    assert counts(after.path) == {"session": 1}


@pytest.mark.parametrize("number", [0, 1, 3])
def test_released_in_the_same_batch(trial: Trial, number: int) -> None:
    session = trial.session()
    trial.commit()
    messages = several(*[b"%d" % n for n in range(number)])
    trial.store.receive(session.row, 3, messages)
    assert trial.store.noted
    assert not trial.store._batch.void
    trial.store.release(session.row, 3)
    assert trial.store._batch.void, "nothing of it is ever written"
    assert all((m.row, m.rows) == (0, 0) for m in messages)
    assert trial.store.backlog == 0


@pytest.mark.parametrize("number", [0, 1, 3])
def test_released_in_a_later_batch(trial: Trial, number: int) -> None:
    session = trial.session()
    messages = several(*[b"%d" % n for n in range(number)])
    trial.store.receive(session.row, 3, messages)
    trial.store.receive(session.row, 4, several(b"other"))
    assert len(rows(trial)) == max(1, number) + 1
    trial.store.release(session.row, 3)
    trial.store.release(session.row, 3)
    assert all((m.row, m.rows) == (0, 0) for m in messages)
    assert rows(trial) == [(key(session, 4), b"other")]


def test_released_while_it_is_being_written(trial: Trial) -> None:
    session = trial.session()
    trial.store.receive(session.row, 3, several(b"a", b"b"))
    trial.store.receive(session.row, 4, ())
    trial.loop.turn()  # handed over
    assert trial.store._writing is not None
    for pid in (3, 4):
        trial.store.release(session.row, pid)
    assert rows(trial) == []


@pytest.mark.parametrize("after", [(), (b"x",), (b"x", b"y"), (b"x", b"y", b"z")])
@pytest.mark.parametrize("before", [(), (b"a",), (b"a", b"b"), (b"a", b"b", b"c")])
@pytest.mark.parametrize("how", ["released", "replaced", "between", "twice"])
def test_the_packet_id_is_used_again(
    trial: Trial, before: tuple[bytes, ...], after: tuple[bytes, ...], how: str
) -> None:
    """More than before, or fewer: nothing of the last use is left."""
    session = trial.session()
    first, second = several(*before), several(*after)
    trial.store.receive(session.row, 3, first)
    trial.commit()
    if how != "replaced":
        trial.store.release(session.row, 3)
    if how == "between":
        trial.commit()
    if how == "twice":
        trial.store.receive(session.row, 3, several(b"1", b"2", b"3", b"4"))
        trial.store.release(session.row, 3)
    trial.store.receive(session.row, 3, second)
    assert all((m.row, m.rows) == (0, 0) for m in first)
    assert rows(trial) == [(key(session, 3, n), payload) for n, payload in enumerate(after or (None,))]
    found = Trial(trial.image())
    assert waiting(found.found.sessions[0].incoming) == waiting({3: second})
    found.close()
    trial.store.release(session.row, 3)
    assert rows(trial) == []


def test_the_same_messages_again(trial: Trial) -> None:
    session = trial.session()
    a, b = several(b"a", b"b")
    trial.store.receive(session.row, 3, (a, b))
    trial.commit()
    bodies = (a.row, b.row)
    trial.store.receive(session.row, 3, (b, a, b))
    assert (a.row, b.row) == bodies, "they need not be written again"
    assert (a.rows, b.rows) == (1, 2)
    assert rows(trial) == [(key(session, 3), b"b"), (key(session, 3, 1), b"a"), (key(session, 3, 2), b"b")]


def test_handed_on_with_the_release(trial: Trial) -> None:
    """The bodies stay, and nothing but the deliveries refers to them."""
    session = trial.session()
    messages = several(b"a", b"b")
    trial.store.receive(session.row, 3, messages)
    trial.commit()
    for m in messages:
        trial.store.enqueue(session.row, Delivery(m, 2))
    trial.store.release(session.row, 3)
    assert [m.rows for m in messages] == [1, 1]
    trial.commit()
    assert counts(trial.image()) == {"session": 1, "message": 2, "delivery": 2}


EXPIRED = [
    (b"late", b"b", b"c"),
    (b"a", b"late", b"c"),
    (b"a", b"b", b"late"),
    (b"late", b"late", b"c"),
    (b"late", b"b", b"late"),
    (b"late", b"late", b"late"),
]


@pytest.mark.parametrize("payloads", EXPIRED)
@pytest.mark.parametrize("then", ["release", "release and use again", "use again", "drop", "nothing"])
def test_some_have_expired_when_it_is_opened(trial: Trial, payloads: tuple[bytes, ...], then: str) -> None:
    """What is left moves up, on the disk too: a release finds all of it."""
    session = trial.session()
    late = tuple(message(p, expires=LATE if p == b"late" else None) for p in payloads)
    trial.store.receive(session.row, 3, late)
    trial.store.receive(session.row, 4, several(b"x", b"y"))
    trial.commit()
    after = Trial(trial.image("after"))
    left = [p for p in payloads if p != b"late"]
    others = [(key(session, 4), b"x"), (key(session, 4, 1), b"y")]
    (found,) = after.found.sessions
    assert [m.payload for m in found.incoming[3]] == left
    assert [m.rows for m in found.incoming[3]] == [1] * len(left)
    assert rows(after) == sorted([*others, *((key(session, 3, n), p) for n, p in enumerate(left or [None]))])
    if "release" in then:
        after.store.release(found.row, 3)
        assert rows(after) == others
    if "use again" in then:
        after.store.receive(found.row, 3, several(b"new"))
        assert rows(after) == sorted([*others, (key(session, 3), b"new")])
    if then == "drop":
        after.store.drop_session(found.row)
        assert rows(after) == []
    before = rows(after)
    last = after.again()
    assert rows(last) == before, "the next start finds nothing to do"
    last.close()


def test_expired_and_still_owed(trial: Trial) -> None:
    """The body stays for a delivery that was begun; the packet id hands on the rest."""
    session = trial.session()
    late = message(b"late", expires=LATE)
    begun = Delivery(late, 1)
    begun.pid, begun.state = 1, State.SENT
    trial.store.enqueue(session.row, begun)
    trial.store.receive(session.row, 3, (late, message(b"b")))
    trial.commit()
    after = Trial(trial.image())
    (found,) = after.found.sessions
    assert [m.payload for m in found.incoming[3]] == [b"b"]
    assert found.deliveries[0].message.rows == 1
    after.store.release(found.row, 3)
    after.close()
    assert counts(after.path) == {"session": 1, "message": 1, "delivery": 1}


def test_many_that_have_expired(trial: Trial) -> None:
    """A few statements for all of them: a start does not take longer for each that is there."""
    session = trial.session()
    for pid in range(1, 2001):
        trial.store.receive(session.row, pid, (message(b"late", expires=LATE), message(b"%d" % pid)))
    trial.commit()
    statements: list[str] = []
    connection = sqlite3.connect(trial.image())
    connection.set_trace_callback(statements.append)
    (found,) = load(connection, now_wall=time.time(), now_mono=time.monotonic()).sessions
    connection.set_trace_callback(None)
    assert len(statements) < 50
    assert {pid: [m.payload for m in messages] for pid, messages in found.incoming.items()} == {
        pid: [b"%d" % pid] for pid in range(1, 2001)
    }
    assert connection.execute("SELECT count(*), max(id) FROM incoming").fetchone() == (2000, key(session, 2000))
    connection.close()


def test_entries_without_a_session_go(trial: Trial) -> None:
    session = trial.session()
    trial.store.receive(session.row, 3, several(b"a", b"b"))
    trial.store.receive(session.row, 4, ())
    trial.commit()
    path = trial.image()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM session")
    connection.close()
    after = Trial(path)
    assert after.found.sessions == []
    after.close()
    assert counts(path) == {}
