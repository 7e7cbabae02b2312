"""Monitors as they are written, events, and what comes out of a trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tidegate.config.monitors import Monitor
from tidegate.config.parser import Parser
from tidegate.monitor import Event, Machine, MonitorFailed, State

WORDS = Parser()
HERE = {"scope": "main", "direction": "im_pub"}


def made(**written: Any) -> Machine:
    """The machine of a monitor as it stands in a file."""
    entry = Monitor.model_validate({**HERE, **written}, context={"parser": WORDS})
    return entry.machine(WORDS)


def event(topic: str, payload: bytes = b"", time: float = 0.0, qos: int = 0, retain: bool = False) -> Event:
    """An event with the scene that conditions read of it."""
    o: dict[str, Any] = {"topic": topic, "qos": qos, "retain": retain, "size": len(payload)}
    try:
        o["payload"] = json.loads(payload)
    except ValueError:
        pass
    return Event(topic, payload, qos, retain, time, {"s": {}, "o": o, "e": {}, "p": {}})


def fed(machine: Machine, trace: Iterable[Event], until: float = 0.0) -> list[list[Event]]:
    """What comes out for each event, with what its timer puts out before it; at last what comes until the end."""
    state = machine.start()
    found: list[list[Event]] = []

    def silent(now: float) -> list[Event]:
        nonlocal state
        came: list[Event] = []
        while (due := machine.due(state)) is not None and due <= now:
            state, outputs = machine.step(state, Event.tick(due))
            came += outputs
            after = machine.due(state)
            assert after is None or after > due
        return came

    for each in trace:
        came = silent(each.time)
        state, outputs = stepped(machine, state, each)
        found.append([*came, *outputs])
    return [*found, silent(until)]


def stepped(machine: Machine, state: State, event: Event) -> tuple[State, Sequence[Event]]:
    """A step as the engine takes it: a failure suppresses the event and keeps the state."""
    try:
        return machine.step(state, event)
    except MonitorFailed:
        return state, ()


def names(machine: Machine, *trace: Event | str) -> list[str]:
    """What comes out of a whole trace, by topic."""
    events = [event(each) if isinstance(each, str) else each for each in trace]
    last = events[-1].time if events else 0.0
    return [each.topic for came in fed(machine, events, last) for each in came]
