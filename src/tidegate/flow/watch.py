"""The flows of a node, and what whoever connects would add to them (semantics, *Flows*).

`connection_graph` joins the scopes of a node and those who are there, or may be. `violated` tests assertions against
it, at load and on every change. A `Watch` goes on with that while clients come and go: it says which forbidden flow a
client would open, before it is let in. Required flows are no reason to keep anybody out.

A `Watch` keeps and searches little:
- Without forbidden flows it keeps nothing.
- A route has devices only at its ends. Somebody whom no assertion names can be neither, and is not kept.
- With `paths` everybody may be on the way, but clients at the same scopes with links of the same types are alike: one
  of them stands for all, and one more changes nothing.
- So there is a search only for those who are named and for the first of their like, and whoever is refused again gets
  the same answer until something changes.

It does not know which events a monitor or a share lets through: a flow is what is possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from tidegate.bounded import Bounded
from tidegate.flow.assertions import Assertion, Expect, Violation, violations
from tidegate.flow.graph import SCOPE, Allow, ConnectionGraph, Link, is_scope
from tidegate.flow.presence import Presence
from tidegate.flow.route import Search
from tidegate.policy.brokering import Brokering
from tidegate.policy.scopes import ScopeGraph, ScopeLink

Ends = tuple[str, str, str, str]
"""Of a presence: enters, leaves, inward, outward."""
Kind = tuple[Ends, ...]
"""All presences of a client, each once, in order. Clients of the same kind are alike."""

_OR: Final = " or "
"""Between the types of a link that has several, because a client is there twice. No name of a type holds spaces."""
_REMEMBERED: Final = 1_000


def connection_graph(space: ScopeGraph, brokering: Brokering, presences: Iterable[Presence] = ()) -> ConnectionGraph:
    """The scopes of a node, the links between them and to scopes of other nodes, and these clients.

    Inside a node every link is trusted, and so are those to other nodes, which have proved who they are; not those to
    foreign brokers.
    """
    graph = ConnectionGraph(
        map(_link, space.links),
        entities=(SCOPE + name for name in space.scopes),
        allow=any_of(brokering),
    )
    for each in space.remote:
        for directed in each.directions:
            graph.add(replace(_link(directed), trusted=not each.reads))
    there: dict[str, list[Ends]] = {}
    for presence in presences:
        there.setdefault(presence.client, []).append(_ends(presence))
    for client, ends in there.items():
        _place(graph, client, _kind(ends))
    return graph


def violated(
    space: ScopeGraph, brokering: Brokering, presences: Iterable[Presence], assertions: Sequence[Assertion]
) -> list[Violation]:
    """The assertions that do not hold where these clients are, in order."""
    return violations(assertions, connection_graph(space, brokering, presences)) if assertions else []


class Watch:
    """Who is there, as far as a forbidden flow may concern them. `presences` are those that always count."""

    def __init__(
        self,
        space: ScopeGraph,
        brokering: Brokering,
        assertions: Iterable[Assertion],
        presences: Iterable[Presence] = (),
    ) -> None:
        self._forbidden = tuple(assertion for assertion in assertions if assertion.expect is Expect.FORBID)
        ends = (end for assertion in self._forbidden for end in (assertion.source, assertion.target))
        self._named = frozenset(end for end in ends if not is_scope(end))
        self._paths = any(assertion.paths for assertion in self._forbidden)
        self._there: dict[str, tuple[Ends, ...]] = {}
        """Presences of each client; one that is there twice is listed twice."""
        self._alike: dict[Kind, dict[str, None]] = {}
        """Clients that no assertion names, by kind. One of each is in the graph."""
        self._refused: Bounded[tuple[str, Kind], str] = Bounded(_REMEMBERED)
        self._graph = connection_graph(space, brokering) if self._forbidden else ConnectionGraph()
        for presence in presences:
            self.came(presence)

    def objection(self, presence: Presence) -> str:
        """Which forbidden flow a client would open if it came; empty if none. What was open before is not its doing."""
        client = presence.client
        if not self.concerns(client):
            return ""
        before = self._there.get(client, ())
        kind = _kind((*before, _ends(presence)))
        if kind == _kind(before) or (kind in self._alike and client not in self._named):
            return ""
        why = self._refused.get((client, kind))
        if why is None:
            why = self._opened(client, kind)
            if why:
                self._refused[client, kind] = why
        return why

    def came(self, presence: Presence) -> None:
        """A client is there; once more, if it was."""
        client = presence.client
        if self.concerns(client):
            self._change(client, (*self._there.get(client, ()), _ends(presence)))

    def left(self, presence: Presence) -> None:
        """A client that came is not there any more; or once less."""
        client = presence.client
        if self.concerns(client):
            rest = list(self._there[client])
            rest.remove(_ends(presence))
            self._change(client, tuple(rest))

    def concerns(self, client: str) -> bool:
        """Whether a client can open a forbidden flow."""
        return self._paths or client in self._named

    def _change(self, client: str, there: tuple[Ends, ...]) -> None:
        old, new = _kind(self._there.pop(client, ())), _kind(there)
        if there:
            self._there[client] = there
        if old == new:
            return
        if client in self._named:
            self._graph.leave(client)
            _place(self._graph, client, new)
            self._refused.clear()
            return
        if old:
            self._part(client, old)
        if new:
            alike = self._alike.setdefault(new, {})
            if not alike:
                _place(self._graph, client, new)
                self._refused.clear()
            alike[client] = None

    def _part(self, client: str, kind: Kind) -> None:
        """Out of those who are alike. Another one stands for them, if there is one."""
        alike = self._alike[kind]
        del alike[client]
        if not alike:
            del self._alike[kind]
            self._refused.clear()
        if client in self._graph:
            self._graph.leave(client)
            for other in alike:
                _place(self._graph, other, kind)
                break

    def _opened(self, client: str, kind: Kind) -> str:
        """The first forbidden flow that is possible with a client of a kind and not without; what to say of it."""
        graph = self._graph
        there = [*graph.leaving(client), *graph.entering(client)]
        graph.leave(client)
        _place(graph, client, kind)
        possible = [violation for each in self._concerning(client) if (violation := each.violation(graph)) is not None]
        graph.leave(client)
        for link in there:
            graph.add(link)
        for violation in possible:
            if violation.assertion.violation(graph) is None:
                return f"flows: {violation}"
        return ""

    def _concerning(self, client: str) -> Iterator[Assertion]:
        """The assertions to which a client can matter: it is an end, or it leads to the target."""
        beyond = Search(self._graph, client, paths=True).reached() if self._paths else set()
        for assertion in self._forbidden:
            if client in (assertion.source, assertion.target) or (assertion.paths and assertion.target in beyond):
                yield assertion


def _link(link: ScopeLink) -> Link:
    return Link(source=SCOPE + link.source, target=SCOPE + link.target, type=link.type, trusted=True)


def _ends(presence: Presence) -> Ends:
    return presence.enters, presence.leaves, presence.inward, presence.outward


def _kind(there: Iterable[Ends]) -> Kind:
    return tuple(sorted(set(there)))


def _place(graph: ConnectionGraph, client: str, kind: Kind) -> None:
    """Joins a client to where it is. Connections to the same scope are one link, with the types of all of them.

    That is exact: the type of a client's link only counts together with one other link, at the scope.
    """
    inward: dict[str, set[str]] = {}
    outward: dict[str, set[str]] = {}
    for enters, leaves, there, back in kind:
        inward.setdefault(SCOPE + enters, set()).add(there)
        outward.setdefault(SCOPE + leaves, set()).add(back)
    for scope, types in inward.items():
        graph.add(Link(source=client, target=scope, type=_OR.join(sorted(types))))
    for scope, types in outward.items():
        graph.add(Link(source=scope, target=client, type=_OR.join(sorted(types))))


def any_of(brokering: Brokering) -> Allow:
    """What brokering allows, also for links with several types."""

    @cache
    def allow(first: str, second: str) -> bool:
        return any(brokering.allow(one, other) for one in first.split(_OR) for other in second.split(_OR))

    return allow
