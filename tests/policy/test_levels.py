"""Levels and facts of connections, and the floor: the laws of semantics.md."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import ConfigError
from tidegate.policy.demands import Demand, meets
from tidegate.policy.levels import Levels, Transport
from tidegate.predicate import PredicateError

levels = Levels()

PLAIN = Transport(listener="a", address="10.1.2.3")
TLS = Transport(listener="b", address="10.1.2.3", tls_version="TLSv1.3", tls_cipher="TLS_AES_128_GCM_SHA256")
MTLS = Transport(listener="b", tls_version="TLSv1.2", tls_cipher="x", certificate=True)
TRUSTED = Transport(listener="b", tls_version="TLSv1.3", certificate=True, trusted=True)


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


names = st.sampled_from([*levels.order, "gold", ""])
demands = st.builds(Demand, st.lists(names, max_size=3).map(tuple))


@given(st.lists(st.sampled_from(levels.order), min_size=1), demands)
def test_the_floor_is_the_lowest_link(crossed: list[str], demand: Demand) -> None:
    """A secure path is one each link of which is secure."""
    floor = levels.floor(*crossed)
    assert floor in crossed
    assert meets(levels, floor, demand) is all(meets(levels, level, demand) for level in crossed)
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


held_facts = st.lists(st.sampled_from(["inside", "new", "gone"]), unique=True)


@given(st.lists(held_facts, min_size=1), st.sampled_from(["inside", "new", "gone"]), st.booleans())
def test_the_floor_keeps_the_facts_that_held_on_all_links(links: list[list[str]], name: str, signed: bool) -> None:
    floor = facts.floor_facts(*links, signed=signed)
    demand = Demand((name,))
    assert meets(facts, "plain", demand, floor) is all(meets(facts, "plain", demand, link) for link in links)
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
