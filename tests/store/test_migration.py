"""What the version before this one wrote is brought up to date when it is opened, whole or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from store import version1
from store.test_opening import refused
from store.trial import NEVER, Trial, Turns, glance, look
from tidegate.session.message import Delivery, Message, Origin, State
from tidegate.session.store import StoredSession
from tidegate.store import SqliteStore, schema
from tidegate.wire import Properties, Subscription, Will

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


def released() -> Delivery:
    delivery = Delivery(SHARED, 2, True, (1, 268_435_455), ("g", "a/+"))
    delivery.pid, delivery.state = 65535, State.RELEASED
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
            "incoming": {pid: look(m) for pid, m in s.incoming.items()},
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
            subscriptions={"$share/g/a/+": (FULL, 268_435_455, b""), "x/#": (LOCAL, None, b"")},
            deliveries=[released(), Delivery(EMPTY, 1)],
        ),
        StoredSession(
            row=2,
            principal="v",
            client="two",
            version=4,
            expiry=NEVER,
            ended=1_699_999_999.25,
            subscriptions={"x/ö": (Subscription(filter="x/ö"), 7, b"")},
            deliveries=[Delivery(SHARED, 1)],
            incoming={9: NINE, 65535: None},
        ),
    ]
)


def version(path: Path) -> int:
    """Which version of the tables is there, by their columns too."""
    connection = sqlite3.connect(path)
    try:
        number = int(connection.execute("PRAGMA user_version").fetchone()[0])
        session = {row[1] for row in connection.execute("PRAGMA table_info(session)")}
        subscription = {row[1] for row in connection.execute("PRAGMA table_info(subscription)")}
    finally:
        connection.close()
    assert ("will_due" in session) == (number == 1)
    assert ("terms" in subscription) == (number == 2)
    return number


@pytest.mark.parametrize("crashed", [False, True])
def test_everything_is_found_again(tmp_path: Path, crashed: bool) -> None:
    path = version1.make(tmp_path / "d" / "t.db", crashed=crashed)
    assert version(path) == 1
    if crashed:
        path = version1.make(path, crashed=True)  # looking at it has emptied the log
    store = SqliteStore(path, call=Turns().call)
    found = store.open(now_wall=1_700_000_030.0, now_mono=7.0)
    store.close()
    assert version(path) == 2
    assert (found.node, found.boot, found.notes) == (version1.NODE, version1.BOOT + 1, {})
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

    old = version1.make(tmp_path / "old" / "t.db")
    new = tmp_path / "new" / "t.db"
    for path in (old, new):
        Trial(path).close()
    assert "subscription" in tables(new)
    assert tables(old) == tables(new)


def test_life_goes_on(tmp_path: Path) -> None:
    """What was brought up to date is changed, struck out and added to; the next start changes nothing."""
    trial = Trial(version1.make(tmp_path / "d" / "t.db"))
    store = trial.store
    one, two = trial.found.sessions
    store.subscribe(one.row, LOCAL, None, b"\x01terms")
    store.subscribe(one.row, Subscription(filter="new"), 3, b"\x02")
    store.unsubscribe(two.row, "x/ö")
    store.done(one.deliveries[0])
    store.release(two.row, 65535)
    one.will = None
    store.save_session(one)
    store.remember("policy", "17")
    for boot in (version1.BOOT + 2, version1.BOOT + 3):
        trial = trial.again()
        assert (trial.found.node, trial.found.boot, trial.found.notes) == (version1.NODE, boot, {"policy": "17"})
        one, two = trial.found.sessions
        assert one.subscriptions == {
            "$share/g/a/+": (FULL, 268_435_455, b""),
            "x/#": (LOCAL, None, b"\x01terms"),
            "new": (Subscription(filter="new"), 3, b"\x02"),
        }
        assert one.will is None
        assert two.subscriptions == {}
        assert [d.message.payload for d in one.deliveries] == [b""]
        assert {pid: look(m) for pid, m in two.incoming.items()} == {9: look(NINE)}
        assert len(trial.found.retained) == 2
    trial.close()


def test_a_step_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = version1.make(tmp_path / "d" / "t.db")
    with monkeypatch.context() as patch:
        patch.setitem(schema.MIGRATIONS, 1, (*schema.MIGRATIONS[1], "SYNTAX ERROR"))
        assert "syntax error" in refused(path)
    assert version(path) == 1
    trial = Trial(path)
    assert by_value(trial.found.sessions) == EXPECTED
    trial.close()
