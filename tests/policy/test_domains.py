"""People of other domains, as policies see them, and what is believed of their domains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.people import HOME, Person, alice
from policy.written import policy_of, preference_of
from tidegate.errors import MalformedPacket
from tidegate.policy import Action, Policies, Row, Selector, Table, View, Views
from tidegate.policy.brokering import Assignment, Brokering, Types
from tidegate.policy.domains import MAX_NAMES, Domain, shown
from tidegate.policy.outcome import Permit, Refuse
from tidegate.policy.preferences import Granted, Preferences
from tidegate.policy.selector import ANYONE, terms_of
from tidegate.policy.subject import attributes_of

THERE = "remotegym"
theirs = replace(alice, domain=THERE, groups=("yoga",), attributes={"enrolled": ["ts1"], "shift": "08:00-14:00"})
BELIEFS = {
    THERE: Domain(
        users={"bob": "john"}, roles={"coach": "trainer"}, groups={"yoga": "pilates"}, attributes=("enrolled",)
    )
}


def test_nothing_is_believed_by_default() -> None:
    s = attributes_of(theirs, HOME)
    assert (s["user"], s["role"], s["roles"], s["groups"]) == (
        "alice@remotegym",
        "coach@remotegym",
        ("coach@remotegym",),
        ("yoga@remotegym",),
    )
    assert s["domain"] == THERE
    assert s["client"] == f"{theirs.client}@remotegym"
    assert not {"enrolled", "shift"} & s.keys()


def test_what_is_believed_of_a_domain_is_shown_by_our_names() -> None:
    s = attributes_of(theirs, HOME, BELIEFS)
    assert (s["user"], s["role"], s["groups"]) == ("alice@remotegym", "trainer", ("pilates",))
    assert s["enrolled"] == ["ts1"]
    assert "shift" not in s
    assert s["domain"] == THERE
    assert attributes_of(replace(theirs, user="bob"), HOME, BELIEFS)["user"] == "john"
    # what is believed of one domain says nothing of another, nor of ourselves
    elsewhere = replace(theirs, domain="othergym")
    assert attributes_of(elsewhere, HOME, BELIEFS) == attributes_of(elsewhere, HOME)
    assert attributes_of(alice, HOME, {**BELIEFS, HOME: BELIEFS[THERE]}) == attributes_of(alice, HOME)


def test_a_name_with_an_at_is_qualified_at_home_too() -> None:
    fake = replace(alice, roles=("coach@remotegym",), groups=("yoga@remotegym",))
    s = attributes_of(fake, HOME)
    assert s["role"] == "coach@remotegym@mygymbrand"
    assert s["groups"] == ("yoga@remotegym@mygymbrand",)
    assert not Selector.parse("role:coach@remotegym").matches(fake, HOME)
    assert Selector.parse("role:coach@remotegym@mygymbrand").matches(fake, HOME)


@pytest.mark.parametrize(
    ("text", "believing", "selects"),
    [
        ("role:coach", False, False),
        ("role:coach@remotegym", False, True),
        ("group:yoga", False, False),
        ("group:yoga@remotegym", False, True),
        ("user:alice@remotegym", False, True),
        ("client:phone", False, False),
        ("role:coach", True, False),
        ("role:trainer", True, True),
        ("role:trainer@mygymbrand", True, True),
        ("role:coach@remotegym", True, True),  # also by the name that it has there
        ("role:trainer@remotegym", True, False),
        ("group:pilates", True, True),
        ("user:alice", True, False),
        ("user:alice@remotegym", True, True),
    ],
)
def test_selectors(text: str, believing: bool, selects: bool) -> None:
    actor = replace(theirs, client="phone")
    assert Selector.parse(text).matches(actor, HOME, BELIEFS if believing else {}) is selects


names = st.sampled_from(["alice", "coach", "a@b", "a@b@c", "@", HOME, THERE, f"alice@{HOME}", f"coach@{THERE}"])
domains = st.sampled_from([THERE, "b", "c", f"b@{HOME}", ""])


@given(
    user=names | st.none(),
    roles=st.lists(names, max_size=3),
    groups=st.lists(names, max_size=3),
    domain=domains,
    sort=st.sampled_from(["user", "role", "group", "client"]),
    name=st.sampled_from(["alice", "coach", "a", "b", HOME, THERE]),
)
def test_without_beliefs_no_bare_name_ever_means_somebody_of_another_domain(
    user: str | None, roles: list[str], groups: list[str], domain: str, sort: str, name: str
) -> None:
    """Neither a selector without `@` nor a comparison with such a name is true of a foreign subject."""
    client = name
    foreign = Person(user=user, client=client, roles=tuple(roles), groups=tuple(groups), domain=domain)
    assert not Selector.parse(f"{sort}:{name}").matches(foreign, HOME)
    s = attributes_of(foreign, HOME)
    assert name not in (s.get("user"), s.get("role"), s["client"], *s["roles"], *s["groups"])
    local = replace(foreign, domain=HOME)
    assert terms_of(local) & terms_of(foreign) == {ANYONE}


@given(names, names, domains, domains, st.sampled_from([HOME, THERE]))
def test_no_role_appears_as_another_one(one: str, other: str, x: str, y: str, here: str) -> None:
    if (one, x) != (other, y) and "@" not in f"{x}{y}":
        assert shown(one, x, here) != shown(other, y, here)


# -- wherever subjects are asked for ---------------------------------------------------------------------------------


def test_policies_believe() -> None:
    rules = [policy_of(id="p", subject="role:trainer", topic="#", action="read", when="s.role == 'trainer'")]
    assert isinstance(Policies(rules, domain=HOME, domains=BELIEFS).decide(Action.READ, theirs, "x", {}), Permit)
    assert isinstance(Policies(rules, domain=HOME).decide(Action.READ, theirs, "x", {}), Refuse)
    assert isinstance(Policies(rules, domain=HOME, domains=BELIEFS).overlaps(Action.READ, theirs, "#"), Permit)
    assert isinstance(Policies(rules, domain=HOME).overlaps(Action.READ, theirs, "#"), Refuse)


def test_views_believe_and_a_publishers_table_means_its_own_domain() -> None:
    row = Row(id="v", topic="#", subject=Selector.parse("role:trainer"), view=View.parse("all"))
    assert Views([row], domain=HOME, domains=BELIEFS).seen(theirs, "x").view.shows_all
    assert Views([row], domain=HOME).seen(theirs, "x").view.shows_nothing
    table = Table.parse('{"role:coach": "all"}')
    assert table.seen(alice, HOME).shows_all
    assert table.seen(theirs, HOME).shows_nothing
    assert table.seen(theirs, THERE).shows_all
    assert table.seen(alice, THERE).shows_nothing


def test_brokering_believes() -> None:
    types = Types(inward="a", outward="b")
    assign = [Assignment(subject=Selector.parse("role:trainer"), types=types)]
    assert Brokering((("a", "b"),), assign, domain=HOME, domains=BELIEFS).types(theirs) == types
    assert Brokering((("a", "b"),), assign, domain=HOME).types(theirs) != types


def test_preferences_see_receivers_as_their_home_does_wherever_they_are() -> None:
    """semantics, *Preferences*: the home's `trust.domains` travels with the set."""
    rule = preference_of(id="up", user="mary", topic="#", when="s.role == 'trainer' && 'ts1' in s.enrolled")
    sets = Preferences([rule], domain=HOME, domains={**BELIEFS, "nodes-only": Domain(nodes=("n",))})
    assert sets.encode()["domains"] == {
        THERE: {
            "users": {"bob": "john"},
            "roles": {"coach": "trainer"},
            "groups": {"yoga": "pilates"},
            "attributes": ["enrolled"],
        }
    }
    for each in (sets, sets.applicable("mary", HOME, "x"), Preferences.decode(sets.encode())):
        assert each.receiving("mary", HOME, "x").decide(theirs, {}) == Granted(("up",))
        other = each.receiving("mary", HOME, "x").decide(replace(theirs, domain="othergym"), {})
        assert isinstance(other, Refuse)
        assert other.rule == "up"
    assert "domains" not in Preferences([rule], domain=HOME).encode()


@pytest.mark.parametrize(
    "data",
    [
        [],
        {THERE: []},
        {THERE: {"rules": {}}},
        {THERE: {"roles": []}},
        {THERE: {"roles": {"coach": 3}}},
        {THERE: {"attributes": "enrolled"}},
        {THERE: {"attributes": [3]}},
        {3: {}},
        {THERE: {"attributes": [str(number) for number in range(MAX_NAMES)]}},
    ],
)
def test_beliefs_that_cannot_be_read_are_refused(data: Any) -> None:
    with pytest.raises(MalformedPacket, match="preferences that cannot be read"):
        Preferences.decode({"domain": HOME, "preferences": [], "domains": data})
