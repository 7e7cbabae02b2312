"""Several machines in a row as one: what passes the first is an event for the second.

The state is the list of their states. A failure of one is a failure of all, and no state changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from tidegate.monitor.event import Event, State
from tidegate.monitor.machine import Graph, Machine


class Chain(Machine):
    """Machines in a row. One that is alone needs no chain."""

    __slots__ = ("_machines", "_remembering", "heard", "overhears", "reads", "remembers")

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = tuple(machines)
        self.overhears = any(each.overhears for each in self._machines)
        self.heard = tuple(dict.fromkeys(filter for each in self._machines for filter in each.heard))
        self.reads = frozenset[str]().union(*(each.reads for each in self._machines))
        self._remembering = tuple((at, each) for at, each in enumerate(self._machines) if each.remembers)
        self.remembers = bool(self._remembering)

    def start(self) -> State:
        return [each.start() for each in self._machines]

    def step(self, state: State, event: Event) -> tuple[State, tuple[Event, ...]]:
        states = list(state)
        events: list[Event] = [] if event.is_tick else [event]
        for index, machine in enumerate(self._machines):
            # a timer that is due fires before what an earlier one puts out at the same time arrives
            heard = [event, *events] if event.is_tick else events
            events = []
            for each in heard:
                if each.overheard and not machine.overhears:
                    events.append(each)
                    continue
                states[index], made = machine.step(states[index], each)
                events += made
        return states, tuple(events)

    def hears(self, topic: str) -> bool:
        return any(each.hears(topic) for each in self._machines)

    def passes(self, topic: str) -> bool:
        return all(each.passes(topic) for _, each in self._remembering)

    def moved(self, before: State, after: State) -> bool:
        return any(each.moved(before[at], after[at]) for at, each in self._remembering)

    def wound(self, before: State, after: State) -> bool:
        return all(before[at] == after[at] or each.wound(before[at], after[at]) for at, each in self._remembering)

    def rests(self, state: State) -> bool:
        return all(each.rests(state[at]) for at, each in self._remembering)

    def due(self, state: State) -> float | None:
        dues = (each.due(part) for each, part in zip(self._machines, state, strict=True))
        return min((due for due in dues if due is not None), default=None)

    def accepts(self, state: State) -> bool:
        if not isinstance(state, list) or len(state) != len(self._machines):
            return False
        return all(each.accepts(part) for each, part in zip(self._machines, state, strict=True))

    def graph(self) -> Graph:
        *before, last = (each.graph() for each in self._machines)
        return reduce(lambda then, graph: replace(graph, then=then), reversed(before), last)
