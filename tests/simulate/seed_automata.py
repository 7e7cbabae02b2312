"""Edit automata of the seed (scopes, 3.4.2, 3.5), and one machine of `tidegate.monitor` as an automaton."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.monitor import Machine, MonitorFailed
from tidegate.simulate.automata import json_text, seen
from tidegate.simulate.schema import Symbol


@dataclass(frozen=True, slots=True)
class Filtering:
    """filter(E): only events of E pass (3.4.2.1)."""

    events: Container[Symbol]

    def start(self) -> Hashable:
        return "q0"

    def step(self, state: Any, symbol: Symbol) -> tuple[Hashable, Sequence[Symbol]]:
        return state, (symbol,) if symbol in self.events else ()


@dataclass(frozen=True, slots=True)
class Renaming:
    """mapper(f): every event is renamed (3.4.2.2)."""

    f: Callable[[Symbol], Symbol]

    def start(self) -> Hashable:
        return "q0"

    def step(self, state: Any, symbol: Symbol) -> tuple[Hashable, Sequence[Symbol]]:
        return state, (self.f(symbol),)


@dataclass(frozen=True, slots=True)
class TableAutomaton:
    """The automaton of a figure: its arrows. Events without an arrow pass and leave the state."""

    q0: Hashable
    delta: Mapping[tuple[Hashable, Symbol], tuple[Hashable, Sequence[Symbol]]]

    def start(self) -> Hashable:
        return self.q0

    def step(self, state: Any, symbol: Symbol) -> tuple[Hashable, Sequence[Symbol]]:
        return self.delta.get((state, symbol), (state, (symbol,)))


@dataclass(frozen=True, slots=True)
class MachineAutomaton:
    """A machine of `tidegate.monitor`. Its state is kept as JSON, which every state survives and which can be hashed.

    A machine that fails suppresses the event and keeps its state (semantics, *Errors*).
    """

    machine: Machine

    def start(self) -> Hashable:
        return json_text(self.machine.start())

    def step(self, state: Any, symbol: Symbol) -> tuple[Hashable, Sequence[Symbol]]:
        try:
            after, outputs = self.machine.step(json.loads(state), seen(symbol))
        except MonitorFailed:
            return state, ()
        return json_text(after), tuple(outputs)
