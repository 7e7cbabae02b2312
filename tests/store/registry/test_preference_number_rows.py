"""Numbers of owners' preferences: one series for all nodes on a registry, across restarts."""

from __future__ import annotations

from policy.written import preference_of
from store.registry.places import NOW, Place, at_once, made, put
from tidegate.policy import Preferences
from tidegate.policy.home_preferences import HomePreferences
from tidegate.policy.preference_numbers import OwnerNumber
from tidegate.store.registry import schema


def home(**users: str) -> HomePreferences:
    own = [preference_of(id=f"u-{user}", user=user, topic="#", when=when) for user, when in users.items()]
    return HomePreferences(Preferences(own, domain="home"))


def numbers(found: dict[str, OwnerNumber]) -> dict[str, int]:
    return {owner: each.number for owner, each in found.items()}


def test_they_survive_a_restart_and_never_go_back(place: Place) -> None:
    one = place.registry()
    assert one.preference_numbers.all() == {}
    first = one.preference_numbers.take_up(home(mary="true", bob="true"), at=5.0)
    assert numbers(first) == {"user:mary": 5000, "user:bob": 5000}
    one.close()
    again = place.registry()
    assert again.preference_numbers.all() == first
    assert again.preference_numbers.take_up(home(mary="true", bob="true"), at=9.0) == first
    changed = again.preference_numbers.take_up(home(mary="false"), at=3.0)
    assert numbers(changed) == {"user:mary": 5001, "user:bob": 5001}
    assert again.preference_numbers.all() == changed


def test_two_nodes_agree(place: Place) -> None:
    nodes = [place.registry() for _ in range(2)]
    outcomes = at_once(
        *(
            lambda node=node, at=at: node.preference_numbers.take_up(home(mary="true"), at=at)
            for at, node in enumerate(nodes, 1)
        )
    )
    assert outcomes[0] == outcomes[1] == nodes[0].preference_numbers.all()
    second = nodes[1].preference_numbers.take_up(home(mary="false"), at=0.0)
    assert second["user:mary"].number == outcomes[0]["user:mary"].number + 1
    assert nodes[0].preference_numbers.take_up(home(mary="false"), at=9.0) == second


def test_a_node_brings_along_what_it_has_kept_itself(place: Place) -> None:
    one = place.registry()
    first = one.preference_numbers.take_up(home(mary="true"), at=5.0)
    own = OwnerNumber(owner="user:bob", name="bob", digest=home(bob="true").digests["user:bob"], number=7777)
    stale = OwnerNumber(owner="user:mary", name="mary", digest=b"other", number=4000)
    later = OwnerNumber(owner="user:zoe", name="zoe", digest=b"other", number=9000)
    found = one.preference_numbers.take_up(home(mary="true", bob="true"), at=6.0, brought=[own, stale, later])
    assert numbers(found) == {"user:mary": 5000, "user:bob": 7777, "user:zoe": 9001}
    assert found["user:mary"] == first["user:mary"]
    assert one.preference_numbers.all() == found


def test_no_document_changes_with_them(place: Place) -> None:
    one = place.registry()
    made(one, put("a", "1", {}))
    before = one.load().sequence
    one.preference_numbers.take_up(home(mary="true"), at=NOW)
    assert one.load().sequence == before
    place.check()


def test_an_older_registry_gets_the_table(place: Place) -> None:
    one = place.registry()
    one.close()
    place.sql("DROP TABLE tidegate_preferences")
    place.sql("UPDATE tidegate_schema SET version = 2")
    again = place.registry()
    assert again.preference_numbers.all() == {}
    assert place.sql("SELECT version FROM tidegate_schema") == [(schema.VERSION,)]
