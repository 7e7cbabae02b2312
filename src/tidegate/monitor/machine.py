"""The contract between monitors and whoever runs them.

A machine is an edit automaton: `(state, event) -> (state, [events])`. No output suppresses the event. It is pure: the
same state and event give the same answer, and it changes neither.

Invariants of every machine
- `step` is total: it answers for every state it accepts and every event, or raises `MonitorFailed`. Then the event is
  suppressed and the state stays.
- At most one output is the event that came in, by identity, which means "unchanged". All others were made here.
- What was made here may be published: a topic without wildcards, not reserved, and not too long.
- `hears`, `calm` and `passes` may promise too little, never too much.

Whose events brought it into its state is remembered by the engine (semantics, *Context and derived messages*): those
that moved it (`moved`) since it last was where it began (`rests`).

What it will not do: keep states, read clocks, or know links. The engine does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tidegate import topics
from tidegate.errors import TidegateError
from tidegate.monitor.event import Event, State

MAX_OUTPUTS: Final = 100
"""Events that one step may put out."""

MAX_PAYLOAD: Final = 268_435_455 - 2 * topics.MAX
"""Bytes of a payload that certainly fit into a packet, whatever else it carries."""

NOT_FINITE: Final[frozenset[Hashable]] = frozenset()

ASK: Final = object()
"""Only `step` can tell."""

Glance = Callable[[State, float], State]

ONLY: Final = "q0"
"""The state of a machine that has one."""


class MonitorFailed(TidegateError):
    """A monitor has no answer: a condition or Python code failed, or an output cannot be published."""


class Monitor(Protocol):
    """What administrators write in Python."""

    def start(self) -> State:
        """The first state."""

    def step(self, state: State, event: Event) -> tuple[State, Sequence[Event]]:
        """The next state, and what becomes of the event."""


class Machine(ABC):
    """What the engine runs. Unless it says otherwise it listens to everything, is never known to be calm, and wants no
    ticks."""

    __slots__ = ()

    reads: frozenset[str] = frozenset()
    """The attributes that its conditions read, by path, such as `o.payload.level`."""

    overhears: bool = False
    """Whether it waits for events that nobody behind the link has subscribed to; not if it counts what is sent."""

    heard: tuple[str, ...] = ("#",)
    """Filters of all topics that it hears; perhaps of some more."""

    remembers: bool = True
    """Whether its state tells something of the events that led to it, so that what it puts out does."""

    @abstractmethod
    def start(self) -> State:
        """The first state."""

    @abstractmethod
    def step(self, state: State, event: Event) -> tuple[State, Sequence[Event]]:
        """The next state, and what becomes of the event. Raises `MonitorFailed`."""

    def moved(self, before: State, after: State) -> bool:
        """Whether an event that led from one state to the other has to be remembered."""
        return bool(before != after)

    def wound(self, before: State, after: State) -> bool:
        """Whether such an event has done no more than put off its timer."""
        return False

    def rests(self, state: State) -> bool:
        """Whether it is where it began: what happened before is forgotten."""
        return bool(state == self.start())

    def hears(self, _topic: str) -> bool:
        """False: in every state an event of this topic passes unchanged and changes nothing."""
        return True

    def passes(self, topic: str) -> bool:
        """True: in every state an event of this topic passes unchanged, so that its passing tells nothing."""
        return not self.hears(topic)

    def calm(self, _topic: str) -> frozenset[Hashable]:
        """States in which every event of this topic passes unchanged and changes nothing.

        If it ever names one, all states of the machine can be looked up in it.
        """
        return NOT_FINITE

    def glance(self, _topic: str) -> Glance | None:
        """What tells for most events of a topic, by state and time alone, that they pass unchanged, and to which state
        that leads; it has no timer in any state. Else it says ASK. None: it could tell of no event.

        It is the same as `step` would say.
        """
        return None

    def due(self, _state: State) -> float | None:
        """The steady time at which it wants a tick; None: never. After that tick it is not due at once again."""
        return None

    @abstractmethod
    def accepts(self, state: State) -> bool:
        """Whether this is a state of this definition, whatever JSON it is. Never raises."""

    @abstractmethod
    def graph(self) -> Graph:
        """What to draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An arrow from state to state, and what is written on it."""

    source: str
    target: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A drawing of a machine. Events for which there is no arrow pass and leave the state."""

    start: str
    states: tuple[str, ...]
    edges: tuple[Edge, ...]
    then: Graph | None = None
    """What gets the events that pass this one."""


def checked(event: Event, outputs: Iterable[Event]) -> tuple[Event, ...]:
    """The outputs of a step as they may be. Raises `MonitorFailed` if one may not."""
    allowed: list[Event] = []
    same = False
    for output in outputs:
        if len(allowed) == MAX_OUTPUTS:
            raise MonitorFailed(f"puts out more than {MAX_OUTPUTS} events at once")
        if output is event and not event.is_tick:
            allowed.append(event.changed() if same else event)
            same = True
            continue
        _publishable(output)
        if output.topic[0] == "$" and output.topic != event.topic:
            raise MonitorFailed(f"puts out `{output.topic}`, and topics with `$` are reserved")
        # at the same time in the same scene, whoever made it
        allowed.append(event.changed(topic=output.topic, payload=output.payload, qos=output.qos, retain=output.retain))
    return tuple(allowed)


def _publishable(output: object) -> None:
    if not isinstance(output, Event):
        raise MonitorFailed(f"puts out {type(output).__name__}, not an event")
    if not isinstance(output.topic, str) or not topics.valid_topic(output.topic):
        raise MonitorFailed(f"puts out `{str(output.topic)[:100]}`, which is no topic")
    if type(output.payload) is not bytes or len(output.payload) > MAX_PAYLOAD:
        raise MonitorFailed("puts out a payload that is not bytes, or too many of them")
    if type(output.qos) is not int or not 0 <= output.qos <= 2:
        raise MonitorFailed(f"puts out QoS {output.qos!r}; there are 0, 1 and 2")
    if type(output.retain) is not bool:
        raise MonitorFailed("puts out a retain flag that is neither true nor false")
