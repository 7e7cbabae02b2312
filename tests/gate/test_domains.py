"""People of other domains in decisions: what the rule set believes of their domain."""

from __future__ import annotations

from pure import World
from tidegate.gate import RuleSet
from tidegate.gate.attributes import Attributes
from tidegate.policy import Subject
from tidegate.policy.domains import Domain
from tidegate.policy.selector import Term

HOME, THERE = "mygymbrand", "remotegym"
BELIEFS = {THERE: Domain(roles={"coach": "trainer"}, attributes=("enrolled",))}
THEIRS = Subject(
    kind="client",
    client="phone",
    user="alice",
    scope="main",
    node="n",
    domain=THERE,
    roles=("coach",),
    attributes={"enrolled": ["ts1"], "shift": "08:00-14:00"},
)


def test_what_conditions_and_selectors_see_follows_the_rule_set() -> None:
    clock = World().scope.gate.clock
    believing = Attributes(RuleSet(domain=HOME, domains=BELIEFS), clock)
    assert believing.person(THEIRS).s["roles"] == ("trainer",)
    assert Term("role", "trainer", HOME) in believing.person(THEIRS).terms
    assert believing.publisher(THEIRS)["enrolled"] == ["ts1"]
    assert "shift" not in believing.publisher(THEIRS)
    plain = Attributes(RuleSet(domain=HOME), clock)
    assert plain.person(THEIRS).s["roles"] == ("coach@remotegym",)
    assert Term("role", "trainer", HOME) not in plain.person(THEIRS).terms
    assert "enrolled" not in plain.publisher(THEIRS)
