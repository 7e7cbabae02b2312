"""What the nodes of a group know of each other: which scopes each has, and which links between nodes are open.

Every node says for itself which of its scopes are joined inside it, and over which trusted links it is connected now. A
link counts where both of its ends say so. From that follows who is in a group with whom, and whether a link that opens
would be a second way (semantics, *Trust*).

CBOR, canonical:

    [1, node, name, number, [[scope, …], …], [[near, far, node, out, into], …]]

`number` rises with each change; of two states of one node the higher counts. `out` and `into` say in which directions
something crosses.

Bytes from outside raise MalformedPacket. It does not know who may say what.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidegate.errors import MalformedPacket
from tidegate.wire import cbor

VERSION: Final = 1
MAX: Final = 16 * 1024
"""Bytes of one state."""
MAX_NAME: Final = 256
HIGHEST: Final = 2**53
_NODE: Final = re.compile("[0-9a-f]{16}")

Place = tuple[str, str]
"""A scope and the id of its node."""


@dataclass(frozen=True, slots=True)
class OpenLink:
    """A link between nodes that is open, as one of its ends says."""

    near: str
    far: str
    node: str
    out: bool
    into: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """What one node says of itself."""

    node: str
    name: str
    number: int = 0
    joined: tuple[tuple[str, ...], ...] = ()
    """Its scopes: those that are linked with each other stand together."""
    links: tuple[OpenLink, ...] = ()

    def encode(self) -> bytes:
        links = [[each.near, each.far, each.node, each.out, each.into] for each in self.links]
        return cbor.canonical([VERSION, self.node, self.name, self.number, [list(each) for each in self.joined], links])

    @classmethod
    def decode(cls, data: bytes) -> NodeState:
        if len(data) <= MAX:
            match cbor.plain(data):
                case [int(version), str(node), str(name), int(number), list(joined), list(links)] if (
                    version == VERSION and _NODE.fullmatch(node) and 0 <= number < HIGHEST
                ):
                    return cls(
                        node=node,
                        name=_name(name),
                        number=number,
                        joined=tuple(_scopes(each) for each in joined),
                        links=tuple(map(_link, links)),
                    )
        raise MalformedPacket("this is no state of a node, or of another version")

    def says(self, other: NodeState) -> bool:
        """Whether it says the same, under whatever number."""
        return (self.name, self.joined, self.links) == (other.name, other.joined, other.links)


def _name(said: object) -> str:
    if not isinstance(said, str) or not 0 < len(said) <= MAX_NAME:
        raise MalformedPacket("a name in the state of a node is missing or too long")
    return said


def _scopes(said: object) -> tuple[str, ...]:
    if not isinstance(said, list) or not said:
        raise MalformedPacket("the scopes in the state of a node are no names")
    return tuple(map(_name, said))


def _link(said: object) -> OpenLink:
    match said:
        case [near, far, str(node), bool(out), bool(into)] if _NODE.fullmatch(node):
            return OpenLink(_name(near), _name(far), node, out, into)
    raise MalformedPacket("a link in the state of a node is none")


def _ways(states: Mapping[str, NodeState], *, directed: bool) -> dict[Place, set[Place]]:
    """From each scope, those that it is joined with. `directed`: only those that something can go to."""
    ways: dict[Place, set[Place]] = {}
    for state in states.values():
        for scopes in state.joined:
            places = {(scope, state.node) for scope in scopes}
            for place in places:
                ways.setdefault(place, set()).update(places - {place})
        for link in state.links:
            there = states.get(link.node)
            back = None if there is None else _other_end(there, link, state.node)
            if back is not None and (not directed or (link.out and back.into)):
                ways.setdefault((link.near, state.node), set()).add((link.far, link.node))
    return ways


def _other_end(there: NodeState, link: OpenLink, node: str) -> OpenLink | None:
    wanted = (link.far, link.near, node)
    return next((each for each in there.links if (each.near, each.far, each.node) == wanted), None)


def _reached(ways: Mapping[Place, Iterable[Place]], start: Place) -> set[Place]:
    reached, waiting = {start}, [start]
    for place in waiting:
        for other in ways.get(place, ()):
            if other not in reached:
                reached.add(other)
                waiting.append(other)
    return reached


def groups(states: Mapping[str, NodeState], own: str) -> list[tuple[str, ...]]:
    """The groups that the scopes of one node are in, each in order, as `scope@name of the node`."""
    ways = _ways(states, directed=False)
    found: list[tuple[str, ...]] = []
    placed: set[Place] = set()
    state = states.get(own)
    for scope in sorted(scope for scopes in (() if state is None else state.joined) for scope in scopes):
        if (scope, own) not in placed:
            members = _reached(ways, (scope, own))
            placed |= members
            found.append(tuple(sorted(f"{name}@{states[node].name}" for name, node in members)))
    return found


def beyond(states: Mapping[str, NodeState], place: Place, without: str) -> frozenset[str]:
    """The names of the scopes that are joined with one, without going through a node."""
    left = {node: state for node, state in states.items() if node != without}
    return frozenset(scope for scope, _ in _reached(_ways(left, directed=False), place))


def ringed(states: Mapping[str, NodeState], own: str, places: Iterable[Place]) -> set[Place]:
    """Of the places that links of a node lead to, those that are joined with another one without going through it: from
    each of them something may come that comes from another one too."""
    ways = _ways({node: state for node, state in states.items() if node != own}, directed=False)
    found: set[Place] = set()
    seen: dict[Place, Place] = {}  # by what is joined with the place: the place
    for place in places:
        if (first := seen.get(place)) is not None:
            found |= {first, place}
        else:
            seen.update(dict.fromkeys(_reached(ways, place), place))
    return found


def redundant(states: Mapping[str, NodeState], source: Place, target: Place, between: tuple[Place, Place]) -> bool:
    """Whether something can go from one scope to another one over links that come before the one between two places, in
    an order that is the same for all nodes. Of the links of a ring that is the case for exactly one."""
    last = tuple(sorted(between))

    def before(state: NodeState) -> tuple[OpenLink, ...]:
        ends = ((each, sorted(((each.near, state.node), (each.far, each.node)))) for each in state.links)
        return tuple(each for each, places in ends if tuple(places) < last)

    earlier = {node: replace(state, links=before(state)) for node, state in states.items()}
    return reaches(earlier, source, target)


def reaches(states: Mapping[str, NodeState], source: Place, target: Place) -> bool:
    """Whether something can go from one scope to another one."""
    return target in _reached(_ways(states, directed=True), source)
