"""Secrets at rest."""

from __future__ import annotations

import hmac
import secrets
from base64 import b64encode, urlsafe_b64encode

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from keys.making import entropy
from tidegate.errors import ConfigError, KeysError
from tidegate.keys.at_rest import MasterKeySet, master_id, new_master, parse_masters

OLD, NEW = entropy("old")(32), entropy("new")(32)


def key_set(*masters: bytes) -> MasterKeySet:
    return MasterKeySet.parse("\n".join(master.hex() for master in masters), entropy=secrets.token_bytes)


def test_what_was_sealed_comes_back() -> None:
    place = key_set(NEW)
    for secret in (b"", b"x", bytes(32), bytes(65536)):
        blob = place.seal(secret, of="key:1")
        assert place.unseal(blob, of="key:1") == secret
        assert len(blob) - len(secret) < 70
    assert place.seal(b"x", of="key:1") != place.seal(b"x", of="key:1")


def test_it_is_hkdf_and_gcm() -> None:
    """Opened with RFC 5869 by hand."""
    blob = key_set(NEW).seal(b"secret", of="key:1")
    head, salt, sealed = blob[:14], blob[14:46], blob[46:]
    assert head == b"\x01\x0c" + master_id(NEW).encode()
    info = b"tidegate/rest/1\0"
    prk = hmac.digest(salt, NEW, "sha256")
    one = hmac.digest(prk, info + b"\x01", "sha256")
    two = hmac.digest(prk, one + info + b"\x02", "sha256")
    assert AESGCM(one).decrypt(two[:12], sealed, info + head + b"key:1") == b"secret"


def test_a_master_key_is_rotated_without_a_pause() -> None:
    before = key_set(OLD)
    blob = before.seal(b"secret", of="key:1")
    during = key_set(NEW, OLD)
    assert during.unseal(blob, of="key:1") == b"secret"
    renewed = during.renewed(blob, of="key:1")
    assert renewed is not None
    assert during.renewed(renewed, of="key:1") is None
    after = key_set(NEW)
    assert after.unseal(renewed, of="key:1") == b"secret"
    with pytest.raises(KeysError, match=f"master key {master_id(OLD)}, which is not here"):
        after.unseal(blob, of="key:1")


def test_a_secret_belongs_to_one_thing() -> None:
    place = key_set(NEW)
    with pytest.raises(KeysError, match="belongs to something else"):
        place.unseal(place.seal(b"secret", of="key:1"), of="key:2")


def test_every_bit_counts() -> None:
    place = key_set(NEW, OLD)
    blob = place.seal(b"secret", of="key:1")
    for bit in range(len(blob) * 8):
        changed = bytearray(blob)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(KeysError):
            place.unseal(bytes(changed), of="key:1")
    for size in range(len(blob)):
        with pytest.raises(KeysError):
            place.unseal(blob[:size], of="key:1")


@given(st.binary(max_size=200))
def test_whatever_comes_raises_nothing_else(blob: bytes) -> None:
    with pytest.raises(KeysError):
        key_set(NEW).unseal(b"\x01" + blob, of="key:1")


def test_large_things_are_no_secrets() -> None:
    with pytest.raises(KeysError, match="too long"):
        key_set(NEW).seal(bytes(65537), of="key:1")
    with pytest.raises(KeysError, match="length"):
        key_set(NEW).unseal(key_set(NEW).seal(b"", of="x") + bytes(70000), of="x")


def test_nonces_and_keys_never_repeat() -> None:
    place = key_set(NEW)
    assert len({place.seal(b"", of="x")[14:46] for _ in range(2000)}) == 2000


# -- master keys as text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        NEW.hex(),
        NEW.hex().upper(),
        b64encode(NEW).decode(),
        b64encode(NEW).decode().rstrip("="),
        urlsafe_b64encode(NEW).decode(),
        f"\n  # of January\n\t{NEW.hex()}   # keep it\r\n\n",
    ],
)
def test_a_master_key_is_base64_or_hex(text: str) -> None:
    assert parse_masters(text) == {master_id(NEW): NEW}


@pytest.mark.parametrize("between", ["\n", ",", " ", "\r\n", ", "])
def test_the_first_one_seals(between: str) -> None:
    text = NEW.hex() + between + b64encode(OLD).decode()
    assert list(parse_masters(text).values()) == [NEW, OLD]
    assert MasterKeySet.parse(text, entropy=entropy()).current == master_id(NEW)


def test_a_new_one_can_be_made() -> None:
    text = new_master(secrets.token_bytes)
    assert MasterKeySet.parse(text, entropy=entropy()).current in parse_masters(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no master key"),
        ("# nothing", "no master key"),
        ("password", "master key 1 cannot be read"),
        (NEW.hex() + "\n" + OLD.hex()[1:], "master key 2 cannot be read"),
        (NEW.hex() + "\n" + b64encode(NEW).decode(), "master key 2 is there twice"),
        ("0" * 64, "master key 1 is not random"),
        ("A" * 43, "master key 1 is not random"),
        ("\n".join(entropy(number)(32).hex() for number in range(17)), "17 master keys"),
    ],
)
def test_what_is_no_master_key_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        parse_masters(text)
    for word in text.split():
        assert len(word) < 20 or word not in str(error.value)


def test_a_vault_needs_whole_keys() -> None:
    for masters, current in (({}, "a"), ({"a": bytes(31)}, "a"), ({"": NEW}, ""), ({"x" * 256: NEW}, "x" * 256)):
        with pytest.raises(ConfigError):
            MasterKeySet(masters, current, entropy=entropy())
    assert NEW.hex() not in repr(key_set(NEW))
