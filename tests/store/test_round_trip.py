"""What is noted is found again: after closing, and in the files as a crash would leave them."""

from __future__ import annotations

import string
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.trial import MAIN, NEVER, ORIGIN, Trial, counts, glance, look, message, stored, tables, waiting
from tidegate.session.message import Delivery, Message, State
from tidegate.store.rows import Messages, message_row, read_session, read_subscription, session_row, subscription_row
from tidegate.wire import NONE, Properties, Subscription, Will

WILL = Will(
    topic="last/words",
    payload=b"\x00\xff",
    qos=2,
    retain=True,
    properties=Properties(will_delay_interval=5, content_type="text/plain", user_properties=(("k", "v"), ("k", "w"))),
)
PROPERTIES = Properties(
    payload_format_indicator=1, response_topic="answer", correlation_data=b"\x00x", user_properties=(("a", "ä"),)
)


@pytest.fixture(params=["closed", "crashed"])
def reopen(request: pytest.FixtureRequest) -> Iterator[object]:
    """How the store comes to be opened again."""
    opened: list[Trial] = []

    def again(trial: Trial) -> Trial:
        if request.param == "closed":
            trial.close()
            path = trial.path
        else:
            trial.commit()
            path = trial.image()
            trial.close()
        opened.append(Trial(path))
        return opened[-1]

    yield again
    for trial in opened:
        trial.close()


def test_everything(tmp_path: Path, reopen) -> None:
    trial = Trial(tmp_path / "d" / "t.db")
    store = trial.store
    one = trial.session("one", will=WILL, context=b"\x01ctx", version=5, expiry=77, certificate=b"shown")
    two = trial.session("two", ended=99.25, version=4)
    full = Subscription(filter="$share/g/a/+", qos=2, no_local=False, retain_as_published=True, retain_handling=2)
    store.subscribe(one.row, full, 268_435_455, b"\x01\x00terms")
    store.subscribe(one.row, Subscription(filter="x/#", qos=1, no_local=True), None)
    store.subscribe(two.row, Subscription(filter="gone"), None)
    store.unsubscribe(two.row, "gone")

    shared = Message(
        "t/ö", b"\x00" * 300, 2, True, 1234.5, ORIGIN, 1 << 40, b"\x02c", "out", PROPERTIES, time.monotonic() + 60, 3
    )
    first = Delivery(shared, 2, True, (1, 268_435_455), ("g", "a/+"))
    second = Delivery(message(b""), 1)
    third = Delivery(shared, 1)
    store.enqueue(one.row, first)
    store.enqueue(one.row, second)
    store.enqueue(two.row, third)
    first.pid, first.state, first.seen = 65535, State.RELEASED, True
    store.update(first)
    nine = (message(b"nine", qos=2), message(b"and a half", "c", qos=0))
    store.receive(two.row, 8, ())
    store.receive(two.row, 9, nine)
    store.receive(two.row, 65535, (message(b"ten", qos=2),))
    store.release(two.row, 65535)
    store.retain(MAIN, "t/ö", shared)
    other = message(b"r", 'quo"te\\/\x01/\U0001f40d')
    store.retain(MAIN, other.topic, other)
    store.remember("policy", "16")
    store.remember("policy", "17-3fa9c1d2e4b5")
    store.remember("ö", "")
    store.keep("monitor", "a\nb", b"\x00\xff")
    store.keep("rules", "a\nb", b"")

    expected = {
        "one": [glance(first), glance(second)],
        "two": [glance(third)],
    }
    again = reopen(trial)
    found = {s.client: s for s in again.found.sessions}
    assert {name: [glance(d) for d in s.deliveries] for name, s in found.items()} == expected
    assert found["one"].will == WILL
    assert (found["one"].context, found["one"].expiry) == (b"\x01ctx", 77)
    assert (found["one"].certificate, found["two"].certificate) == (b"shown", None)
    assert (found["two"].ended, found["two"].version, found["two"].will, found["two"].expiry) == (99.25, 4, None, NEVER)
    assert found["one"].subscriptions == {
        "$share/g/a/+": (full, 268_435_455, b"\x01\x00terms"),
        "x/#": (Subscription(filter="x/#", qos=1, no_local=True), None, b""),
    }
    assert found["two"].subscriptions == {}
    assert waiting(found["two"].incoming) == {8: [], 9: [look(m) for m in nine]}
    assert found["one"].incoming == {}
    assert again.found.notes == {"policy": "17-3fa9c1d2e4b5", "ö": ""}
    assert again.found.records == {"monitor": {"a\nb": b"\x00\xff"}, "rules": {"a\nb": b""}}
    assert {m.topic: look(m) for m in again.found.retained[MAIN]} == {m.topic: look(m) for m in (shared, other)}
    # one body, however many refer to it
    body = found["one"].deliveries[0].message
    assert found["two"].deliveries[0].message is body
    assert any(m is body for m in again.found.retained[MAIN])
    assert body.rows == 3
    assert body.expires == pytest.approx(shared.expires, abs=1.0)


def test_the_node_keeps_its_name_and_counts_its_boots(tmp_path: Path) -> None:
    first = Trial(tmp_path / "d" / "t.db")
    assert len(first.found.node) == 16
    assert int(first.found.node, 16) >= 0
    assert first.found.boot == 1
    second = first.again()
    assert (second.found.node, second.found.boot) == (first.found.node, 2)
    third = Trial(second.image())
    assert (third.found.node, third.found.boot) == (first.found.node, 3), "a boot counts from the moment it opened"
    second.close()
    third.close()


def test_a_second_life(tmp_path: Path, reopen) -> None:
    """What was loaded is changed, struck out and added to under its old keys."""
    trial = Trial(tmp_path / "d" / "t.db")
    session = trial.session()
    shared = message(b"shared")
    for m in (message(b"1"), shared, message(b"3")):
        trial.store.enqueue(session.row, Delivery(m, 1))
    trial.store.receive(session.row, 1, (message(b"in"), message(b"and"), message(b"out")))
    trial.store.receive(session.row, 2, ())
    trial.store.retain(MAIN, shared.topic, shared)
    trial = trial.again()
    store = trial.store
    session = trial.found.sessions[0]
    one, two, three = session.deliveries
    store.done(one)
    store.done(two)
    three.pid, three.state = 4, State.SENT
    store.update(three)
    store.enqueue(session.row, Delivery(trial.found.retained[MAIN][0], 1, True))
    store.release(session.row, 1)
    store.release(session.row, 2)
    session.ended = 5.0
    store.save_session(session)
    again = reopen(trial)
    (found,) = again.found.sessions
    assert [(d.message.payload, d.pid, d.state) for d in found.deliveries] == [
        (b"3", 4, State.SENT),
        (b"shared", 0, State.QUEUED),
    ]
    assert found.deliveries[1].message is again.found.retained[MAIN][0]
    assert found.incoming == {}
    assert found.ended == 5.0
    assert found.row == session.row


def test_expiry_is_kept_in_wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that had 50 s left when it was written has 20 s left when the node starts 30 s later."""
    monkeypatch.setattr("tidegate.store.sqlite.time.time", lambda: 1000.0)
    monkeypatch.setattr("tidegate.store.sqlite.time.monotonic", lambda: 400.0)
    trial = Trial(tmp_path / "t.db", start=False)
    session = trial.session()
    trial.store.enqueue(session.row, Delivery(message(expires=450.0), 1))
    trial.close()
    trial.store = type(trial.store)(trial.path, call=trial.loop.call)
    found = trial.store.open(first=MAIN, now_wall=1030.0, now_mono=7.0)
    assert found.sessions[0].deliveries[0].message.expires == pytest.approx(27.0)
    trial.close()


def test_what_has_expired_goes_but_not_what_was_begun(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "t.db", start=False)
    store = trial.store
    session = trial.session()
    late = -1e9  # long before any boot
    for state in (State.QUEUED, State.SENT, State.RELEASED):
        delivery = Delivery(message(state.name.encode(), expires=late, qos=2), 2)
        delivery.state = state
        delivery.pid = int(state)
        store.enqueue(session.row, delivery)
    store.enqueue(session.row, Delivery(message(b"forever"), 1))
    store.receive(session.row, 8, (message(expires=late),))
    gone = message(b"x", "gone", expires=late)
    store.retain(MAIN, "gone", gone)
    again = trial.again()
    (found,) = again.found.sessions
    payloads = [d.message.payload for d in found.deliveries]
    assert payloads == [b"SENT", b"RELEASED", b"forever"], "a client may hold the packet id of what was sent"
    assert found.incoming == {8: ()}, "the id still tells a duplicate"
    assert again.found.retained == {}
    again.close()
    assert counts(again.path) == {"session": 1, "delivery": 3, "message": 3, "incoming": 1}


def test_seen(tmp_path: Path, reopen) -> None:
    """Noted with a delivery or afterwards, in the same batch or in a later one."""
    trial = Trial(tmp_path / "d" / "t.db")
    session = trial.session()
    deliveries = [Delivery(message(b"%d" % n), 1) for n in range(4)]
    deliveries[1].seen = True
    for delivery in deliveries:
        trial.store.enqueue(session.row, delivery)
    deliveries[2].seen = True
    trial.store.update(deliveries[2])
    trial.commit()
    deliveries[3].seen = True
    trial.store.update(deliveries[3])
    again = reopen(trial)
    found = again.found.sessions[0].deliveries
    assert [(d.message.payload, d.seen) for d in found] == [(b"0", False), (b"1", True), (b"2", True), (b"3", True)]
    assert [type(d.seen) for d in found] == [bool] * 4
    found[0].seen, found[1].seen = True, False
    again.store.update(found[0])
    again.store.update(found[1])
    again.commit()
    assert [row[-1] for row in tables(again.image("last"))["delivery"]] == [1, 0, 1, 1]


def test_dropping_a_session_takes_all_of_it(tmp_path: Path, reopen) -> None:
    trial = Trial(tmp_path / "d" / "t.db")
    keep, drop = trial.session("keep"), trial.session("drop")
    shared = message(b"both")
    for session in (keep, drop):
        trial.store.enqueue(session.row, Delivery(shared, 1))
        trial.store.enqueue(session.row, Delivery(message(session.client.encode()), 1))
        trial.store.subscribe(session.row, Subscription(filter="f"), 3)
        trial.store.receive(session.row, 5, (message(session.client.encode()), shared))
        trial.store.receive(session.row, 6, ())
    trial.commit()
    trial.store.drop_session(drop.row)
    again = reopen(trial)
    (found,) = again.found.sessions
    assert found.client == "keep"
    assert [d.message.payload for d in found.deliveries] == [b"both", b"keep"]
    assert {pid: [m.payload for m in messages] for pid, messages in found.incoming.items()} == {
        5: [b"keep", b"both"],
        6: [],
    }
    again.close()
    assert counts(again.path) == {"session": 1, "subscription": 1, "delivery": 2, "message": 3, "incoming": 3}


def test_a_session_dropped_and_made_again_in_one_batch(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "t.db")
    session = trial.session("c", expiry=1)
    trial.store.subscribe(session.row, Subscription(filter="old"), None)
    trial.commit()
    before = session.row
    trial.store.drop_session(session.row)
    trial.store.save_session(session)  # its key is spent
    assert session.row != before
    trial.store.subscribe(session.row, Subscription(filter="new"), None)
    again = trial.again()
    (found,) = again.found.sessions
    assert list(found.subscriptions) == ["new"]
    again.close()


def test_subscriptions_that_come_with_a_new_session(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "t.db")
    subscription = Subscription(filter="a", qos=1)
    trial.session(subscriptions={"a": (subscription, 5, b"terms")})
    again = trial.again()
    assert again.found.sessions[0].subscriptions == {"a": (subscription, 5, b"terms")}
    again.close()


def test_notes_are_not_the_stores_own(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "t.db")
    assert trial.found.notes == {}
    for key in ("node", "boot"):
        with pytest.raises(ValueError, match="another key"):
            trial.store.remember(key, "x")
    trial.store.remember("policy", "1")
    again = trial.again()
    assert (again.found.node, again.found.boot, again.found.notes) == (trial.found.node, 2, {"policy": "1"})
    again.store.remember("policy", "2")
    last = again.again()
    assert last.found.notes == {"policy": "2"}
    last.close()


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
TOPIC = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=20)
U32 = st.integers(0, 0xFFFFFFFF)
WIRE = st.builds(
    Properties,
    payload_format_indicator=st.none() | st.integers(0, 1),
    content_type=st.none() | TEXT,
    response_topic=st.none() | TOPIC,
    correlation_data=st.none() | st.binary(max_size=20),
    user_properties=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
)
CLOCK = st.floats(0, 1e10, allow_nan=False)


@given(
    st.builds(
        Message,
        TOPIC,
        st.binary(max_size=50),
        st.integers(0, 2),
        st.booleans(),
        CLOCK,
        st.just(ORIGIN),
        st.integers(0, (1 << 62) - 1),
        st.binary(max_size=10),
        TEXT,
        st.just(NONE) | WIRE,
        st.none() | CLOCK,
        st.integers(0, 9),
    )
)
def test_message_rows(m: Message) -> None:
    found = Messages(now_wall=2000.0, now_mono=500.0).read(message_row(3, m, 1500.0))
    assert look(found) == look(m)
    assert (found.expires is None) == (m.expires is None)
    if m.expires is not None:
        given = m.expires + 1500.0 - m.published  # a clock that was set back does not lengthen it
        longest = 500.0 + given if given > 0 else m.expires
        assert found.expires == pytest.approx(min(m.expires, longest), abs=1e-3)
    assert (found.row, found.rows) == (3, 0)


@given(
    st.builds(
        stored,
        TEXT,
        principal=TEXT,
        version=st.sampled_from([4, 5]),
        expiry=U32,
        ended=st.none() | CLOCK,
        will=st.none()
        | st.builds(
            Will,
            topic=TOPIC,
            payload=st.binary(max_size=20),
            qos=st.integers(0, 2),
            retain=st.booleans(),
            properties=st.builds(Properties, will_delay_interval=st.none() | U32, content_type=st.none() | TEXT),
        ),
        context=st.binary(max_size=10),
    )
)
def test_session_rows(session) -> None:
    assert read_session(session_row(session)) == session


@given(
    st.builds(
        Subscription,
        filter=TOPIC,
        qos=st.integers(0, 2),
        no_local=st.booleans(),
        retain_as_published=st.booleans(),
        retain_handling=st.integers(0, 2),
    ),
    st.none() | st.integers(1, 268_435_455),
    st.binary(max_size=20),
)
def test_subscription_rows(subscription: Subscription, identifier: int | None, terms: bytes) -> None:
    row = subscription_row(1, subscription, identifier, terms)
    assert read_subscription(row) == (subscription, identifier, terms)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(topics=st.sets(TOPIC | st.text(string.printable, min_size=1, max_size=5), min_size=1, max_size=8))
def test_any_topic_can_be_retained_and_cleared(tmp_path: Path, topics: set[str]) -> None:
    """In any scope: names are texts as well."""
    trial = Trial(tmp_path / "t.db", durability="async")
    places = [(scope, topic) for scope in topics for topic in topics]
    for scope, topic in places:
        trial.store.retain(scope, topic, message(topic=topic))
    trial.commit()
    kept, *gone = sorted(places)
    for place in gone:
        trial.store.retain(*place, None)
    again = trial.again(durability="async")
    assert [(scope, m.topic) for scope, found in again.found.retained.items() for m in found] == [kept]
    again.store.retain(*kept, None)
    again.close()
    assert counts(again.path) == {}
