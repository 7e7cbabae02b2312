"""⊑ and what it selects: the quality-of-service assumptions (scopes, 3.3.6).

Normal QoS: brokering is instantaneous; a link keeps its order; what devices publish to one scope arrives there in the
order of publication. Nothing else is known of relative speeds.

Norm-2 and Norm-3 say that a work list is a set of queues: one for each link, but one for all that devices send to the
same scope. Timestamps matter only within a queue. `_places` writes that down, so that exploring meets fewer states.
"""
# ruff: noqa: RUF002  the letters are those of the seed

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final, TypeAlias

from tidegate.simulate.schema import Annotated, Broker, ConnectionGraph, Entity, Link, Order, Transmit, WorkList

Queue: TypeAlias = Link | Entity


def norm_1(_cg: ConnectionGraph, one: Annotated, other: Annotated) -> bool:
    """τ is a brokering task and τ′ is a transmission task."""
    return isinstance(one.task, Broker) and isinstance(other.task, Transmit)


def norm_2(_cg: ConnectionGraph, one: Annotated, other: Annotated) -> bool:
    """τ = transmit(x, y, a) and τ′ = transmit(x, y, b), and t_gen ≤ t′_gen."""
    match one.task, other.task:
        case Transmit(x, y, _), Transmit(u, v, _):
            return (x, y) == (u, v) and one.gen <= other.gen
    return False


def norm_3(cg: ConnectionGraph, one: Annotated, other: Annotated) -> bool:
    """τ = transmit(x, z, a) and τ′ = transmit(y, z, b) for x, y ∈ D and z ∈ S, and t_gen ≤ t′_gen."""
    match one.task, other.task:
        case Transmit(x, z, _), Transmit(y, v, _):
            return z == v and x in cg.devices and y in cg.devices and z in cg.scopes and one.gen <= other.gen
    return False


def normal(cg: ConnectionGraph, one: Annotated, other: Annotated) -> bool:
    """α ⊑ₙ α′"""
    return norm_1(cg, one, other) or norm_2(cg, one, other) or norm_3(cg, one, other)


def select(order: Order, cg: ConnectionGraph, wl: WorkList) -> list[Annotated]:
    """{α | select(α, WL)}: the minimal elements of the work list, oldest first."""
    ready = [one for one in wl if not any(other != one and order.before(cg, other, one) for other in wl)]
    return sorted(ready, key=_when)


def _when(one: Annotated) -> tuple[int, str]:
    return one.gen, str(one.task)


def queue(cg: ConnectionGraph, x: Entity, y: Entity) -> Queue:
    """Where transmissions from x to y stand in line."""
    return y if cg.publish(x, y) else (x, y)


def _places(cg: ConnectionGraph, wl: WorkList) -> WorkList:
    """Each task with its place in its queue for a timestamp."""
    length: Counter[Queue | None] = Counter()
    placed = set()
    for one in sorted(wl, key=_when):
        line = queue(cg, one.task.x, one.task.y) if isinstance(one.task, Transmit) else None
        placed.add(replace(one, gen=length[line], pub=0))
        length[line] += 1
    return frozenset(placed)


NORMAL: Final = Order(name="normal", before=normal, renumber=_places)
