"""The model of a configuration: what stands on its links, what it refuses, and that it has the flows of the graph."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, reject, settings
from hypothesis import strategies as st

from simulate.spaces import World, flow_routes, worlds
from simulate.test_laws import routes
from tidegate.errors import ConfigError
from tidegate.flow.presence import Presence
from tidegate.flow.route import Search
from tidegate.monitor import Attachment, Direction, Each, Event, Machine, Monitors
from tidegate.monitor.automaton import Automaton, Transition
from tidegate.monitor.library import Alternate, Filter, Mapper, Names, Twice
from tidegate.monitor.rate_dedupe_silence import Dedupe
from tidegate.monitor.sequence import Step, guard
from tidegate.policy.brokering import OPEN, PLAIN, Brokering
from tidegate.policy.scopes import Role, ScopeGraph, ScopeLink, TopicMapping, Way
from tidegate.predicate import compile as predicate
from tidegate.simulate.automata import LinkMonitors
from tidegate.simulate.configured import configured
from tidegate.simulate.explore import Unfinished, chosen_run, find_run, outcomes, reachable, sequential_run
from tidegate.simulate.run import Outcome
from tidegate.simulate.scenario import Publication, parse
from tidegate.simulate.schema import Schema, Transmit
from tidegate.simulate.trace import rows

SEEDS = st.integers(0, 2**32)
quick = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
BOUND = 3000

PAIR = ScopeGraph(
    scopes=("A", "B"),
    parents={"A": ("B",)},
    links=(ScopeLink(source="A", target="B", way=Way.UP), ScopeLink(source="B", target="A", way=Way.DOWN)),
)


def at(client: str, scope: str, **more: Any) -> dict[str, Any]:
    return {client: {"scope": scope, "subscribes": "#", **more}}


def modelled(
    *monitors: Attachment,
    space: ScopeGraph = PAIR,
    brokering: Brokering = OPEN,
    clients: dict[str, Any] | None = None,
    steps: tuple[Any, ...] = (),
) -> tuple[Schema, Any]:
    """The model of clients p in A and q in B, or of others."""
    written = {**at("p", "A"), **at("q", "B")} if clients is None else clients
    scenario = parse({"clients": written, "steps": list(steps)})
    presences = {
        link: Presence(
            client=link[1],
            enters=link[0].removeprefix("scope:"),
            leaves=link[0].removeprefix("scope:"),
            inward=PLAIN.inward,
            outward=PLAIN.outward,
        )
        for link in scenario.sub
    }
    return configured(space, brokering, Monitors(monitors), scenario, presences)


def heard(schema: Schema, scenario: Any, client: str) -> list[str]:
    """The topics that a client hears, if there is one outcome."""
    (only,) = outcomes(schema, scenario.rounds)
    return [one.topic for one in only[f"client:{client}"]]


def on(id: str, machine: Machine, where: str | tuple[str, Direction], **more: Any) -> Attachment:
    if isinstance(where, tuple):
        return Attachment(id=id, monitor=machine, scope=where[0], direction=where[1], **more)
    source, target = (name if ":" in name else f"scope:{name}" for name in where.split("->"))
    return Attachment(id=id, monitor=machine, link=(source, target), **more)


# what stands on links


def test_monitors_stand_on_a_link_in_their_order_those_that_leave_first() -> None:
    first, second, third = Filter(["a"]), Filter(["b"]), Filter(["c"])
    schema, _ = modelled(
        on("enters", first, ("B", Direction.IM_PUB)),
        on("link", second, "A->B"),
        on("leaves", third, ("A", Direction.EX_PUB)),
    )
    up = schema.ep["scope:A", "scope:B"]
    assert isinstance(up, LinkMonitors)
    assert (up.before, up.after) == ((("leaves", third),), (("enters", first), ("link", second)))
    assert schema.ep["client:q", "scope:B"] == LinkMonitors(after=(("enters", first),))


@pytest.mark.parametrize(
    ("way", "leaves", "enters"),
    [
        (Way.UP, Direction.EX_PUB, Direction.IM_PUB),
        (Way.DOWN, Direction.IM_SUB, Direction.EX_SUB),
        (Way.ACROSS, Direction.EX_PUB, Direction.EX_SUB),
    ],
)
def test_directions_of_links_between_scopes(way: Way, leaves: Direction, enters: Direction) -> None:
    space = ScopeGraph(scopes=("A", "B"), links=(ScopeLink(source="A", target="B", way=way),))
    every = [
        on(f"{scope}.{direction}", Filter(["#"]), (scope, direction)) for scope in ("A", "B") for direction in Direction
    ]
    schema, _ = modelled(*every, space=space)
    posted = schema.ep["scope:A", "scope:B"]
    assert isinstance(posted, LinkMonitors)
    assert [id for id, _ in (*posted.before, *posted.after)] == [f"A.{leaves}", f"B.{enters}"]
    # a link that is not there has no way back in the model either
    assert ("scope:B", "scope:A") not in schema.ep
    assert not schema.propagate("client:q", "scope:B", "scope:A")


def test_several_monitors_compose_and_the_trace_names_those_that_move() -> None:
    unlock = guard(only=Step(on=("open",)), after=[Step(on=("ask",))])
    steps = tuple({"client": "p", "publish": topic} for topic in ("open", "ask", "open"))
    schema, scenario = modelled(
        on("twice", Twice(), "A->B"), on("guard", unlock, "A->B"), on("late", Alternate(), "B->client:q"), steps=steps
    )
    # the guard sees each twice; what it lets through is ask, ask, open, and every other of these is suppressed
    assert heard(schema, scenario, "q") == ["ask", "open"]
    (moved, *_) = [
        row.state for row in rows(sequential_run(schema, scenario.rounds).trace) if row.link == "A -> B" and row.state
    ]
    assert moved == "guard: nothing seen → seen ask"


def test_what_crosses_is_renamed_between_leaving_and_entering() -> None:
    space = ScopeGraph(
        scopes=("A", "B"),
        links=(
            ScopeLink(source="A", target="B", shares=(TopicMapping(filter="+/speed", here="x/", there="gym/", qos=0),)),
        ),
    )
    steps = tuple({"client": "p", "publish": topic} for topic in ("x/1/speed", "x/1/pulse", "1/speed", "name"))
    schema, scenario = modelled(
        on("leaves", Mapper(Names({"x/1/speed": "x/2/speed", "name": "x/3/speed"})), ("A", Direction.EX_PUB)),
        on("enters", Mapper(Names({"gym/2/speed": "gym/4/speed"})), "A->B"),
        space=space,
        steps=steps,
    )
    # `name` is not carried, so that the monitor that would have changed it never sees it
    assert heard(schema, scenario, "q") == ["gym/4/speed"]


def test_a_monitor_that_counts_what_is_sent_does_not_count_what_nobody_subscribes_to() -> None:
    steps = tuple({"client": "p", "publish": topic} for topic in ("b", "b", "a", "a", "b"))
    clients = {"p": {"scope": "A"}, "q": {"scope": "A", "subscribes": "a"}}
    dedupe = Dedupe(60.0)
    assert not dedupe.overhears
    schema, scenario = modelled(on("dedupe", dedupe, "A->client:q"), clients=clients, steps=steps)
    assert heard(schema, scenario, "q") == ["a"]


def test_a_failing_monitor_suppresses_and_those_before_it_have_moved() -> None:
    fails = Automaton("q0", {"q0": [Transition(on=("a",), when=(predicate("o.payload.x == 1"),))]})
    steps = tuple({"client": "p", "publish": topic, "payload": "text"} for topic in ("a", "b"))
    schema, scenario = modelled(
        on("before", Alternate(), "A->B"),
        on("fails", fails, "A->B"),
        clients={**at("p", "A"), **at("q", "B")},
        steps=steps,
    )
    assert heard(schema, scenario, "q") == []


def test_roles_are_placed_in_their_two_scopes() -> None:
    pairs = {("PubUp", "SubDown"), ("DevUp", "PubUp"), ("SubDown", "DevDown")}
    names = ("bus", "r.pub", "r.sub")
    links = [
        ("r.pub", "bus", "PubUp"),
        ("bus", "r.pub", "PubDown"),
        ("r.sub", "bus", "SubUp"),
        ("bus", "r.sub", "SubDown"),
    ]
    space = ScopeGraph(
        scopes=names,
        links=tuple(ScopeLink(source=x, target=y, type=kind) for x, y, kind in links),
        roles={"r": Role(publishing="r.pub", receiving="r.sub")},
        bus="bus",
    )
    scenario = parse({"clients": {**at("p", "bus"), **at("q", "bus")}, "steps": [{"client": "p", "publish": "a"}]})
    presences = {
        link: Presence(client=link[1], enters="r.pub", leaves="r.sub", inward="DevUp", outward="DevDown")
        for link in scenario.sub
    }
    schema, placed = configured(space, Brokering(pairs), Monitors(), scenario, presences)
    (only,) = outcomes(schema, placed.rounds)
    both = dict.fromkeys(("client:p", "client:q"), (("scope:r.sub", Event("a", b"")),))
    assert only == Outcome.of(both)


# what cannot be


def test_what_the_model_would_get_wrong_is_refused() -> None:
    reading = Automaton("q0", {"q0": [Transition(when=(predicate('s.user == "x"'),))]})
    fine = Automaton("q0", {"q0": [Transition(when=(predicate("o.payload.x == 1 && o.levels[0] == 'a'"),))]})
    whole = on("one", Alternate(), ("A", Direction.IM_PUB), each=Each.SCOPE)
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"clients": at("p", "C")},
            "`client:p` is connected to `C`, which is no scope of the configuration: there are",
        ),
        ({"clients": at("p", "a")}, "there are A, B"),
        ({"monitors": [on("m", reading, "A->B")]}, "monitor `m` reads `s.user`, and the model knows nothing but"),
        (
            {"monitors": [whole], "clients": {**at("p", "A"), **at("q", "A")}},
            "monitor `one` has one state for 2 links (`each: scope`)",
        ),
        (
            {"monitors": [on("m", Alternate(), "A->client:p")], "clients": at("p", "A", no_local=True)},
            "`client:p` has `no_local`, and there are monitors on A->client:p",
        ),
    ]
    for given_, message in cases:
        monitors = given_.pop("monitors", [])
        with pytest.raises(ConfigError) as refused:
            modelled(*monitors, **given_)
        assert message in str(refused.value)
    modelled(whole, on("fine", fine, "A->B"), clients=at("p", "A"))


# the same flows


@quick
@given(worlds())
def test_the_model_has_the_routes_of_the_graph(world: World) -> None:
    """With any shares and monitors, which routes do not look at."""
    schema, scenario = world.model()
    for client in sorted(scenario.devices):
        found = set(flow_routes(world.graph, client))
        assert set(routes(schema, client)) >= found
        # links that are only there as ways back let nothing pass, but stand for themselves
        assert {route for route in routes(schema, client) if len(route) > 2} == {one for one in found if len(one) > 2}


@quick
@given(worlds(), SEEDS)
def test_a_delivery_happens_only_along_a_flow_route(world: World, seed: int) -> None:
    schema, scenario = world.model()
    publishers = {one.x for one in scenario.written() if isinstance(one, Publication)}
    ends = {(route[-2], route[-1]) for x in publishers for route in flow_routes(world.graph, x)}
    run = chosen_run(schema, scenario.rounds, random.Random(seed).randrange)
    found = {(scope, device) for device, came in run.state.heard.items() for scope, _ in came}
    assert found <= ends
    event(f"{min(len(found), 3)} deliveries")


@quick
@given(worlds(monitored=False, shared=False, deaf=False), st.data())
def test_every_flow_route_can_be_realised(world: World, data: st.DataObject) -> None:
    """By a run in which an event takes just this way, and is heard at its end."""
    schema, scenario = world.model()
    x = data.draw(st.sampled_from(sorted(scenario.devices)))
    possible = sorted(route for route in flow_routes(world.graph, x) if not route[-1].startswith("scope:"))
    if not possible:
        reject()
    route = data.draw(st.sampled_from(possible))
    symbol = Event("a", b"")
    rounds = (((Publication(x, route[1], symbol),),),)
    last = Transmit(route[-2], route[-1], symbol)
    try:
        runs = reachable(schema, rounds, bound=BOUND)
        taken = any(one.task == last and one.path == route[1:-1] for run in runs for one in run.state.wl)
        every = outcomes(schema, rounds, bound=BOUND)
    except Unfinished:
        reject()
    assert taken
    heard = [each for each in every if (route[-2], symbol) in dict(each.heard).get(route[-1], ())]
    assert heard
    assert all(find_run(schema, rounds, each) is not None for each in heard)
    event(f"{len(route) - 1} links")


@quick
@given(worlds(monitored=False, shared=False, deaf=False))
def test_what_the_search_finds_is_heard(world: World) -> None:
    """The shortest route from one client to another, unless one message would have to pass a scope twice."""
    schema, scenario = world.model()
    for x in sorted(scenario.devices):
        for y, route in Search(world.graph, x).all().items():
            if y.startswith("scope:") or route.repeated:
                continue
            every = outcomes(schema, (((Publication(x, route.entities[1], Event("a", b"")),),),))
            assert any(each[y] for each in every), route
