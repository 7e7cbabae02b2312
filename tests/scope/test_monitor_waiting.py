"""What waits for a client whose link has monitors: through timers, changes of the rules, and several at once."""

from __future__ import annotations

import pytest

from pure import World
from scope.test_monitor_order import LASTING, MARY, answered, away
from scope.test_monitors import DOOR, configured, got, publish
from tidegate import wire

NONE_LEAVING = "  - {id: other, scope: main, direction: im_pub, filter: ['#']}"


def test_what_waited_for_monitors_that_are_gone_is_sent_as_what_it_is() -> None:
    there = World(rules=configured(DOOR % "main->client:lock").built.rules)
    lock, phone, waiting = away(there, ("one", "two"))
    publish(phone, "AccessRequest", b"", 0)
    there.scope.change(configured(NONE_LEAVING).built.rules)
    there.turn()
    assert answered(lock, waiting) == ["one", "two", "AccessRequest"]
    session = next(one for one in there.scope.sessions.values() if one.client == "lock")
    assert (session.inflight, session.window) == (0, 1), "QoS 0 takes no place on the way"


def test_what_was_only_overheard_is_never_sent() -> None:
    there = World(rules=configured(DOOR % "main->client:lock").built.rules)
    lock, phone, waiting = away(there, ("a/one", "a/two"), "a/#")
    publish(phone, "AccessRequest", b"before", 0)
    lock.subscribe("AccessRequest", 1)
    there.scope.change(configured(NONE_LEAVING).built.rules)
    there.turn()
    assert answered(lock, waiting) == ["a/one", "a/two"]


def test_a_timer_does_not_let_anything_overtake() -> None:
    there = World(
        rules=configured(
            """
  - {id: door, link: "main->client:lock", only: x, after: [open], reset: close}
  - {id: s, link: "main->client:lock", on: beat, silence: 5s, emit: {topic: alarm, payload: x, qos: 1}}
"""
        ).built.rules
    )
    lock = there.peer("lock", properties=LASTING)
    lock.subscribe("#", 1)
    phone = there.peer("phone")
    phone.take()
    publish(phone, "open")
    publish(phone, "beat")
    lock.take()
    lock.lose()
    for topic in ("one", "two", "close"):
        publish(phone, topic, b"", 1)
    lock = there.peer("lock", clean_start=False, properties=LASTING)
    waiting = lock.take()
    there.turn(6)
    publish(phone, "x", b"", 0)
    assert answered(lock, waiting + lock.take()) == ["one", "alarm", "two", "close"]


def test_a_shared_subscription_that_ends_leaves_nothing_to_catch_up_with() -> None:
    there = World(rules=configured(DOOR % "main->client:lock").built.rules)
    lock, _, waiting = away(there, ("one", "two", "three"), "$share/g/#")
    lock.send(wire.Unsubscribe(packet_id=3, filters=("$share/g/#",)))
    answered(lock, waiting + lock.take())
    session = next(one for one in there.scope.sessions.values() if one.client == "lock")
    assert not session.lagging
    assert [post.modes for post in there.scope.gate.compiler.mode_counts] == [{"nothing seen": 1}]


@pytest.mark.parametrize("before", ["  - {id: a, link: 'main->client:lock', rate: 100/s}", NONE_LEAVING])
def test_a_monitor_that_comes_later_sees_what_waits_and_the_others_do_not_see_it_again(before: str) -> None:
    there = World(rules=configured(before).built.rules)
    lock = there.peer("lock", properties=LASTING)
    lock.subscribe("#", 1)
    lock.take()
    phone = there.peer("phone")
    phone.take()
    for topic in ("one", "secret", "one"):
        publish(phone, topic, b"", 1)
    waiting = lock.take()
    both = before + "\n  - {id: f, link: 'main->client:lock', filter: ['one']}"
    there.scope.change(configured(both).built.rules)
    there.turn()
    seen = there.scope.path.monitoring.states.tallies.get("a")
    count = seen.seen if seen is not None else 0
    assert answered(lock, waiting) == ["one", "one"]
    assert seen is None or seen.seen == count


def test_qos_0_that_no_monitor_listens_to_keeps_its_order() -> None:
    there = World(rules=configured(DOOR % "main->client:lock").built.rules)
    lock, phone, waiting = away(there, ("one", "two"))
    for number in range(3):
        publish(phone, "zero", b"%d" % number, 0)
    found = [one.payload for one in lock.take() if isinstance(one, wire.Publish) and one.topic == "zero"]
    assert found == [b"0", b"1", b"2"]
    assert answered(lock, waiting) == ["one", "two"]


def test_a_preference_that_comes_later_binds_what_python_remembers() -> None:
    later = '  - {id: later, scope: main, direction: im_pub, each: scope, python: "scope.mixing:Later"}'
    there = World(rules=configured(later).built.rules)
    carol = there.peer("carol", username="carol")
    carol.subscribe("later")
    carol.take()
    for name in ("dan", "mary"):
        there.peer(name, username=name).send(wire.Publish(topic="t", payload=name.encode()))
    assert got(carol) == [("later", b"dan")]
    there.scope.change(configured(later, "open" + MARY).built.rules)
    there.turn()
    there.peer("bob", username="bob").send(wire.Publish(topic="t", payload=b"bob"))
    assert got(carol) == [], "it would have said what mary said"
