"""The monitors of a link as one edit automaton: the machines of `tidegate.monitor`.

Machines see here what the model knows: the event. Conditions can read `o`; what they read of `s`, `e` or `p` is absent,
and that suppresses the event, as everywhere. There is no real time in the model, so timers never fire and every event
comes at the time it carries.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidegate.monitor import Event, Machine, MonitorFailed
from tidegate.policy.scopes import ScopeLink
from tidegate.simulate.schema import Symbol

EVENT: Final = ("topic", "levels", "qos", "retain", "size", "payload")
"""What conditions can read of `o` here."""


class NamedState(NamedTuple):
    """The state of one monitor of several."""

    id: str
    state: str


@dataclass(frozen=True, slots=True)
class LinkMonitors:
    """Everything that stands on a link of a node, in its order: monitors by their ids, and between two scopes what
    crosses, under which name and with which QoS.

    Monitors where the link leaves a scope see only what it carries; what they make has to be carried, too.
    A monitor that fails suppresses the event and keeps its state; those before it have moved. An event that nobody
    behind the link subscribes to passes a monitor that counts only what is sent, and does not count.
    """

    before: tuple[tuple[str, Machine], ...] = ()
    """Where the link leaves a scope."""
    across: ScopeLink | None = None
    after: tuple[tuple[str, Machine], ...] = ()
    """Where it enters one."""

    def carries(self, symbol: Symbol) -> bool:
        """Whether the link carries such events; whether they pass is another question."""
        return self.across is None or self.across.crossing(symbol.topic) is not None

    def start(self) -> Hashable:
        return tuple(NamedState(id, json_text(machine.start())) for id, machine in (*self.before, *self.after))

    def step(self, state: Any, symbol: Symbol) -> tuple[Hashable, Sequence[Symbol]]:
        states, events = self._run(state, symbol)
        return states, tuple(event for event, _ in events)

    def same(self, state: Any, symbol: Symbol) -> int | None:
        """Which of the outputs is the event itself, also under another name; None if it is not among them."""
        _, events = self._run(state, symbol)
        return next((at for at, (_, itself) in enumerate(events) if itself), None)

    def _run(
        self, state: tuple[NamedState, ...], event: Event
    ) -> tuple[tuple[NamedState, ...], list[tuple[Event, bool]]]:
        """The states after it, and the outputs, each with whether it is the event itself."""
        states = list(state)
        events = [(event, True)]
        for at, (_, machine) in enumerate((*self.before, *self.after)):
            if at == len(self.before):
                events = self._crossing(events)
            states[at], events = _shown(machine, states[at], events)
        return tuple(states), events if self.after else self._crossing(events)

    def _crossing(self, events: list[tuple[Event, bool]]) -> list[tuple[Event, bool]]:
        if self.across is None:
            return events
        crossings = [(self.across.crossing(event.topic), event, itself) for event, itself in events]
        return [
            (event.changed(topic=name[0], qos=min(event.qos, name[1])), itself)
            for name, event, itself in crossings
            if name is not None
        ]


def _shown(
    machine: Machine, was: NamedState, events: list[tuple[Event, bool]]
) -> tuple[NamedState, list[tuple[Event, bool]]]:
    """One monitor sees what the ones before it have let through."""
    state = was.state
    following: list[tuple[Event, bool]] = []
    for event, itself in events:
        if event.overheard and not machine.overhears:
            following.append((event, itself))
            continue
        shown = seen(event)
        try:
            after, outputs = machine.step(json.loads(state), shown)
        except MonitorFailed:
            continue
        state = json_text(after)
        following += [(output, itself and output is shown) for output in outputs]
    return NamedState(was.id, state), following


def seen(event: Event) -> Event:
    """The event with the scene that conditions read of it."""
    o: dict[str, Any] = {  # with the payload, this is `EVENT`
        "topic": event.topic,
        "levels": event.topic.split("/"),
        "qos": event.qos,
        "retain": event.retain,
        "size": len(event.payload),
    }
    try:
        o["payload"] = json.loads(event.payload)
    except ValueError:
        pass  # what is not JSON is absent (semantics, *Attributes*)
    scene = {"s": {}, "o": o, "e": {}, "p": {}}
    return Event(event.topic, event.payload, event.qos, event.retain, event.time, scene, event.overheard)


def json_text(state: Any) -> str:
    """A state as JSON, which every state survives and which can be hashed."""
    return json.dumps(state, sort_keys=True)
