"""What holds for every machine: total, pure, honest about what it hears, and with states that a store can keep."""

from __future__ import annotations

import copy
import json
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.test_sequence import CONDITIONS, FILTERS, TOPICS, specifications, traces, useful
from monitor.traces import event, made
from tidegate import topics
from tidegate.monitor import ASK, Event, Machine, MonitorFailed, State

EMITTED = st.fixed_dictionaries(
    {"topic": st.sampled_from(["x", "y/z"])}, optional={"payload": st.sampled_from(["on", 5]), "qos": st.integers(0, 2)}
)
CHANGED = st.fixed_dictionaries({"retain": st.booleans()}, optional={"payload": st.sampled_from(["on", {"a": 1}])})
EMIT = st.one_of(st.just("same"), st.lists(st.one_of(st.just("same"), EMITTED, CHANGED), max_size=3))
STATES = ("one", "two", "three")
TRANSITION = st.fixed_dictionaries(
    {}, optional={"on": FILTERS, "when": CONDITIONS, "go": st.sampled_from(STATES), "emit": EMIT}
)
TIMER = st.fixed_dictionaries(
    {"silent": st.sampled_from([0.5, 2])},
    optional={"go": st.sampled_from(STATES), "emit": st.lists(EMITTED, max_size=2)},
)


@st.composite
def automata(draw: st.DrawFn) -> dict[str, Any]:
    states = {}
    for name in STATES:
        states[name] = draw(st.lists(TRANSITION, max_size=4)) + draw(st.lists(TIMER, max_size=1))
    return {"automaton": {"start": "one", "states": states}}


LIBRARY = st.sampled_from(
    [
        {"filter": ["a/#", "b"]},
        {"map": {"a/+": "c/+", "#": "deep/#"}},
        {"map": {"+/b": "+", "a": "b"}},
        {"use": "simple_em", "map": {"a": "b"}},
        {"use": "complex_em"},
        {"use": "hsup_em"},
        {"use": "multi_em"},
        {"python": "monitor.mine:Counting", "with": {"most": 2}},
    ]
)
WRITTEN = st.one_of(automata(), specifications(), LIBRARY).filter(useful)


def after(machine: Machine, trace: list[Event]) -> list[State]:
    """Every state a trace leads through."""
    states = [machine.start()]
    for each in trace:
        due = machine.due(states[-1])
        for came in ([Event.tick(due)] if due is not None and due <= each.time else []) + [each]:
            try:
                states.append(machine.step(states[-1], came)[0])
            except MonitorFailed:
                pass
    return states


@settings(max_examples=200, deadline=None)
@given(WRITTEN, traces(), st.sampled_from(TOPICS), st.sampled_from([b"0", b"2", b"?"]))
def test_every_machine_is_total_and_pure_and_puts_out_what_may_be_published(
    written: dict[str, Any], trace: list[Event], topic: str, payload: bytes
) -> None:
    machine = made(**written)
    for state in after(machine, trace):
        before = copy.deepcopy(state)
        came = event(topic, payload, 100.0)
        try:
            new, outputs = machine.step(state, came)
        except MonitorFailed:
            continue
        assert state == before
        assert machine.step(state, came) == (new, outputs)
        assert sum(each is came for each in outputs) <= 1
        for each in outputs:
            assert topics.valid_topic(each.topic)
            assert each.topic[0] != "$" or each.topic == topic
            assert (each.time, each.scene) == (came.time, came.scene)


@settings(max_examples=200, deadline=None)
@given(WRITTEN, traces())
def test_states_survive_json_and_are_accepted(written: dict[str, Any], trace: list[Event]) -> None:
    machine = made(**written)
    for state in after(machine, trace):
        kept = json.loads(json.dumps(state, allow_nan=False))
        assert kept == state
        assert machine.accepts(kept)
        assert machine.due(kept) == machine.due(state)


@settings(max_examples=300, deadline=None)
@given(WRITTEN, traces(), st.sampled_from(TOPICS), st.sampled_from([b"0", b"2", b"?", b'{"x": 1}']))
def test_what_it_does_not_hear_and_where_it_is_calm_nothing_happens(
    written: dict[str, Any], trace: list[Event], topic: str, payload: bytes
) -> None:
    machine = made(**written)
    calm = machine.calm(topic)
    for state in after(machine, trace):
        if calm:
            assert isinstance(state, Hashable)
        if not machine.hears(topic) or (calm and state in calm):
            came = event(topic, payload, 100.0)
            new, outputs = machine.step(state, came)
            assert new == state
            assert [each is came for each in outputs] == [True]


@settings(max_examples=300, deadline=None)
@given(WRITTEN, traces(), st.sampled_from(TOPICS), st.sampled_from([b"0", b"2", b"?", b'{"x": 1}']))
def test_a_glance_tells_what_a_step_does(
    written: dict[str, Any], trace: list[Event], topic: str, payload: bytes
) -> None:
    machine = made(**written)
    glance = machine.glance(topic)
    for state in after(machine, trace) if glance is not None else ():
        came = event(topic, payload, 100.0)
        told = glance(state, came.time) if glance is not None else ASK
        if told is not ASK:
            new, outputs = machine.step(state, came)
            assert new == told
            assert [each is came for each in outputs] == [True]
            assert machine.due(state) is machine.due(new) is None


@settings(max_examples=300, deadline=None)
@given(WRITTEN, traces(), st.sampled_from(TOPICS), st.sampled_from([b"0", b"2", b"?", b'{"x": 1}']))
def test_what_passes_in_every_state_tells_nothing(
    written: dict[str, Any], trace: list[Event], topic: str, payload: bytes
) -> None:
    machine = made(**written)
    assert machine.rests(machine.start()) or not machine.remembers
    for state in after(machine, trace):
        came = event(topic, payload, 100.0)
        if machine.passes(topic) and machine.remembers:
            outputs = machine.step(state, came)[1]
            # what counts and waits may suppress it all the same: that is remembered nowhere
            assert [each is came for each in outputs] in ([True], [])


@settings(max_examples=200, deadline=None)
@given(WRITTEN, traces())
def test_after_a_tick_it_is_not_due_at_once(written: dict[str, Any], trace: list[Event]) -> None:
    machine = made(**written)
    for state in after(machine, trace):
        due = machine.due(state)
        if due is None:
            assert machine.step(state, Event.tick(1000.0)) == (state, ())
            continue
        early = Event.tick(due - 0.25)
        assert machine.step(state, early) == (state, ())
        for late in (0.0, 7.0):
            new, _ = machine.step(state, Event.tick(due + late))
            again = machine.due(new)
            assert again is None or again > due + late


@settings(max_examples=200, deadline=None)
@given(WRITTEN, st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=8), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
), max_leaves=6))  # fmt: skip
def test_whatever_is_stored_is_judged_and_what_is_accepted_works(written: dict[str, Any], state: Any) -> None:
    machine = made(**written)
    if machine.accepts(state):
        machine.due(state)
        try:
            machine.step(state, event("a", b"2", 100.0))
        except MonitorFailed:
            pass


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ({"automaton": {"start": "s", "states": {"s": [{"silent": "5s"}]}}}, ["t", "s@", "s@nan", "s@inf", "s@x", 5]),
        ({"rate": "2/s"}, ["", [1.0], [3.0, 0.0], [-1.0, 0.0], [True, 0.0], {}, [1.0, float("nan")]]),
        ({"dedupe": "2s"}, [None, [], {"a": "b"}, {str(index): 0.0 for index in range(129)}]),
        ({"silence": "2s", "emit": {"topic": "t"}}, ["", float("inf"), [5.0], True]),
        ({"use": "complex_em"}, [-1, 1.0, True, 1 << 60]),
        ({"use": "hsup_em"}, ["", None, ["allow"], {}]),
        ({"use": "multi_em"}, ["", None, ["q0"]]),
        ({"rate": "2/s", "dedupe": "2s"}, [None, [{}], [{}, {}], [{}, None, None]]),
    ],
)
def test_states_of_other_definitions_are_not_accepted(written: dict[str, Any], wrong: list[Any]) -> None:
    machine = made(**written)
    assert machine.accepts(machine.start())
    assert [each for each in wrong if machine.accepts(each)] == []
