"""Topic keys as a store keeps them."""

from __future__ import annotations

import cbor2
import pytest

from keys.making import FLOWERS, TREES, entropy
from tidegate.errors import KeysError
from tidegate.keys import Group, Ring, Snapshot, decode, decode_key, encode, encode_key

MINE = Group.of(
    filter="a/#",
    conditions=["c"],
    preferences=["u1"],
    owner="mary",
    domain="home",
    demand="tls",
    topic="a/1",
    context=b"\x01\x02",
)


def filled() -> Ring:
    ring = Ring(entropy=entropy())
    for group in (FLOWERS, TREES, MINE):
        ring.current(group, 1000.0)
    ring.current(MINE, 1310.0)
    ring.revoke([TREES.id], 1311.0)
    return ring


def test_a_ring_comes_back() -> None:
    kept = filled().snapshot(1312.0)
    assert len(kept.keys) == 3
    assert len(kept.revoked) == 1
    data, secrets = encode(kept)
    again = decode(data, secrets)
    assert again == kept
    assert [key.group.context for key in again.keys] == [key.group.context for key in kept.keys]
    assert [key.group.owner for key in again.keys] == [key.group.owner for key in kept.keys]
    ring = Ring(entropy=entropy("after"))
    ring.restore(again, 1313.0)
    assert ring.snapshot(1313.0) == kept


def test_a_key_comes_back() -> None:
    for key in filled().snapshot(1312.0).keys:
        again = decode_key(encode_key(key), key.secret)
        assert again == key
        assert (again.group.filter, again.group.topic, again.group.demand, again.group.domain) == (
            key.group.filter,
            key.group.topic,
            key.group.demand,
            key.group.domain,
        )


def test_secrets_are_apart() -> None:
    kept = filled().snapshot(1312.0)
    data, secrets = encode(kept)
    assert secrets == {key.id: key.secret for key in kept.keys}
    for key in kept.keys:
        assert key.secret not in data
        assert key.secret not in encode_key(key)


def test_a_missing_secret_is_an_error() -> None:
    data, secrets = encode(filled().snapshot(1312.0))
    secrets.popitem()
    with pytest.raises(KeysError, match="damaged"):
        decode(data, secrets)


def test_a_newer_version_is_an_error() -> None:
    data, secrets = encode(Snapshot())
    assert data[0] == 1
    with pytest.raises(KeysError, match="newer"):
        decode(b"\x02" + data[1:], secrets)


def test_whatever_is_damaged_raises_nothing_else() -> None:
    kept = filled().snapshot(1312.0)
    data, secrets = encode(kept)
    for size in range(len(data)):
        with pytest.raises(KeysError):
            decode(data[:size], secrets)
    with pytest.raises(KeysError):
        decode(data + b"\x00", secrets)
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            decode(bytes(changed), secrets)
        except KeysError:
            pass


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"keys": {}, "revoked": {}},
        {"keys": [5], "revoked": {}},
        {"keys": [{}], "revoked": {}},
        {"keys": [{"id": "x"}], "revoked": {}},
        {"keys": [{"id": []}], "revoked": {}},
        {"keys": [], "revoked": {"x": "soon"}},
        {"keys": [], "revoked": {5: 1.0}},
        {"keys": [], "revoked": {"x": float("nan")}},
        {"keys": []},
    ],
)
def test_what_is_no_state_is_an_error(wrong: object) -> None:
    with pytest.raises(KeysError):
        decode(b"\x01" + cbor2.dumps(wrong), {"x": bytes(32)})
