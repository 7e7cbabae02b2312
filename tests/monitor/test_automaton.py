"""Transitions as they are written: the first that matches, several outputs, changed ones, timers."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.traces import event, fed, made, names
from tidegate.monitor import Event, Machine, MonitorFailed

# interfaces.md
BY_HAND = {
    "automaton": {
        "start": "idle",
        "states": {
            "idle": [{"on": "AccessRequest", "go": "requested"}, {"on": "DL_unlock", "emit": []}],
            "requested": [
                {"on": "AccessDenied", "go": "idle"},
                {"on": "AccessGranted", "go": "granted"},
                {"on": "DL_unlock", "emit": []},
            ],
            "granted": [
                {"on": "DL_unlock", "go": "idle"},
                {
                    "on": "alarm/#",
                    "when": "o.payload.level > 3",
                    "emit": ["same", {"topic": "siren", "payload": "on"}],
                },
            ],
        },
    }
}


def one(*transitions: Any) -> Machine:
    return made(automaton={"start": "s", "states": {"s": list(transitions)}})


def test_the_door_by_hand() -> None:
    door = made(**BY_HAND)
    assert names(door, "DL_unlock", "AccessRequest", "DL_unlock", "AccessGranted", "DL_unlock", "DL_unlock") == [
        "AccessRequest",
        "AccessGranted",
        "DL_unlock",
    ]
    alarm = event("alarm/cellar", b'{"level": 4}', qos=1)
    assert door.step("granted", alarm) == ("granted", (alarm, Event("siren", b"on", 1)))
    quiet = event("alarm/cellar", b'{"level": 3}')
    assert door.step("granted", quiet) == ("granted", (quiet,))
    assert door.step("idle", alarm) == ("idle", (alarm,))
    assert door.reads == {"o.payload.level"}


def test_a_condition_that_fails_says_which() -> None:
    with pytest.raises(MonitorFailed, match=r"the condition `o\.payload\.level > 3` failed: "):
        made(**BY_HAND).step("granted", event("alarm/cellar", b"fire"))


@pytest.mark.parametrize(
    ("emit", "came"),
    [
        ("same", [("t", b"x", 1, True)]),
        ([], []),
        ({"topic": "u"}, [("u", b"x", 1, True)]),
        ([{"payload": "ü"}], [("t", "ü".encode(), 1, True)]),
        ([{"payload": ""}], [("t", b"", 1, True)]),
        ([{"payload": {"a": [1, "ü"]}}], [("t", '{"a":[1,"ü"]}'.encode(), 1, True)]),
        ([{"payload": True}], [("t", b"true", 1, True)]),
        ([{"qos": 0}, {"retain": False}], [("t", b"x", 0, True), ("t", b"x", 1, False)]),
        ([{"topic": "u", "qos": 2}, "same"], [("u", b"x", 2, True), ("t", b"x", 1, True)]),
    ],
)
def test_outputs(emit: Any, came: list[tuple[str, bytes, int, bool]]) -> None:
    _, outputs = one({"on": "t", "emit": emit}).step("s", event("t", b"x", qos=1, retain=True))
    assert [(each.topic, each.payload, each.qos, each.retain) for each in outputs] == came


def test_only_the_first_same_is_the_event_itself() -> None:
    came = event("t")
    _, outputs = one({"emit": ["same", {"topic": "u"}, "same"]}).step("s", came)
    assert [each is came for each in outputs] == [True, False, False]
    assert outputs[2] == came


def test_the_first_that_matches_is_taken() -> None:
    machine = one({"on": ["a/b", "c"], "emit": []}, {"on": "a/+", "emit": {"topic": "x"}})
    assert names(machine, "a/b", "a/c", "c", "d") == ["x", "d"]


def test_a_transition_without_filter_is_about_all_but_reserved_topics() -> None:
    assert names(one({"emit": []}), "a", "$SYS/a", "a/b") == ["$SYS/a"]


WAITING = {
    "automaton": {
        "start": "idle",
        "states": {
            "idle": [{"on": "ask", "go": "waiting"}],
            "waiting": [
                {"on": "answer", "go": "idle"},
                {"silent": "10s", "go": "late", "emit": [{"topic": "reminder", "payload": "?", "qos": 1}]},
            ],
            "late": [{"on": "answer", "go": "idle"}, {"silent": "5s", "emit": {"topic": "alarm"}}],
        },
    }
}


def test_a_timer_is_taken_when_nothing_comes() -> None:
    machine = made(**WAITING)
    state, _ = machine.step("idle", event("ask", time=100.0))
    assert (state, machine.due(state)) == ("waiting@110.0", 110.0)
    assert machine.step(state, Event.tick(109.9)) == (state, ())
    # every event counts
    state, outputs = machine.step(state, event("other", time=104.0))
    assert (state, [each.topic for each in outputs]) == ("waiting@114.0", ["other"])
    state, outputs = machine.step(state, Event.tick(115.0))
    assert (state, list(outputs)) == ("late@120.0", [Event("reminder", b"?", 1)])
    # one that stays counts anew
    state, outputs = machine.step(state, Event.tick(120.0))
    assert (state, list(outputs)) == ("late@125.0", [Event("alarm", b"")])
    state, _ = machine.step(state, event("answer", time=121.0))
    assert (state, machine.due(state)) == ("idle", None)


def test_the_first_state_counts_from_the_first_event_on() -> None:
    machine = one({"silent": "10s", "emit": {"topic": "gone"}})
    assert machine.due(machine.start()) is None
    assert [[each.topic for each in came] for came in fed(machine, [event("a", time=50.0)], 75.0)] == [
        ["a"],
        ["gone", "gone"],
    ]


def test_where_there_is_a_timer_every_event_is_heard() -> None:
    machine = made(**WAITING)
    assert machine.hears("whatever")
    assert machine.calm("whatever") == {"idle"}
