"""Preferences of other domains' people: taken, kept, and counted with for the very next message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from policy.written import policy_of, preference_of
from pure import End, World
from scope.spaces import chain
from session.test_safe import Disk
from tidegate import wire
from tidegate.errors import StoreError
from tidegate.gate import RuleSet
from tidegate.policy import Policies, Preferences, Subject
from tidegate.policy.preference_sets import ForeignPreferences, Offer, PreferenceSet, set_of, sign
from tidegate.scope.foreign_preferences import ROOM, ForeignOwners
from tidegate.session import Context, Message, Origin

HOME, HERE = "mygymbrand", "remotegym"
KEEP = wire.Properties(session_expiry_interval=1000)
LINK = "forward"


def signed(number: int, *texts: str, owner: str = "mary", **fields: Any) -> PreferenceSet:
    own = [
        preference_of(id=f"u{number}-{n}", user=owner, topic="#", when=text, **fields) for n, text in enumerate(texts)
    ]
    return sign(set_of(Preferences(own, domain=HOME), owner, f"id-{owner}", number=number), bytes.upper, b"home")


def verify(signer: bytes, data: bytes, signature: bytes) -> str | None:
    return HOME if signer == b"home" and signature == data.upper() else None


ALICE, NOBODY = "s.user == 'alice@remotegym'", "false"


def world(disk: Disk | None = None, **fields: Any) -> World:
    return World(store=disk, rules=RuleSet(domain=HERE, **fields))


def arrive(
    world: World, number: int, topic: str = "t", *, owner: str | None = "mary", scope: str = "main", **fields: Any
) -> int:
    """A message of another node comes in; how many it reached."""
    place = world.realm.scopes[scope]
    identity = "" if owner is None else f"id-{owner}"
    subject = Subject(
        kind="client", client="phone", user=owner, domain=HOME, identity=identity, scope="gym", node="mygym"
    )
    data = Context(subject=subject, foreign=None if owner is None else (identity, number)).encode()
    context = place.gate.attributes.decoded(data)
    message = Message(
        topic,
        fields.get("payload", b"x"),
        fields.get("qos", 0),
        fields.get("retain", False),
        world.wall,
        Origin("cd" * 8, 1),
        1,
        data,
        LINK,
    )
    lane = place.gate.derived_lane(data, context, LINK, None)
    return place.path.deliver(place.plans.of(lane, topic.encode()), message, None)


def reader(world: World, user: str, **fields: Any) -> End:
    end = world.peer(user, username=user, **fields)
    end.subscribe("#", 1)
    end.take()
    return end


def payloads(end: End) -> list[bytes]:
    got = end.messages()
    for packet in got:
        if packet.qos:
            end.send(wire.Puback(packet_id=packet.packet_id))
    return [packet.payload for packet in got]


# -- what counts -----------------------------------------------------------------------------------------------------


def test_a_message_waits_for_no_set_and_reaches_nobody_before_it_is_known() -> None:
    here = world()
    alice, bob = reader(here, "alice"), reader(here, "bob")
    assert arrive(here, 5) == 0
    assert here.realm.foreign.take(signed(5, ALICE), "a", verify) is Offer.TAKEN
    arrive(here, 5)
    assert (payloads(alice), payloads(bob)) == ([b"x"], [])
    arrive(here, 6)
    assert payloads(alice) == []  # there is a newer set, which is not known here
    arrive(here, 4)
    assert payloads(alice) == [b"x"]  # an old message under a newer set


def test_what_nobody_has_signed_is_refused() -> None:
    here = world()
    alice = reader(here, "alice")
    owners = here.realm.foreign
    assert owners.take(signed(5, "true"), "a", lambda *_: None) is Offer.UNVERIFIED
    assert owners.take(signed(5, "true"), "a", lambda *_: "othergym") is Offer.UNVERIFIED
    assert owners.take(replace(signed(5, "true"), number=6), "a", verify) is Offer.UNVERIFIED
    assert owners.take(replace(signed(5, "true"), domain=HERE), "a", verify) is Offer.UNVERIFIED
    assert owners.take(signed(5, "true"), "a", lambda *_: HERE) is Offer.UNVERIFIED
    arrive(here, 5)
    assert payloads(alice) == []


def test_a_denial_says_why() -> None:
    here = world()
    alice = reader(here, "alice")
    denied: list[tuple[str, str]] = []
    scope = here.realm.scopes["main"]
    scope.audit.compiled = lambda lane, plan: denied.extend((w.rule, w.error) for _, w in plan.denied)  # type: ignore[method-assign]
    arrive(here, 5)
    assert denied == [("preferences", "the preferences of the owner are not known here")]
    assert payloads(alice) == []


def test_messages_without_an_owner_and_of_owners_without_preferences() -> None:
    here = world()
    alice = reader(here, "alice")
    arrive(here, 0, owner=None)
    arrive(here, 0, owner="zoe")
    assert payloads(alice) == [b"x", b"x"]
    here.realm.foreign.take(signed(7, NOBODY, owner="zoe"), "a", verify)
    arrive(here, 0, owner="zoe")
    assert payloads(alice) == []


def test_a_newer_set_counts_for_the_very_next_message() -> None:
    here = world()
    alice, bob = reader(here, "alice"), reader(here, "bob")
    here.realm.foreign.take(signed(5, ALICE), "a", verify)
    arrive(here, 5)
    assert here.realm.foreign.take(signed(6, "s.user == 'bob@remotegym'"), "a", verify) is Offer.TAKEN
    arrive(here, 5)
    assert (payloads(alice), payloads(bob)) == ([b"x"], [b"x"])
    assert here.realm.foreign.take(signed(5, ALICE), "a", verify) is Offer.OLDER
    arrive(here, 5)
    assert (payloads(alice), payloads(bob)) == ([], [b"x"])


@pytest.mark.parametrize(("text", "got"), [(ALICE, [b"x", b"x"]), (NOBODY, [])])
def test_it_counts_for_queued_messages(text: str, got: list[bytes]) -> None:
    here = world()
    alice = reader(here, "alice", clean_start=False, properties=KEEP)
    here.realm.foreign.take(signed(5, ALICE), "a", verify)
    alice.lose()
    assert arrive(here, 5, qos=1) == arrive(here, 5, qos=1) == 1
    here.realm.foreign.take(signed(6, text), "a", verify)
    back = here.peer("alice", username="alice", clean_start=False, properties=KEEP)
    assert payloads(back) == got


def test_it_counts_for_retained_messages() -> None:
    here = world()
    here.realm.foreign.take(signed(5, ALICE), "a", verify)
    arrive(here, 5, retain=True)
    for number, text, got in ((6, ALICE, [b"x"]), (7, NOBODY, []), (8, "true", [b"x"])):
        here.realm.foreign.take(signed(number, text), "a", verify)
        alice = here.peer("alice", username="alice")
        alice.subscribe("#")
        assert payloads(alice) == got
    for number, text, got in ((9, NOBODY, []), (10, "true", [b"x"])):  # what was decided for this session is let go
        here.realm.foreign.take(signed(number, text), "a", verify)
        alice.subscribe("#")
        assert payloads(alice) == got
    here.realm.foreign.forget("a")
    alice.subscribe("#")
    assert payloads(alice) == []


def test_it_counts_behind_a_link_to_another_scope_of_this_node() -> None:
    here = World(rules=RuleSet(domain=HERE, space=chain("one", "two")))
    alice = here.peer("alice", username="alice", scope="two")
    alice.subscribe("#")
    alice.take()
    owners = here.realm.foreign
    owners.take(signed(5, "true"), "a", verify)
    arrive(here, 5, scope="one")
    assert payloads(alice) == [b"x"]
    owners.take(signed(6, NOBODY), "a", verify)
    arrive(here, 5, scope="one")
    assert payloads(alice) == []
    owners.take(signed(7, NOBODY, to=f"two@{here.site.origin.node}"), "a", verify)
    arrive(here, 5, scope="one")
    assert payloads(alice) == []
    owners.take(signed(8, NOBODY, to="two@" + "00" * 8), "a", verify)
    arrive(here, 5, scope="one")
    assert payloads(alice) == [b"x"]
    owners.take(signed(9, NOBODY, to="*"), "a", verify)
    arrive(here, 5, scope="one")
    assert payloads(alice) == []


def test_scopes_behind_links_have_the_names_of_the_links() -> None:
    here = world()
    owners = here.realm.foreign
    owners.take(signed(5, NOBODY, to="far@77"), "a", verify)
    known = owners.of((HOME, "id-mary"), 5)
    assert known is not None
    assert [each.to for each in known.preferences.preferences] == ["far@77"]
    before = owners.revision
    owners.found("far", "77")
    assert owners.revision > before
    known = owners.of((HOME, "id-mary"), 5)
    assert known is not None
    assert [each.to for each in known.preferences.preferences] == ["far"]


def test_other_rules_understand_them_anew() -> None:
    here = world()
    alice = reader(here, "alice")
    here.realm.foreign.take(signed(5, ALICE), "a", verify)
    arrive(here, 5)
    policies = Policies([policy_of(id="all", subject="*", topic="#", action="read")], domain=HERE)
    here.realm.change(replace(here.realm.rules, policies=policies))
    here.turn()
    arrive(here, 5)
    assert payloads(alice) == [b"x", b"x"]


def test_what_nobody_has_asked_for_changes_nothing() -> None:
    here = world()
    reader(here, "alice")
    owners = here.realm.foreign
    arrive(here, 0, owner="zoe")
    before = owners.revision
    for number in (5, 6):
        owners.take(signed(number, ALICE), "a", verify)
    assert owners.revision == before
    arrive(here, 6)
    owners.take(signed(7, ALICE), "b", verify)
    assert owners.revision > before
    before = owners.revision
    assert owners.take(signed(7, ALICE), "a", verify) is Offer.HELD
    assert owners.revision == before


def test_a_local_message_takes_the_fast_lane_beside_them() -> None:
    here = world()
    reader(here, "alice")
    here.realm.foreign.take(signed(5, NOBODY), "a", verify)
    bob = here.peer("bob", username="bob")
    bob.send(wire.Publish(topic="t", payload=b"1"))
    lane = bob.connection.reader.lane
    plan = lane.plans[b"t"]
    assert plan.immediate
    here.realm.foreign.take(signed(6, NOBODY), "a", verify)
    bob.send(wire.Publish(topic="t", payload=b"1"))
    assert bob.connection.reader.lane is lane
    assert lane.plans[b"t"] is plan


# -- in the store ----------------------------------------------------------------------------------------------------


def kept(disk: Disk) -> Mapping[str, bytes]:
    return {key: value for (room, key), value in disk._batch.records.items() if room == ROOM and value is not None}


def again(disk: Disk, **bounds: int) -> tuple[ForeignOwners, World]:
    here = world(disk)
    return ForeignOwners(here.site, here.realm.scopes, sets=ForeignPreferences(**bounds)), here


def test_they_survive_a_restart_with_their_signatures() -> None:
    disk = Disk()
    owners, _ = again(disk)
    owners.take(signed(5, ALICE), "a", verify)
    owners.take(signed(5, ALICE), "b", verify)
    owners.take(signed(9, owner="zoe"), "b", verify)
    later, here = again(disk)
    assert later.restore(kept(disk), verify) == []
    assert len(later) == 2
    known = later.of((HOME, "id-mary"), 5)
    assert known is not None
    assert known.set == later.get((HOME, "id-mary")) == signed(5, ALICE)
    later.forget("a")
    assert later.of((HOME, "id-mary"), 5) is not None
    later.forget("b")
    assert later.of((HOME, "id-mary"), 5) is None
    assert here.bugs == []


def test_what_nobody_vouches_for_any_more_is_unknown_also_after_another_restart() -> None:
    disk = Disk()
    owners, _ = again(disk)
    owners.take(signed(5, ALICE), "a", verify)
    later, _ = again(disk)
    assert later.restore(kept(disk), lambda *_: None) == [(HOME, "id-mary")]
    for number in (0, 5):
        assert later.of((HOME, "id-mary"), number) is None
    last, _ = again(disk)
    assert last.restore(kept(disk), verify) == []
    assert last.of((HOME, "id-mary"), 0) is None
    assert last.take(signed(4, ALICE), "a", verify) is Offer.OLDER
    assert last.take(signed(5, ALICE), "a", verify) is Offer.TAKEN


def test_when_others_are_trusted_the_sets_are_verified_again() -> None:
    here = world()
    alice = reader(here, "alice")
    owners = here.realm.foreign
    owners.take(signed(5, ALICE), "a", verify)
    arrive(here, 5)
    owners.review(verify)
    arrive(here, 5)
    assert payloads(alice) == [b"x", b"x"]
    owners.review(lambda *_: "othergym")
    arrive(here, 5)
    assert payloads(alice) == []


def test_what_had_to_make_room_is_unknown_after_a_restart() -> None:
    disk = Disk()
    owners, _ = again(disk, sets=1, evicted=1)
    owners.take(signed(5, ALICE), "a", verify)
    owners.take(signed(5, ALICE, owner="bob"), "a", verify)
    later, _ = again(disk, sets=1, evicted=1)
    later.restore(kept(disk), verify)
    assert later.of((HOME, "id-mary"), 0) is None
    assert later.of((HOME, "id-new"), 0) is not None
    later.take(signed(5, ALICE, owner="zoe"), "a", verify)  # and mary is forgotten
    assert len(kept(disk)) == 3
    last, _ = again(disk, sets=1, evicted=1)
    last.restore(kept(disk), verify)
    for owner in ("id-mary", "id-new"):
        assert last.of((HOME, owner), 0) is None


@pytest.mark.parametrize("data", [b"", b"\x81\x02", b"\x83\x01\x80\x40", b"\x80"])
def test_records_that_cannot_be_read_are_damage(data: bytes) -> None:
    owners, _ = again(Disk())
    with pytest.raises(StoreError, match="preferences"):
        owners.restore({"x": data}, verify)
