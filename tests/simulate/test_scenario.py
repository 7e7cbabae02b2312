"""Scenarios from documents, schemas that cannot be, machines of nodes on links, and traces."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml

from simulate.presets import joined, liberal
from simulate.seed_automata import MachineAutomaton
from simulate.systems import components, home, in_turn, said
from tidegate.errors import ConfigError
from tidegate.monitor import Event
from tidegate.monitor.automaton import Automaton, Transition
from tidegate.monitor.library import Alternate, Filter
from tidegate.monitor.machines_in_a_row import Chain
from tidegate.predicate import compile as predicate
from tidegate.simulate.explore import chosen_run, outcomes, reachable, sequential_run
from tidegate.simulate.order import NORMAL
from tidegate.simulate.scenario import Change, Filters, Publication, parse
from tidegate.simulate.schema import BrokeringPolicy, ConnectionGraph, Schema
from tidegate.simulate.trace import rows

WRITTEN = """
clients:
  MD: {scope: H4}
  DB: [{scope: H2, subscribes: [MD_motion, "x/+"]}, {scope: H4, subscribes: }]
  SP: {scope: I, subscribes: "#", no_local: true, user: alice}
steps:
  - {client: MD, publish: a}
  - {client: SP, publish: b, payload: {by: alice}}
  - {client: MD, publish: c, payload: text}
  - settle
  - {client: DB, scope: H4, publish: d}
expect:
  - {client: DB, hears: "x/#"}
  - {client: DB, hears: a, times: 2}
  - {client: SP, never: b}
"""


def test_a_scenario_is_rounds_of_queues() -> None:
    scenario = parse(yaml.safe_load(WRITTEN))
    a, b, c, d = Event("a", b""), Event("b", b'{"by": "alice"}'), Event("c", b"text"), Event("d", b"")
    md, sp = ("client:MD", "scope:H4"), ("client:SP", "scope:I")
    assert scenario.rounds == (
        ((Publication(*md, a), Publication(*md, c)), (Publication(*sp, b),)),
        ((Publication("client:DB", "scope:H4", d),),),
    )
    assert scenario.devices == {"client:MD", "client:DB", "client:SP"}
    assert ("client:DB", "scope:H2") in scenario.links
    assert ("scope:H4", "client:DB") in scenario.links
    assert scenario.echo == scenario.sub.keys() - {("scope:I", "client:SP")}
    assert scenario.users == {("scope:I", "client:SP"): "alice"}
    mine = scenario.sub["scope:H2", "client:DB"]
    assert [Event(topic, b"") in mine for topic in ("MD_motion", "x/y", "x/y/z", "a")] == [True, True, False, False]
    assert a not in scenario.sub["scope:H4", "client:DB"]


def test_a_written_order_is_one_queue() -> None:
    scenario = parse(yaml.safe_load(WRITTEN + "order: written\n"))
    assert [[len(queue) for queue in each] for each in scenario.rounds] == [[3], [1]]
    assert [one.a.topic for one in scenario.rounds[0][0]] == ["a", "b", "c"]


def test_expectations_count_what_a_client_hears() -> None:
    some, twice, never = parse(yaml.safe_load(WRITTEN)).expects
    a, b, x = Event("a", b""), Event("b", b""), Event("x/y", b"")
    assert [str(each) for each in (some, twice, never)] == [
        "client:DB hears x/#",
        "client:DB hears a 2 times",
        "client:SP never hears b",
    ]
    assert [some.met(heard) for heard in ([], [a], [x], [x, a, x])] == [False, False, True, True]
    assert [twice.met(heard) for heard in ([a], [a, x, a], [a, a, a])] == [False, True, False]
    assert [never.met(heard) for heard in ([], [a], [a, b])] == [True, True, False]


def test_subscriptions_change_while_nothing_is_on_its_way() -> None:
    steps = [
        {"client": "p", "publish": "a"},
        {"client": "q", "subscribe": ["a", "b"]},
        {"client": "p", "publish": "a"},
        {"client": "q", "unsubscribe": "a"},
        {"client": "p", "publish": "a"},
        {"client": "p", "publish": "b"},
        {"client": "q", "subscribe": "c"},
    ]
    document = {"clients": {"p": {"scope": "S"}, "q": {"scope": "S"}}, "steps": steps}
    scenario = parse(document)
    link = ("scope:S", "client:q")
    assert [each.to.filters for each in scenario.rounds if isinstance(each, Change)] == [("a", "b"), ("b",), ("b", "c")]
    lives = {device: scope for scope, device in scenario.sub}
    schema = components((), lives, sub=scenario.sub)
    (only,) = outcomes(schema, scenario.rounds)
    assert [one.topic for one in only["client:q"]] == ["a", "b"]
    assert outcomes(schema, scenario.rounds) == {
        run.outcome for run in reachable(schema, scenario.rounds) if run.finished
    }
    told = rows(sequential_run(schema, scenario.rounds).trace)
    changes = [(row.rule, row.link, row.events) for row in told if row.rule == "subscribes"]
    assert changes == [("subscribes", "S -> client:q", "a, b"), ("subscribes", "S -> client:q", "b")]
    assert link in scenario.sub


def test_a_connection_may_be_to_two_scopes() -> None:
    written = {
        "clients": {"p": {"scope": "bus", "subscribes": "a", "user": "u"}, "q": {"scope": "B"}},
        "steps": [{"client": "p", "publish": "a"}, {"client": "p", "subscribe": "b"}, {"client": "q", "publish": "c"}],
    }
    placed = parse(written).placed({("scope:bus", "client:p"): ("scope:r.pub", "scope:r.sub")})
    mine = ("scope:r.sub", "client:p")
    assert {link: each.filters for link, each in placed.sub.items()} == {
        mine: ("a",),
        ("scope:r.pub", "client:p"): (),
        ("scope:B", "client:q"): (),
    }
    assert placed.users == {mine: "u"}
    assert placed.rounds == (
        ((Publication("client:p", "scope:r.pub", Event("a", b"")),),),
        Change(mine, Filters(("a", "b"))),
        ((Publication("client:q", "scope:B", Event("c", b"")),),),
    )


CLIENTS = {"p": {"scope": "A", "subscribes": ["a"]}, "q": [{"scope": "A"}, {"scope": "B"}]}
ONE = {"client": "p", "publish": "a"}


def told(**more: Any) -> dict[str, Any]:
    return {"clients": CLIENTS, "steps": [], **more}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the document must be a mapping"),
        ({"steps": []}, "`clients` is missing; add it"),
        (told(oder="any"), "unknown key `oder`; did you mean `order`?"),
        (told(order="some"), "`order` must be `any` or `written`; write one of these"),
        (told(clients={"p": None}), "`clients.p` must be a mapping"),
        (told(clients={"p": {}}), "`clients.p.scope` is missing; add it"),
        (told(clients={"p": {"scope": 3}}), "`clients.p.scope` must be a text"),
        (told(clients={"p": [{"scope": "A"}, {"scope": "A"}]}), "`clients.p[1]` connects `p` to `A` again; remove one"),
        (told(clients={"p": {"scope": "A", "subscribes": 3}}), "`clients.p.subscribes` must be a list"),
        (told(clients={"p": {"scope": "A", "subscribes": ["a#"]}}), "`clients.p.subscribes[0]` must be a topic filter"),
        (told(clients={"p": {"scope": "A", "subscribes": ["$share/g/a"]}}), "leave out `$share`"),
        (told(clients={"p": {"scope": "A", "no_local": 1}}), "`clients.p.no_local` must be `true` or `false`"),
        (told(steps={}), "`steps` must be a list"),
        (told(steps=[ONE, "setle"]), "`steps[1]` must be a mapping"),
        (told(steps=[{"client": "p"}]), "`steps[0]` does 0 things; write one of publish, subscribe"),
        (told(steps=[{**ONE, "subscribe": "a"}]), "`steps[0]` does 2 things"),
        (
            told(steps=[{**ONE, "client": "r"}]),
            "`steps[0].client` is `r`, which is no client of the scenario",
        ),
        (told(steps=[{**ONE, "client": "q"}]), "`q` is connected to A, B: add `scope`"),
        (told(steps=[{**ONE, "scope": "B"}]), "`steps[0].scope` is `B`, and `p` is connected to A; write one of these"),
        (told(steps=[{**ONE, "publish": "a/#"}]), "`steps[0].publish` must be a topic"),
        (
            told(steps=[{**ONE, "publish": "$SYS/a"}]),
            "`steps[0].publish` begins with `$`",
        ),
        (
            told(steps=[{"client": "p", "subscribe": "b", "payload": 1}]),
            "`steps[0].payload` has no effect",
        ),
        (
            told(steps=[{"client": "p", "unsubscribe": "b"}]),
            "`steps[0].unsubscribe` names `b`, which it is not",
        ),
        (told(expect=[{"client": "r", "hears": "a"}]), "`expect[0].client` is `r`, which is no client"),
        (told(expect=[{"client": "p"}]), "`expect[0]` must have `hears` or `never`"),
        (told(expect=[{"client": "p", "hears": "a", "never": "b"}]), "must have `hears` or `never`"),
        (told(expect=[{"client": "p", "hears": "a", "times": 0}]), "`expect[0].times` must be at least 1"),
        (told(expect=[{"client": "p", "never": "a", "times": 1}]), "`expect[0].times` has no effect beside `never`"),
    ],
)
def test_what_is_wrong_in_a_scenario_is_said_with_the_remedy(document: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(document)
    assert message in str(refused.value)


PAIR = joined(("d", "S"))


@pytest.mark.parametrize(
    ("cg", "message"),
    [
        ({"devices": {"S"}, "scopes": {"S"}, "link": ()}, "`S` is a device and a scope"),
        ({"devices": {"d"}, "scopes": {"S"}, "link": {("d", "S")}}, "link d -> S has no way back"),
        ({"devices": {"d", "e"}, "scopes": (), "link": joined(("d", "e"))}, "joins two devices"),
        ({"devices": (), "scopes": {"S"}, "link": {("S", "S")}}, "joins `S` to itself"),
        ({"devices": {"d"}, "scopes": (), "link": PAIR}, "there is no `S`"),
    ],
)
def test_a_connection_graph_is_as_the_seed_demands(cg: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ConnectionGraph(**{name: frozenset(value) for name, value in cg.items()})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"bp": BrokeringPolicy(type={}, allow=())}, "link S -> d has no type"),
        ({"ep": {("S", "T"): MachineAutomaton(Filter(["a"]))}}, "an automaton is on S -> T, which is no link"),
        ({"sub": {("d", "S"): {"a"}}}, "a subscription is on d -> S"),
        ({"echo": frozenset({("d", "S")})}, "an echo is on d -> S"),
    ],
)
def test_a_schema_fits_its_graph(more: Any, message: str) -> None:
    cg = ConnectionGraph(devices=frozenset("d"), scopes=frozenset("S"), link=PAIR)
    with pytest.raises(ConfigError) as refused:
        Schema(**{"cg": cg, "bp": liberal(PAIR), "order": NORMAL, **more})
    assert message in str(refused.value)


LIVES = {"p": "S", "q": "S"}


def through(machine: Any, *events: Event) -> list[str]:
    """What q hears over a link with this machine."""
    everything = [Event(topic, payload) for topic in "abc" for payload in {one.payload for one in events}]
    schema = components((), LIVES, sub={("S", "q"): frozenset(everything)}, ep={("S", "q"): MachineAutomaton(machine)})
    (only,) = outcomes(schema, said(*(("p", one) for one in events), lives=LIVES))
    return [one.topic for one in only["q"]]


def test_machines_of_nodes_can_be_plugged_in() -> None:
    a, b = Event("a", b""), Event("b", b"")
    assert through(Filter(["a"]), a, b, a) == ["a", "a"]
    assert through(Alternate(), a, a, b) in (["a", "b"], ["a"])
    # the state of a chain is a list, which nobody could hash
    assert through(Chain([Filter(["a"]), Alternate()]), a, b, a, a) == through(Alternate(), a, a, a)


def test_a_condition_reads_the_event_and_a_failure_suppresses_it() -> None:
    hot = predicate("o.payload > 30")
    machine = Automaton("q0", {"q0": [Transition(on=("a",), when=(hot,)), Transition(on=("a",), emit=())]})
    assert through(machine, Event("a", b"31"), Event("b", b"20"), Event("a", b"20")) == ["a", "b"]
    assert through(machine, Event("a", b'"warm"'), Event("b", b'"warm"')) == ["b"]
    who = Automaton("q0", {"q0": [Transition(on=("a",), when=(predicate('s.user == "x"'),))]})
    assert through(who, Event("a", b""), Event("b", b"")) == ["b"]


def test_a_device_hears_itself_only_over_an_echo() -> None:
    sub = {("S", "p"): frozenset("a"), ("S", "q"): frozenset("a")}
    for echo, heard in ((frozenset(), ()), (frozenset({("S", "p")}), ("a",))):
        (only,) = outcomes(components((), LIVES, sub=sub, echo=echo), said(("p", "a"), lives=LIVES))
        assert (only["p"], only["q"]) == (heard, ("a",))


def test_a_trace_tells_what_every_rule_did() -> None:
    run = chosen_run(home(), in_turn(("DB", "AccessRequest"), ("SP", "DL_unlock")), random.Random(5).randrange)
    told = rows(run.trace)
    assert [row.time for row in told] == list(range(len(told)))
    first, second, third = told[:3]
    assert (first.rule, first.link, first.events) == ("T-Publish", "DB -> H2", "AccessRequest")
    assert first.next == ("transmit(DB, H2, AccessRequest)",)
    assert (second.rule, second.next) == ("T-Deliver", ("broker(DB, H2, AccessRequest)",))
    assert third.rule == "T-Broker"
    assert set(third.next) == {"transmit(H2, H1, AccessRequest)", "transmit(H2, H4, AccessRequest)"}
    at_a1 = [row for row in told if (row.rule, row.link) == ("T-Deliver", "H1 -> H3")]
    assert [(row.events, row.state, row.ends) for row in at_a1] == [
        ("AccessRequest", "q0 → q1", False),
        ("DL_unlock", "", True),
    ]
    assert [(row.link, row.heard) for row in told if row.rule == "T-Notify"] == [("I -> SP", ("AccessRequest",))]


def test_events_are_written_with_their_payload() -> None:
    sub = {("S", "q"): {Event("a", b"1")}}
    run = chosen_run(
        components((), LIVES, sub=sub), said(("p", Event("a", b"1")), lives=LIVES), random.Random(1).randrange
    )
    assert rows(run.trace)[-1].heard == ("a 1",)
