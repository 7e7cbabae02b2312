"""The sequence language: A1 of the scopes seed in full, and a second reading of the language on random traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.traces import WORDS, event, fed, made
from tidegate import topics
from tidegate.monitor import Event, Machine
from tidegate.monitor.automaton import Automaton
from tidegate.predicate import PredicateFailed

A1 = {"only": "DL_unlock", "after": ["AccessRequest", "AccessGranted"], "reset": "AccessDenied"}
Q0, Q1, Q2 = "nothing seen", "seen AccessRequest", "seen AccessRequest, AccessGranted"


@pytest.mark.parametrize(
    ("state", "topic", "after", "passes"),
    [
        (Q0, "AccessRequest", Q1, True),
        (Q0, "AccessGranted", Q0, True),
        (Q0, "AccessDenied", Q0, True),
        (Q0, "DL_unlock", Q0, False),
        (Q0, "other", Q0, True),
        (Q1, "AccessRequest", Q1, True),
        (Q1, "AccessGranted", Q2, True),
        (Q1, "AccessDenied", Q0, True),
        (Q1, "DL_unlock", Q1, False),
        (Q1, "other", Q1, True),
        (Q2, "AccessRequest", Q2, True),
        (Q2, "AccessGranted", Q2, True),
        (Q2, "AccessDenied", Q0, True),
        (Q2, "DL_unlock", Q0, True),
        (Q2, "other", Q2, True),
    ],
)
def test_a1_in_every_state_with_every_event(state: str, topic: str, after: str, passes: bool) -> None:
    came = event(topic)
    found, outputs = made(**A1).step(state, came)
    assert (found, list(outputs)) == (after, [came] if passes else [])


def test_a1_is_finite_and_knows_when_it_is_calm() -> None:
    door = made(**A1)
    assert isinstance(door, Automaton)
    assert set(door.states) == {Q0, Q1, Q2}
    assert door.calm("other") == {Q0, Q1, Q2}
    assert door.calm("AccessRequest") == {Q1, Q2}
    assert door.calm("AccessGranted") == {Q0, Q2}
    assert door.calm("AccessDenied") == {Q0}
    assert door.calm("DL_unlock") == frozenset()
    assert [door.hears(topic) for topic in ("other", "DL_unlock", "AccessDenied")] == [False, True, True]


def test_a_state_of_other_steps_is_not_taken_for_one_of_these() -> None:
    door = made(**A1)
    other = made(**{**A1, "after": ["AccessRequest", "Badge"]})
    assert not other.accepts(Q2)
    assert other.accepts(Q1)
    assert not door.accepts("seen AccessRequest, Badge")


def states(machine: Machine) -> list[str]:
    assert isinstance(machine, Automaton)
    return list(machine.states)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a, b"], ["a", "b"]),
        (["a or b"], [["a", "b"]]),
        (["a if true"], [{"on": "a", "when": "true"}]),
        ([{"on": "a", "when": "true //, b"}], [{"on": "a", "when": "true //"}, "b"]),
        (["x" * 300, "y"], ["x" * 300, "z"]),
        (["x" * 300], ["x" * 301]),
    ],
)
def test_steps_that_read_alike_are_not_taken_for_each_other(one: Any, other: Any) -> None:
    first, second = (states(made(only="guarded", after=each)) for each in (one, other))
    assert (len(first), len(second)) == (len(one) + 1, len(other) + 1)
    assert first[-1] not in second
    assert second[-1] not in first


def test_names_of_states_are_short_however_long_the_steps() -> None:
    steps = ["t" * 6000 + str(number) for number in range(100)]
    names = states(made(only="x", after=steps))
    assert len(set(names)) == 101
    assert max(map(len, names)) < 250
    assert names == states(made(only="x", after=steps))


def test_what_is_guarded_by_a_condition_stays_as_it_is_if_the_condition_fails() -> None:
    furnace = made(only="furnace/set", payload="o.payload.to >= 5 && o.payload.to <= 25", after="armed")
    assert [
        [each.payload for each in came]
        for came in fed(
            furnace,
            [
                event("armed"),
                event("furnace/set", b'{"to": 90}'),
                event("furnace/set", b"warmer"),
                event("furnace/set", b'{"to": 20}'),
                event("furnace/set", b'{"to": 20}'),
            ],
        )
    ] == [[b""], [], [], [b'{"to": 20}'], [], []]


def test_payload_alone_is_about_everything_but_reserved_topics() -> None:
    positive = made(payload="o.payload > 0")
    assert [len(came) for came in fed(positive, [event("a", b"1"), event("b", b"-1"), event("$SYS/x", b"-1")])] == [
        1,
        0,
        1,
        0,
    ]


# -- a second reading ------------------------------------------------------------------------------------------------

TOPICS = ["a", "b", "a/b", "b/b", "$s/a"]
FILTERS = st.sampled_from(["a", "b", "+", "#", "a/+", "a/#", "+/b", "$s/#", "b/b"])
CONDITIONS = st.sampled_from(["o.payload > 1", "o.payload.x == 1", "o.size < 2", "true"])
STEPS = st.one_of(
    FILTERS,
    st.lists(FILTERS, min_size=1, max_size=2),
    st.fixed_dictionaries({"on": FILTERS}, optional={"when": CONDITIONS}),
)


@st.composite
def specifications(draw: st.DrawFn) -> dict[str, Any]:
    """Everything the language can say; times are such that floats are exact."""
    said: dict[str, Any] = {}
    if draw(st.booleans()):
        said["only"] = draw(STEPS)
        said["after"] = draw(st.lists(STEPS, min_size=1, max_size=3))
        if draw(st.booleans()):
            said["reset"] = draw(STEPS)
    if draw(st.booleans()):
        said["payload"] = draw(CONDITIONS)
    paced = draw(st.sets(st.sampled_from(["dedupe", "rate", "silence"])))
    if "dedupe" in paced:
        said["dedupe"] = draw(st.sampled_from([0.5, 1, 3]))
    if "rate" in paced:
        said["rate"] = draw(st.sampled_from(["1/s", "2/s", "30/m"]))
        said["burst"] = draw(st.integers(1, 3))
    if "silence" in paced:
        said |= {"silence": draw(st.sampled_from([0.5, 2])), "emit": {"topic": "silent", "payload": "!"}}
    if paced and draw(st.booleans()):
        said["on"] = draw(st.one_of(FILTERS, st.lists(FILTERS, min_size=1, max_size=2)))
    return said or {"payload": draw(CONDITIONS)}


@st.composite
def traces(draw: st.DrawFn) -> list[Event]:
    time, found = 0.0, []
    for _ in range(draw(st.integers(0, 25))):
        time += draw(st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, 4.0]))
        payload = draw(st.sampled_from([b"0", b"2", b"no json", b'{"x": 1}']))
        found.append(event(draw(st.sampled_from(TOPICS)), payload, time))
    return found


class Reading:
    """The language as its documentation says it, from the whole history and without any automaton."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.said = said
        self.heard: list[tuple[str, Event]] = []  # what the first part has let pass, and as what it counted
        self.unrepeated: list[Event] = []  # what `dedupe` has let pass
        self.spent: list[float] = []  # when `rate` has let something pass
        self.last: float | None = None  # the last event that `silence` counted, unless it has spoken since

    def outputs(self, came: Event) -> list[Event]:
        try:
            counts_as = self.guard(came)
        except PredicateFailed:
            return []
        if counts_as is None:
            return []
        self.heard.append((counts_as, came))
        if not self.matches(self.said.get("on", "#"), came):
            return [came]
        if "dedupe" in self.said:
            if any(
                came.time - each.time < self.said["dedupe"] and (each.topic, each.payload) == (came.topic, came.payload)
                for each in self.unrepeated
            ):
                return []
            self.unrepeated.append(came)
        if "rate" in self.said:
            if not self.affordable(came.time):
                return []
            self.spent.append(came.time)
        if "silence" in self.said:
            self.last = came.time
        return [came]

    def silence(self, now: float) -> list[Event]:
        if self.last is None or now - self.last < self.said["silence"]:
            return []
        self.last = None
        return [Event("silent", b"!")]

    def guard(self, came: Event) -> str | None:
        """As what an event counts that passes; None: it does not."""
        if "reset" in self.said and self.matches(self.said["reset"], came):
            return "forget"
        after = self.said.get("after", [])
        # since the start, the last reset and the last guarded event that passed
        recent = []
        for counted, _ in self.heard:
            recent = [] if counted == "forget" else [*recent, counted]
        seen = recent.count("step")
        if ("only" in self.said or "payload" in self.said) and self.matches(self.said.get("only", "#"), came):
            if seen < len(after) or not self.true(self.said.get("payload", "true"), came):
                return None
            return "forget"
        if seen < len(after) and self.matches(after[seen], came):
            return "step"
        return "other"

    def affordable(self, now: float) -> bool:
        """No stretch of time holds more events than `burst` and what was gained in it."""
        rate = {"1/s": 1.0, "2/s": 2.0, "30/m": 0.5}[self.said["rate"]]
        return all(
            len(self.spent) - index + 1 <= self.said["burst"] + rate * (now - begun)
            for index, begun in enumerate([*self.spent, now])
        )

    def matches(self, step: Any, came: Event) -> bool:
        filters = step.get("on", "#") if isinstance(step, dict) else step
        filters = [filters] if isinstance(filters, str) else filters
        if not any(topics.matches(each, came.topic) for each in filters):
            return False
        return not isinstance(step, dict) or self.true(step.get("when", "true"), came)

    def true(self, condition: str, came: Event) -> bool:
        return WORDS.predicate(condition)(came.scene)


def read(said: dict[str, Any], trace: Sequence[Event], until: float) -> list[list[Event]]:
    reading = Reading(said)
    found = [[*reading.silence(each.time), *reading.outputs(each)] for each in trace]
    return [*found, reading.silence(until)]


def useful(said: dict[str, Any]) -> bool:
    """Whether the file may say it: steps that nobody can ever see are refused."""
    try:
        made(**said)
    except ValueError:
        return False
    return True


@settings(max_examples=400, deadline=None)
@given(specifications().filter(useful), traces())
def test_what_is_compiled_does_what_the_language_says(said: dict[str, Any], trace: list[Event]) -> None:
    until = (trace[-1].time if trace else 0.0) + 5.0
    assert fed(made(**said), trace, until) == read(said, trace, until)
