"""What older versions wrote is brought up to date when it is opened, whole or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from store import version2, version3, version4
from store.test_opening import refused
from store.trial import MAIN, NEVER, Trial, Turns, glance, look, message, waiting
from tidegate.session.message import Delivery, Message, Origin, State
from tidegate.session.store import StoredSession
from tidegate.store import SqliteStore, schema
from tidegate.wire import Properties, Subscription, Will

VERSION = schema.VERSION
OLD = {2: version2, 3: version3, 4: version4}
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
EIGHT = Message("a/b", b"8", 2, False, 5.5, ORIGIN, 10, b"\x01c", "in")
MORE = Message("a/b", b"8 and a half", 2, False, 5.5, ORIGIN, 11, b"\x01c", "in")
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


def begun(delivery: Delivery, pid: int, state: State, *, seen: bool = False) -> Delivery:
    delivery.pid, delivery.state, delivery.seen = pid, state, seen
    return delivery


def by_value(sessions: list[StoredSession]) -> dict[str, Any]:
    return {
        s.client: {
            "row": s.row,
            "scope": s.scope,
            "principal": s.principal,
            "version": s.version,
            "expiry": s.expiry,
            "ended": s.ended,
            "will": s.will,
            "context": s.context,
            "certificate": s.certificate,
            "subscriptions": s.subscriptions,
            "deliveries": [glance(d) for d in s.deliveries],
            "incoming": waiting(s.incoming),
        }
        for s in sessions
    }


def home(old: int, first: str) -> str:
    """The scope that has what version `old` wrote: the first one, if it knew none."""
    return MAIN if old > 3 else first


def expected(old: int, first: str = MAIN) -> dict[str, Any]:
    """The sessions that version `old` wrote, in the scope that they were given to."""
    later, scope = old > 2, home(old, first)
    return by_value(
        [
            StoredSession(
                row=1,
                scope=scope,
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
                scope=scope,
                principal="v",
                client="two",
                version=4,
                expiry=NEVER,
                ended=1_699_999_999.25,
                subscriptions={"x/ö": (Subscription(filter="x/ö"), 7, b"")},
                deliveries=[begun(Delivery(SHARED, 1), 1, State.SENT, seen=later)],
                incoming={8: (EIGHT, MORE), 9: (NINE,), 65535: ()} if later else {9: (NINE,), 65535: ()},
            ),
        ]
    )


def records(old: int, first: str = MAIN) -> dict[str, dict[str, bytes]]:
    """What version `old` kept for other rooms: the states of monitors become those of a scope."""
    if old == 2:
        return {}
    return {
        f"monitor/{home(old, first)}": {
            "door\nu client:one->scope:main": b"\x01\xa1estate\x01",
            "quiet\nscope:main": b"\x01\xa0",
        },
        "revoked": {"cap-1": b""},
        "rules": {"u": b"book"},
    }


def version(path: Path) -> int:
    """Which version of the tables is there, by their columns too."""
    connection = sqlite3.connect(path)
    try:
        number = int(connection.execute("PRAGMA user_version").fetchone()[0])
        columns = {
            table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            for table in ("session", "delivery", "retained", "record", "unscoped")
        }
    finally:
        connection.close()
    assert ("seen" in columns["delivery"]) == (number > 2)
    assert bool(columns["record"]) == (number > 2)
    assert ("scope" in columns["session"]) == (number > 3)
    assert ("certificate" in columns["session"]) == (number > 4)
    assert ("scope" in columns["retained"]) == (number > 3)
    assert not columns["unscoped"], "nothing is left on the way"
    return number


@pytest.fixture(params=OLD)
def old(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.mark.parametrize("first", [MAIN, 'it\'s "the" pl/änt'])
@pytest.mark.parametrize("crashed", [False, True])
def test_everything_is_found_again(tmp_path: Path, old: int, crashed: bool, first: str) -> None:
    made: ModuleType = OLD[old]
    path = made.make(tmp_path / "d" / "t.db", crashed=crashed)
    assert version(path) == old
    if crashed:
        path = made.make(path, crashed=True)  # looking at it has emptied the log
    store = SqliteStore(path, call=Turns().call)
    found = store.open(first=first, now_wall=1_700_000_030.0, now_mono=7.0)
    store.close()
    assert version(path) == VERSION
    assert (found.node, found.boot, found.notes) == (made.NODE, made.BOOT + 1, NOTES)
    assert found.records == records(old, first)
    assert by_value(found.sessions) == expected(old, first)
    assert found.retained.keys() == {home(old, first)}
    retained = found.retained[home(old, first)]
    assert {m.topic: look(m) for m in retained} == {m.topic: look(m) for m in (SHARED, OTHER)}
    one, two = found.sessions
    shared = one.deliveries[0].message
    assert two.deliveries[0].message is shared
    assert any(m is shared for m in retained)
    assert shared.rows == 3
    assert shared.expires == pytest.approx(4_000_000_000.0 - 1_700_000_030.0 + 7.0)


def test_the_first_scope_is_asked_for_once(tmp_path: Path, old: int) -> None:
    """Another order of the scopes at a later start gives nothing away."""
    path = OLD[old].make(tmp_path / "d" / "t.db")
    for first in ("one", "two"):
        store = SqliteStore(path, call=Turns().call)
        found = store.open(first=first)
        store.close()
        assert by_value(found.sessions) == expected(old, "one")
        assert found.retained.keys() == {home(old, "one")}
        assert found.records == records(old, "one")


def test_the_tables_are_those_of_a_new_store(tmp_path: Path, old: int) -> None:
    def tables(path: Path) -> dict[str, Any]:
        with sqlite3.connect(path) as connection:
            kinds = connection.execute("SELECT name, type, ncol, wr, strict FROM pragma_table_list").fetchall()
            columns = {kind[0]: connection.execute(f"PRAGMA table_xinfo({kind[0]})").fetchall() for kind in kinds}
        connection.close()
        return {kind[0]: (kind, columns[kind[0]]) for kind in kinds}

    before = OLD[old].make(tmp_path / "old" / "t.db")
    new = tmp_path / "new" / "t.db"
    for path in (before, new):
        Trial(path).close()
    assert tables(new).keys() > {"session", "subscription", "delivery", "incoming", "record"}
    assert tables(before) == tables(new)


def test_life_goes_on(tmp_path: Path, old: int) -> None:
    """What was brought up to date is changed, struck out and added to; the next start changes nothing."""
    made = OLD[old]
    trial = Trial(made.make(tmp_path / "d" / "t.db"))
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
    store.retain(MAIN, OTHER.topic, None)
    store.retain("other", OTHER.topic, message(b"there", OTHER.topic))
    store.remember("policy", "18")
    store.keep("monitor/main", "a", b"state")
    kept = records(old)
    kept.setdefault("monitor/main", {})["a"] = b"state"
    for boot in (made.BOOT + 2, made.BOOT + 3):
        trial = trial.again()
        assert (trial.found.node, trial.found.boot, trial.found.notes) == (made.NODE, boot, {"policy": "18"})
        assert trial.found.records == kept
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
        retained = {scope: [(m.topic, m.payload) for m in found] for scope, found in trial.found.retained.items()}
        assert retained == {MAIN: [("t/ö", b"\x00shared")], "other": [(OTHER.topic, b"there")]}
    trial.close()


@pytest.mark.parametrize(("old", "step"), [(2, 2), (2, 3), (2, 4), (3, 3), (3, 4), (4, 4)])
def test_a_step_that_fails_changes_nothing(
    tmp_path: Path, old: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = OLD[old].make(tmp_path / "d" / "t.db")
    with monkeypatch.context() as patch:
        patch.setitem(schema.MIGRATIONS, step, (*schema.MIGRATIONS[step], "SYNTAX ERROR"))
        assert "syntax error" in refused(path)
    assert version(path) == old
    trial = Trial(path)
    assert by_value(trial.found.sessions) == expected(old)
    trial.close()


def test_the_version_before_that_is_refused(tmp_path: Path) -> None:
    path = version2.make(tmp_path / "d" / "t.db")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    words = refused(path)
    assert "much older Tidegate" in words
    assert f"store version 1, this one reads 2 to {VERSION}" in words
    assert list(schema.MIGRATIONS) == list(OLD), "no step that nobody can take"
