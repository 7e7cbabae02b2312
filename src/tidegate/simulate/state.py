"""System states γ = ⟨t, ST, WL⟩ (scopes, 3.3.4), and what devices have heard.

Beyond the seed:
- `heard`, the history of each device. No rule reads it; it is what an observer would have written down.
- `sub`, because a scenario may change subscriptions while nothing is on its way. Until then it is the schema's.
- `crossed`, over which links the events that are on their way have been, if each crosses a link `once`.
"""
# ruff: noqa: RUF001, RUF002  the letters are those of the seed

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.simulate.schema import Entity, Id, Link, Schema, Symbol, WorkList

Delivery: TypeAlias = tuple[Entity, Symbol]
"""Over which scope it came, and the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """γ"""

    t: int
    """The global clock."""
    st: Mapping[Link, Hashable]
    """ST : link → Q. In the seed only monitored links have a state."""
    wl: WorkList
    heard: Mapping[Entity, tuple[Delivery, ...]]
    """D → (S × Σ)*"""
    sub: Mapping[Link, Container[Symbol]]
    crossed: frozenset[tuple[Id, Link]] = frozenset()

    def subscribed(self, x: Entity, y: Entity, a: Symbol) -> bool:
        """a ∈ sub(x, y)"""
        return (x, y) in self.sub and a in self.sub[x, y]


def initial(schema: Schema) -> State:
    """γ_init = ⟨0, ST_init, ∅⟩"""
    return State(
        t=0,
        st={(x, y): schema.automaton(x, y).start() for x, y in sorted(schema.cg.link)},
        wl=frozenset(),
        heard=dict.fromkeys(sorted(schema.cg.devices), ()),
        sub=schema.sub,
    )


def key(schema: Schema, state: State) -> Hashable:
    """The same for states with the same future and the same histories: the clock itself does not matter.

    Subscriptions are left out: they follow from what is still to be done.
    """
    return (
        tuple(state.st[link] for link in schema.ep),
        schema.order.renumber(schema.cg, state.wl),
        tuple(state.heard.values()),
        state.crossed,
    )
