"""Edit automata written as states and transitions.

In a state the first transition that matches the event is taken; it matches if one of its filters matches the topic and
all its conditions are true. No match: the event passes and the state stays. So every automaton is total and
deterministic. A condition that fails raises `MonitorFailed`, also if a later transition would have matched.

A state may have a timer: it is taken when no event has reached the monitor for that long while it was in that state.
Every event counts, whatever its topic, and so does entering the state. The first state has nothing to count from
until there is a first event. A timer that stays in its state counts anew from when it was taken.

The state is its name; with a running timer `name@due`, where `due` is the steady time. A name has no `@` if there are
timers. The same text is a state in memory and in the store, and can be looked up in what `calm` answers.

What it will not do: check that states exist and are reachable. `analysis` does, with places.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.monitor.event import Event, State
from tidegate.monitor.machine import ASK, NOT_FINITE, Edge, Glance, Graph, Machine, MonitorFailed
from tidegate.monitor.matching import EVERYTHING, hold, matcher
from tidegate.predicate import Predicate

SHORTEST: Final = 0.01
"""Seconds: the shortest timer. Below, the clock would tick for nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """One output: the event with these fields changed. Nothing changed: the event itself."""

    topic: str | None = None
    payload: bytes | None = None
    qos: int | None = None
    retain: bool | None = None

    def of(self, event: Event) -> Event:
        """A new event; always a copy."""
        return event.changed(topic=self.topic, payload=self.payload, qos=self.qos, retain=self.retain)

    def __str__(self) -> str:
        changes = [] if self.topic is None else [self.topic]
        if self.payload is not None:
            changes.append(repr(_short(self.payload.decode(errors="replace"), 24)))
        if self.qos is not None:
            changes.append(f"QoS {self.qos}")
        if self.retain is not None:
            changes.append("retained" if self.retain else "not retained")
        if not changes:
            return "same"
        return " ".join(changes) if self.topic is not None else f"same with {' '.join(changes)}"


SAME: Final = Emit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What happens to events that match."""

    on: tuple[str, ...] = EVERYTHING
    when: tuple[Predicate, ...] = ()
    go: str | None = None
    """The next state; None: the same."""
    emit: tuple[Emit, ...] = (SAME,)

    def __str__(self) -> str:
        when = "".join(f" [{_short(' '.join(each.text.split()), 60)}]" for each in self.when)
        return f"{', '.join(self.on)}{when} → {listed(self.emit)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """What happens when no event came."""

    silent: float
    """For so many seconds."""
    go: str | None = None
    emit: tuple[Emit, ...] = ()
    """Each with a topic."""

    def __str__(self) -> str:
        return f"{self.silent:g} s of silence → {listed(self.emit)}"


def _short(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def listed(emit: tuple[Emit, ...]) -> str:
    """Outputs as a drawing says them."""
    return ", ".join(map(str, emit)) or "nothing"


class _Arrow:
    """A transition, made quick."""

    __slots__ = ("emit", "go", "matches", "passes", "when")

    def __init__(self, transition: Transition) -> None:
        self.matches = matcher(transition.on)
        self.when = transition.when
        self.go = transition.go
        self.emit = transition.emit
        self.passes = transition.emit == (SAME,)

    def outputs(self, event: Event) -> tuple[Event, ...]:
        if self.passes:
            return (event,)
        return outputs(self.emit, event)


def outputs(emit: tuple[Emit, ...], event: Event) -> tuple[Event, ...]:
    """What is put out for an event; only the first `same` is the event itself."""
    same = emit.index(SAME) if SAME in emit else -1
    return tuple(event if at == same else each.of(event) for at, each in enumerate(emit))


class Automaton(Machine):
    """A machine of states and transitions."""

    __slots__ = ("_arrows", "_start", "heard", "reads", "states", "timers")

    overhears = True

    def __init__(
        self,
        start: str,
        states: Mapping[str, Sequence[Transition]],
        timers: Mapping[str, Timer] | None = None,
    ) -> None:
        self.states = {name: tuple(transitions) for name, transitions in states.items()}
        self.timers = dict(timers or {})
        self._start = start
        self._arrows = {name: tuple(map(_Arrow, transitions)) for name, transitions in self.states.items()}
        every = [each for transitions in self.states.values() for each in transitions]
        heard = dict.fromkeys(filter for each in every for filter in each.on)
        self.heard = ("#",) if self.timers else tuple(heard)  # every event winds a timer
        self.reads = frozenset[str]().union(*(when.reads for each in every for when in each.when))
        for when in (when for each in every for when in each.when):
            when.prepare()  # when the first event comes there is no time for it
        known = self.states.keys()
        # whoever builds one asks `analysis` first; this is against ourselves
        assert start in known
        assert self.timers.keys() <= known
        assert all(each.go is None or each.go in known for each in every)
        assert all(each.go is None or each.go in known for each in self.timers.values())
        assert not self.timers or not any("@" in name for name in known)

    def start(self) -> State:
        return self._start

    def step(self, state: State, event: Event) -> tuple[State, tuple[Event, ...]]:
        name = state
        arrows = self._arrows.get(state)
        if arrows is None:
            name, _ = self._timed(state)
            arrows = self._arrows[name]
        topic = event.topic
        if not topic:
            return self._tick(state, event)
        for arrow in arrows:
            if arrow.matches(topic) and (not arrow.when or hold(arrow.when, event)):
                return self._entered(arrow.go or name, event.time), arrow.outputs(event)
        return self._entered(name, event.time), (event,)

    def hears(self, topic: str) -> bool:
        return len(self.calm(topic)) < len(self.states)

    def calm(self, topic: str) -> frozenset[Hashable]:
        return frozenset(name for name in self.states if self._calm(name, topic)) or NOT_FINITE

    def passes(self, topic: str) -> bool:
        return all(self._passes(name, topic) for name in self.states)

    def glance(self, topic: str) -> Glance | None:
        """A table: the states in which every event of the topic passes unchanged, and where that leads."""
        if self.timers:
            return None
        table = {name: self._next(name, topic) for name in self.states if self._passes(name, topic)}
        return (lambda state, _: table.get(state, ASK)) if table else None

    def wound(self, before: State, after: State) -> bool:
        return bool(self.timers) and self._name(before) == self._name(after)

    def rests(self, state: State) -> bool:
        return self._name(state) == self._start

    def due(self, state: State) -> float | None:
        return None if state in self._arrows else self._timed(state)[1]

    def accepts(self, state: State) -> bool:
        if not isinstance(state, str):
            return False
        if state in self._arrows:
            return True
        try:
            self._timed(state)
        except MonitorFailed:
            return False
        return True

    def graph(self) -> Graph:
        edges = [
            Edge(source=name, target=each.go or name, label=str(each))
            for name in self.states
            for each in (*self.states[name], *((self.timers[name],) if name in self.timers else ()))
        ]
        return Graph(start=self._start, states=tuple(self.states), edges=tuple(edges))

    def _calm(self, name: str, topic: str) -> bool:
        if name in self.timers:
            return False  # every event winds it up again
        for arrow in self._arrows[name]:
            if arrow.matches(topic):
                # a condition may fail, so only one without is sure to let the event pass
                return arrow.passes and not arrow.when and arrow.go in (None, name)
        return True

    def _next(self, name: str, topic: str) -> str:
        """The state after an event of the topic, if that needs no condition."""
        return next((arrow.go or name for arrow in self._arrows[name] if arrow.matches(topic)), name)

    def _passes(self, name: str, topic: str) -> bool:
        for arrow in self._arrows[name]:
            if arrow.matches(topic):
                return arrow.passes and not arrow.when  # a condition may fail, which suppresses the event
        return True

    def _name(self, state: State) -> str:
        return state if state in self._arrows else self._timed(state)[0]

    def _entered(self, name: str, time: float) -> str:
        timer = self.timers.get(name)
        return name if timer is None else f"{name}@{time + timer.silent!r}"

    def _tick(self, state: str, event: Event) -> tuple[State, tuple[Event, ...]]:
        if state in self._arrows:
            return state, ()
        name, due = self._timed(state)
        if event.time < due:
            return state, ()
        timer = self.timers[name]
        return self._entered(timer.go or name, event.time), outputs(timer.emit, event)

    def _timed(self, state: State) -> tuple[str, float]:
        """The name and the time of a state with a running timer."""
        name, _, due = str(state).rpartition("@")
        try:
            time = float(due)
        except ValueError:
            time = math.nan
        if name not in self.timers or not math.isfinite(time):
            raise MonitorFailed(f"there is no state `{state}`")
        return name, time
