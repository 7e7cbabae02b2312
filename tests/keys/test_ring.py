"""Which key seals, which are handed out, and when they end."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.making import FLOWERS, TREES, entropy, revoke_group, sealed, topic_key
from tidegate.errors import ConfigError, KeysError
from tidegate.keys import Group, Ring, decode_key, encode_key, unseal
from tidegate.keys.ring import EACH, REMEMBERED


def ring(**settings: object) -> Ring:
    return Ring(**{"entropy": entropy(), "rotate": 300, "overlap": 30, **settings})  # type: ignore[arg-type]


def test_a_key_seals_until_it_is_rotated_and_is_read_for_a_while_longer() -> None:
    keys = ring()
    first = keys.current(FLOWERS, 1000)
    assert (first.made, first.valid_until, first.readable_until) == (1000, 1300, 1330)
    assert keys.current(FLOWERS, 1299.9) is first
    second = keys.current(FLOWERS, 1300)
    assert second.id != first.id
    assert second.secret != first.secret
    assert keys.left(first.id, 1329.5) == 0.5
    assert keys.find(first.id, 1329.9) is first
    assert keys.find(first.id, 1330) is None
    assert keys.left(first.id, 1330) == 0
    assert keys.find(second.id, 1330) is second


def test_a_key_seals_only_so_often() -> None:
    keys = ring(uses=3)
    ids = [keys.current(FLOWERS, 0).id for _ in range(7)]
    assert [ids.count(id) for id in dict.fromkeys(ids)] == [3, 3, 1]
    assert keys.find(ids[0], 329) is not None, "what was told of a key stays true"


def test_groups_have_keys_of_their_own() -> None:
    keys = ring()
    assert keys.current(FLOWERS, 0).id != keys.current(TREES, 0).id
    assert keys.current(replace(FLOWERS, topic="flowers/2"), 0) is keys.current(FLOWERS, 0)


def test_no_secret_is_printed() -> None:
    key = ring().current(FLOWERS, 0)
    assert key.secret.hex() not in repr(key)
    assert repr(key.secret) not in repr(key)


def test_looking_for_a_key_is_no_use_of_it() -> None:
    keys = ring(uses=1)
    assert keys.held(FLOWERS, 0) is None
    key = keys.current(FLOWERS, 0)
    assert keys.held(FLOWERS, 0) is None
    assert keys.find(key.id, 0) is key


# -- the clock -------------------------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_again_and_again_makes_no_key_immortal() -> None:
    keys = ring()
    first = keys.current(FLOWERS, 10_000)
    now, steps, forward = 10_000.0, 0, 0
    while keys.current(FLOWERS, now) is first:
        steps += 1
        step = 1 if steps % 10 else -200
        now, forward = now + step, forward + max(0, step)
        assert forward <= 300
    assert forward == 300
    assert now < 10_000
    assert keys.left(first.id, now) == 30


def test_a_key_made_while_the_clock_was_ahead_lasts_as_long_as_any() -> None:
    keys = ring()
    ahead = keys.current(FLOWERS, 1_000_000)
    assert keys.current(FLOWERS, 100) is ahead
    assert keys.current(FLOWERS, 399) is ahead
    assert keys.current(FLOWERS, 400) is not ahead
    assert keys.find(ahead.id, 429) is ahead
    assert keys.find(ahead.id, 430) is None


def test_a_clock_that_jumps_forward_ends_keys_and_they_stay_ended() -> None:
    keys = ring()
    key = keys.current(FLOWERS, 1000)
    assert keys.find(key.id, 90_000) is None
    assert keys.find(key.id, 1000) is None
    assert keys.current(FLOWERS, 1000).id != key.id


def test_a_key_that_has_ended_is_not_brought_back_by_setting_the_clock_back() -> None:
    keys = ring()
    key = keys.current(FLOWERS, 10_000)
    assert keys.find(key.id, 5_000) is key
    assert keys.find(key.id, 5_330) is None
    for now in (5_331.0, 6_000.0, 10_000.0, 10_329.0, 10_330.0, 20_000.0):
        assert not keys.adopt(key, now), "a store still has it, and its times look good"
        assert keys.find(key.id, now) is None


def test_an_old_copy_of_the_state_repeats_no_nonce() -> None:
    """Two processes go on from the same state: neither seals with a key of it."""
    before = ring()
    key = before.current(FLOWERS, 0)
    after = ring(entropy=entropy("another"))
    assert after.adopt(key, 1)
    assert after.find(key.id, 1) is key
    assert after.current(FLOWERS, 1).id != key.id


def test_nonces_never_repeat() -> None:
    keys = ring(uses=100, rotate=50)
    seen: set[tuple[str, bytes]] = set()
    now = 1000.0
    for turn in range(2000):
        now += (1, -40, 3, 0, -1, 60)[turn % 6]
        message = json.loads(sealed(keys, FLOWERS, b"x", topic="flowers/1", now=now))
        seen.add((message["keyId"], b64decode(message["data"])[:12]))
    assert len(seen) == 2000


def test_what_is_sealed_can_be_read() -> None:
    keys = ring()
    message = sealed(keys, FLOWERS, b"\x00red", topic="flowers/1", now=5)
    found = keys.find(json.loads(message)["keyId"], 5)
    assert found is not None
    assert unseal(found.secret, message, topic="flowers/1") == b"\x00red"


def test_randomness_that_repeats_itself_is_noticed() -> None:
    keys = ring(entropy=lambda size: b"\x05" * size)
    keys.current(FLOWERS, 0)
    with pytest.raises(KeysError, match="repeats"):
        keys.current(TREES, 0)
    revoke_group(keys, FLOWERS, 0)
    with pytest.raises(KeysError, match="repeats"):
        keys.current(FLOWERS, 0)


# -- revoking --------------------------------------------------------------------------------------------------------


def test_revoking_ends_keys_at_once() -> None:
    keys = ring()
    old = keys.current(FLOWERS, 0)
    new = keys.current(FLOWERS, 310)
    other = keys.current(TREES, 310)
    assert revoke_group(keys, FLOWERS, 311) == {old.id, new.id}
    assert not keys.revoke(old.id, 311), "it is not here any more"
    assert keys.find(old.id, 311) is None
    assert keys.find(new.id, 311) is None
    assert keys.find(other.id, 311) is other
    fresh = keys.current(FLOWERS, 311)
    assert fresh.id not in (old.id, new.id)
    assert keys.find(fresh.id, 311) is fresh
    assert keys.current(TREES, 311) is other


def test_a_revoked_key_is_not_brought_back() -> None:
    keys = ring()
    key = keys.current(FLOWERS, 1000)
    keys.revoke(key.id, 1001)
    assert not keys.adopt(key, 1002)
    assert keys.revoked(key.id)
    assert keys.find(key.id, 1003) is None
    again = ring(entropy=entropy("again"))
    assert again.adopt(key, 1004)
    assert again.find(key.id, 1004) is key, "this one has not heard of it"
    again.forbid(key.id, 1330 + REMEMBERED, 1004)
    assert again.find(key.id, 1004) is None
    assert not again.adopt(key, 1005)


def test_a_key_that_is_not_here_yet_can_be_forbidden() -> None:
    keys = ring()
    keys.forbid("k1", 1100, 1000)
    assert not keys.adopt(topic_key(made=1000), 1099)
    assert keys.adopt(topic_key(made=1000), 1100)
    keys.forbid("k1", 1100, 1101)
    assert keys.find("k1", 1101) is not None, "that is over"


def test_what_was_revoked_is_remembered_no_longer_than_needed() -> None:
    keys = ring()
    key = keys.current(FLOWERS, 0)
    keys.revoke(key.id, 1)
    keys.forget(329 + REMEMBERED)
    assert keys.revoked(key.id)
    keys.forget(331 + REMEMBERED)
    assert not keys.revoked(key.id)


# -- what others made ------------------------------------------------------------------------------------------------


def test_a_key_from_a_store_is_read_with_and_does_not_seal() -> None:
    keys = ring()
    kept = topic_key(made=1000)
    assert keys.adopt(kept, 1100)
    assert keys.find("k1", 1100) is kept
    assert keys.held(FLOWERS, 1100) is None
    assert keys.current(FLOWERS, 1100).id != "k1"
    assert keys.left("k1", 1100) == 230
    assert keys.find("k1", 1330) is None


def test_a_key_that_has_ended_is_not_adopted() -> None:
    assert not ring().adopt(topic_key(made=1000), 1330)
    assert ring().adopt(topic_key(made=1000), 1329)


def test_a_key_from_the_future_is_taken_for_no_longer_than_any() -> None:
    keys = ring()
    assert keys.adopt(topic_key(made=1e9), 1000)
    assert keys.left("k1", 1000) == 330
    assert keys.seals("k1", 1299)
    assert not keys.seals("k1", 1300)


def test_a_key_from_the_future_lasts_no_longer_than_it_was_made_for() -> None:
    keys = ring(rotate=3600)
    assert keys.adopt(topic_key(made=1100), 1000)
    assert keys.left("k1", 1000) == 330


def test_a_key_that_claims_to_last_for_ever_does_not() -> None:
    keys = ring()
    keys.adopt(replace(topic_key(made=1000), valid_until=1e17, readable_until=1e17), 1000)
    assert keys.left("k1", 1000) == 330


def test_settings_can_change() -> None:
    keys = ring()
    old = keys.current(FLOWERS, 0)
    keys.change(rotate=10, overlap=1, uses=5)
    new = keys.current(FLOWERS, 1)
    assert new is not old
    assert keys.left(new.id, 1) == 11
    assert keys.find(old.id, 329) is old


@pytest.mark.parametrize(
    "wrong",
    [
        {"rotate": 0},
        {"rotate": -1},
        {"rotate": float("nan")},
        {"rotate": float("inf")},
        {"overlap": -1},
        {"overlap": float("inf")},
        {"uses": 0},
        {"uses": 1 << 33},
        {"groups": 0},
    ],
)
def test_settings_that_protect_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        ring(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret": b"short"},
        {"id": ""},
        {"id": 'a"b'},
        {"id": "x" * 65},
        {"valid_until": -1.0},
        {"readable_until": 299.0},
        {"readable_until": float("inf")},
        {"made": float("nan")},
    ],
)
def test_a_key_that_is_none_cannot_be_made(wrong: dict[str, object]) -> None:
    with pytest.raises(KeysError):
        replace(topic_key(), **wrong)  # type: ignore[arg-type]


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_a_flood_of_groups_pushes_out_those_that_nobody_uses() -> None:
    keys = ring(groups=10)
    used = keys.current(FLOWERS, 0)
    idle = keys.current(TREES, 0)
    for number in range(1000):
        keys.current(Group.of(filter="#", conditions=[str(number)]), 0)
        assert keys.current(FLOWERS, 0) is used
    assert len(keys) == 10
    assert keys.forgotten == 992
    assert keys.find(idle.id, 0) is None
    assert keys.find(used.id, 0) is used
    assert len(keys._ends) < 200


def test_a_group_that_changes_keys_quickly_is_bounded() -> None:
    keys = ring(uses=1)
    made = [keys.current(FLOWERS, 0) for _ in range(EACH + 10)]
    assert len(keys) == EACH
    assert keys.forgotten == 10
    assert [keys.find(key.id, 0) for key in made] == [None] * 10 + made[10:]
    keys.forget(330)
    assert len(keys) == 0
    assert not keys._ends
    assert not keys._places


# -- against a model -------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """The rules, read directly. Time is what has gone forward."""

    rotate: int
    overlap: int
    uses: int
    time: int = 0
    keys: dict[str, list[int]] = field(default_factory=dict)  # id: group, made, used
    newest: dict[int, str] = field(default_factory=dict)

    def may_seal(self, id: str | None) -> bool:
        return id in self.keys and self.time < self.keys[id][1] + self.rotate and self.keys[id][2] < self.uses

    def may_read(self, id: str) -> bool:
        return id in self.keys and self.time < self.keys[id][1] + self.rotate + self.overlap


GROUPS = [Group.of(filter="#", conditions=[str(number)]) for number in range(3)]
STEP = st.tuples(
    st.sampled_from(["current", "current", "current", "find", "revoke", "restart", "forget"]),
    st.integers(0, 2),
    st.one_of(st.integers(0, 3), st.integers(-50, 50), st.sampled_from([-(10**6), 10**6])),
)


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(STEP, max_size=60),
    rotate=st.integers(1, 20),
    overlap=st.integers(0, 20),
    uses=st.integers(1, 5),
)
def test_it_does_what_the_rules_say(steps: list[tuple[str, int, int]], rotate: int, overlap: int, uses: int) -> None:
    keys = ring(rotate=rotate, overlap=overlap, uses=uses)
    model = Model(rotate, overlap, uses)
    now, seen, restarts = 10**7, [], count()
    keys.forget(now)
    for act, number, step in steps:
        now += step
        model.time += max(0, step)
        match act:
            case "current":
                key = keys.current(GROUPS[number], now)
                expected = model.newest.get(number)
                if model.may_seal(expected):
                    assert key.id == expected
                else:
                    assert key.id not in seen
                    seen.append(key.id)
                    model.keys[key.id] = [number, model.time, 0]
                    model.newest[number] = key.id
                model.keys[key.id][2] += 1
                assert key.group == GROUPS[number]
            case "revoke":
                ended = revoke_group(keys, GROUPS[number], now)
                expected_ended = {id for id in seen if model.may_read(id) and model.keys[id][0] == number}
                assert ended == expected_ended
                for id in ended:
                    del model.keys[id]
            case "restart":
                kept = [decode_key(encode_key(key), key.secret) for key, _ in keys.listed(now)]
                keys = ring(rotate=rotate, overlap=overlap, uses=uses, entropy=entropy(f"restart {next(restarts)}"))
                model.newest.clear()  # what a store kept cannot seal
                for key in kept:  # and is as old as the wall clock says, which may be less
                    assert keys.adopt(key, now)
                    model.keys[key.id][1] = model.time - max(0, now - int(key.made))
            case "forget":
                keys.forget(now)
                assert len(keys) == sum(map(model.may_read, seen))
        for id in seen:
            found = keys.find(id, now)
            assert (found is not None) is model.may_read(id)
            if found is not None:
                assert keys.left(id, now) == model.keys[id][1] + rotate + overlap - model.time
    keys.forget(now + rotate + overlap + 10**9)
    assert not keys._keys
    assert not keys._places
    assert not keys._gone
    assert not keys._ends
