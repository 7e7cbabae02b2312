"""The sets of this domain's owners: their numbers change with what they say, and never go back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.people import HOME
from policy.written import preference_of
from tidegate.errors import MalformedPacket
from tidegate.policy import Preferences, Subject
from tidegate.policy.home_preferences import HomePreferences, TravellingPreferences
from tidegate.policy.preference_numbers import OwnerNumber, newest
from tidegate.policy.preference_sets import UNNUMBERED, read, verified

IDS = {"mary": "m1", "bob": "b1"}


def home(*lines: tuple[str, str], **fields: object) -> HomePreferences:
    """Preferences by the names of their owners and their conditions."""
    own = [preference_of(id=f"u{n}", user=user, topic="#", when=when) for n, (user, when) in enumerate(lines)]
    own = [replace(each, owner="z9") if each.user == "zed" else each for each in own]
    return HomePreferences(
        Preferences(own, domain=HOME),
        id_of=lambda name: IDS.get(name, ""),
        name_of=lambda id: next((name for name, each in IDS.items() if each == id), None),
        **fields,  # type: ignore[arg-type]
    )


def numbered(
    made: HomePreferences, known: Mapping[str, OwnerNumber] | None = None, now: float = 1.0
) -> dict[str, OwnerNumber]:
    known = known or {}
    return {**known, **{each.owner: each for each in made.renumbered(known, now)}}


def subject(user: str | None, identity: str = "") -> Subject:
    return Subject(kind="client", client="c", user=user, scope="gym", node="n", domain=HOME, identity=identity)


def signing(made: HomePreferences, numbers: Mapping[str, OwnerNumber]) -> TravellingPreferences:
    return TravellingPreferences(made, numbers, signer=lambda data: data[:9], certificate=b"home")


def test_owners_have_numbers_under_their_id_and_under_their_name() -> None:
    made = home(("mary", "true"), ("zoe", "true"), ("zed", "true"))
    assert made.owners == {
        "user:mary": "mary",
        "m1": "mary",
        "user:zoe": "zoe",
        "user:zed": "zed",
        "z9": "zed",
    }
    assert {each.number for each in numbered(made).values()} == {1000}


def test_a_number_changes_with_what_its_owner_says_and_only_then() -> None:
    first = numbered(home(("mary", "true"), ("bob", "true")))
    assert home(("mary", "true"), ("bob", "true")).renumbered(first, 9.0) == []
    second = numbered(home(("mary", "false"), ("bob", "true")), first, 9.0)
    assert second["m1"].number == second["user:mary"].number == 9000
    assert second["b1"] == first["b1"]
    # the clock was put back
    third = numbered(home(("mary", "true"), ("bob", "true")), second, 3.0)
    assert third["m1"].number == 9001
    assert third["m1"].digest == first["m1"].digest


def test_who_takes_all_back_still_has_a_set() -> None:
    first = numbered(home(("mary", "false")))
    none = home()
    second = numbered(none, first, 2.0)
    assert second["m1"].number == 2000
    there = signing(none, second).signed("m1")
    assert there is not None
    assert (there.name, there.number, there.preferences) == ("mary", 2000, ())


@pytest.mark.parametrize("fields", [{"beliefs": {"othergym": {"users": {"a": "b"}}}}, {"places": {"x": "x@77"}}])
def test_what_is_beside_the_preferences_counts_too(fields: dict[str, object]) -> None:
    lines = preference_of(id="u", user="mary", topic="#", to="x")
    first, second = (HomePreferences(Preferences([lines], domain=HOME), **each) for each in ({}, fields))  # type: ignore[arg-type]
    assert second.renumbered(numbered(first), 2.0)


def test_what_a_message_carries() -> None:
    made = home(("mary", "true"))
    travelling = signing(made, numbered(made))
    assert travelling.of(subject(None)) is None
    assert travelling.of(subject("mary", "m1")) == ("m1", 1000)
    assert travelling.of(subject("mary")) == ("user:mary", 1000)
    assert travelling.of(subject("bob", "b1")) == ("b1", 0)
    assert travelling.signed("b1") is None
    # somebody else who has the name now, and whom nobody has numbered
    assert travelling.of(subject("mary", "m2")) == ("m2", UNNUMBERED)
    assert signing(made, {}).of(subject("mary", "m1")) == ("m1", UNNUMBERED)


def test_sets_are_signed_once() -> None:
    made = home(("mary", "true"))
    travelling = signing(made, numbered(made))
    there = travelling.signed("m1")
    assert there is not None
    assert travelling.signed("m1") is there
    assert read(there.encode()) == there
    assert verified(there, lambda signer, data, signature: HOME if signature == data[:9] else None)


def test_what_is_the_same_as_before_is_not_signed_again() -> None:
    made = home(("mary", "true"), ("bob", "true"))
    first = signing(made, numbered(made))
    mine, other = first.signed("m1"), first.signed("b1")
    changed = home(("mary", "true"), ("bob", "false"))
    numbers = numbered(changed, numbered(made), 9.0)
    second = TravellingPreferences(changed, numbers, signer=lambda data: data[:9], certificate=b"home", before=first)
    assert second.changed(first) == ["user:bob", "b1"]
    assert second.signed("m1") is mine
    renewed = second.signed("b1")
    assert renewed is not None
    assert other is not None
    assert renewed.number == 9000 > other.number
    others = TravellingPreferences(changed, numbers, signer=lambda data: b"", certificate=b"new", before=second)
    assert others.signed("m1") is not mine


def test_one_that_is_too_large_does_not_travel() -> None:
    made = home(*[("mary", "true")] * 257)
    with pytest.raises(MalformedPacket):
        signing(made, numbered(made)).signed("m1")


def test_of_several_numbers_the_highest_counts() -> None:
    some = [OwnerNumber(owner="m", name="mary", digest=b"", number=number) for number in (3, 5, 4)]
    assert newest(some) == {"m": some[1]}


@given(st.lists(st.tuples(st.sampled_from(["true", "false", "o.retain", ""]), st.floats(0, 10)), max_size=12))
def test_numbers_never_go_back(history: list[tuple[str, float]]) -> None:
    known: dict[str, OwnerNumber] = {}
    said: dict[int, bytes] = {}
    for when, now in history:
        made = home(("mary", when)) if when else home()
        before, known = known, numbered(made, known, now)
        for owner, each in known.items():
            assert owner not in before or each.number >= before[owner].number
        if (now_known := known.get("m1")) is not None:
            assert now_known.digest == (made.digests.get("m1") or made.set("m1", "mary").digest)
            assert said.setdefault(now_known.number, now_known.digest) == now_known.digest
