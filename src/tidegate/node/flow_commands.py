"""Who can reach whom with the configuration in force: the control commands `flow` and `flows`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidegate.config import Config
from tidegate.config.problems import suggestion
from tidegate.errors import Problem
from tidegate.explain.effects import graph_of
from tidegate.flow.assertions import Assertion, Violation, violations
from tidegate.flow.closed import ClosedWay, closed_ways
from tidegate.flow.graph import KINDS, ConnectionGraph
from tidegate.flow.network import add_told
from tidegate.flow.presence import Presence
from tidegate.flow.reach import Reach
from tidegate.net.control_socket import Command
from tidegate.policy.known_nodes import NodeState

if TYPE_CHECKING:
    from tidegate.node.node import Node

MOST: Final = 10_000  # flows in one document
Beyond = tuple[str, Mapping[str, NodeState]]
"""The id of this node, and what is known of others."""


class FlowCommands:
    """The flows of a node, for its control socket."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def commands(self) -> dict[str, Command]:
        return {"flow": self.presences, "flows": self.flows, "flow_drawing": self.drawing, "flow_nodes": self.nodes}

    async def presences(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Who is connected, and where, in pieces that hold nobody up."""
        scopes = self._node.scopes.values()
        sessions = [(scope, session) for scope in scopes for session in scope.sessions.values()]
        for at in range(0, len(sessions), 100):
            yield [
                asdict(scope.presences.of(session.subject))
                for scope, session in sessions[at : at + 100]
                if session.connection is not None and session.subject.kind != "link"  # it is one of the graph's
            ]

    async def nodes(self) -> AsyncIterator[dict[str, Any]]:
        """What the nodes of the groups that this one is in tell of themselves."""
        neighbourhood = self._node.realm.node_links.neighbourhood
        states = {node: state.encode().hex() for node, state in neighbourhood.states.items()}
        yield {"own": self._node.site.origin.node, "states": states}

    async def flows(
        self, source: str | None = None, target: str | None = None, paths: bool = False, live: bool = False
    ) -> dict[str, Any]:
        """Who can reach whom, of those in the directory or of those who are connected."""
        document = partial(_document, self._node.config, source=source, target=target, paths=paths, live=live)
        return await self._node.run_query(partial(document, await self._there(live), self._beyond(live)))

    async def drawing(
        self, source: str | None = None, target: str | None = None, paths: bool = False, live: bool = False
    ) -> dict[str, Any]:
        """The same as a picture."""
        draw = partial(_drawing, self._node.config, source=source, target=target, paths=paths)
        return await self._node.run_query(partial(draw, await self._there(live), self._beyond(live)))

    def _beyond(self, live: bool) -> Beyond:
        """What the nodes that are linked with this one, directly or not, tell of themselves."""
        own = self._node.site.origin.node
        return own, dict(self._node.realm.node_links.neighbourhood.states) if live else {}

    async def _there(self, live: bool) -> Iterable[Presence]:
        if not live:
            return self._node.config.built.presences
        return tuple([Presence(**fields) async for piece in self.presences() for fields in piece])


def _document(
    config: Config,
    presences: Iterable[Presence],
    beyond: Beyond,
    *,
    source: str | None,
    target: str | None,
    paths: bool,
    live: bool,
) -> dict[str, Any]:
    """The graph, the flows that are wanted, and whether the assertions hold. `live`: presences are those connected.

    Takes long where there are many: runs on a thread.
    """
    from tidegate.flow.drawing.graph import document, flows

    there = list(presences)
    graph = _graph(config, there, beyond)
    source, target = _entity(graph, source), _entity(graph, target)
    if source is None and target is None:
        count = Reach(graph, paths=paths).entity_pairs
        if count > MOST:
            raise Problem(
                f"there are {count:,} flows, too many for one answer; narrow them with `from` or `to`",
                problem="invalid",
            )
    broken = {one.assertion: one for one in violations(config.built.flows, graph)}
    if live:  # who is not there has not failed to be reached
        broken = {each: one for each, one in broken.items() if not one.absent}
    found = document(graph, flows(graph, source=source, target=target, paths=paths), paths=paths)
    closed = (
        [] if source is None or target is None or found["flows"] else closed_ways(graph, source, target, paths=paths)
    )
    return {
        **found,
        "closed": [_closed_document(each) for each in closed],
        "assertions": [assertion_document(one, broken.get(one), one.absent(graph)) for one in config.built.flows],
    }


def _drawing(
    config: Config,
    presences: Iterable[Presence],
    beyond: Beyond,
    *,
    source: str | None,
    target: str | None,
    paths: bool,
) -> dict[str, Any]:
    from tidegate.flow.drawing.graph import svg
    from tidegate.flow.drawing.selection import selection

    rules = config.built.rules
    graph = _graph(config, list(presences), beyond)
    shown, route = selection(graph, _entity(graph, source), _entity(graph, target), paths=paths)
    parents = {
        f"scope:{child}": tuple(f"scope:{name}" for name in names) for child, names in rules.space.parents.items()
    }
    return {"svg": svg(config.node.name, shown, parents, route)}


def _graph(config: Config, presences: Iterable[Presence], beyond: Beyond) -> ConnectionGraph:
    own, states = beyond
    graph = graph_of(config, presences)
    if states:
        add_told(graph, config.built.rules.space, own, states)
    return graph


def assertion_document(assertion: Assertion, broken: Violation | None, absent: Sequence[str]) -> dict[str, Any]:
    said: dict[str, Any] = {"from": assertion.source, "to": assertion.target, "expect": assertion.expect.value}
    said |= {"by": "paths" if assertion.paths else "routes", "holds": broken is None, "absent": list(absent)}
    return said if broken is None or broken.route is None else said | {"route": list(broken.route.entities)}


def _closed_document(way: ClosedWay) -> dict[str, Any]:
    return {"way": list(way.entities), "at": way.at, "came": way.came.type, "leaves": way.leaves.type}


def _entity(graph: ConnectionGraph, written: str | None) -> str | None:
    """An entity of the graph, by its name with or without its kind."""
    if written is None or written in graph:
        return written
    found = [kind + written for kind in KINDS if kind + written in graph]
    if len(found) > 1:
        raise Problem(f"`{written}` may be {' or '.join(found)}; write it so", problem="invalid")
    if not found:
        meant = suggestion(written, graph.entities)
        remedy = f"did you mean {meant}?" if meant else "leave `from` and `to` out to see all"
        raise Problem(f"there is no `{written[:200]}` here; {remedy}", problem="unknown")
    return found[0]
