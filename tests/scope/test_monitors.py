"""Monitors in the engine, without sockets: what enters, what leaves, what is overheard, and whose state it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pure import End, World
from tidegate import wire
from tidegate.config import Config, parse

V = (wire.V311, wire.V5)


def configured(monitors: str, policies: str = "open") -> Config:
    text = f"""
version: 1
node: {{name: n}}
listeners: [{{url: "mqtt://127.0.0.1:1883", scope: main, anonymous: true}}]
scopes: {{main: {{}}}}
policies: {policies}
monitors:
{monitors}
"""
    return parse(text, "tidegate.yaml")


def world(monitors: str, policies: str = "open", **fields: Any) -> World:
    return World(rules=configured(monitors, policies).built.rules, **fields)


def publish(end: End, topic: str, payload: bytes = b"x", qos: int = 0, pid: int = 7, retain: bool = False) -> list[Any]:
    """What comes back."""
    end.send(wire.Publish(topic=topic, payload=payload, qos=qos, packet_id=pid if qos else 0, retain=retain))
    answers = end.take()
    if qos == 2 and answers and getattr(answers[-1], "reason", 0) < 0x80:
        end.send(wire.Pubrel(packet_id=pid))
        answers += end.take()
    return [one for one in answers if not isinstance(one, wire.Publish)]


def got(end: End) -> list[tuple[str, bytes]]:
    found = []
    for packet in end.take():
        if isinstance(packet, wire.Publish):
            found.append((packet.topic, packet.payload))
            if packet.qos == 1:
                end.send(wire.Puback(packet_id=packet.packet_id))
            elif packet.qos == 2:
                end.send(wire.Pubrec(packet_id=packet.packet_id))
                end.send(wire.Pubcomp(packet_id=packet.packet_id))
    return found


DOOR = """  - {id: door, link: "%s", only: DL_unlock, after: [AccessRequest, AccessGranted], reset: AccessDenied}"""


@pytest.mark.parametrize("version", V)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_sequence_on_the_way_in(version: int, qos: int) -> None:
    there = world(DOOR % "client:panel->main")
    listener = there.peer("listener", version=version)
    listener.subscribe("#", qos)
    listener.take()
    panel = there.peer("panel", version=version)
    panel.take()
    publish(panel, "DL_unlock", b"1", qos)
    assert got(listener) == []
    for topic in ("AccessRequest", "AccessGranted", "DL_unlock", "DL_unlock"):
        publish(panel, topic, b"2", qos)
    assert [topic for topic, _ in got(listener)] == ["AccessRequest", "AccessGranted", "DL_unlock"]
    assert not there.bugs


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_lock_that_has_subscribed_to_nothing_but_its_command(qos: int) -> None:
    """The automaton must see what it waits for, whether or not anybody behind the link subscribes to it."""
    there = world(DOOR % "main->client:lock")
    lock = there.peer("lock")
    lock.subscribe("DL_unlock", qos)
    lock.take()
    phone = there.peer("phone")
    phone.take()
    publish(phone, "DL_unlock", b"1", qos)
    assert got(lock) == []
    publish(phone, "AccessRequest", b"", qos)
    publish(phone, "AccessGranted", b"", qos)
    publish(phone, "DL_unlock", b"2", qos)
    assert got(lock) == [("DL_unlock", b"2")]
    publish(phone, "DL_unlock", b"3", qos)
    assert got(lock) == []


@pytest.mark.parametrize(("suppressed", "code"), [("accept", 0x10), ("refuse", 0x87)])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_publisher_is_told(suppressed: str, code: int, qos: int) -> None:
    there = world('  - {id: f, scope: main, direction: im_pub, filter: ["a/#"], suppressed: ' + suppressed + "}")
    five = there.peer("five")
    old = there.peer("old", version=wire.V311)
    five.take(), old.take()
    said = publish(five, "b", qos=qos)
    if qos == 1:
        assert [one.reason for one in said] == [code]
    else:  # monitors see it at PUBREL, and PUBCOMP cannot say no
        assert [(type(one), one.reason) for one in said] == [(wire.Pubrec, 0), (wire.Pubcomp, 0)]
    said = publish(old, "b", qos=qos)
    assert [type(one) for one in said] == ([wire.Puback] if qos == 1 else [wire.Pubrec, wire.Pubcomp])


def test_outputs_have_ids_of_their_own_and_the_context_of_their_cause() -> None:
    there = world(
        """
  - id: two
    scope: main
    direction: im_pub
    automaton:
      start: s
      states:
        s: [{on: a, emit: [same, {topic: b}, {topic: c, payload: {on: true}, qos: 1, retain: true}]}]
"""
    )
    seen: list[Any] = []
    deliver = there.scope.path.deliver

    def watching(plan: Any, message: Any, source: Any, root: Any = None) -> int:
        seen.append(message)
        return deliver(plan, message, source, root)

    there.scope.path.deliver = watching  # type: ignore[method-assign]
    listener = there.peer("listener")
    listener.subscribe("#", 1)
    mary = there.peer("device", username="mary")
    listener.take(), mary.take()
    publish(mary, "a", b"1")
    assert got(listener) == [("a", b"1"), ("b", b"1"), ("c", b'{"on":true}')]
    first = seen[0].id
    assert [one.id for one in seen] == [first, f"{first}.1", f"{first}.2"]
    contexts = [there.scope.gate.attributes.context(one) for one in seen]
    assert [one.subject.user for one in contexts] == ["mary"] * 3
    assert [one.topic for one in contexts] == [None, "a", "a"]
    later = there.peer("later")
    later.subscribe("#", 0)
    assert ("c", b'{"on":true}') in got(later)


POLICIES = """
  - {id: in, subject: "*", topic: "raw/#", action: write}
  - {id: out, subject: "*", topic: "#", action: read}
  - {id: mon, subject: "monitor:names", topic: "new/#", action: write, when: "o.size < 5"}
"""


def test_what_a_monitor_makes_must_be_writable_by_it() -> None:
    there = world(
        '  - {id: names, scope: main, direction: im_pub, map: {"raw/a/#": "new/#", "raw/b/#": "old/#"}}', POLICIES
    )
    listener = there.peer("listener")
    listener.subscribe("#")
    device = there.peer("device")
    listener.take(), device.take()
    assert publish(device, "raw/a/1", b"1", 1)[0].reason == 0
    publish(device, "raw/a/1", b"too long", 1)
    assert publish(device, "raw/b/1", b"2", 1)[0].reason == 0x10
    publish(device, "new/1", b"3", 1)
    publish(device, "raw/c", b"4", 1)
    assert got(listener) == [("new/1", b"1"), ("raw/c", b"4")]
    assert there.site.counters.denied == 3


def test_loops_of_renaming_end() -> None:
    there = world(
        """
  - {id: m1, scope: main, direction: im_pub, map: {a: b}}
  - {id: m2, scope: main, direction: im_pub, map: {b: a}}
  - {id: m3, scope: main, direction: im_sub, map: {a: b}}
  - {id: m4, scope: main, direction: im_sub, map: {b: a}}
"""
    )
    listener = there.peer("listener")
    listener.subscribe("#")
    device = there.peer("device")
    listener.take(), device.take()
    publish(device, "a", b"1")
    assert got(listener) == [("a", b"1")]


def test_at_egress_a_changed_event_needs_a_subscription_and_is_not_monitored_again() -> None:
    there = world("  - {id: names, scope: main, direction: im_sub, map: {a: b, b: c}}")
    b, a = there.peer("b"), there.peer("a")
    b.subscribe("b", 1)
    a.subscribe("a", 1)
    device = there.peer("device")
    for one in (a, b, device):
        one.take()
    publish(device, "a", b"1", 1)
    assert got(b) == [("b", b"1")]
    assert got(a) == []


def test_rate_each_client_survives_reconnection_and_refills() -> None:
    there = world("  - {id: calm, scope: main, direction: im_pub, each: client, rate: 1/s, burst: 2}")
    listener = there.peer("listener")
    listener.subscribe("#")
    listener.take()

    def burst(name: str, count: int) -> int:
        end = there.peer(name)
        end.take()
        for number in range(count):
            publish(end, "t", b"%d" % number)
        end.lose()
        return len(got(listener))

    assert burst("one", 5) == 2
    assert burst("one", 5) == 0
    assert burst("two", 5) == 2
    there.turn(1.0)
    assert burst("one", 5) == 1


def test_silence_speaks_for_a_device_that_is_gone() -> None:
    there = world(
        "  - {id: q, scope: main, direction: im_pub, silence: 10s, on: temp, emit: {topic: alarm, payload: silent}}"
    )
    listener = there.peer("listener")
    listener.subscribe("#")
    device = there.peer("device", username="mary")
    listener.take(), device.take()
    publish(device, "temp", b"20")
    device.lose()
    there.turn(9.0)
    assert got(listener) == [("temp", b"20")]
    there.turn(1.5)
    assert got(listener) == [("alarm", b"silent")]
    there.turn(60.0)
    assert got(listener) == []
    assert not there.bugs


def test_silence_on_the_way_out() -> None:
    there = world(
        '  - {id: q, link: "main->client:panel", silence: 10s, on: temp, emit: {topic: alarm, payload: silent, qos: 1}}'
    )
    panel = there.peer("panel")
    panel.subscribe("alarm", 1)
    device = there.peer("device")
    panel.take(), device.take()
    publish(device, "temp", b"20")
    there.turn(11.0)
    assert got(panel) == [("alarm", b"silent")]


def test_a_wall_clock_that_jumps_neither_fires_nor_starves_a_timer() -> None:
    there = world(
        "  - {id: quiet, scope: main, direction: im_pub, silence: 10s, emit: {topic: alarm, payload: silent}}"
    )
    listener = there.peer("listener")
    listener.subscribe("#")
    device = there.peer("device")
    listener.take(), device.take()
    publish(device, "temp", b"20")
    there.wall += 86400
    there.turn(1.0)
    assert got(listener) == [("temp", b"20")]
    there.wall -= 3 * 86400
    there.turn(9.5)
    assert got(listener) == [("alarm", b"silent")]


def test_what_waits_is_shown_to_the_monitors_when_it_is_sent() -> None:
    """Decided at sending: what was queued before a monitor came is seen by it."""
    there = World(rules=configured("  []").built.rules)
    lock = there.peer("lock", clean_start=True, properties=wire.Properties(session_expiry_interval=600))
    lock.subscribe("#", 1)
    lock.take()
    lock.lose()
    phone = there.peer("phone")
    phone.take()
    for topic in ("DL_unlock", "AccessRequest", "AccessGranted", "DL_unlock"):
        publish(phone, topic, topic.encode(), 1)
    there.scope.change(configured(DOOR % "main->client:lock").built.rules)
    there.turn()
    lock = there.peer("lock", clean_start=False, properties=wire.Properties(session_expiry_interval=600))
    assert [topic for topic, _ in got(lock)] == ["AccessRequest", "AccessGranted", "DL_unlock"]


def test_several_outputs_with_a_window_of_one_keep_their_order() -> None:
    there = world(
        """
  - id: many
    link: "main->client:sub"
    automaton: {start: s, states: {s: [{on: a, emit: [{topic: b}, same, {topic: c}]}]}}
"""
    )
    sub = there.peer("sub", properties=wire.Properties(receive_maximum=1))
    sub.subscribe("#", 1)
    device = there.peer("device")
    sub.take(), device.take()
    publish(device, "a", b"1", 1)
    publish(device, "a", b"2", 1)
    found: list[tuple[str, bytes]] = []
    while more := got(sub):
        found += more
    assert found == [(t, p) for p in (b"1", b"2") for t in ("b", "a", "c")]


def test_state_is_kept_over_a_change_if_the_new_definition_knows_it() -> None:
    def two_states(first: str, second: str, hushed: str) -> str:
        states = f"{{{first}: [{{on: a, go: {second}}}], {second}: [{{on: {hushed}, emit: []}}]}}"
        return f"  - {{id: m, scope: main, direction: im_pub, automaton: {{start: {first}, states: {states}}}}}"

    there = world(two_states("x", "y", "b"))
    device, listener = there.peer("device"), there.peer("listener")
    listener.subscribe("#")
    device.take(), listener.take()
    publish(device, "a")
    publish(device, "b")
    there.scope.change(configured(two_states("x", "y", "c")).built.rules)
    publish(device, "b")
    publish(device, "c")
    there.scope.change(configured(two_states("p", "q", "d")).built.rules)
    publish(device, "d")
    assert [topic for topic, _ in got(listener)] == ["a", "b", "d"]


def test_a_failing_condition_suppresses_and_leaves_the_state() -> None:
    there = world(
        """
  - id: m
    scope: main
    direction: im_pub
    automaton: {start: x, states: {x: [{on: a, when: "o.payload.level > 3", go: y}], y: [{on: "#", emit: []}]}}
"""
    )
    device, listener = there.peer("device"), there.peer("listener")
    listener.subscribe("#")
    device.take(), listener.take()
    publish(device, "a", b"no json")
    publish(device, "a", b'{"level": 1}')
    publish(device, "b", b"")
    publish(device, "a", b'{"level": 5}')
    publish(device, "b", b"")
    assert [payload for _, payload in got(listener)] == [b'{"level": 1}', b"", b'{"level": 5}']


def test_the_fast_lane_is_taken_while_monitors_are_calm_and_left_when_they_are_not() -> None:
    there = world(
        """
  - id: m
    scope: main
    direction: im_pub
    automaton:
      start: open
      states: {open: [{on: close, go: closed}], closed: [{on: open, go: open}, {on: data, emit: []}]}
  - id: n
    scope: main
    direction: im_sub
    automaton:
      start: open
      states: {open: [{on: mute, go: muted}], muted: [{on: sound, go: open}, {on: data, emit: []}]}
"""
    )
    device, listener = there.peer("device"), there.peer("listener")
    listener.subscribe("data")
    device.take(), listener.take()

    def heard() -> bool:
        publish(device, "data", b"1")
        return bool(got(listener))

    assert heard()
    plan = next(p for _, p in there.scope.gate.cache.plans() if p.topic == "data")
    assert plan.fast is not None
    assert plan.guarded
    assert plan.calm(device.connection.session)
    publish(device, "close")
    assert not plan.calm(device.connection.session)
    assert not heard()
    publish(device, "open")
    assert plan.calm(device.connection.session)
    assert heard()
    publish(device, "mute")
    assert not plan.calm(device.connection.session)
    assert not heard()
    publish(device, "sound")
    assert heard()
    other = there.peer("other")
    other.take()
    other.lose()
    assert heard()


def test_a_will_goes_through_the_monitors() -> None:
    there = world('  - {id: f, scope: main, direction: im_pub, filter: ["a/#"]}')
    listener = there.peer("listener")
    listener.subscribe("#")
    for name, topic in (("one", "a/will"), ("two", "b/will")):
        there.peer(name, will=wire.Will(topic=topic, payload=b"w", qos=0, retain=False)).lose()
    there.turn()
    assert got(listener) == [("a/will", b"w")]


def states(there: World) -> Iterator[tuple[str, str, Any]]:
    for (monitor, key), one in there.scope.path.monitoring.states.instances.items():
        yield monitor, key, one.state


def test_whose_state_it_is() -> None:
    there = world(
        """
  - {id: l, scope: main, direction: im_pub, use: hsup_em}
  - {id: s, scope: main, direction: im_pub, each: scope, use: hsup_em}
"""
    )
    one, two = there.peer("one"), there.peer("two")
    one.take(), two.take()
    publish(one, "t")
    publish(two, "t")
    assert {(m, k) for m, k, _ in states(there)} == {
        ("l", "anonymous client:one->scope:main"),
        ("l", "anonymous client:two->scope:main"),
        ("s", "scope:main"),
    }
