"""What holds of every system: invariants that the seed states, and laws that follow from its rules."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, reject, settings
from hypothesis import strategies as st

from generated import examples
from simulate.presets import joined, liberal
from simulate.seed_automata import TableAutomaton
from simulate.systems import components, publications, said, schemas, systems, transmitted, trees
from tidegate.simulate.explore import Unfinished, chosen_run, find_run, outcomes, reachable
from tidegate.simulate.order import NORMAL, norm_1, norm_2, norm_3, normal, select
from tidegate.simulate.run import Outcome
from tidegate.simulate.scenario import Publication, Rounds
from tidegate.simulate.schema import IDENTITY, Broker, ConnectionGraph, Order, Schema, Transmit, WorkList
from tidegate.simulate.steps import Rule

SEEDS = st.integers(0, 2**32)
quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
BOUND = 3000

PAIR = {"p": "A", "q": "A", "r": "B"}
BOTH = {("B", "r"): frozenset("ab")}


def all_outcomes(schema: Schema, rounds: Rounds) -> frozenset[Outcome]:
    try:
        return outcomes(schema, rounds, bound=BOUND)
    except Unfinished:
        reject()


# along one run


@quick
@given(systems(scopes=4, most=6), SEEDS)
def test_every_link_is_first_in_first_out_and_loses_nothing(system: tuple[Schema, Rounds], seed: int) -> None:
    schema, rounds = system
    trace = chosen_run(schema, rounds, random.Random(seed).randrange).trace
    for link in schema.cg.link:
        sent, arrived = transmitted(trace, link)
        assert sent == arrived


@quick
@given(systems(scopes=4, most=6), SEEDS)
def test_every_automaton_sees_every_event_of_its_link_once(system: tuple[Schema, Rounds], seed: int) -> None:
    schema, rounds = system
    run = chosen_run(schema, rounds, random.Random(seed).randrange)
    for link in schema.cg.link:
        state = schema.automaton(*link).start()
        for symbol in transmitted(run.trace, link)[1]:
            state, _ = schema.automaton(*link).step(state, symbol)
        assert run.state.st[link] == state


@quick
@given(systems(scopes=4, most=6), SEEDS)
def test_every_task_is_generated_once_and_consumed_once(system: tuple[Schema, Rounds], seed: int) -> None:
    schema, rounds = system
    run = chosen_run(schema, rounds, random.Random(seed).randrange)
    assert run.finished
    made: Counter[Any] = Counter()
    used: Counter[Any] = Counter()
    for step in run.trace:
        made.update(step.after.wl - step.before.wl)
        used.update(step.before.wl - step.after.wl)
        # a rule consumes the task that it names, and nothing else
        assert step.before.wl - step.after.wl == (frozenset() if step.rule is Rule.PUBLISH else {step.task})
    assert made == used
    assert set(made.values()) <= {1}


@quick
@given(systems(scopes=4, most=6), SEEDS)
def test_devices_of_one_scope_are_heard_there_in_the_order_of_publication(
    system: tuple[Schema, Rounds], seed: int
) -> None:
    """Norm-3."""
    schema, rounds = system
    trace = chosen_run(schema, rounds, random.Random(seed).randrange).trace
    for scope in schema.cg.scopes:
        published = [step.task for step in trace if step.rule is Rule.PUBLISH and step.task.task.y == scope]
        arrived = [step.task for step in trace if step.rule is Rule.DELIVER and step.task in published]
        assert arrived == published


@quick
@given(systems(scopes=4, most=6), SEEDS)
def test_brokering_is_instantaneous_and_never_twice_at_a_time(system: tuple[Schema, Rounds], seed: int) -> None:
    """Norm-1, and the invariant of 3.3.6."""
    schema, rounds = system
    for step in chosen_run(schema, rounds, random.Random(seed).randrange).trace:
        brokering = [one for one in step.before.wl if isinstance(one.task, Broker)]
        assert len(brokering) <= 1
        if brokering:
            assert step.rule is Rule.PUBLISH or step.task == brokering[0]


@quick
@given(systems(scopes=4, most=6), SEEDS)
def test_the_normal_order_is_a_partial_order_of_every_work_list(system: tuple[Schema, Rounds], seed: int) -> None:
    schema, rounds = system
    cg = schema.cg
    for step in chosen_run(schema, rounds, random.Random(seed).randrange).trace:
        wl = step.after.wl
        assert bool(select(NORMAL, cg, wl)) is bool(wl)
        for one in wl:
            for two in wl - {one}:
                assert not (normal(cg, one, two) and normal(cg, two, one))
                for three in wl - {one, two}:
                    if normal(cg, one, two) and normal(cg, two, three):
                        assert normal(cg, one, three)


# flow routes


def routes(schema: Schema, x: str) -> Iterator[tuple[str, ...]]:
    """All flow routes from a device that pass no scope twice, straight from the definition (3.4.1.1)."""
    bp, cg = schema.bp, schema.cg

    def longer(route: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for y, z in sorted(cg.link):
            if y != route[-1] or (z in cg.scopes and z in route):
                continue
            if len(route) > 1:
                came = (route[-2], y)
                if z == route[-2] and (y, z) not in schema.echo:
                    continue
                if (bp.type[came], bp.type[y, z]) not in bp.allow:
                    continue
            yield (*route, z)
            if z in cg.scopes:
                yield from longer((*route, z))

    return longer((x,))


@quick
@given(systems(scopes=4), SEEDS)
def test_nothing_is_heard_without_a_flow_route(system: tuple[Schema, Rounds], seed: int) -> None:
    """With any monitors and subscriptions."""
    schema, rounds = system
    publishers = {queue[0].x for each in rounds for queue in each}
    ends = {(route[-2], route[-1]) for x in publishers for route in routes(schema, x)}
    run = chosen_run(schema, rounds, random.Random(seed).randrange)
    for device, came in run.state.heard.items():
        assert {(scope, device) for scope, _ in came} <= ends


@quick
@given(schemas(scopes=4, monitors=False, deaf=False), st.data())
def test_every_flow_route_delivers_once(schema: Schema, data: st.DataObject) -> None:
    """If everybody subscribes to everything and no monitor interferes: as many deliveries as routes."""
    schema = replace(schema, once=False)
    x, y = data.draw(st.sampled_from(sorted(link for link in schema.cg.link if schema.cg.publish(*link))))
    expected = Counter(
        (route[-2], route[-1]) for route in routes(schema, x) if route[1] == y and route[-1] in schema.cg.devices
    )
    run = chosen_run(schema, (((Publication(x, y, "a"),),),), random.Random(1).randrange)
    assert Counter((scope, device) for device, came in run.state.heard.items() for scope, _ in came) == expected
    event(f"{sum(expected.values())} deliveries")


@quick
@given(schemas(scopes=4, monitors=False, deaf=False), st.data())
def test_an_event_that_crosses_links_once_is_heard_once_by_everybody_it_can_reach(
    schema: Schema, data: st.DataObject
) -> None:
    """Not in every run by everybody: whichever copy is first goes on, and it may be refused where another is not."""
    schema = replace(schema, once=True)
    x, y = data.draw(st.sampled_from(sorted(link for link in schema.cg.link if schema.cg.publish(*link))))
    ends = {(route[-2], route[-1]) for route in routes(schema, x) if route[1] == y and route[-1] in schema.cg.devices}
    reached = set()
    for each in all_outcomes(schema, (((Publication(x, y, "a"),),),)):
        heard = Counter((scope, device) for device, came in each.heard for scope, _ in came)
        assert set(heard.values()) <= {1}
        reached |= set(heard)
    assert reached == ends


def test_what_an_automaton_makes_is_another_event_and_what_it_lets_pass_is_the_same() -> None:
    lives = {"p": "A", "q": "B"}
    link = joined(("A", "B"), ("A", "C"), ("C", "B"), *lives.items())
    cg = ConnectionGraph(devices=frozenset(lives), scopes=frozenset("ABC"), link=link)
    passes = TableAutomaton("q0", {("q0", "a"): ("q0", ("a",))})
    renames = TableAutomaton("q0", {("q0", "a"): ("q0", ("b",))})
    for automaton, heard in ((passes, {("a",)}), (renames, {("a", "b"), ("b", "a")})):
        schema = Schema(
            cg=cg,
            bp=liberal(link),
            sub={("B", "q"): frozenset("ab")},
            ep={("C", "B"): automaton},
            order=NORMAL,
            loops=False,
            once=True,
        )
        assert {each["q"] for each in outcomes(schema, said(("p", "a"), lives=lives))} == heard


# what monitors change


@quick
@given(systems(scopes=2, devices=2), st.data())
def test_a_monitor_that_is_the_identity_changes_nothing(system: tuple[Schema, Rounds], data: st.DataObject) -> None:
    schema, rounds = system
    free = sorted(schema.cg.link - schema.ep.keys())
    chosen = data.draw(st.lists(st.sampled_from(free))) if free else []
    more = replace(schema, ep={**schema.ep, **dict.fromkeys(chosen, IDENTITY)})
    assert all_outcomes(schema, rounds) == all_outcomes(more, rounds)


def test_a_monitor_on_a_notify_link_sees_what_nobody_subscribes_to() -> None:
    lives = {"p": "S", "q": "S"}
    waits = TableAutomaton(
        "q0", {("q0", "a"): ("q1", ("a",)), ("q0", "b"): ("q0", ()), ("q1", "b"): ("q0", ("b", "c", "b"))}
    )
    schema = components((), lives, sub={("S", "q"): frozenset("b")}, ep={("S", "q"): waits})
    (only,) = outcomes(schema, said(("p", "b"), ("p", "a"), ("p", "b"), lives=lives))
    # a is seen and not heard; c is put out and not heard
    assert only["q"] == ("b", "b")


@pytest.mark.parametrize("link", [("p", "A"), ("A", "B"), ("B", "r")])
def test_a_sequence_is_passed_on_whole_and_in_order(link: tuple[str, str]) -> None:
    """T-Broker keeps the rest of the sequence (WL₂)."""
    three = TableAutomaton("q0", {("q0", "a"): ("q0", ("b", "a", "b"))})
    schema = components({("A", "B")}, PAIR, sub=BOTH, ep={link: three})
    (only,) = outcomes(schema, said(("p", "a"), lives=PAIR))
    assert only["r"] == ("b", "a", "b")


# confluence


@quick
@given(trees())
def test_one_publisher_in_a_tree_has_one_outcome(system: tuple[Schema, Rounds]) -> None:
    """Whatever the monitors: every link gets its events from one other link, and keeps their order."""
    schema, rounds = system
    assert len(all_outcomes(schema, rounds)) == 1


@quick
@given(schemas(scopes=1), st.data())
def test_one_scope_and_a_fixed_order_of_publications_have_one_outcome(schema: Schema, data: st.DataObject) -> None:
    """Norm-3: it is an ordinary broker."""
    ((*queues,),) = data.draw(publications(schema))
    written = (tuple(one for queue in queues for one in queue),)
    assert len(all_outcomes(schema, (written,))) == 1


def test_two_publishers_in_two_scopes_may_overtake_each_other() -> None:
    lives = {"p": "A", "q": "B", "r": "B"}
    schema = components({("A", "B")}, lives, sub={("B", "r"): frozenset("ab")})
    written = ((Publication("p", "A", "a"), Publication("q", "B", "b")),)
    assert {each["r"] for each in outcomes(schema, (written,))} == {("a", "b"), ("b", "a")}


# each norm is needed


def ranks(_cg: ConnectionGraph, wl: WorkList) -> WorkList:
    """Timestamps by rank: right for every order that only compares them."""
    times = sorted({time for one in wl for time in (one.gen, one.pub)})
    rank = {time: at for at, time in enumerate(times)}
    return frozenset(replace(one, gen=rank[one.gen], pub=rank[one.pub]) for one in wl)


def without(*norms: Callable[..., bool]) -> Order:
    rest = [each for each in (norm_1, norm_2, norm_3) if each not in norms]
    return Order(name="less", before=lambda *args: any(each(*args) for each in rest), renumber=ranks)


@pytest.mark.parametrize(
    ("missing", "publishers", "expected"),
    [((), "pp", {"ab"}), ((norm_2,), "pp", {"ab", "ba"}), ((norm_3,), "pq", {"ab", "ba"}), ((), "pq", {"ab"})],
)
def test_without_norms_2_and_3_order_is_lost(missing: Any, publishers: str, expected: set[str]) -> None:
    order = without(*missing) if missing else NORMAL
    schema = components({("A", "B")}, PAIR, sub=BOTH, order=order)
    written = tuple(Publication(x, "A", a) for x, a in zip(publishers, "ab", strict=True))
    assert {"".join(each["r"]) for each in outcomes(schema, ((written,),))} == expected


def test_without_norm_1_there_are_two_brokering_tasks() -> None:
    for order, most in ((NORMAL, 1), (without(norm_1), 2)):
        schema = components({("A", "B")}, PAIR, sub=BOTH, order=order)
        found = reachable(schema, said(("p", "a"), ("q", "b"), lives=PAIR))
        assert max(sum(isinstance(one.task, Broker) for one in run.state.wl) for run in found) == most


# exploring


@settings(quick, max_examples=examples(40, 1000))
@given(systems(scopes=3))
def test_leaving_out_what_commutes_loses_no_outcome(system: tuple[Schema, Rounds]) -> None:
    schema, rounds = system
    try:
        every = frozenset(run.outcome for run in reachable(schema, rounds, bound=BOUND) if run.finished)
    except Unfinished:
        reject()
    assert outcomes(schema, rounds) == every
    event(f"{min(len(every), 5)} outcomes")


@settings(quick, max_examples=30)
@given(systems(scopes=2, devices=2))
def test_states_that_count_as_one_have_the_same_outcomes(system: tuple[Schema, Rounds]) -> None:
    """Queues, ranks, and the timestamps as they are: three ways to remember where one was."""
    schema, rounds = system
    found = all_outcomes(schema, rounds)
    # with another order every state is met
    for renumber in (ranks, lambda _, wl: wl):
        assert all_outcomes(replace(schema, order=replace(NORMAL, renumber=renumber)), rounds) == found


@quick
@given(systems(scopes=3), SEEDS)
def test_walks_find_outcomes_and_outcomes_can_be_realised(system: tuple[Schema, Rounds], seed: int) -> None:
    schema, rounds = system
    found = all_outcomes(schema, rounds)
    walked = chosen_run(schema, rounds, random.Random(seed).randrange)
    assert walked.outcome in found
    for each in found:
        run = find_run(schema, rounds, each)
        assert run is not None
        assert run.outcome == each
        assert run.finished
    event(f"{min(len(found), 5)} outcomes")


@quick
@given(systems(scopes=2, devices=2), st.data())
def test_what_is_no_outcome_cannot_be_realised(system: tuple[Schema, Rounds], data: st.DataObject) -> None:
    schema, rounds = system
    found = all_outcomes(schema, rounds)
    heard = {device: list(came) for device, came in data.draw(st.sampled_from(sorted(found, key=str))).heard}
    if not heard:
        reject()
    device = data.draw(st.sampled_from(sorted(heard)))
    heard[device] = data.draw(st.permutations(heard[device] + heard[device][:1]).map(list))[: len(heard[device])]
    other = Outcome.of({name: tuple(came) for name, came in heard.items()})
    assert (find_run(schema, rounds, other) is not None) is (other in found)


def test_runs_are_chains_of_steps() -> None:
    schema = components({("A", "B")}, PAIR, sub=BOTH)
    run = chosen_run(schema, said(("p", "a"), ("q", "b"), lives=PAIR), random.Random(3).randrange)
    trace = run.trace
    assert [step.before.t for step in trace] == list(range(len(trace)))
    assert all(one.after == two.before for one, two in itertools.pairwise(trace))
    assert trace[-1].after == run.state
    # two publications, each delivered to A and to B, brokered in A and in B, and heard by r
    assert Counter(step.rule for step in trace) == {
        Rule.PUBLISH: 2,
        Rule.DELIVER: 4,
        Rule.BROKER: 4,
        Rule.NOTIFY: 2,
    }
    assert all(isinstance(step.task.task, Transmit) for step in trace if step.rule is not Rule.BROKER)
