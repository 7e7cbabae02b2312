"""Chains of scopes as configurations, and what has to arrive at their end."""

from __future__ import annotations

import pytest
from bench.scopes import chain as chains
from bench.scopes.chain import CONFIGURATIONS, HSUP, LENGTHS, MULTI, NEW, ORI, RATES, SEM, Chain, Configuration

from tidegate.config import parse


def test_the_rounds_of_the_seed() -> None:
    assert LENGTHS == (1, 3, 5)
    assert list(RATES) == list(range(5_000, 30_001, 5_000))
    assert [one.factor for one in CONFIGURATIONS] == [1, 1, 1, 1, 0.5, 2]
    assert MULTI.calculated(15_000, 3) == 120_000
    assert HSUP.calculated(30_000, 5) == 937.5


@pytest.mark.parametrize(
    ("configuration", "sent", "arriving"),
    [(NEW, 7, 7), (MULTI, 3, 24), (HSUP, 8, 1), (HSUP, 9, 2), (HSUP, 1, 1), (HSUP, 0, 0)],
)
def test_what_arrives_exactly(configuration: Configuration, sent: int, arriving: int) -> None:
    assert configuration.arriving(sent, 3) == arriving


@pytest.mark.parametrize("scopes", LENGTHS)
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda one: one.name)
def test_every_chain_is_a_configuration(configuration: Configuration, scopes: int) -> None:
    chain = Chain(configuration=configuration, scopes=scopes)
    config = parse(chains.configuration(chain, 1883, 1884), "bench.yaml")
    rules = config.built.rules
    assert len(rules.space.scopes) == scopes
    assert len(rules.space.links) == 2 * (scopes - 1)
    assert len(list(rules.monitors)) == chain.monitors == (scopes if configuration.monitor else 0)
    assert [one.scope for one in config.listeners] == [chain.first, chain.last]


def test_names_at_the_end() -> None:
    assert chains.topics()[3] == "bench/k03"
    assert Chain(configuration=ORI, scopes=5).arrives("bench/k03") == "bench/k03"
    assert Chain(configuration=MULTI, scopes=5).arrives("bench/k03") == "bench/k03"
    assert Chain(configuration=SEM, scopes=3).arrives("bench/k03") == "step3/k03"
    assert Chain(configuration=SEM, scopes=1, extra=4).arrives("bench/k03") == "step5/k03"
    assert len("bench/k03") == len("step3/k03")


def test_monitors_in_a_row_stand_at_the_first_scope() -> None:
    rules = Chain(configuration=SEM, scopes=1, extra=2).rules()
    assert rules.count("scope: s1, direction: im_pub") == 3
    assert "->" not in rules
    assert Chain(configuration=SEM, scopes=3).rules().count("scope: s1, direction: im_pub") == 1
