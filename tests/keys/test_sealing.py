"""Messages under a topic key."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from keys.making import topic_key
from tidegate.errors import KeysError
from tidegate.keys import key_id, seal, unseal
from tidegate.keys.sealing import MAX

KEY = topic_key("4f00")
NONCE = bytes(range(12))
TOPIC = "flowers/1"


def by_hand(secret: bytes, id: str, topic: str, nonce: bytes, payload: bytes) -> bytes:
    """The format as the documentation says it, with other functions of the library."""
    cipher = Cipher(algorithms.AES256(secret), modes.GCM(nonce)).encryptor()
    cipher.authenticate_additional_data(b"tidegate/seal/1\0" + id.encode() + b"\0" + topic.encode())
    return nonce + cipher.update(payload) + cipher.finalize() + cipher.tag


@given(
    payload=st.binary(max_size=500), topic=st.text(min_size=1, max_size=30), nonce=st.binary(min_size=12, max_size=12)
)
def test_what_was_sealed_comes_back(payload: bytes, topic: str, nonce: bytes) -> None:
    message = seal(KEY, payload, topic=topic, nonce=nonce)
    assert json.loads(message) == {
        "keyId": "4f00",
        "data": b64encode(by_hand(KEY.secret, "4f00", topic, nonce, payload)).decode(),
    }
    assert key_id(message) == "4f00"
    assert unseal(KEY.secret, message, topic=topic) == payload


def test_the_bytes_never_change() -> None:
    assert (
        seal(KEY, b"21.5", topic=TOPIC, nonce=NONCE)
        == b'{"keyId":"4f00","data":"AAECAwQFBgcICQoLrKIFv3TkEmAqbD+DLM0gMhym7Us="}'
    )


def test_others_may_write_the_json_as_they_like() -> None:
    data = b64encode(by_hand(KEY.secret, "mine", TOPIC, NONCE, b"hello")).decode()
    message = json.dumps({"data": data, "keyId": "mine"}, indent=2).encode()
    assert key_id(message) == "mine"
    assert unseal(KEY.secret, message, topic=TOPIC) == b"hello"


@pytest.mark.parametrize("payload", [b"", b"2", b"21", b"21.5 degrees"])
def test_every_bit_counts(payload: bytes) -> None:
    message = seal(KEY, payload, topic=TOPIC, nonce=NONCE)
    for bit in range(len(message) * 8):
        changed = bytearray(message)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(KeysError):
            unseal(KEY.secret, bytes(changed), topic=TOPIC)


def test_every_piece_counts() -> None:
    message = seal(KEY, b"21.5", topic=TOPIC, nonce=NONCE)
    for size in range(len(message)):
        with pytest.raises(KeysError):
            unseal(KEY.secret, message[:size], topic=TOPIC)
        assert key_id(message[:size]) is None


def test_another_key_does_not_open_it() -> None:
    message = seal(KEY, b"21.5", topic=TOPIC, nonce=NONCE)
    with pytest.raises(KeysError, match="not sealed with this key"):
        unseal(topic_key(fill=8).secret, message, topic=TOPIC)
    with pytest.raises(KeysError, match="32 secret bytes"):
        unseal(b"short", message, topic=TOPIC)


@pytest.mark.parametrize("topic", ["flowers/2", "", "flowers/1/", "\ud800"])
def test_under_another_topic_it_cannot_be_read(topic: str) -> None:
    with pytest.raises(KeysError):
        unseal(KEY.secret, seal(KEY, b"21.5", topic=TOPIC, nonce=NONCE), topic=topic)


def test_under_the_name_of_another_key_it_cannot_be_read() -> None:
    message = seal(KEY, b"21.5", topic=TOPIC, nonce=NONCE).replace(b"4f00", b"4f01")
    with pytest.raises(KeysError, match="4f01"):
        unseal(KEY.secret, message, topic=TOPIC)


DATA = b64encode(by_hand(KEY.secret, "4f00", TOPIC, NONCE, b"1")).decode()


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"21.5",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"keyId": "4f00"}',
        b'{"data": "AAAA"}',
        b'{"keyId": 4, "data": "AAAA"}',
        b'{"keyId": "4f00", "data": 5}',
        b'{"keyId": "", "data": "AAAA"}',
        b'{"keyId": "a b", "data": "AAAA"}',
        b'{"keyId": "' + b"x" * 65 + b'", "data": "AAAA"}',
        json.dumps({"keyId": "4f00", "data": DATA, "more": 1}).encode(),
    ],
)
def test_what_is_no_sealed_message_is_refused(wrong: bytes) -> None:
    assert key_id(wrong) is None
    with pytest.raises(KeysError, match="no sealed message"):
        unseal(KEY.secret, wrong, topic=TOPIC)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "A",
        "====",
        "é",
        "AAAA",
        DATA.rstrip("="),
        DATA + "=",
        DATA + "AAAA",
        DATA[:8] + "\n" + DATA[8:],
        " " + DATA,
        b64encode(b64decode(DATA)[:27]).decode(),
    ],
)
def test_data_that_is_none_is_refused(data: str) -> None:
    message = json.dumps({"keyId": "4f00", "data": data}).encode()
    with pytest.raises(KeysError):
        unseal(KEY.secret, message, topic=TOPIC)


@given(st.one_of(st.binary(), st.text().map(str.encode)))
def test_whatever_comes_raises_nothing_else(message: bytes) -> None:
    assert key_id(message) is None
    with pytest.raises(KeysError):
        unseal(KEY.secret, message, topic=TOPIC)


def test_what_fits_into_no_packet_is_refused_before_it_is_looked_at() -> None:
    huge = bytes(MAX + 1)
    assert key_id(huge) is None
    with pytest.raises(KeysError, match="more than a packet"):
        unseal(KEY.secret, huge, topic=TOPIC)
    with pytest.raises(KeysError, match="fits into no packet"):
        seal(KEY, huge, topic=TOPIC, nonce=NONCE)


@pytest.mark.parametrize("nonce", [b"", bytes(11), bytes(13)])
def test_a_nonce_has_twelve_bytes(nonce: bytes) -> None:
    with pytest.raises(KeysError, match="12 bytes"):
        seal(KEY, b"", topic=TOPIC, nonce=nonce)
