"""What devices are expected to do, one event after the other: edit automata on links.

A machine turns an event into a sequence of events, and remembers a state. `automaton` is the one written as
transitions, `sequence` the language of `only`, `after` and `reset`, `rate_dedupe_silence` what counts and waits,
`library` the small ready ones, `python` what administrators write themselves; `chain` puts several in a row,
`attachment` says where they act.
"""

from __future__ import annotations

from tidegate.monitor.attachment import Attachment, Direction, Each, Monitors
from tidegate.monitor.event import NO_SCENE, Event, State
from tidegate.monitor.instance import Instance, Laden, ModeCounts, ModeRevision, calm_modes
from tidegate.monitor.machine import ASK, MAX_OUTPUTS, Edge, Glance, Graph, Machine, Monitor, MonitorFailed, checked
from tidegate.monitor.suppressed import Suppressed

__all__ = [
    "ASK",
    "MAX_OUTPUTS",
    "NO_SCENE",
    "Attachment",
    "Direction",
    "Each",
    "Edge",
    "Event",
    "Glance",
    "Graph",
    "Instance",
    "Laden",
    "Machine",
    "ModeCounts",
    "ModeRevision",
    "Monitor",
    "MonitorFailed",
    "Monitors",
    "State",
    "Suppressed",
    "calm_modes",
    "checked",
]
