"""Who can reach whom with the configuration in force, as a document for programs: the control command `flows`.

Takes long where there are many: belongs on a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tidegate.config import Config
from tidegate.config.problems import suggestion
from tidegate.errors import Problem
from tidegate.flow import Assertion, ConnectionGraph, Reach, Violation
from tidegate.flow.drawing.graph_formats import document, flows
from tidegate.flow.graph import KINDS
from tidegate.flow.presence import Presence
from tidegate.flow.watch import connection_graph, violated

MOST: Final = 10_000  # flows in one document


def flow_document(
    config: Config, presences: Iterable[Presence], *, source: str | None, target: str | None, paths: bool, live: bool
) -> dict[str, Any]:
    """The graph, the flows that are wanted, and whether the assertions hold. `live`: presences are those connected."""
    rules = config.built.rules
    there = list(presences)
    graph = connection_graph(rules.space, rules.brokering, there)
    source, target = _entity(graph, source), _entity(graph, target)
    if source is None and target is None:
        count = Reach(graph, paths=paths).entity_pairs
        if count > MOST:
            raise Problem(
                f"there are {count:,} flows, too many for one answer; narrow them with `from` or `to`",
                problem="invalid",
            )
    broken = {one.assertion: one for one in violated(rules.space, rules.brokering, there, config.built.flows)}
    if live:  # who is not there has not failed to be reached
        broken = {each: one for each, one in broken.items() if not one.absent}
    return {
        **document(graph, flows(graph, source=source, target=target, paths=paths), paths=paths),
        "assertions": [_said(one, broken.get(one), one.absent(graph)) for one in config.built.flows],
    }


def _said(assertion: Assertion, broken: Violation | None, absent: Sequence[str]) -> dict[str, Any]:
    said: dict[str, Any] = {"from": assertion.source, "to": assertion.target, "expect": assertion.expect.value}
    said |= {"by": "paths" if assertion.paths else "routes", "holds": broken is None, "absent": list(absent)}
    return said if broken is None or broken.route is None else said | {"route": list(broken.route.entities)}


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
