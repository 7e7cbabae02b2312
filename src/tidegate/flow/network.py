"""The connection graph of several nodes: what their files say, and what the nodes of a group tell of themselves.

Each node decides at its own scopes, with its own types of links. So a link between two nodes has two types: the one
that it leaves by and the one that it arrives by, `up > in`. Where all nodes have the same types, and two agree on a
link, it has that one.

- A scope is called by its name, or `scope@node` where several nodes have one of that name.
- Something crosses from one node to another if both ends say so.
- Of nodes whose file is not there, what they tell is used (`policy.known_nodes`): their scopes, and the links that are
  open. They tell no types, so there everything may be passed on: what cannot flow all the same never does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from tidegate.flow.assertions import Assertion
from tidegate.flow.graph import SCOPE, Allow, ConnectionGraph, Link, bare_name, is_scope
from tidegate.flow.presence import Presence
from tidegate.flow.watch import any_of, connection_graph
from tidegate.policy.brokering import Brokering
from tidegate.policy.known_nodes import NodeState, OpenLink
from tidegate.policy.scopes import ScopeGraph

THEN: Final = " > "
"""Between the types by which a link leaves one node and arrives at another. No name of a type holds spaces."""
LISTED: Final = 12
"""Scopes in the title of a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node as its own file describes it, and who is there."""

    name: str
    space: ScopeGraph
    brokering: Brokering
    presences: Sequence[Presence] = ()


class Network:
    """Several nodes that are linked."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._often = Counter(scope for each in members for scope in each.space.scopes)
        self._shared = len({each.brokering.pairs for each in members}) == 1
        self._types: dict[str, tuple[Member, str]] = {}
        """By what a type is called here."""
        self._allowed: dict[int, Allow] = {id(each): any_of(each.brokering) for each in members}

    @property
    def title(self) -> str:
        return ", ".join(each.name for each in self._members)

    @property
    def legend(self) -> str:
        """The same with their scopes, as long as these are few."""
        if len(self._members) == 1 or sum(len(each.space.scopes) for each in self._members) > LISTED:
            return self.title
        return ", ".join(f"{each.name} ({', '.join(each.space.scopes)})" for each in self._members)

    @property
    def parents(self) -> dict[str, tuple[str, ...]]:
        """The scopes above each scope."""
        return {
            self._scope(each, child): tuple(self._scope(each, name) for name in names)
            for each in self._members
            for child, names in each.space.parents.items()
        }

    def asserted(self, member: Member, assertions: Iterable[Assertion]) -> list[Assertion]:
        """What the file of a member forbids and requires, by the names that scopes have here."""
        return [
            replace(each, source=self._entity(member, each.source), target=self._entity(member, each.target))
            for each in assertions
        ]

    def graph(self) -> ConnectionGraph:
        graph = ConnectionGraph(allow=self._allow)
        for member in self._members:
            own = connection_graph(member.space, member.brokering, member.presences)
            for name in own.entities:
                graph.join(self._entity(member, name))
            for link in own.links:
                self._add(graph, member, link)
        return graph

    def _add(self, graph: ConnectionGraph, member: Member, link: Link) -> None:
        source, target = bare_name(link.source), bare_name(link.target)
        here = member.space.scopes
        type = self._type(member, link.type)
        if is_scope(link.source) and is_scope(link.target) and not (source in here and target in here):
            near, far = (source, target) if source in here else (target, source)
            other = self._other_end(member, near, far)
            if other is not None:
                back = next((each for each in other.space.remote if (each.near, each.far) == (far, near)), None)
                agreed = None if back is None else back.into if source == near else back.out
                if agreed is None:
                    return  # the other end shares nothing this way
                theirs = self._type(other, agreed.type)
                first, second = (type, theirs) if source == near else (theirs, type)
                type = first if first == second else f"{first}{THEN}{second}"
        ends = self._entity(member, link.source), self._entity(member, link.target)
        graph.add(Link(source=ends[0], target=ends[1], type=type, trusted=link.trusted))

    def _other_end(self, member: Member, near: str, far: str) -> Member | None:
        return next(
            (
                other
                for other in self._members
                if other is not member and any((each.near, each.far) == (far, near) for each in other.space.remote)
            ),
            None,
        )

    def _entity(self, member: Member, name: str) -> str:
        if not is_scope(name):
            return name
        return self._scope(member, bare_name(name))

    def _scope(self, member: Member, name: str) -> str:
        """What a scope is called here that is called `name` in the file of a member."""
        if name not in member.space.scopes:
            for link in member.space.remote:
                if link.far == name and (other := self._other_end(member, link.near, name)) is not None:
                    member = other
                    break
            else:
                return f"{SCOPE}{name}"
        return f"{SCOPE}{name}@{member.name}" if self._often[name] > 1 else f"{SCOPE}{name}"

    def _type(self, member: Member, name: str) -> str:
        called = name if self._shared else f"{member.name}:{name}"
        self._types.setdefault(called, (member, name))
        return called

    def _allow(self, first: str, second: str) -> bool:
        came, leaves = first.rpartition(THEN)[2], second.partition(THEN)[0]
        if not came or not leaves or came not in self._types or leaves not in self._types:
            return True  # nobody has told
        (one, type), (other, back) = self._types[came], self._types[leaves]
        return (one is other or self._shared) and self._allowed[id(one)](type, back)


def add_told(graph: ConnectionGraph, space: ScopeGraph, own: str, states: Mapping[str, NodeState]) -> None:
    """Takes in what the nodes of a group tell of themselves. `own`: the id of the node whose graph it is."""
    names: dict[tuple[str, str], str] = {}
    ours = states.get(own)
    for link in () if ours is None else ours.links:
        names[link.far, link.node] = SCOPE + link.far
    names.update({(scope, own): SCOPE + scope for scope in space.scopes})

    def named(scope: str, node: str) -> str:
        return names.setdefault((scope, node), f"{SCOPE}{scope}@{states[node].name}")

    others = {node: state for node, state in states.items() if node != own}
    for node, state in others.items():
        for scopes in state.joined:
            for one, other in pairwise(sorted(named(scope, node) for scope in scopes)):
                graph.add(Link(source=one, target=other, trusted=True))  # how exactly is not told
                graph.add(Link(source=other, target=one, trusted=True))
    for node, state in others.items():
        for link in state.links:
            there = others.get(link.node)
            if there is None or not link.out:
                continue
            if any(_answers(each, link, node) for each in there.links):
                source, target = named(link.near, node), named(link.far, link.node)
                graph.add(Link(source=source, target=target, trusted=True))


def _answers(back: OpenLink, link: OpenLink, node: str) -> bool:
    """Whether the other end of a link says that it takes what comes."""
    return back.into and (back.near, back.far, back.node) == (link.far, link.near, node)
