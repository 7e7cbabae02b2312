"""Sets of preferences that travel: their bytes, their signature, and which of several counts."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.people import HOME, alice, bob
from policy.written import preference_of
from tidegate.bounded import Bounded
from tidegate.errors import MalformedPacket
from tidegate.policy.outcome import Refuse
from tidegate.policy.preference_numbers import next_number
from tidegate.policy.preference_sets import (
    EVICTED,
    MAX,
    SETS,
    SIZE,
    UNNUMBERED,
    ForeignPreferences,
    Offer,
    PreferenceSet,
    owner_id,
    read,
    set_of,
    sign,
    verified,
)
from tidegate.policy.preferences import Granted, Preferences

OURS = frozenset({"here", "once"})
SECRETS = {b"home node": (b"k1", HOME), b"other node": (b"k2", "othergym")}

mine = Preferences(
    [
        preference_of(id="u1", user="mary", topic="gym/#", when="s.user == 'alice'"),
        preference_of(id="u2", user="mary", topic="gym/#", to="analyzer", when="false"),
        preference_of(id="u3", user="mary", topic="#", to="*"),
        preference_of(id="b1", user="bob", topic="#", when="false"),
    ],
    domain=HOME,
)


def signer(data: bytes) -> bytes:
    return hmac.digest(b"k1", data, hashlib.sha256)


def verify(signer: bytes, data: bytes, signature: bytes) -> str | None:
    key, domain = SECRETS.get(signer, (b"", None))
    return domain if hmac.compare_digest(hmac.digest(key, data, hashlib.sha256), signature) else None


def signed(number: int = 1, preferences: Preferences = mine, user: str = "mary", id: str = "m1") -> PreferenceSet:
    return sign(set_of(preferences, user, id, number=number), signer, b"home node")


# -- the set of an owner ---------------------------------------------------------------------------------------------


def test_it_holds_all_of_its_owner_and_nothing_of_others() -> None:
    made = set_of(mine, "mary", "m1", places={"analyzer": "analyzer@77"}, beliefs={"othergym": {"roles": {"a": "b"}}})
    assert (made.key, made.name, made.identity) == ((HOME, "m1"), "mary", "m1")
    assert [each["id"] for each in made.preferences] == ["u1", "u2", "u3"]
    assert [each.get("to") for each in made.preferences] == [None, "analyzer@77", "*"]
    unknown = set_of(mine, "zoe", "")
    assert (unknown.owner, unknown.identity, unknown.preferences) == ("user:zoe", "", ())


def test_an_owner_without_identity_is_whoever_has_the_name() -> None:
    some = Preferences(
        [
            replace(preference_of(id="old", user="mary", topic="#"), owner="m0"),
            replace(preference_of(id="new", user="maria", topic="#"), owner="m1"),
            preference_of(id="any", user="mary", topic="#"),
        ],
        domain=HOME,
    )
    for user, identity in (("mary", ""), ("mary", "m0"), ("mary", "m1"), ("maria", "m1")):
        there = read(signed(1, some, user, identity).encode())
        of = some.receiving(user, HOME, "x", identity).preferences
        assert there.understood().receiving(there.name, HOME, "x", there.identity).preferences == of
        assert len(of) == len(there.preferences)


def test_it_says_elsewhere_what_it_says_at_home() -> None:
    there = read(signed().encode()).understood()
    assert there.receiving("mary", HOME, "gym/x", "m1").decide(alice, {}) == Granted(("u1",))
    assert there.receiving("mary", HOME, "gym/x", "m1").decide(bob, {}) == Refuse("u1")
    assert there.receiving("mary", HOME, "x", "m1").decide(bob, {}) == Granted()


def test_conditions_are_compiled_once() -> None:
    known: Bounded[str, Any] = Bounded(1)  # it forgets all but the last
    for _ in range(2):
        there = read(signed().encode()).understood(conditions=known)
        assert there.receiving("mary", HOME, "gym/x", "m1").decide(alice, {}) == Granted(("u1",))
        assert len(known) == 1
    kept: dict[str, Any] = {}
    first = read(signed().encode()).understood(conditions=kept)
    second = read(signed(2).encode()).understood(conditions=kept)
    assert first.preferences[0].when is second.preferences[0].when


def test_numbers_are_the_time_and_never_go_back() -> None:
    assert next_number(0, 1000.5) == 1_000_500
    assert next_number(1_000_500, 1000.5) == 1_000_501
    assert next_number(2_000_000, 1000.5) == 2_000_001


def test_what_is_not_known_here_travels_on() -> None:
    entry = {"id": "u", "user": "mary", "topic": "#", "effect": "deny", "expires": 5, "more": {"a": [1, None]}}
    bare = replace(set_of(mine, "mary", "m1", number=3), preferences=(entry,))
    made = read(sign(bare, signer, b"home node").encode())
    assert made.preferences == (entry,)
    assert verified(read(made.encode()), verify)
    assert isinstance(made.understood().receiving("mary", HOME, "a", "m1").decide(alice, {}), Refuse)


# -- bytes -----------------------------------------------------------------------------------------------------------


def test_bytes_are_read_as_they_were_written_and_only_those() -> None:
    data = signed().encode()
    assert read(data) == signed()
    assert read(data).encode() == data
    assert verified(read(data), verify)
    for at in range(len(data)):
        with pytest.raises(MalformedPacket):
            read(data[:at])
    for more in (b"\0", b"\xa0"):
        with pytest.raises(MalformedPacket):
            read(data + more)


@pytest.mark.parametrize("at", range(len(signed().encode())))
def test_any_tampering_is_refused(at: int) -> None:
    data = signed().encode()
    for mask in (1, 2, 4, 8, 16, 32, 64, 128):
        changed = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
        try:
            made = read(changed)
        except MalformedPacket:
            continue
        assert not verified(made, verify)


def test_a_node_speaks_for_its_own_domain_only() -> None:
    made = signed()
    assert verified(made, verify)
    other = replace(made, signer=b"other node", signature=hmac.digest(b"k2", made.signed, hashlib.sha256))
    assert not verified(other, verify)
    assert not verified(replace(made, signer=b"nobody"), verify)
    assert not verified(replace(made, signature=b""), verify)


def changed(**fields: Any) -> bytes:
    content = {**signed().content, **fields}
    return cbor2.dumps(
        [1, {name: value for name, value in content.items() if value is not ...}, b"", b""], canonical=True
    )


def entries(**fields: Any) -> list[dict[str, Any]]:
    return [{"id": "u", "user": "mary", "topic": "#", **fields}]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        cbor2.dumps(None),
        cbor2.dumps([2, signed().content, b"", b""], canonical=True),
        cbor2.dumps([True, signed().content, b"", b""], canonical=True),
        cbor2.dumps([1, signed().content, b""], canonical=True),
        cbor2.dumps([1, signed().content, "", b""], canonical=True),
        cbor2.dumps([1, signed().content, b"x" * 20_000, b""], canonical=True),
        cbor2.dumps([1, signed().content, b"", b"x" * 2_000], canonical=True),
        cbor2.dumps([1, signed().content, b"", b""]),
        changed(domain=...),
        changed(more=1),
        changed(domain=""),
        changed(domain=1),
        changed(owner=""),
        changed(name=""),
        changed(name="x" * 70_000),
        changed(owner="user:bob"),
        changed(number=-1),
        changed(number=UNNUMBERED),
        changed(number=True),
        changed(number=1.5),
        changed(preferences={}),
        changed(preferences=[1]),
        changed(preferences=entries(topic="a/#/b")),
        changed(preferences=entries(user="bob")),
        changed(preferences=entries(owner="b1")),
        changed(preferences=entries(keep=[1])),
        changed(preferences=entries(more={1: 2})),
        changed(preferences=entries() * 2),
        changed(preferences=[{**entries()[0], "id": str(n)} for n in range(257)]),
        changed(preferences=entries(when="x" * MAX)),
        changed(beliefs=[]),
        changed(beliefs={1: 2}),
        changed(beliefs={"a": [[{b"x": 1}]]}),
        bytes.fromhex("81") * 3000,
    ],
)
def test_bytes_that_are_no_set_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedPacket):
        read(data)


@given(st.binary(max_size=60))
def test_bytes_raise_nothing_else(data: bytes) -> None:
    with pytest.raises(MalformedPacket):
        read(data)


def test_what_others_would_refuse_is_not_signed() -> None:
    many = Preferences([preference_of(id=f"u{n}", user="mary", topic="#") for n in range(257)], domain=HOME)
    with pytest.raises(MalformedPacket, match="257"):
        signed(1, many)


# -- which one counts ------------------------------------------------------------------------------------------------


def of(owner: str, number: int, content: int = 0, size: int = 0) -> PreferenceSet:
    entry = {"id": f"c{content}", "user": owner, "topic": "#", "more": "x" * size}
    return PreferenceSet(domain=HOME, owner=owner, name=owner, number=number, preferences=(entry,))


def test_offers() -> None:
    known = ForeignPreferences()
    first, second = of("m", 5), of("m", 6, 1)
    assert known.find(first.key, 5) is None
    assert known.offer(first, "a", OURS) == (Offer.TAKEN, [])
    assert known.offer(replace(first, signature=b"2"), "b", OURS) == (Offer.HELD, [])
    assert known.offer(of("m", 5, 1), "a", OURS) == (Offer.CONTRADICTING, [])
    assert known.find(first.key, 5) is first
    assert known.find(first.key, 6) is None  # older than what travelled
    assert known.offer(second, "b", OURS) == (Offer.TAKEN, [])
    assert known.offer(first, "a", OURS) == (Offer.OLDER, [])
    assert known.find(first.key, 5) is second
    assert known.find(first.key, 0) is second
    assert known.neighbours(first.key) == ("b",)
    for domain in OURS:
        assert known.offer(replace(second, domain=domain), "a", OURS) == (Offer.OURS, [])
    assert list(known) == [second]


def test_an_owner_without_preferences_has_the_number_0() -> None:
    known = ForeignPreferences()
    none = known.find((HOME, "user:zoe"), 0)
    assert none is not None
    assert (none.name, none.preferences) == ("zoe", ())
    assert known.find((HOME, "user:zoe"), 1) is None


def test_a_flood_of_one_neighbour_takes_the_room_of_nobody_else() -> None:
    known = ForeignPreferences(sets=2)
    known.offer(of("b", 1), "b", OURS)
    known.offer(of("shared", 1), "a", OURS)
    known.offer(of("shared", 1), "b", OURS)
    gone = [key for n in range(10) for key in known.offer(of(f"x{n}", 1), "a", OURS)[1]]
    assert gone == [(HOME, f"x{n}") for n in range(8)]
    assert {each.owner for each in known} == {"b", "shared", "x8", "x9"}


def test_the_bytes_of_a_neighbour_are_bounded_together() -> None:
    known = ForeignPreferences(size=2500)
    gone = [key for n in range(5) for key in known.offer(of(f"x{n}", 1, size=1000), "a", OURS)[1]]
    assert [owner for _, owner in gone] == ["x0", "x1", "x2"]
    assert known.offer(of("x3", 2, size=2400), "a", OURS) == (Offer.TAKEN, [(HOME, "x4")])


def test_what_had_to_make_room_is_unknown_and_does_not_come_back_older() -> None:
    known = ForeignPreferences(sets=1)
    known.offer(of("m", 7), "a", OURS)
    assert known.offer(of("n", 1), "a", OURS) == (Offer.TAKEN, [(HOME, "m")])
    for number in (0, 6, 7, 8):
        assert known.find((HOME, "m"), number) is None
    assert known.evicted((HOME, "m")) == (7, of("m", 7).digest)
    assert known.offer(of("m", 6), "b", OURS)[0] is Offer.OLDER
    assert known.offer(of("m", 7, 1), "b", OURS)[0] is Offer.CONTRADICTING
    assert known.offer(of("m", 7), "b", OURS)[0] is Offer.TAKEN
    assert known.find((HOME, "m"), 7) == of("m", 7)


def test_when_too_many_had_to_make_room_nobody_is_said_to_have_none() -> None:
    known = ForeignPreferences(sets=1, evicted=2)
    for n in range(3):
        known.offer(of(f"x{n}", 1), "a", OURS)
    assert known.find((HOME, "zoe"), 0) is not None
    known.offer(of("x3", 1), "a", OURS)
    assert known.find((HOME, "zoe"), 0) is None
    assert known.find((HOME, "x0"), 0) is None


def test_a_neighbour_that_is_gone_takes_along_what_it_alone_has_brought() -> None:
    known = ForeignPreferences()
    known.offer(of("m", 1), "a", OURS)
    known.offer(of("n", 1), "a", OURS)
    known.offer(of("n", 1), "b", OURS)
    assert known.forget("a") == [(HOME, "m")]
    assert known.forget("a") == []
    assert known.find((HOME, "m"), 0) is None
    assert known.find((HOME, "n"), 1) == of("n", 1)


def test_the_bounds_are_what_the_documentation_says() -> None:
    assert (SETS, SIZE, MAX, EVICTED) == (10_000, 32 * 2**20, 64 * 2**10, 100_000)


offers = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("mno"), st.integers(0, 6), st.sampled_from([0, 0, 0, 1])),
    max_size=40,
)


@given(offers)
def test_the_newest_counts_in_whatever_order_they_come(offers: list[tuple[str, str, int, int]]) -> None:
    known = ForeignPreferences()
    newest: dict[str, PreferenceSet] = {}
    for neighbour, owner, number, content in offers:
        brought, before = of(owner, number, content), newest.get(owner)
        offer, gone = known.offer(brought, neighbour, OURS)
        assert not gone
        if before is None or number > before.number:
            newest[owner] = brought
            assert offer is Offer.TAKEN
        elif number < before.number:
            assert offer is Offer.OLDER
        else:
            assert offer is (Offer.HELD if brought == before else Offer.CONTRADICTING)
        for each in "mno":
            for asked in range(8):
                found, expected = known.find((HOME, each), asked), newest.get(each)
                if expected is not None:
                    assert found == (expected if expected.number >= asked else None)
                else:
                    assert (found is not None) is (asked == 0)


@given(offers, st.integers(1, 3))
def test_shares_are_kept_and_nothing_older_ever_counts(offers: list[tuple[str, str, int, int]], most: int) -> None:
    known = ForeignPreferences(sets=most)
    seen: dict[str, int] = {}
    for neighbour, owner, number, content in offers:
        offer, gone = known.offer(of(owner, number, content), neighbour, OURS)
        if offer is Offer.TAKEN:
            assert number >= seen.get(owner, 0)
        seen[owner] = max(number, seen.get(owner, 0)) if offer.good else seen.get(owner, 0)
        for key in gone:
            assert known.find(key, 0) is None
        for name in "abc":
            assert sum(name in known.neighbours(each.key) for each in known) <= most
        for each in known:
            assert each.number == seen[each.owner]


@pytest.mark.parametrize(
    ("user", "identity", "owner"), [("mary", "m1", "m1"), ("mary", "", "user:mary"), ("user:x", "", "user:user:x")]
)
def test_owner_ids(user: str, identity: str, owner: str) -> None:
    assert owner_id(user, identity) == owner
