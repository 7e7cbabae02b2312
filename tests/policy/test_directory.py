"""The directory."""

from __future__ import annotations

import pytest

from policy.people import HOME
from policy.written import policy_of
from tidegate.errors import ConfigError
from tidegate.policy.access_policies import Policies
from tidegate.policy.directory import Directory, Entry, Known
from tidegate.policy.selector import Term
from tidegate.policy.subject import BUILT_IN

gym = Directory(
    users={
        "mary": Entry(roles=("frequenter",), groups=("yoga",), attributes={"enrolled": ["ts1"], "floor": 2}),
        "alice": Entry(roles=("coach", "frequenter"), attributes={"shift": "08:00-14:00"}),
    },
    clients={
        "treadmill-1": Entry(user="mary", groups=("machines",), attributes={"machine": "treadmill", "floor": 3}),
        "door": Entry(roles=("door",), attributes={"place": "entrance"}),
    },
    roles={"coach": {"rank": 2, "zone": "a"}, "frequenter": {"rank": 1, "entry": "main"}},
    groups={"yoga": {"entry": "side"}, "machines": {"powered": True}},
    domain="mygymbrand",
)


def test_what_is_said_last_wins() -> None:
    assert gym.known(user="mary") == Known(
        user="mary",
        roles=("frequenter",),
        groups=("yoga",),
        attributes={"rank": 1, "entry": "side", "enrolled": ["ts1"], "floor": 2},
    )
    alice = gym.known(user="alice")
    assert alice.roles == ("coach", "frequenter")
    assert alice.attributes == {"rank": 2, "zone": "a", "entry": "main", "shift": "08:00-14:00"}
    machine = gym.known(user="mary", client="treadmill-1")
    assert machine.groups == ("yoga", "machines")
    assert machine.attributes["floor"] == 3
    assert machine.attributes["powered"] is True


def test_a_clients_entry_applies_only_to_a_connection_authenticated_for_it() -> None:
    assert "machine" in gym.known(user="mary", client="treadmill-1").attributes
    assert "machine" not in gym.known(user="alice", client="treadmill-1").attributes
    assert "machine" not in gym.known(client="treadmill-1").attributes
    assert "machine" not in gym.known(user="alice", client="treadmill-1", as_client=True).attributes
    assert "place" not in gym.known(user="mary", client="door").attributes
    assert gym.known(client="door").roles == ()
    assert gym.known(client="door", as_client=True).roles == ("door",)
    assert gym.known(user="mary", client="door", as_client=True).roles == ("frequenter", "door")


def test_a_client_authenticated_for_itself_acts_for_its_user() -> None:
    known = gym.known(client="treadmill-1", as_client=True)
    assert known.user == "mary"
    assert known.roles == ("frequenter",)


def test_strangers_are_known_by_name_only() -> None:
    assert gym.known(user="zoe", client="x") == Known(user="zoe", roles=(), groups=(), attributes={})
    assert gym.known() == Known(user=None, roles=(), groups=(), attributes={})


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_no_entry_can_set_a_built_in_name(name: str) -> None:
    entry = Entry(attributes={name: "x"})
    for made in (
        {"users": {"u": entry}},
        {"clients": {"c": entry}},
        {"roles": {"r": {name: 1}}},
        {"groups": {"g": {name: 1}}},
    ):
        with pytest.raises(ConfigError, match="only the node itself sets"):
            Directory(**made)


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ConfigError, match="between a name and its domain"):
        Directory(users={"alice@remotegym": Entry()})
    with pytest.raises(ConfigError, match="who is no user"):
        Directory(clients={"c": Entry(user="zoe")})
    with pytest.raises(ConfigError, match="letters, digits"):
        Directory(users={"u": Entry(attributes={"a-b": 1})})


def test_rules_about_nobody_are_found() -> None:
    assert Term("role", "door", HOME) in gym.terms()
    policies = Policies(
        [
            policy_of(id="a", subject="role:door", topic="#", action="read"),
            policy_of(id="b", subject="user:zoe", topic="#", action="read"),
            policy_of(id="c", subject="user:mary", topic="#", action="read"),
            policy_of(id="d", subject="group:pilates", topic="#", action="read"),
        ],
        domain="mygymbrand",
    )
    about = {policy.id: policy.subject.within("mygymbrand").terms for policy in policies.policies}
    assert {id for id, terms in about.items() if terms.isdisjoint(gym.terms())} == {"b", "d"}
