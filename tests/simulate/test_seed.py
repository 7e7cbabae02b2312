"""The examples of the seed's chapter 3, on the model."""

from __future__ import annotations

import itertools
import random

import pytest

from simulate.presets import BUS, component, information_flow, joined, liberal, role_scopes, roles
from simulate.seed_automata import Filtering, MachineAutomaton, Renaming
from simulate.systems import A1, HOME, LIVES, Remembering, components, home, in_turn, said
from tidegate.errors import ConfigError
from tidegate.monitor.sequence import Step, guard
from tidegate.policy.brokering import chain
from tidegate.simulate.explore import chosen_run, outcomes, reachable
from tidegate.simulate.order import NORMAL
from tidegate.simulate.run import Outcome
from tidegate.simulate.scenario import parse
from tidegate.simulate.schema import BrokeringPolicy, ConnectionGraph, Schema, Transmit

# figure 3.1, from what the text says of it
PARENTS = {("C", "A"), ("D", "A"), ("E", "D"), ("E", "B"), ("F", "B")}
DEVICES = {"1": "B", "2": "A", "3": "E", "4": "C", "5": "D", "6": "F"}


def heard(schema: Schema, rounds: object) -> dict[str, tuple[str, ...]]:
    """What is heard, if there is one outcome."""
    (only,) = outcomes(schema, rounds)
    return {device: only[device] for device, _ in only.heard}


def hearing(lives: dict[str, str], event: str = "a") -> dict[tuple[str, str], frozenset[str]]:
    return {(scope, device): frozenset({event}) for device, scope in lives.items()}


def ancestors(one: str) -> set[str]:
    return {one}.union(*(ancestors(y) for x, y in PARENTS if x == one))


@pytest.mark.parametrize("device", DEVICES)
def test_figure_3_1_visible_iff_there_is_a_common_ancestor(device: str) -> None:
    schema = components(PARENTS, DEVICES, sub=hearing(DEVICES))
    mine = ancestors(DEVICES[device])
    expected = {other: ("a",) for other, scope in DEVICES.items() if other != device and mine & ancestors(scope)}
    assert heard(schema, said((device, "a"), lives=DEVICES)) == expected


def test_figure_3_1_as_the_text_says() -> None:
    schema = components(PARENTS, DEVICES, sub=hearing(DEVICES))

    def scopes(device: str) -> set[str]:
        seen = reachable(schema, said((device, "a"), lives=DEVICES))
        tasks = {one.task for run in seen for one in run.state.wl}
        return {task.y for task in tasks if isinstance(task, Transmit)} & set("ABCDEF")

    assert scopes("1") == {"B", "E", "F"}
    assert scopes("3") == set("ABCDEF")


def test_figure_3_2_a_second_path_delivers_twice_and_a_conjoined_forest_once() -> None:
    lives = {"p": "D", "q": "A"}
    forest = {("D", "B"), ("B", "A"), ("C", "A")}
    rounds = said(("p", "a"), lives=lives)
    assert heard(components(forest, lives, sub=hearing(lives)), rounds) == {"q": ("a",)}
    # and it comes back around: D, B, A, C, D
    twice = components(forest | {("D", "C")}, lives, sub=hearing(lives))
    assert heard(twice, rounds) == {"q": ("a", "a"), "p": ("a", "a")}


def test_section_3_4_1_the_liberal_policy_forwards_everything() -> None:
    lives = {"p": "A", "q": "B", "r": "C"}
    link = joined(("A", "B"), ("B", "C"), *lives.items())
    cg = ConnectionGraph(devices=frozenset(lives), scopes=frozenset("ABC"), link=link)
    schema = Schema(cg=cg, bp=liberal(link), sub=hearing(lives), order=NORMAL)
    assert heard(schema, said(("q", "a"), lives=lives)) == {"p": ("a",), "r": ("a",)}


LABELS = ("unclassified", "confidential", "secret", "top secret")


def labelled(inward: dict[str, str], outward: dict[str, str]) -> Schema:
    cg = ConnectionGraph(devices=frozenset(inward), scopes=frozenset("S"), link=joined(*((d, "S") for d in inward)))
    label = {("S", d): one for d, one in outward.items()} | {(d, "S"): one for d, one in inward.items()}
    sub = {("S", d): frozenset({"a"}) for d in inward}
    return Schema(cg=cg, bp=information_flow(cg, label, chain(LABELS)), sub=sub, order=NORMAL)


@pytest.mark.parametrize("source", LABELS)
def test_section_3_4_1_1_information_flows_upwards_only(source: str) -> None:
    same = {label: label for label in LABELS}
    above = LABELS[LABELS.index(source) + 1 :]
    rounds = said((source, "a"), lives=dict.fromkeys(LABELS, "S"))
    assert heard(labelled(same, same), rounds) == dict.fromkeys(above, ("a",))


def test_section_3_4_1_1_a_device_that_could_write_down_is_refused() -> None:
    with pytest.raises(ConfigError, match="reads secret from S and writes confidential to S: raise what it writes"):
        labelled({"d": "confidential"}, {"d": "secret"})


def test_section_3_4_2_an_interface_imports_and_exports() -> None:
    lives = {"in": "part", "out": "whole"}
    sub = {(scope, device): frozenset({"a", "b"}) for device, scope in lives.items()}
    ep = {("part", "whole"): Filtering({"a"}), ("whole", "part"): Filtering({"b"})}
    schema = components({("part", "whole")}, lives, sub=sub, ep=ep)
    assert heard(schema, said(("in", "a"), ("in", "b"), lives=lives)) == {"out": ("a",)}
    assert heard(schema, said(("out", "a"), ("out", "b"), lives=lives)) == {"in": ("b",)}


def test_section_3_4_2_a_mapper_renames() -> None:
    lives = {"in": "part", "out": "whole"}
    schema = components(
        {("part", "whole")}, lives, sub=hearing(lives, "A"), ep={("part", "whole"): Renaming(str.upper)}
    )
    assert heard(schema, said(("in", "a"), lives=lives)) == {"out": ("A",)}


def test_figure_3_6_roles_publish_and_hear_what_they_may() -> None:
    cg, bp = roles({"d1": "r1", "d2": "r2"})
    can = {"r1": ({"a"}, {"b"}), "r2": ({"b"}, {"a"})}
    ep = {}
    for role, (pub, sub) in can.items():
        ep[role_scopes(role)[0], BUS] = Filtering(pub)
        ep[BUS, role_scopes(role)[1]] = Filtering(sub)
    everything = frozenset({"a", "b"})
    sub = {(scope, d): everything for d, role in (("d1", "r1"), ("d2", "r2")) for scope in role_scopes(role)}
    schema = Schema(cg=cg, bp=bp, ep=ep, sub=sub, order=NORMAL)
    for device, event, expected in (
        ("d1", "a", {"d2": ("a",)}),
        ("d1", "b", {}),
        ("d2", "b", {"d1": ("b",)}),
        ("d2", "a", {}),
    ):
        role = {"d1": "r1", "d2": "r2"}[device]
        assert heard(schema, said((device, role_scopes(role)[0], event))) == expected
        # a publication in the scope for subscribers goes nowhere
        assert heard(schema, said((device, role_scopes(role)[1], event))) == {}


# section 3.5


def test_case_study_the_door_unlocks_after_a_request_that_was_granted() -> None:
    for events, unlocked in (
        ((("DB", "AccessRequest"), ("SP", "AccessGranted"), ("SP", "DL_unlock")), ("DL_unlock",)),
        ((("DB", "AccessRequest"), ("SP", "AccessDenied"), ("SP", "DL_unlock")), ()),
        ((("SP", "AccessGranted"), ("SP", "DL_unlock")), ()),
        ((("DB", "AccessRequest"), ("SP", "DL_unlock")), ()),
        ((("DB", "AccessRequest"), ("SP", "AccessGranted"), ("SP", "DL_unlock"), ("SP", "DL_unlock")), ("DL_unlock",)),
        ((("DB", "AccessRequest"), ("SP", "AccessGranted"), ("SC", "DL_unlock")), ("DL_unlock",)),
    ):
        assert heard(home(), in_turn(*events)).get("DL", ()) == unlocked


def test_case_study_without_waiting_the_request_may_come_too_late() -> None:
    rounds = said(("DB", "AccessRequest"), ("SP", "AccessGranted"), ("SP", "DL_unlock"))
    assert {each["DL"] for each in outcomes(home(), rounds)} == {(), ("DL_unlock",)}


THREE = list(itertools.product(("AccessRequest", "AccessGranted", "DL_unlock"), repeat=3))


@pytest.mark.parametrize("events", THREE, ids=" ".join)
def test_case_study_the_door_hears_exactly_what_a1_says(events: tuple[str, ...]) -> None:
    """By every order in which the events can come to the link from H1 to H3."""
    publisher = {"AccessRequest": "DB", "AccessGranted": "SP", "DL_unlock": "SC"}
    schema = home(ep={("H1", "H3"): Remembering(A1)})
    orders = set()
    for run in reachable(schema, said(*((publisher[event], event) for event in events))):
        if run.finished:
            _, came = run.state.st["H1", "H3"]
            orders.add(came)
            assert run.outcome["DL"] == unlocks(came)
    # each comes from another device, and nothing orders those
    assert orders == set(itertools.permutations(events))


def unlocks(came: tuple[str, ...]) -> tuple[str, ...]:
    """Policy 2 in other words: how many are after a request and a grant since the last one."""
    passed, seen = 0, ""
    for event in came:
        if event == "AccessRequest" and not seen:
            seen = "requested"
        elif event == "AccessGranted" and seen == "requested":
            seen = "granted"
        elif event == "DL_unlock" and seen == "granted":
            passed, seen = passed + 1, ""
    return ("DL_unlock",) * passed


def test_case_study_motion_never_reaches_the_internet() -> None:
    """Whatever else happens: no task ever carries it to I, nor to H1."""
    others = (("DB", "AccessRequest"), ("SP", "AccessGranted"), ("SC", "DL_lock"))
    states = 0
    for motion in itertools.product(("MD_motion", "MD_no_motion"), repeat=2):
        for other in others:
            for run in reachable(home(), said(*(("MD", event) for event in motion), other)):
                tasks = (one.task for one in run.state.wl)
                bad = [one for one in tasks if one.y in ("I", "H1") and isinstance(one, Transmit) and one.a in motion]
                assert not bad
                states += 1
    assert states > 1000


def test_case_study_motion_would_reach_the_internet_if_down_could_be_followed_by_up() -> None:
    parent = {*HOME, *LIVES.items()}
    bp = BrokeringPolicy(type=component(parent).type, allow=component(parent).allow | {("down", "up")})
    sub = {("I", "SP"): frozenset({"MD_motion"})}
    assert heard(home(bp=bp, sub=sub), said(("MD", "MD_motion"))) == {"SP": ("MD_motion",)}


def test_case_study_the_private_domain_is_private_and_the_bell_hears_motion() -> None:
    sub = {(scope, device): frozenset({"MD_motion"}) for device, scope in LIVES.items()}
    assert heard(home(sub=sub), said(("MD", "MD_motion"))) == {"DB": ("MD_motion",), "SC": ("MD_motion",)}


def test_case_study_from_a_file_with_the_monitor_that_nodes_run() -> None:
    written = {
        "clients": {
            "MD": {"scope": "H4"},
            "DB": {"scope": "H2", "subscribes": ["MD_motion", "MD_no_motion"]},
            "DL": {"scope": "H3", "subscribes": ["DL_unlock", "DL_lock"]},
            "SP": {"scope": "I", "subscribes": ["#"], "no_local": True},
        },
        "steps": [{"client": "DB", "publish": "AccessRequest"}, "settle"]
        + [{"client": "SP", "publish": topic} for topic in ("AccessGranted", "DL_unlock", "DL_unlock")],
    }

    scenario = parse(written)
    lives = {device: scope for scope, device in scenario.sub}
    parents = {(f"scope:{x}", f"scope:{y}") for x, y in HOME}
    a1 = guard(
        only=Step(on=("DL_unlock",)),
        after=[Step(on=("AccessRequest",)), Step(on=("AccessGranted",))],
        reset=Step(on=("AccessDenied",)),
    )
    ep = {("scope:H1", "scope:H3"): MachineAutomaton(a1)}
    schema = components(parents, lives, sub=scenario.sub, echo=scenario.echo, ep=ep)
    (only,) = outcomes(schema, scenario.rounds)
    assert [event.topic for event in only["client:DL"]] == ["DL_unlock"]
    assert [event.topic for event in only["client:SP"]] == ["AccessRequest"]


def test_a_cycle_of_scopes_is_endless_in_the_seed_and_refused_here() -> None:
    lives = {"p": "A", "q": "B"}
    link = joined(("A", "B"), ("B", "C"), ("C", "A"), *lives.items())
    cg = ConnectionGraph(devices=frozenset(lives), scopes=frozenset("ABC"), link=link)
    rounds = said(("p", "a"), lives=lives)
    schema = Schema(cg=cg, bp=liberal(link), sub=hearing(lives), order=NORMAL)
    with pytest.raises(Exception, match="more than 500 states: shorten the scenario"):
        outcomes(schema, rounds, bound=500)
    with pytest.raises(Exception, match="no end after 500 steps"):
        chosen_run(schema, rounds, random.Random(1).randrange, bound=500)
    tamed = Schema(cg=cg, bp=liberal(link), sub=hearing(lives), order=NORMAL, loops=False)
    assert outcomes(tamed, rounds, bound=500) == {Outcome.of({"q": (("B", "a"), ("B", "a"))})}
