"""Monitors see events in their order, whatever waits; what Python remembers is said to nobody who may not know it."""

from __future__ import annotations

from pure import End, World
from scope.test_monitors import DOOR, configured, got, publish
from tidegate import wire

LATER = '  - {id: later, scope: main, direction: im_pub, each: scope, python: "scope.mixing:Later"}'
LASTING = wire.Properties(session_expiry_interval=600, receive_maximum=1)


def lock_that_waits(there: World, qos: int = 1) -> End:
    """It takes one message at a time, and has not acknowledged the first."""
    lock = there.peer("lock", properties=wire.Properties(receive_maximum=1))
    lock.subscribe("DL_unlock", qos)
    lock.subscribe("AccessDenied", qos)
    lock.subscribe("first", qos)
    lock.take()
    return lock


def answered(end: End, packets: list[wire.Packet]) -> list[str]:
    """Acknowledges everything there is; the topics in the order they came."""
    found: list[str] = []
    while packets:
        for packet in packets:
            if isinstance(packet, wire.Publish):
                found.append(packet.topic)
                if packet.qos:
                    end.send(wire.Puback(packet_id=packet.packet_id))
        packets = end.take()
    return found


def away(there: World, topics: tuple[str, ...], filter: str = "#") -> tuple[End, End, list[wire.Packet]]:
    """A lock that comes back to what waits for it, one message at a time; somebody who publishes; what it is sent."""
    lock = there.peer("lock", properties=LASTING)
    lock.subscribe(filter, 1)
    lock.take()
    lock.lose()
    phone = there.peer("phone")
    phone.take()
    for topic in topics:
        publish(phone, topic, b"", 1)
    lock = there.peer("lock", clean_start=False, properties=LASTING)
    return lock, phone, lock.take()


def test_what_was_said_before_the_request_stays_suppressed_however_long_the_queue_is() -> None:
    there = World(rules=configured(DOOR % "main->client:lock").built.rules)
    lock = lock_that_waits(there)
    phone = there.peer("phone")
    phone.take()
    publish(phone, "first", b"", 1)
    waiting = lock.take()
    publish(phone, "DL_unlock", b"too early", 1)
    publish(phone, "AccessRequest", b"", 1)
    publish(phone, "AccessGranted", b"", 1)
    publish(phone, "DL_unlock", b"in time", 1)
    assert answered(lock, waiting) == ["first", "DL_unlock"]


def test_qos_0_does_not_overtake_what_the_monitors_wait_for() -> None:
    there = World(rules=configured(DOOR % "main->client:lock").built.rules)
    lock = lock_that_waits(there)
    phone = there.peer("phone")
    phone.take()
    publish(phone, "AccessRequest")
    publish(phone, "AccessGranted")
    publish(phone, "first", b"", 1)
    waiting = lock.take()
    publish(phone, "AccessDenied", b"", 1)  # it waits for the window
    publish(phone, "DL_unlock", b"", 0)
    assert answered(lock, waiting) == ["first", "AccessDenied"]


def test_what_waited_while_nobody_was_there_comes_first_for_everything() -> None:
    """Also for what nobody subscribed to, and for what would take the fast lane."""
    there = World(rules=configured(DOOR % "main->client:lock").built.rules)
    lock, phone, waiting = away(there, ("one", "two", "DL_unlock", "AccessRequest"))
    session = next(one for one in there.scope.sessions.values() if one.client == "lock")
    assert session.lagging
    publish(phone, "AccessGranted", b"", 0)
    publish(phone, "DL_unlock", b"", 0)
    assert answered(lock, waiting) == ["one", "two", "AccessRequest", "AccessGranted", "DL_unlock"]
    assert not session.lagging
    assert not session.behind


def test_what_was_waiting_without_acknowledgement_does_not_wait_for_another_connection() -> None:
    there = World(rules=configured(DOOR % "main->client:lock").built.rules)
    lock, phone, _ = away(there, ("one", "two"))
    publish(phone, "AccessRequest", b"", 0)
    lock.lose()
    lock = there.peer("lock", clean_start=False, properties=LASTING)
    assert answered(lock, lock.take()) == ["one", "two"]


def test_a_link_that_is_behind_is_not_calm() -> None:
    rules = configured(
        """
  - id: hush
    scope: main
    direction: im_sub
    automaton: {start: loud, states: {loud: [{on: mute, go: quiet}], quiet: [{on: data, emit: []}]}}
"""
    ).built.rules
    there = World(rules=rules)
    end, device, waiting = away(there, ("one", "mute"))
    publish(device, "data", b"", 0)
    publish(device, "data", b"", 0)
    assert answered(end, waiting) == ["one", "mute"]


def shown(preferences: str, first: dict[str, str], second: dict[str, str], view: str | None = None) -> list[bytes]:
    """What carol gets of what two people say to a monitor that repeats the one before."""
    rules = configured(LATER, "open" + preferences).built.rules
    there = World(rules=rules)
    carol = there.peer("carol", username="carol")
    carol.subscribe("later")
    carol.take()
    for number, one in enumerate((first, second)):
        end = there.peer(f"d{number}", **one)
        properties = wire.Properties(user_properties=(("view", view),)) if view and not number else wire.NONE
        end.send(wire.Publish(topic="t", payload=one["username"].encode(), properties=properties))
    return [payload for _, payload in got(carol)]


MARY = "\npreferences:\n  - {id: mine, user: mary, topic: t, when: \"s.user == 'alice'\"}"


def test_what_python_remembers_of_several_people() -> None:
    mary, bob, dan = ({"username": name} for name in ("mary", "bob", "dan"))
    assert shown("", mary, bob) == [b"mary"], "nobody restricts anything"
    assert shown(MARY, bob, dan) == [b"bob"]
    assert shown(MARY, mary, bob) == [], "mary's preference binds what was made of her message"
    assert shown(MARY, bob, mary) == []
    assert shown("", bob, bob, view='{"user:alice": "all"}') == [], "nor is a view forgotten"


def test_once_it_has_forgotten_it_may_speak_again() -> None:
    there = World(rules=configured(LATER, "open" + MARY).built.rules)
    carol = there.peer("carol", username="carol")
    carol.subscribe("later")
    carol.take()
    mary, bob = there.peer("mary", username="mary"), there.peer("bob", username="bob")
    mary.send(wire.Publish(topic="t", payload=b"secret"))
    bob.send(wire.Publish(topic="t", payload=b"1"))
    bob.send(wire.Publish(topic="t", payload=b"forget"))
    bob.send(wire.Publish(topic="t", payload=b"2"), wire.Publish(topic="t", payload=b"3"))
    assert got(carol) == [("later", b"2")]


def test_what_limits_what_is_sent_does_not_count_what_is_not() -> None:
    """A rate towards a client is spent by what it subscribed to; an automaton beside it sees everything."""
    there = World(
        rules=configured(
            """
  - {id: slow, link: "main->client:panel", rate: 1/s, burst: 2}
  - {id: both, link: "main->client:screen", rate: 1/s, burst: 2, only: data, after: [go]}
"""
        ).built.rules
    )
    ends = [there.peer(name) for name in ("panel", "screen")]
    for end in ends:
        end.subscribe("data")
        end.take()
    device = there.peer("device")
    device.take()
    for _ in range(5):
        publish(device, "noise")
    publish(device, "go")
    for _ in range(4):
        publish(device, "data")
    assert [len(got(end)) for end in ends] == [2, 1]
