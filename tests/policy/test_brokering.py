"""Brokering: pairs of types, assignment of types, and the laws of Bell-LaPadula (scopes, 3.4.1)."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.people import HOME, Person
from tidegate.errors import ConfigError
from tidegate.policy import Selector
from tidegate.policy.brokering import (
    OPEN,
    PLAIN,
    RESERVED,
    UNTYPED,
    Assignment,
    Brokering,
    Types,
    chain,
    exempt,
    ordered,
)

LABELS = ("a", "b", "c", "d", "e", "f")
PAIRS = [("sensor", "display"), ("sensor", "archive"), ("console", "actuator")]


def assign(subject: str | list[str], inward: str, outward: str) -> Assignment:
    return Assignment(subject=Selector.parse(subject), types=Types(inward=inward, outward=outward))


# -- pairs -----------------------------------------------------------------------------------------------------------


def test_open_allows_everything_and_gives_everybody_the_same_types() -> None:
    assert OPEN.open
    assert OPEN.types(Person()) == OPEN.types(Person(roles=("coach",))) == PLAIN
    assert all(OPEN.allow(one, other) for one, other in product(("in", "out", "anything"), repeat=2))
    assert OPEN.objection(Person()) == ""


names = st.sampled_from(("sensor", "display", "archive", "console", "actuator", "stranger", UNTYPED, "in", "out", ""))


@given(st.sets(st.sampled_from(PAIRS)), names, names)
def test_own_types_allow_exactly_their_pairs(pairs: set[tuple[str, str]], source: str, target: str) -> None:
    assert Brokering(pairs).allow(source, target) == ((source, target) in pairs)


def test_no_pair_is_not_open() -> None:
    assert not Brokering(()).open
    assert not Brokering(()).allow("a", "a")


# -- assignment ------------------------------------------------------------------------------------------------------

HOUSE = Brokering(
    PAIRS,
    [
        assign("client:panel", "console", "display"),
        assign(["role:meter", "role:thermometer"], "sensor", "actuator"),
        assign("user:mary", "console", "display"),
        assign("role:meter", "sensor", "archive"),
    ],
    Types(inward=UNTYPED, outward="display"),
    domain=HOME,
)


@pytest.mark.parametrize(
    ("who", "inward", "outward"),
    [
        (Person(client="panel"), "console", "display"),
        (Person(client="panel", roles=("meter",)), "console", "display"),
        (Person(client="panel", impostor=True), UNTYPED, "display"),
        (Person(roles=("meter",)), "sensor", "actuator"),
        (Person(roles=("other", "thermometer")), "sensor", "actuator"),
        (Person(user="mary", domain=HOME), "console", "display"),
        (Person(user="mary", domain=HOME, roles=("meter",)), "sensor", "actuator"),
        (Person(user="mary", domain="elsewhere"), UNTYPED, "display"),
        (Person(), UNTYPED, "display"),
    ],
)
def test_the_first_assignment_that_selects_somebody_counts_else_the_default(
    who: Person, inward: str, outward: str
) -> None:
    assert HOUSE.types(who) == Types(inward=inward, outward=outward)
    assert HOUSE.objection(who) == ""  # own types keep nobody from connecting


def test_nothing_passes_over_links_without_a_type() -> None:
    types = Brokering(PAIRS).types(Person())
    assert types == Types()
    assert not types.complete
    assert not any(HOUSE.allow(types.inward, name) or HOUSE.allow(name, types.outward) for name in HOUSE.known)
    assert not HOUSE.known & RESERVED


def test_only_statistics_of_the_node_are_exempt() -> None:
    assert exempt(Person(kind="service", client="sys"))
    assert not exempt(Person(kind="service", client="http"))
    assert not exempt(Person(kind="client", client="sys"))


# -- Bell-LaPadula ---------------------------------------------------------------------------------------------------

orders = st.dictionaries(st.sampled_from(LABELS), st.lists(st.sampled_from(LABELS), max_size=3), max_size=5).map(
    # below a label stand only those before it in the alphabet: no cycle
    lambda drawn: {high: [low for low in lower if low < high] for high, lower in drawn.items()}
)


@given(orders)
def test_an_order_is_reflexive_transitive_antisymmetric_and_the_least(below: dict[str, list[str]]) -> None:
    pairs = ordered(below)
    known = {*below, *(low for lower in below.values() for low in lower)}
    assert {name for pair in pairs for name in pair} == known
    assert all((name, name) in pairs for name in known)
    assert all((low, high) in pairs for high, lower in below.items() for low in lower)
    for (a, b), (c, d) in product(pairs, repeat=2):
        assert b != c or (a, d) in pairs
        assert not (a == d and b == c) or a == b
    for low, high in pairs:
        assert low == high or _reached(below, high, low)


def _reached(below: dict[str, list[str]], high: str, low: str) -> bool:
    return any(each == low or _reached(below, each, low) for each in below.get(high, ()))


def test_a_chain_is_an_order() -> None:
    assert chain(("low", "middle", "high")) == ordered({"high": ["middle"], "middle": ["low"]})
    assert chain(("only",)) == {("only", "only")}


def test_a_long_chain() -> None:
    names = [f"l{number}" for number in range(250)]
    assert ordered({high: [low] for low, high in pairwise(names)}) == chain(names)


@pytest.mark.parametrize(
    ("below", "said"),
    [
        ({"a": ["a"]}, "`a` is below itself (a > a)"),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, "`a` is below itself (a > b > c > a)"),
        ({"x": ["a"], "a": ["b"], "b": ["d", "a"]}, "`a` is below itself (a > b > a)"),
    ],
)
def test_cycles_are_refused(below: dict[str, list[str]], said: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        ordered(below)
    assert said in str(wrong.value)


def test_a_label_twice_is_refused() -> None:
    with pytest.raises(ConfigError):
        chain(("a", "b", "a"))


@given(orders.filter(bool), st.data())
def test_labels_never_fall_on_any_path_also_through_devices(below: dict[str, list[str]], data: st.DataObject) -> None:
    """Devices hand on what they read: publisher, and then some that read it and publish what they know."""
    brokering = Brokering(ordered(below), labelled=True)
    label = st.sampled_from(sorted(brokering.known))
    devices = st.builds(lambda inward, outward: Types(inward=inward, outward=outward), label, label)
    path = data.draw(st.lists(devices.filter(brokering.falls_nowhere), min_size=2, max_size=5))
    crossed = [path[0].inward]
    for device in path[1:]:
        if not brokering.allow(crossed[-1], device.outward):
            break
        crossed += [device.outward, device.inward]
    for at, earlier in enumerate(crossed):
        assert all((earlier, later) in ordered(below) for later in crossed[at:])


def test_who_may_connect_with_labels() -> None:
    brokering = Brokering(
        ordered({"secret": ["nurses", "labs"], "nurses": ["public"], "labs": ["public"]}),
        [
            assign("role:doctor", "secret", "secret"),
            assign("role:nurse", "secret", "nurses"),
            assign("role:leak", "nurses", "secret"),
            assign("role:crossing", "nurses", "labs"),
            assign("role:half", "nurses", UNTYPED),
        ],
        labelled=True,
        domain=HOME,
    )
    objections = {
        role: brokering.objection(Person(roles=(role,)))
        for role in ("doctor", "nurse", "leak", "crossing", "half", "stranger")
    }
    falls, unlabelled = "your out label is not at most your in label", "no label is assigned to you"
    assert objections == {
        "doctor": "",
        "nurse": "",
        "leak": f"brokering: {falls}",
        "crossing": f"brokering: {falls}",
        "half": f"brokering: {unlabelled}",
        "stranger": f"brokering: {unlabelled}",
    }
