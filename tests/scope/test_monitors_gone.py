"""States of clients that are gone: what is at its start is let go of, whatever a timer did to it afterwards."""

from __future__ import annotations

import pytest

from pure import World
from scope.test_monitors import got, publish, states, world

SILENCE = "  - {id: m, scope: main, direction: im_pub, each: %s, silence: 10s, emit: {topic: alarm, payload: silent}}"


def visited(there: World, count: int) -> None:
    """So many clients say one thing and are gone for good."""
    for number in range(count):
        end = there.peer(f"c{number}")
        end.take()
        publish(end, "t")
        end.lose()


@pytest.mark.parametrize("each", ["client", "link"])
def test_nothing_is_left_when_the_timers_of_those_who_are_gone_have_fired(each: str) -> None:
    there = world(SILENCE % each)
    listener = there.peer("listener")
    listener.subscribe("alarm")
    listener.take()
    visited(there, 50)
    assert sum("client:c" in key for _, key, _ in states(there)) == 50
    there.turn(11.0)
    assert got(listener) == [("alarm", b"silent")] * 50
    there.turn()
    assert [key for _, key, _ in states(there) if "client:c" in key] == []
    assert not there.bugs


def test_a_monitor_after_the_one_whose_timer_fired_leaves_nothing_either() -> None:
    there = world(
        SILENCE % "client" + "\n  - {id: n, scope: main, direction: im_pub, each: client, filter: [t, alarm]}"
    )
    visited(there, 20)
    there.turn(11.0)
    there.turn()
    assert list(states(there)) == []


def test_what_is_not_at_its_start_stays_when_a_timer_has_fired() -> None:
    """A client cannot shake off its past by being silent."""
    states_of_two = "automaton: {start: a, states: {a: [{on: t, go: b}], b: []}}"
    there = world(
        SILENCE % "client" + f"\n  - {{id: n, scope: main, direction: im_pub, each: client, {states_of_two}}}"
    )
    visited(there, 3)
    there.turn(11.0)
    there.turn()
    assert [(id, state) for id, _, state in states(there)] == [("n", "b")] * 3


def test_who_comes_back_before_the_timer_fires_keeps_its_state() -> None:
    there = world(SILENCE % "client")
    visited(there, 1)
    back = there.peer("c0")
    back.take()
    there.turn(11.0)
    there.turn()
    assert [key for _, key, _ in states(there)] == ["anonymous client:c0"]
    publish(back, "t")
    back.lose()
    there.turn(11.0)
    there.turn()
    assert list(states(there)) == []
