"""The seed's systems, and random ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from simulate.presets import component, joined
from simulate.seed_automata import TableAutomaton
from tidegate.simulate.order import NORMAL
from tidegate.simulate.scenario import Publication, Rounds
from tidegate.simulate.schema import (
    BrokeringPolicy,
    ConnectionGraph,
    EditAutomaton,
    Entity,
    Link,
    Schema,
    Symbol,
    Transmit,
)
from tidegate.simulate.steps import Step

# figure 3.8
A1 = TableAutomaton(
    "q0",
    {
        ("q0", "DL_unlock"): ("q0", ()),
        ("q0", "AccessRequest"): ("q1", ("AccessRequest",)),
        ("q1", "DL_unlock"): ("q1", ()),
        ("q1", "AccessDenied"): ("q0", ("AccessDenied",)),
        ("q1", "AccessGranted"): ("q2", ("AccessGranted",)),
        ("q2", "DL_unlock"): ("q0", ("DL_unlock",)),
    },
)

# figure 3.7, from what the text says of it: (x, y) means that y is a parent of x
HOME = {("H1", "I"), ("H2", "H1"), ("H3", "H1"), ("H2", "H4")}
LIVES = {"MD": "H4", "SC": "H2", "DL": "H3", "DB": "H2", "SP": "I"}
# table 3.1
CONSUMES = {
    "DL": {"DL_unlock", "DL_lock"},
    "DB": {"MD_motion", "MD_no_motion"},
    "SP": {"AccessRequest"},
}


def components(parents: Iterable[Link], lives: dict[Entity, Entity], **more: Any) -> Schema:
    """A component architecture: who is whose parent, and in which scope devices are."""
    parent = {*parents, *lives.items()}
    scopes = {x for pair in parents for x in pair} | set(lives.values())
    cg = ConnectionGraph(devices=frozenset(lives), scopes=frozenset(scopes), link=joined(*parent))
    return Schema(**{"cg": cg, "bp": component(parent), "order": NORMAL, **more})


def home(**more: Any) -> Schema:
    sub = {(LIVES[device], device): frozenset(events) for device, events in CONSUMES.items()}
    return components(HOME, LIVES, **{"ep": {("H1", "H3"): A1}, "sub": sub, **more})


def said(*publications: tuple[Entity, Symbol] | tuple[Entity, Entity, Symbol], lives: dict[str, str] = LIVES) -> Rounds:
    """One round: each device in its order."""
    each = [Publication(*(one if len(one) == 3 else (one[0], lives[one[0]], one[1]))) for one in publications]
    names = dict.fromkeys(one.x for one in each)
    return (tuple(tuple(one for one in each if one.x == name) for name in names),)


def in_turn(*publications: tuple[Entity, Symbol]) -> Rounds:
    """Each after everything has arrived."""
    return tuple(one for each in publications for one in said(each))


def transmitted(trace: Iterable[Step], link: Link) -> tuple[list[Symbol], list[Symbol]]:
    """What was sent over a link, and what arrived."""
    sent: list[Symbol] = []
    arrived: list[Symbol] = []
    for step in trace:
        for one in step.after.wl - step.before.wl:
            if isinstance(one.task, Transmit) and (one.task.x, one.task.y) == link:
                sent.append(one.task.a)
        for one in step.before.wl - step.after.wl:
            if isinstance(one.task, Transmit) and (one.task.x, one.task.y) == link:
                arrived.append(one.task.a)
    return sent, arrived


@dataclass(frozen=True)
class Remembering:
    """An automaton whose state is also everything that came."""

    inner: EditAutomaton

    def start(self) -> Hashable:
        return self.inner.start(), ()

    def step(self, state: Any, symbol: Symbol) -> tuple[Hashable, Sequence[Symbol]]:
        was, came = state
        now, out = self.inner.step(was, symbol)
        return (now, (*came, symbol)), out


SYMBOLS = ("a", "b", "c")
TYPES = ("t", "u")
EVERYTHING = frozenset(SYMBOLS)


@st.composite
def automata(draw: st.DrawFn) -> EditAutomaton:
    """With two states and some arrows."""
    states = st.sampled_from(("q0", "q1"))
    arrows = st.dictionaries(
        st.tuples(states, st.sampled_from(SYMBOLS)),
        st.tuples(states, st.lists(st.sampled_from(SYMBOLS), max_size=2).map(tuple)),
        max_size=4,
    )
    return TableAutomaton("q0", draw(arrows))


@st.composite
def schemas(draw: st.DrawFn, *, scopes: int = 3, devices: int = 3, monitors: bool = True, deaf: bool = True) -> Schema:
    """Any connected graph, types and pairs. No loops, so that every run ends."""
    s = [f"S{at}" for at in range(draw(st.integers(1, scopes)))]
    d = [f"d{at}" for at in range(draw(st.integers(2, devices)))]
    pairs = [(x, y) for at, x in enumerate(s) for y in s[:at]]
    bridges = [(x, draw(st.sampled_from(s[:at]))) for at, x in enumerate(s) if at]
    bridges += draw(st.lists(st.sampled_from(pairs), max_size=1)) if pairs else []
    homes = [(one, draw(st.sampled_from(s))) for one in d]
    if draw(st.booleans()):
        homes.append((d[0], s[-1]))
    link = joined(*bridges, *homes)
    ordered = sorted(link)
    types = st.sampled_from(TYPES)
    kind = dict(zip(ordered, draw(st.lists(types, min_size=len(ordered), max_size=len(ordered))), strict=True))
    forbidden = draw(st.frozensets(st.tuples(types, types), max_size=2))
    allow = frozenset((t, u) for t in TYPES for u in TYPES if (t, u) not in forbidden)
    cg = ConnectionGraph(devices=frozenset(d), scopes=frozenset(s), link=link)
    notify = [one for one in ordered if cg.notify(*one)]
    unwanted = st.frozensets(st.sampled_from(SYMBOLS), max_size=1 if deaf else 0)
    return Schema(
        cg=cg,
        ep=draw(st.dictionaries(st.sampled_from(ordered), automata(), max_size=3)) if monitors else {},
        bp=BrokeringPolicy(type=kind, allow=allow),
        sub={one: EVERYTHING - draw(unwanted) for one in notify},
        order=NORMAL,
        echo=draw(st.frozensets(st.sampled_from(notify))),
        loops=False,
        once=draw(st.booleans()),
    )


@st.composite
def publications(draw: st.DrawFn, schema: Schema, *, most: int = 3, by: Entity | None = None) -> Rounds:
    links = sorted(link for link in schema.cg.link if schema.cg.publish(*link) and by in (None, link[0]))
    one = st.tuples(st.sampled_from(links), st.sampled_from(SYMBOLS))
    made = [(x, y, a) for (x, y), a in draw(st.lists(one, min_size=2, max_size=most))]
    return said(*made)


@st.composite
def systems(draw: st.DrawFn, **how: Any) -> tuple[Schema, Rounds]:
    most = how.pop("most", 3)
    schema = draw(schemas(**how))
    return schema, draw(publications(schema, most=most))


@st.composite
def trees(draw: st.DrawFn) -> tuple[Schema, Rounds]:
    """A hierarchy with one path between any two entities, any monitors, and one device that publishes."""
    s = [f"S{at}" for at in range(draw(st.integers(1, 4)))]
    parents = [(one, draw(st.sampled_from(s[:at]))) for at, one in enumerate(s) if at]
    lives = {f"d{at}": draw(st.sampled_from(s)) for at in range(3)}
    sub = {(scope, device): EVERYTHING for device, scope in lives.items()}
    link = sorted(joined(*parents, *lives.items()))
    ep = draw(st.dictionaries(st.sampled_from(link), automata(), max_size=4))
    schema = components(parents, lives, sub=sub, ep=ep)
    return schema, draw(publications(schema, by="d0"))
