"""Random configurations: scopes and links between them, brokering, monitors, clients and what they do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tidegate.flow.graph import ConnectionGraph, is_scope
from tidegate.flow.graph import Link as FlowLink
from tidegate.flow.presence import Presence
from tidegate.flow.watch import connection_graph
from tidegate.monitor import Attachment, Direction, Machine, Monitors
from tidegate.monitor.library import Alternate, Filter, Mapper, Names, Twice
from tidegate.monitor.sequence import Step, guard
from tidegate.policy.brokering import OPEN, PLAIN, Assignment, Brokering, Types
from tidegate.policy.scopes import ALL, ScopeGraph, ScopeLink, TopicMapping, Way
from tidegate.policy.selector import Selector
from tidegate.simulate.configured import configured
from tidegate.simulate.scenario import Scenario, parse
from tidegate.simulate.schema import Link, Schema

TOPICS = ("a", "b", "x/a")
FILTERS = ("#", "a", "+", "x/#", "y/#")
TYPES = ("t", "u")


def machines() -> list[Machine]:
    return [
        Filter(["a", "x/#"]),
        Mapper(Names({"a": "b"})),
        Alternate(),
        Twice(),
        guard(only=Step(on=("b",)), after=[Step(on=("a",))], reset=Step(on=("x/#",))),
    ]


SHARES = (
    ALL,
    (TopicMapping(filter="a"),),
    (TopicMapping(filter="#", there="x/"),),
    (TopicMapping(filter="#", here="x/", there="y/"), TopicMapping(filter="b")),
)


@dataclass(frozen=True)
class World:
    """A configuration and a scenario."""

    space: ScopeGraph
    brokering: Brokering
    monitors: Monitors
    scenario: Scenario
    presences: dict[Link, Presence]

    def model(self) -> tuple[Schema, Scenario]:
        return configured(self.space, self.brokering, self.monitors, self.scenario, self.presences)

    @property
    def graph(self) -> ConnectionGraph:
        return connection_graph(self.space, self.brokering, self.presences.values())


@st.composite
def worlds(
    draw: st.DrawFn, *, scopes: int = 4, monitored: bool = True, shared: bool = True, deaf: bool = True, most: int = 4
) -> World:
    names = [f"S{at}" for at in range(draw(st.integers(1, scopes)))]
    types = st.sampled_from(TYPES)
    is_open = draw(st.booleans())
    kind = st.just(PLAIN.inward) if is_open else types
    shares = st.sampled_from(SHARES) if shared else st.just(ALL)
    links: list[ScopeLink] = []
    pairs = [(x, y) for at, x in enumerate(names) for y in names[:at]]
    for x, y in draw(st.lists(st.sampled_from(pairs), unique=True, max_size=5)) if pairs else ():
        if draw(st.booleans()):
            ways, carried = ((x, y, Way.UP), (y, x, Way.DOWN)), st.just(ALL)
        else:
            ways, carried = ((x, y, Way.ACROSS), (y, x, Way.ACROSS)), shares
            ways = draw(st.sampled_from((ways, ways[:1])))
        links += [
            ScopeLink(source=source, target=target, way=way, type=draw(kind), shares=draw(carried))
            for source, target, way in ways
        ]
    clients = {f"c{at}": draw(st.sampled_from(names)) for at in range(draw(st.integers(2, 3)))}
    brokering = OPEN
    if not is_open:
        forbidden = draw(st.frozensets(st.tuples(types, types), max_size=2))
        brokering = Brokering(
            [(one, other) for one in TYPES for other in TYPES if (one, other) not in forbidden],
            [
                Assignment(
                    subject=Selector.parse(f"client:{name}"), types=Types(inward=draw(types), outward=draw(types))
                )
                for name in clients
            ],
        )
    filters = st.lists(st.sampled_from(FILTERS), max_size=2, unique=True) if deaf else st.just(["#"])
    written: dict[str, list[dict[str, Any]]] = {
        name: [{"scope": scope, "subscribes": draw(filters)}] for name, scope in clients.items()
    }
    if len(names) > 1 and draw(st.booleans()):
        written["c0"].append({"scope": next(one for one in names if one != clients["c0"]), "subscribes": draw(filters)})
    scenario = parse({"clients": written, "steps": draw(_steps(written, most))})
    presences = {link: _presence(brokering, link) for link in scenario.sub}
    monitors = draw(_monitors(names, links, scenario)) if monitored else Monitors()
    space = ScopeGraph(scopes=tuple(names), links=tuple(links))
    return World(space, brokering, monitors, scenario, presences)


@st.composite
def _steps(draw: st.DrawFn, clients: dict[str, list[dict[str, Any]]], most: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(draw(st.integers(1, most))):
        name = draw(st.sampled_from(sorted(clients)))
        scope = draw(st.sampled_from(clients[name]))["scope"]
        made.append(
            {"client": name, "scope": scope, "publish": draw(st.sampled_from(TOPICS)), "payload": str(len(made))}
        )
        match draw(st.integers(0, 5)):
            case 0:
                made.append("settle")
            case 1:
                made.append({"client": name, "scope": scope, "subscribe": draw(st.sampled_from(FILTERS))})
    return made


@st.composite
def _monitors(draw: st.DrawFn, names: list[str], links: list[ScopeLink], scenario: Scenario) -> Monitors:
    linked = [(f"scope:{one.source}", f"scope:{one.target}") for one in links] + sorted(scenario.links)
    made: list[Attachment] = []
    for at in range(draw(st.integers(0, 3))):
        machine = draw(st.sampled_from(machines()))
        where: dict[str, Any] = {"link": draw(st.sampled_from(linked))}
        if draw(st.booleans()):
            where = {"scope": draw(st.sampled_from(names)), "direction": draw(st.sampled_from(Direction))}
        made.append(Attachment(id=f"m{at}", monitor=machine, default=draw(st.booleans()), **where))
    return Monitors(made)


class _Client:
    """As much of a client as brokering looks at."""

    kind, user, domain, node, scope, level = "client", None, "", "n", "", ""
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    impostor = False

    def __init__(self, name: str) -> None:
        self.client = name


def _presence(brokering: Brokering, link: Link) -> Presence:
    scope, client = link[0].removeprefix("scope:"), link[1].removeprefix("client:")
    types = brokering.types(_Client(client))  # type: ignore[arg-type]
    return Presence(client=link[1], enters=scope, leaves=scope, inward=types.inward, outward=types.outward)


def flow_routes(graph: ConnectionGraph, source: str) -> Iterator[tuple[str, ...]]:
    """All routes from a client that pass no scope twice, by what may follow what."""
    waiting: list[tuple[FlowLink, ...]] = [(link,) for link in graph.leaving(source)]
    while waiting:
        route = waiting.pop()
        last = route[-1]
        yield (route[0].source, *(link.target for link in route))
        if not is_scope(last.target):
            continue
        passed = {link.target for link in route}
        for link in graph.leaving(last.target):
            if graph.follows(last, link) and link.target not in passed:
                waiting.append((*route, link))
