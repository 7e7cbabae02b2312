"""Levels of connections and demands: the levels seed's cases and scenarios, and the laws of semantics.md."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import ConfigError
from tidegate.policy.levels import RELAXED, Demand, Levels, Transport
from tidegate.predicate import PredicateError

levels = Levels()
implied = Levels(implied=True)

PLAIN = Transport(listener="a", address="10.1.2.3")
TLS = Transport(listener="b", address="10.1.2.3", tls_version="TLSv1.3", tls_cipher="TLS_AES_128_GCM_SHA256")
MTLS = Transport(listener="b", tls_version="TLSv1.2", tls_cipher="x", certificate=True)
TRUSTED = Transport(listener="b", tls_version="TLSv1.3", certificate=True, trusted=True)


def passes(made: Levels, source: str, target: str, publisher: Demand | None, subscriber: Demand | None) -> bool:
    """A message over one node, from a connection of level `source` to one of level `target`."""
    return made.meets(target, made.effective(source, publisher)) and made.meets(
        made.floor(source), made.effective(target, subscriber)
    )


# -- the levels seed ---------------------------------------------------------------------------------------------

FIGURE_1 = [("tls", "tls"), ("tls", "plain"), ("plain", "tls"), ("plain", "plain")]


@pytest.mark.parametrize(("source", "target"), FIGURE_1)
def test_levels_figure_1_without_demands_all_four_cases_are_forwarded(source: str, target: str) -> None:
    assert passes(levels, source, target, None, None)


@pytest.mark.parametrize(("source", "target"), FIGURE_1)
def test_levels_figure_2_the_publishers_level_is_enforced(source: str, target: str) -> None:
    assert passes(levels, source, target, Demand(("tls",)), None) is (target == "tls")


@pytest.mark.parametrize(("source", "target"), FIGURE_1)
def test_levels_figure_3_the_subscribers_level_is_enforced(source: str, target: str) -> None:
    assert passes(levels, source, target, None, Demand(("tls",))) is (source == "tls")


@pytest.mark.parametrize(("source", "target"), FIGURE_1)
def test_levels_section_5a_unmodified_clients(source: str, target: str) -> None:
    """A TLS connection demands TLS of the others; nobody demands anything of those on plain ones."""
    assert passes(implied, source, target, None, None) is (source == target)


def test_levels_scenario_1_publisher_extends() -> None:
    connect = levels.demand([("require", "tls")])
    assert not passes(levels, "tls", "plain", connect, None)
    per_message = levels.demand([("s", "1")])
    assert per_message == Demand(("tls",))
    assert not levels.meets("plain", levels.effective("tls", per_message, None))


def test_levels_scenario_2_subscriber_extends() -> None:
    assert not passes(levels, "plain", "tls", None, levels.demand([("require", "tls")]))


def test_levels_scenario_3_publisher_relaxes() -> None:
    connect, message = levels.demand([("require", "tls")]), levels.demand([("require", "none")])
    assert levels.effective("tls", message, connect) == RELAXED
    assert passes(implied, "tls", "plain", message, RELAXED)


def test_levels_scenario_4_subscriber_relaxes() -> None:
    subscription = implied.demand([("s", "0")])
    assert passes(implied, "plain", "tls", None, subscription)


def test_levels_section_5c_the_short_form_takes_seven_bytes() -> None:
    # identifier, two lengths, `s`, one digit
    assert 1 + 2 + len("s") + 2 + len("1") == 7
    assert [levels.demand([("s", str(rank))]) for rank in range(4)] == [Demand((name,)) for name in levels.order]


# -- the level of a connection ---------------------------------------------------------------------------------------


def test_default_levels_follow_the_facts() -> None:
    assert [levels.level_of(facts) for facts in (PLAIN, TLS, MTLS, TRUSTED)] == ["plain", "tls", "mtls", "trusted"]
    assert [levels.rank(name) for name in levels.order] == [0, 1, 2, 3]
    assert levels.rank("gold") is None
    assert levels.highest == "trusted"


def test_a_certificate_without_tls_is_worth_nothing() -> None:
    assert levels.level_of(Transport(certificate=True, trusted=True)) == "plain"


@given(
    st.builds(
        Transport, tls_version=st.sampled_from([None, "TLSv1.3"]), certificate=st.booleans(), trusted=st.booleans()
    )
)
def test_degraded_is_never_mtls_or_trusted(facts: Transport) -> None:
    assert levels.level_of(facts.degrade()) == ("plain" if facts.tls_version is None else "tls")


def test_configured_levels() -> None:
    made = Levels(
        ["plain", "lan", "tls", "tls13", "mtls"],
        {"lan": "cidr(s.address, '10.0.0.0/8')", "tls13": "s.tls.version == 'TLSv1.3' && s.listener == 'b'"},
    )
    assert made.level_of(PLAIN) == "lan"
    assert made.level_of(Transport(address="192.168.0.1")) == "plain"
    assert made.level_of(TLS) == "tls13"
    assert made.level_of(MTLS) == "mtls"
    assert made.level_of(TRUSTED) == "mtls"


def test_a_condition_that_fails_is_not_met() -> None:
    made = Levels(["plain", "odd"], {"odd": "s.tls.version > 3"})
    assert made.level_of(PLAIN) == "plain"
    assert made.level_of(TLS) == "plain"


@pytest.mark.parametrize(
    ("order", "conditions", "says"),
    [
        ([], {}, "no levels"),
        (["plain", "none"], {}, "relaxes"),
        (["plain", "1"], {}, "begins with a letter"),
        (["plain", "tls", "tls"], {}, "twice"),
        (["plain", "gold"], {}, "needs a condition"),
        (["plain"], {"gold": "true"}, "no place in the order"),
        (["plain", "tls"], {"tls": "true"}, "has its meaning already"),
        (["tls", "mtls"], {}, "put `plain` below it"),
        (["gold", "tls"], {"gold": "true"}, "put `plain` below it"),
    ],
)
def test_errors_say_what_is_wrong(order: list[str], conditions: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Levels(order, conditions)
    assert says in str(caught.value)


def test_conditions_speak_of_the_connection_only() -> None:
    with pytest.raises(PredicateError):
        Levels(["plain", "odd"], {"odd": "o.size > 3"})


# -- demands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ([], None),
        ([("other", "tls")], None),
        ([("require", "mtls")], Demand(("mtls",))),
        ([("require", "none")], RELAXED),
        ([("require", "gold")], Demand(("gold",))),
        ([("require", "tls"), ("require", "mtls")], Demand(("mtls",))),
        ([("require", "mtls"), ("require", "none")], Demand(("mtls",))),
        ([("require", "trusted"), ("require", "gold")], Demand(("trusted", "gold"))),
        ([("s", "1"), ("require", "plain")], Demand(("tls",))),
    ],
)
def test_demands(properties: list[tuple[str, str]], expected: Demand | None) -> None:
    assert levels.demand(properties) == expected


@pytest.mark.parametrize("rank", ["4", "-1", "", "x", "²", "٣", "1.0", " 1", "9" * 1000])
def test_a_rank_that_does_not_exist_is_never_met(rank: str) -> None:
    demand = levels.demand([("s", rank)])
    assert demand is not None
    assert not levels.meets(levels.highest, demand)


def test_a_name_unknown_here_denies() -> None:
    assert not levels.meets("trusted", Demand(("gold",)))
    assert not levels.meets("gold", Demand(("tls",)))


names = st.sampled_from([*levels.order, "gold", ""])
demands = st.builds(Demand, st.lists(names, max_size=3).map(tuple))


@given(demands, demands, names)
def test_the_strictest_of_two_admits_what_both_admit(a: Demand, b: Demand, level: str) -> None:
    both = levels.meets(level, a) and levels.meets(level, b)
    assert levels.meets(level, levels.strictest(a, b)) is both


@given(st.lists(st.sampled_from(levels.order), min_size=1), demands)
def test_the_floor_is_the_lowest_link(crossed: list[str], demand: Demand) -> None:
    """A secure path is one each link of which is secure."""
    floor = levels.floor(*crossed)
    assert floor in crossed
    assert levels.meets(floor, demand) is all(levels.meets(level, demand) for level in crossed)
    assert levels.floor(floor, "trusted") == floor  # it never rises


def test_an_unknown_floor_counts_as_the_lowest() -> None:
    assert levels.floor("trusted", "gold") == "plain"
    assert levels.floor() == "trusted"


# -- facts -----------------------------------------------------------------------------------------------------------

facts = Levels(facts={"inside": "cidr(s.address, '10.0.0.0/8')", "odd": "s.tls.version > 3", "new": "has(s.tls)"})


def test_a_connection_has_the_facts_whose_condition_it_meets() -> None:
    assert facts.facts_of(PLAIN) == ("inside",)
    assert facts.facts_of(TLS) == ("inside", "new")
    assert facts.facts_of(Transport(address="192.168.0.1")) == ()
    assert facts.facts == ("inside", "odd", "new")


@pytest.mark.parametrize(
    ("level", "held", "demand", "met"),
    [
        ("tls", (), "inside", False),
        ("plain", ("inside",), "inside", True),
        ("tls", ("inside",), "tls,inside", True),
        ("plain", ("inside",), "tls,inside", False),
        ("trusted", ("inside",), "inside,new", False),
        ("plain", ("signed",), "signed", True),
        ("trusted", ("inside", "new"), "signed", False),
        ("trusted", ("gone",), "gone", False),
        ("trusted", ("gone",), "gone,none", False),
        ("plain", (), "none", True),
    ],
)
def test_demands_for_facts(level: str, held: tuple[str, ...], demand: str, met: bool) -> None:
    wanted = facts.demand([("require", demand)])
    assert wanted is not None
    assert facts.meets(level, wanted, held) is met
    assert Demand.of(wanted.text) == wanted


def test_a_demand_has_one_form() -> None:
    ways = ("inside,tls,new", "new, inside ,mtls,plain,mtls", "mtls,new,inside")
    assert [facts.demand([("require", way)]) for way in ways[1:]] == [Demand(("mtls", "inside", "new"))] * 2
    assert facts.demand([("require", "inside"), ("s", "1"), ("require", "new")]) == Demand(("tls", "inside", "new"))
    assert facts.demand([("require", ways[0])]) == Demand(("tls", "inside", "new"))


@pytest.mark.parametrize("wrong", ["warp", "tls,warp", "", "tls,,", "rank 9", ",".join(["tls"] * 100)])
def test_unknown_demands_are_told(wrong: str) -> None:
    assert "is no level and no fact here; require one of plain, tls, mtls, trusted, inside, odd, new, signed" in (
        facts.unknown(facts.demand([("require", wrong)]))
    )
    assert not facts.unknown(facts.demand([("require", "tls,inside,signed")]))
    assert not facts.unknown(None)


held_facts = st.lists(st.sampled_from(["inside", "new", "gone"]), unique=True)


@given(st.lists(held_facts, min_size=1), st.sampled_from(["inside", "new", "gone"]), st.booleans())
def test_the_floor_keeps_the_facts_that_held_on_all_links(links: list[list[str]], name: str, signed: bool) -> None:
    floor = facts.floor_facts(*links, signed=signed)
    demand = Demand((name,))
    assert facts.meets("plain", demand, floor) is all(facts.meets("plain", demand, link) for link in links)
    assert ("signed" in floor) is signed
    assert "gone" not in floor


@pytest.mark.parametrize(
    ("name", "says"),
    [("tls", "is a level"), ("none", "its meaning"), ("signed", "its meaning"), ("a b", "begins with a letter")],
)
def test_names_of_facts(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Levels(facts={name: "true"})
    assert says in str(caught.value)
