"""Several machines in a row as one: what passes the first is an event for the second.

The state is the list of their states. A failure of one is a failure of all, and no state changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tidegate.monitor.event import Event, State
from tidegate.monitor.machine import NOT_FINITE, Graph, Machine


class Chain:
    """Machines in a row. One that is alone needs no chain."""

    __slots__ = ("_machines", "overhears", "reads")

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = tuple(machines)
        self.overhears = any(each.overhears for each in self._machines)
        self.reads = frozenset[str]().union(*(each.reads for each in self._machines))

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

    def calm(self, _topic: str) -> frozenset[Hashable]:
        return NOT_FINITE

    def due(self, state: State) -> float | None:
        found = [each.due(part) for each, part in zip(self._machines, state, strict=True)]
        return min((each for each in found if each is not None), default=None)

    def accepts(self, state: State) -> bool:
        if not isinstance(state, list) or len(state) != len(self._machines):
            return False
        return all(each.accepts(part) for each, part in zip(self._machines, state, strict=True))

    def graph(self) -> Graph:
        drawn: Graph | None = None
        for each in reversed(self._machines):
            graph = each.graph()
            drawn = Graph(start=graph.start, states=graph.states, edges=graph.edges, then=drawn)
        assert drawn is not None
        return drawn
