"""What the version before this one wrote is brought up to date when it is opened, whole or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from store import version2
from store.test_opening import refused
from store.trial import NEVER, Trial, Turns, glance, look, message, waiting
from tidegate.session.message import Delivery, Message, Origin, State
from tidegate.session.store import StoredSession
from tidegate.store import SqliteStore, schema
from tidegate.wire import Properties, Subscription, Will

VERSION = schema.VERSION
OLD = VERSION - 1
ORIGIN = Origin("0123456789abcdef", 7)
SHARED = Message(
    "t/ö",
    b"\x00shared",
    2,
    True,
    1_699_999_990.5,
    ORIGIN,
    1 << 40,
    b"\x02c",
    "out",
    Properties(response_topic="answer", user_properties=(("a", "ä"),)),
    None,
    3,
)
EMPTY = Message("a/b", b"", 1, False, 5.5, ORIGIN, 2, b"\x01c", "in")
NINE = Message("a/b", b"nine", 2, False, 5.5, ORIGIN, 4, b"\x01c", "in")
OTHER = Message('it\'s "r"', b"r", 0, True, 5.5, ORIGIN, 6, b"", "in")
WILL = Will(
    topic="last/words",
    payload=b"\x00\xff",
    qos=2,
    retain=True,
    properties=Properties(will_delay_interval=5, content_type="text/plain"),
)
FULL = Subscription(filter="$share/g/a/+", qos=2, retain_as_published=True, retain_handling=2)
LOCAL = Subscription(filter="x/#", qos=1, no_local=True)
FIRST = Delivery(SHARED, 2, True, (1, 268_435_455), ("g", "a/+"))
TERMS = b"\x01\x00terms"
NOTES = {"policy": "17-3fa9c1d2e4b5"}


def begun(delivery: Delivery, pid: int, state: State) -> Delivery:
    delivery.pid, delivery.state = pid, state
    return delivery


def by_value(sessions: list[StoredSession]) -> dict[str, Any]:
    return {
        s.client: {
            "row": s.row,
            "principal": s.principal,
            "version": s.version,
            "expiry": s.expiry,
            "ended": s.ended,
            "will": s.will,
            "context": s.context,
            "subscriptions": s.subscriptions,
            "deliveries": [glance(d) for d in s.deliveries],
            "incoming": waiting(s.incoming),
        }
        for s in sessions
    }


EXPECTED = by_value(
    [
        StoredSession(
            row=1,
            principal="u",
            client="one",
            version=5,
            expiry=77,
            will=WILL,
            context=b"\x01ctx",
            subscriptions={"$share/g/a/+": (FULL, 268_435_455, TERMS), "x/#": (LOCAL, None, b"")},
            deliveries=[begun(FIRST, 65535, State.RELEASED), Delivery(EMPTY, 1)],
        ),
        StoredSession(
            row=2,
            principal="v",
            client="two",
            version=4,
            expiry=NEVER,
            ended=1_699_999_999.25,
            subscriptions={"x/ö": (Subscription(filter="x/ö"), 7, b"")},
            deliveries=[begun(Delivery(SHARED, 1), 1, State.SENT)],
            incoming={9: (NINE,), 65535: ()},
        ),
    ]
)


def version(path: Path) -> int:
    """Which version of the tables is there, by their columns too."""
    connection = sqlite3.connect(path)
    try:
        number = int(connection.execute("PRAGMA user_version").fetchone()[0])
        delivery = {row[1] for row in connection.execute("PRAGMA table_info(delivery)")}
        record = connection.execute("PRAGMA table_info(record)").fetchall()
    finally:
        connection.close()
    assert ("seen" in delivery) == (number == VERSION)
    assert bool(record) == (number == VERSION)
    return number


@pytest.mark.parametrize("crashed", [False, True])
def test_everything_is_found_again(tmp_path: Path, crashed: bool) -> None:
    path = version2.make(tmp_path / "d" / "t.db", crashed=crashed)
    assert version(path) == OLD
    if crashed:
        path = version2.make(path, crashed=True)  # looking at it has emptied the log
    store = SqliteStore(path, call=Turns().call)
    found = store.open(now_wall=1_700_000_030.0, now_mono=7.0)
    store.close()
    assert version(path) == VERSION
    assert (found.node, found.boot, found.notes) == (version2.NODE, version2.BOOT + 1, NOTES)
    assert found.records == {}
    assert by_value(found.sessions) == EXPECTED
    assert {m.topic: look(m) for m in found.retained} == {m.topic: look(m) for m in (SHARED, OTHER)}
    one, two = found.sessions
    shared = one.deliveries[0].message
    assert two.deliveries[0].message is shared
    assert any(m is shared for m in found.retained)
    assert shared.rows == 3
    assert shared.expires == pytest.approx(4_000_000_000.0 - 1_700_000_030.0 + 7.0)


def test_the_tables_are_those_of_a_new_store(tmp_path: Path) -> None:
    def tables(path: Path) -> dict[str, Any]:
        with sqlite3.connect(path) as connection:
            kinds = connection.execute("SELECT name, type, ncol, wr, strict FROM pragma_table_list").fetchall()
            columns = {kind[0]: connection.execute(f"PRAGMA table_xinfo({kind[0]})").fetchall() for kind in kinds}
        connection.close()
        return {kind[0]: (kind, columns[kind[0]]) for kind in kinds}

    old = version2.make(tmp_path / "old" / "t.db")
    new = tmp_path / "new" / "t.db"
    for path in (old, new):
        Trial(path).close()
    assert tables(new).keys() > {"session", "subscription", "delivery", "incoming", "record"}
    assert tables(old) == tables(new)


def test_life_goes_on(tmp_path: Path) -> None:
    """What was brought up to date is changed, struck out and added to; the next start changes nothing."""
    trial = Trial(version2.make(tmp_path / "d" / "t.db"))
    store = trial.store
    one, two = trial.found.sessions
    store.subscribe(one.row, LOCAL, None, b"\x01terms")
    store.subscribe(one.row, Subscription(filter="new"), 3, b"\x02")
    store.unsubscribe(two.row, "x/ö")
    store.done(one.deliveries[0])
    store.release(two.row, 65535)
    more = (message(b"8", qos=2), message(b"8 and a half", qos=2))
    store.receive(two.row, 8, more)
    store.receive(two.row, 10, ())
    two.deliveries[0].seen = True
    store.update(two.deliveries[0])
    one.will = None
    store.save_session(one)
    store.remember("policy", "18")
    store.keep("monitor", "a", b"state")
    for boot in (version2.BOOT + 2, version2.BOOT + 3):
        trial = trial.again()
        assert (trial.found.node, trial.found.boot, trial.found.notes) == (version2.NODE, boot, {"policy": "18"})
        assert trial.found.records == {"monitor": {"a": b"state"}}
        one, two = trial.found.sessions
        assert one.subscriptions == {
            "$share/g/a/+": (FULL, 268_435_455, TERMS),
            "x/#": (LOCAL, None, b"\x01terms"),
            "new": (Subscription(filter="new"), 3, b"\x02"),
        }
        assert one.will is None
        assert two.subscriptions == {}
        assert [(d.message.payload, d.seen) for d in one.deliveries] == [(b"", False)]
        assert [(d.message.payload, d.seen) for d in two.deliveries] == [(b"\x00shared", True)]
        assert waiting(two.incoming) == waiting({8: more, 9: (NINE,), 10: ()})
        assert len(trial.found.retained) == 2
    trial.close()


def test_a_step_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = version2.make(tmp_path / "d" / "t.db")
    with monkeypatch.context() as patch:
        patch.setitem(schema.MIGRATIONS, OLD, (*schema.MIGRATIONS[OLD], "SYNTAX ERROR"))
        assert "syntax error" in refused(path)
    assert version(path) == OLD
    trial = Trial(path)
    assert by_value(trial.found.sessions) == EXPECTED
    trial.close()


def test_the_version_before_that_is_refused(tmp_path: Path) -> None:
    path = version2.make(tmp_path / "d" / "t.db")
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {OLD - 1}")
    connection.close()
    words = refused(path)
    assert "much older Tidegate" in words
    assert f"store version {OLD - 1}, this one reads {VERSION} and {OLD}" in words
    assert schema.MIGRATIONS.keys() == {OLD}, "no step that nobody can take"
