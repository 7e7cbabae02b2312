"""System states γ = ⟨t, ST, WL⟩ (scopes, 3.3.4), and the transition relation γ → γ′ (3.3.5): a function for each rule.

The seed's convention holds: t′ = t + 1, and what a rule does not mention stays as it is.

Monitors on notify links are beyond the seed's rules; its implementation has them (4.3.3). They act when the event is
sent (semantics, *Time*), which is T-Notify. A link keeps its order and nobody else moves its automaton, so an observer
cannot tell this from acting when it is queued. Two things follow from semantics, *Monitors*:
- T-Broker also sends an event over a notify link with an automaton if nobody subscribes to it there;
- what an automaton puts out there is heard only if it is subscribed to.

Also beyond the seed: if events cross a link `once`, T-Broker leaves out the links that this very event has crossed.
What an automaton lets pass stays the same event; what it makes is another one.

A state has more than the seed's:
- `heard`, the history of each device. No rule reads it; it is what an observer would have written down.
- `sub`, because a scenario may change subscriptions while nothing is on its way. Until then it is the schema's.
- `crossed`, over which links the events that are on their way have been, if each crosses a link `once`.
"""
# ruff: noqa: RUF001, RUF002  the letters are those of the seed

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from tidegate.monitor import Event
from tidegate.simulate.automata import LinkMonitors
from tidegate.simulate.order import select
from tidegate.simulate.schema import Annotated, Broker, Entity, Id, Link, Schema, Symbol, Transmit, WorkList

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


class Rule(Enum):
    PUBLISH = "T-Publish"
    NOTIFY = "T-Notify"
    DELIVER = "T-Deliver"
    BROKER = "T-Broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """γ → γ′ by a rule, which generated (T-Publish) or consumed (the others) a task."""

    rule: Rule
    task: Annotated
    before: State
    after: State


def t_publish(schema: Schema, state: State, x: Entity, y: Entity, a: Symbol, number: int = 0) -> Step:
    """T-Publish. Generate an event publication task: WL′ = WL ∪ {transmit(x, y, a)[t, t]}."""
    assert schema.cg.publish(x, y)
    new = Annotated(Transmit(x, y, a), state.t, state.t, ids=((number,),) if schema.once else ())
    after = replace(state, t=state.t + 1, wl=state.wl | {new})
    return Step(rule=Rule.PUBLISH, task=new, before=state, after=after)


def t_notify(schema: Schema, state: State, alpha: Annotated) -> Step:
    """T-Notify. Consume an event notification task: WL′ = WL ∖ {α}.

    Beyond the seed: (q, w) = δ(ST(x, y), a), ST′(x, y) = q, and y hears what of w is in sub(x, y).
    """
    assert isinstance(alpha.task, Transmit)
    x, y, a = alpha.task.x, alpha.task.y, alpha.task.a
    assert schema.cg.notify(x, y)
    q, w = schema.automaton(x, y).step(state.st[x, y], a if state.subscribed(x, y, a) else _overheard(a))
    heard = tuple((x, c) for c in w if state.subscribed(x, y, c))
    wl = state.wl - {alpha}
    after = replace(
        state,
        t=state.t + 1,
        st={**state.st, (x, y): q},
        wl=wl,
        heard={**state.heard, y: state.heard[y] + heard},
        crossed=_under_way(state.crossed, wl),
    )
    return Step(rule=Rule.NOTIFY, task=alpha, before=state, after=after)


def t_deliver(schema: Schema, state: State, alpha: Annotated) -> Step:
    """T-Deliver. Transmit an event over a link, and apply its execution monitor.

    Let (q, w) = δ(ST(x, y), a). ST′(x, y) = q, WL′ = WL₁ ∪ WL₂.
    """
    assert isinstance(alpha.task, Transmit)
    x, y, a = alpha.task.x, alpha.task.y, alpha.task.a
    assert schema.cg.monitored(x, y)
    q, w = schema.automaton(x, y).step(state.st[x, y], a)
    ids = _ids(schema, state, alpha, w)
    wl_1 = state.wl - {alpha}
    wl_2 = {replace(alpha, task=Broker(x, y, tuple(w)), gen=state.t, ids=ids)} if w else frozenset()
    wl = wl_1 | wl_2
    after = replace(state, t=state.t + 1, st={**state.st, (x, y): q}, wl=wl, crossed=_under_way(state.crossed, wl))
    return Step(rule=Rule.DELIVER, task=alpha, before=state, after=after)


def t_broker(schema: Schema, state: State, alpha: Annotated) -> Step:
    """T-Broker. Process a sequence of received events to create further transmissions.

    WL′ = WL₁ ∪ WL₂ ∪ WL₃, where WL₂ keeps the rest of the sequence and WL₃ is what the first event leads to.
    """
    assert isinstance(alpha.task, Broker)
    x, y, (a, *w) = alpha.task.x, alpha.task.y, alpha.task.w
    path = alpha.path if schema.loops else (*alpha.path, y)
    ids = alpha.ids[:1]
    wl_1 = state.wl - {alpha}
    wl_2 = {replace(alpha, task=Broker(x, y, tuple(w)), gen=state.t, ids=alpha.ids[1:])} if w else frozenset()
    wl_3 = {
        Annotated(Transmit(y, z, a), state.t, alpha.pub, path, ids)
        for z in schema.cg.entities
        if apart(schema, x, y, z)
        and z not in path
        and _wants(schema, state, y, z, a)
        and schema.propagate(x, y, z)
        and not any((one, (y, z)) in state.crossed for one in ids)
    }
    crossed = state.crossed | {(one, (y, new.task.y)) for one in ids for new in wl_3}
    wl = wl_1 | wl_2 | wl_3
    after = replace(state, t=state.t + 1, wl=wl, crossed=_under_way(crossed, wl))
    return Step(rule=Rule.BROKER, task=alpha, before=state, after=after)


def apart(schema: Schema, x: Entity, y: Entity, z: Entity) -> bool:
    """z ≠ x, or beyond the seed a device that hears its own events again."""
    return z != x or (y, z) in schema.echo


def _wants(schema: Schema, state: State, y: Entity, z: Entity, a: Symbol) -> bool:
    """z ∈ Z: bridge(y, z) ∨ (notify(y, z) ∧ a ∈ sub(y, z)), or beyond the seed an automaton that must see a.

    Also beyond the seed: a bridge that does not carry a has not been crossed by it.
    """
    cg, automaton = schema.cg, schema.automaton(y, z)
    if cg.bridge(y, z):
        return not isinstance(automaton, LinkMonitors) or automaton.carries(a)
    return cg.notify(y, z) and (state.subscribed(y, z, a) or (y, z) in schema.ep)


def _overheard(a: Symbol) -> Symbol:
    """The event, marked as one that nobody behind the link subscribes to: some machines do not count those."""
    return Event(a.topic, a.payload, a.qos, a.retain, a.time, a.scene, True) if isinstance(a, Event) else a


def _ids(schema: Schema, state: State, alpha: Annotated, w: Sequence[Symbol]) -> tuple[Id, ...]:
    """Which events an automaton has put out: at most one is that which came."""
    if not schema.once:
        return ()
    assert isinstance(alpha.task, Transmit)
    (mine,), x, y, a = alpha.ids, alpha.task.x, alpha.task.y, alpha.task.a
    automaton = schema.automaton(x, y)
    if isinstance(automaton, LinkMonitors):
        same = automaton.same(state.st[x, y], a)
    else:
        same = next((at for at, c in enumerate(w) if c == a), None)
    return tuple(mine if at == same else (*mine, (x, y), at) for at in range(len(w)))


def _under_way(crossed: frozenset[tuple[Id, Link]], wl: WorkList) -> frozenset[tuple[Id, Link]]:
    """What is still worth knowing: of publications of which something is on its way."""
    if not crossed:
        return crossed
    numbers = {one[0] for alpha in wl for one in alpha.ids}
    return frozenset(each for each in crossed if each[0][0] in numbers)


def t_rule(schema: Schema, state: State, alpha: Annotated) -> Step:
    """The rule whose precondition a selected task meets. There is exactly one."""
    match alpha.task:
        case Broker():
            return t_broker(schema, state, alpha)
        case Transmit(x, y, _) if schema.cg.notify(x, y):
            return t_notify(schema, state, alpha)
        case Transmit():
            return t_deliver(schema, state, alpha)


def steps(schema: Schema, state: State) -> Iterator[Step]:
    """All steps that are possible without a new publication."""
    for alpha in select(schema.order, schema.cg, state.wl):
        yield t_rule(schema, state, alpha)
