"""Levels of connections and demands: the levels seed's cases and scenarios, and the laws of semantics.md."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import ConfigError
from tidegate.policy.levels import RELAXED, Demand, Facts, Levels
from tidegate.predicate import PredicateError

levels = Levels()
implied = Levels(implied=True)

PLAIN = Facts(listener="a", address="10.1.2.3")
TLS = Facts(listener="b", address="10.1.2.3", tls_version="TLSv1.3", tls_cipher="TLS_AES_128_GCM_SHA256")
MTLS = Facts(listener="b", tls_version="TLSv1.2", tls_cipher="x", certificate=True)
TRUSTED = Facts(listener="b", tls_version="TLSv1.3", certificate=True, trusted=True)


def passes(made: Levels, source: str, target: str, publisher: Demand | None, subscriber: Demand | None) -> bool:
    """A message over one node, from a connection of level `source` to one of level `target`."""
    return made.admits(made.effective(source, publisher), target) and made.satisfies(
        made.effective(target, subscriber), made.floor(source)
    )


# -- the levels seed ---------------------------------------------------------------------------------------------

FIGURE_1 = [("tls", "tls"), ("tls", "plain"), ("plain", "tls"), ("plain", "plain")]


@pytest.mark.parametrize(("source", "target"), FIGURE_1)
def test_levels_figure_1_without_demands_all_four_cases_are_forwarded(source: str, target: str) -> None:
    assert passes(levels, source, target, None, None)


@pytest.mark.parametrize(("source", "target"), FIGURE_1)
def test_levels_figure_2_the_publishers_level_is_enforced(source: str, target: str) -> None:
    assert passes(levels, source, target, Demand("tls"), None) is (target == "tls")


@pytest.mark.parametrize(("source", "target"), FIGURE_1)
def test_levels_figure_3_the_subscribers_level_is_enforced(source: str, target: str) -> None:
    assert passes(levels, source, target, None, Demand("tls")) is (source == "tls")


@pytest.mark.parametrize(("source", "target"), FIGURE_1)
def test_levels_section_5a_unmodified_clients(source: str, target: str) -> None:
    """A TLS connection demands TLS of the others; nobody demands anything of those on plain ones."""
    assert passes(implied, source, target, None, None) is (source == target)


def test_levels_scenario_1_publisher_extends() -> None:
    connect = levels.demand([("require", "tls")])
    assert not passes(levels, "tls", "plain", connect, None)
    per_message = levels.demand([("s", "1")])
    assert per_message == Demand("tls")
    assert not levels.admits(levels.effective("tls", per_message, None), "plain")


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
    assert [levels.demand([("s", str(rank))]) for rank in range(4)] == [Demand(name) for name in levels.order]


# -- the level of a connection ---------------------------------------------------------------------------------------


def test_default_levels_follow_the_facts() -> None:
    assert [levels.level_of(facts) for facts in (PLAIN, TLS, MTLS, TRUSTED)] == ["plain", "tls", "mtls", "trusted"]
    assert [levels.rank(name) for name in levels.order] == [0, 1, 2, 3]
    assert levels.rank("gold") is None
    assert levels.highest == "trusted"


def test_a_certificate_without_tls_is_worth_nothing() -> None:
    assert levels.level_of(Facts(certificate=True, trusted=True)) == "plain"


@given(
    st.builds(Facts, tls_version=st.sampled_from([None, "TLSv1.3"]), certificate=st.booleans(), trusted=st.booleans())
)
def test_degraded_is_never_mtls_or_trusted(facts: Facts) -> None:
    assert levels.level_of(facts.degraded()) == ("plain" if facts.tls_version is None else "tls")


def test_configured_levels() -> None:
    made = Levels(
        ["plain", "lan", "tls", "tls13", "mtls"],
        {"lan": "cidr(s.address, '10.0.0.0/8')", "tls13": "s.tls.version == 'TLSv1.3' && s.listener == 'b'"},
    )
    assert made.level_of(PLAIN) == "lan"
    assert made.level_of(Facts(address="192.168.0.1")) == "plain"
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
        ([("require", "mtls")], Demand("mtls")),
        ([("require", "none")], RELAXED),
        ([("require", "gold")], Demand("gold")),
        ([("require", "tls"), ("require", "mtls")], Demand("mtls")),
        ([("require", "mtls"), ("require", "none")], Demand("mtls")),
        ([("require", "trusted"), ("require", "gold")], Demand("gold")),
        ([("s", "1"), ("require", "plain")], Demand("tls")),
    ],
)
def test_demands(properties: list[tuple[str, str]], expected: Demand | None) -> None:
    assert levels.demand(properties) == expected


@pytest.mark.parametrize("rank", ["4", "-1", "", "x", "²", "٣", "1.0", " 1", "9" * 1000])
def test_a_rank_that_does_not_exist_is_never_met(rank: str) -> None:
    demand = levels.demand([("s", rank)])
    assert demand is not None
    assert not levels.admits(demand, levels.highest)


def test_a_name_unknown_here_denies() -> None:
    assert not levels.admits(Demand("gold"), "trusted")
    assert not levels.satisfies(Demand("gold"), "trusted")
    assert not levels.admits(Demand("tls"), "gold")


names = st.sampled_from([*levels.order, "gold", ""])
demands = st.builds(Demand, st.none() | names)


@given(demands, demands, names)
def test_the_strictest_of_two_admits_what_both_admit(a: Demand, b: Demand, level: str) -> None:
    both = levels.admits(a, level) and levels.admits(b, level)
    assert levels.admits(levels.strictest(a, b), level) is both


@given(st.lists(st.sampled_from(levels.order), min_size=1), demands)
def test_the_floor_is_the_lowest_link(crossed: list[str], demand: Demand) -> None:
    """A secure path is one each link of which is secure."""
    floor = levels.floor(*crossed)
    assert floor in crossed
    assert levels.satisfies(demand, floor) is all(levels.admits(demand, level) for level in crossed)
    assert levels.floor(floor, "trusted") == floor  # it never rises


def test_an_unknown_floor_counts_as_the_lowest() -> None:
    assert levels.floor("trusted", "gold") == "plain"
    assert levels.floor() == "trusted"
