"""Demands: the levels seed's cases and scenarios, what user properties demand, and what meets it."""

from __future__ import annotations

import pytest

from tidegate.policy.demands import RELAXED, Demand, effective_demand, meets, read_demand, unknown_name
from tidegate.policy.levels import Levels

levels = Levels()
implied = Levels(implied=True)
facts = Levels(facts={"inside": "cidr(s.address, '10.0.0.0/8')", "odd": "s.tls.version > 3", "new": "has(s.tls)"})


def passes(made: Levels, source: str, target: str, publisher: Demand | None, subscriber: Demand | None) -> bool:
    """A message over one node, from a connection of level `source` to one of level `target`."""
    return meets(made, target, effective_demand(made, source, publisher)) and meets(
        made, made.floor(source), effective_demand(made, target, subscriber)
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
    connect = read_demand(levels, [("require", "tls")])
    assert not passes(levels, "tls", "plain", connect, None)
    per_message = read_demand(levels, [("s", "1")])
    assert per_message == Demand(("tls",))
    assert not meets(levels, "plain", effective_demand(levels, "tls", per_message, None))


def test_levels_scenario_2_subscriber_extends() -> None:
    assert not passes(levels, "plain", "tls", None, read_demand(levels, [("require", "tls")]))


def test_levels_scenario_3_publisher_relaxes() -> None:
    connect, message = read_demand(levels, [("require", "tls")]), read_demand(levels, [("require", "none")])
    assert effective_demand(levels, "tls", message, connect) == RELAXED
    assert passes(implied, "tls", "plain", message, RELAXED)


def test_levels_scenario_4_subscriber_relaxes() -> None:
    subscription = read_demand(implied, [("s", "0")])
    assert passes(implied, "plain", "tls", None, subscription)


def test_levels_section_5c_the_short_form_takes_seven_bytes() -> None:
    # identifier, two lengths, `s`, one digit
    assert 1 + 2 + len("s") + 2 + len("1") == 7
    assert [read_demand(levels, [("s", str(rank))]) for rank in range(4)] == [Demand((name,)) for name in levels.order]


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
    assert read_demand(levels, properties) == expected


@pytest.mark.parametrize("rank", ["4", "-1", "", "x", "²", "٣", "1.0", " 1", "9" * 1000])
def test_a_rank_that_does_not_exist_is_never_met(rank: str) -> None:
    demand = read_demand(levels, [("s", rank)])
    assert demand is not None
    assert not meets(levels, levels.highest, demand)


def test_a_name_unknown_here_denies() -> None:
    assert not meets(levels, "trusted", Demand(("gold",)))
    assert not meets(levels, "gold", Demand(("tls",)))


# -- facts -----------------------------------------------------------------------------------------------------------


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
    wanted = read_demand(facts, [("require", demand)])
    assert wanted is not None
    assert meets(facts, level, wanted, held) is met
    assert Demand.of(wanted.text) == wanted


def test_a_demand_has_one_form() -> None:
    ways = ("inside,tls,new", "new, inside ,mtls,plain,mtls", "mtls,new,inside")
    assert [read_demand(facts, [("require", way)]) for way in ways[1:]] == [Demand(("mtls", "inside", "new"))] * 2
    assert read_demand(facts, [("require", "inside"), ("s", "1"), ("require", "new")]) == Demand(
        ("tls", "inside", "new")
    )
    assert read_demand(facts, [("require", ways[0])]) == Demand(("tls", "inside", "new"))


@pytest.mark.parametrize("wrong", ["warp", "tls,warp", "", "tls,,", "rank 9", ",".join(["tls"] * 100)])
def test_unknown_demands_are_told(wrong: str) -> None:
    assert "is no level and no fact here; require one of plain, tls, mtls, trusted, inside, odd, new, signed" in (
        unknown_name(facts, read_demand(facts, [("require", wrong)]))
    )
    assert not unknown_name(facts, read_demand(facts, [("require", "tls,inside,signed")]))
    assert not unknown_name(facts, None)
