"""Topic keys as a store keeps them."""

from __future__ import annotations

from dataclasses import asdict

import cbor2
import pytest

from keys.making import FLOWERS, entropy
from tidegate.errors import KeysError
from tidegate.keys import Group, Ring, decode_key, encode_key

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
KEY = Ring(entropy=entropy()).current(MINE, 1000.0)


def test_a_key_comes_back() -> None:
    ring = Ring(entropy=entropy())
    for key in (ring.current(FLOWERS, 1000.0), KEY):
        again = decode_key(encode_key(key), key.secret)
        assert again == key
        assert asdict(again.group) == asdict(key.group)


def test_the_secret_is_apart() -> None:
    assert KEY.secret not in encode_key(KEY)


def test_a_newer_version_is_an_error() -> None:
    data = encode_key(KEY)
    assert data[0] == 1
    with pytest.raises(KeysError, match="newer"):
        decode_key(b"\x02" + data[1:], KEY.secret)


def test_whatever_is_damaged_raises_nothing_else() -> None:
    data = encode_key(KEY)
    for size in range(len(data)):
        with pytest.raises(KeysError):
            decode_key(data[:size], KEY.secret)
    with pytest.raises(KeysError):
        decode_key(data + b"\x00", KEY.secret)
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            decode_key(bytes(changed), KEY.secret)
        except KeysError:
            pass


GOOD = cbor2.loads(encode_key(KEY)[1:])


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        5,
        {},
        {"id": "x"},
        {**GOOD, "id": []},
        {**GOOD, "made": "soon"},
        {**GOOD, "readable": float("nan")},
        {**GOOD, "group": 5},
        {**GOOD, "group": {**GOOD["group"], "owner": 5}},
        {**GOOD, "group": {**GOOD["group"], "more": 5}},
    ],
)
def test_what_is_no_key_is_an_error(wrong: object) -> None:
    decode_key(b"\x01" + cbor2.dumps(GOOD), KEY.secret)
    with pytest.raises(KeysError):
        decode_key(b"\x01" + cbor2.dumps(wrong), KEY.secret)
