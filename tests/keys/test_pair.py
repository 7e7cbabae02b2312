"""Key pairs of readers."""

from __future__ import annotations

import hashlib
import secrets

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from keys.making import entropy, topic_key
from tidegate.errors import KeysError
from tidegate.keys import Kem, PrivateKey, PublicKey, wrap


@pytest.mark.parametrize("kem", Kem)
def test_a_pair_can_be_written_and_read(kem: Kem) -> None:
    pair = PrivateKey.generate(secrets.token_bytes, kem)
    assert PrivateKey.parse(pair.text()) == pair
    assert PublicKey.parse(str(pair.public)) == pair.public
    assert PublicKey.parse(f"  {pair.public}\n") == pair.public
    assert str(pair.public).startswith(f"{kem.value}:")
    assert PrivateKey.parse(pair.text()).public == pair.public


def test_the_pair_of_rfc_7748() -> None:
    seed = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    public = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    assert PrivateKey(kem=Kem.X25519, seed=seed).public.raw == public


@pytest.mark.parametrize("kem", Kem)
def test_pairs_follow_from_the_randomness(kem: Kem) -> None:
    assert PrivateKey.generate(entropy(1), kem) == PrivateKey.generate(entropy(1), kem)
    assert PrivateKey.generate(entropy(1), kem) != PrivateKey.generate(entropy(2), kem)


def test_the_hybrid_is_expanded_as_x_wing_does() -> None:
    seed = bytes(range(32))
    expanded = hashlib.shake_256(seed).digest(96)
    lattice = MLKEM768PrivateKey.from_seed_bytes(expanded[:64]).public_key().public_bytes_raw()
    point = X25519PrivateKey.from_private_bytes(expanded[64:]).public_key().public_bytes_raw()
    assert PrivateKey(kem=Kem.HYBRID, seed=seed).public.raw == lattice + point


def test_x25519_in_pem() -> None:
    native = X25519PrivateKey.generate()
    private = native.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    public = native.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    pair = PrivateKey.parse(private)
    assert pair.public == PublicKey.parse(public)
    assert pair.seed == native.private_bytes_raw()
    assert (pair.pem(), pair.public.pem()) == (private, public)


def test_the_hybrid_has_no_pem() -> None:
    pair = PrivateKey.generate(entropy(), Kem.HYBRID)
    with pytest.raises(KeysError, match="only an X25519"):
        pair.pem()
    with pytest.raises(KeysError, match="only an X25519"):
        pair.public.pem()


@pytest.mark.parametrize("kem", Kem)
def test_no_private_key_is_printed(kem: Kem) -> None:
    pair = PrivateKey.generate(entropy(), kem)
    for shown in (repr(pair), str(pair)):
        assert pair.text().partition(":")[2] not in shown
        assert pair.seed.hex() not in shown
        assert repr(pair.seed) not in shown


PAIR = PrivateKey.generate(entropy())
OTHER = Ed25519PrivateKey.generate()
OTHER_PUBLIC = OTHER.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
OTHER_PRIVATE = OTHER.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "x25519",
        "x25519:",
        "x25519:AAAA",
        "x25519:" + "A" * 42 + "B",  # bits that count for nothing
        "x25519:" + "A" * 44,
        str(PAIR.public) + "=",
        str(PAIR.public).replace("x25519:", "x448:"),
        str(PAIR.public).replace("x25519:", "mlkem768-x25519:"),
        str(PAIR.public).upper(),
        "mlkem768-x25519:" + "_" * 1621 + "w",  # no polynomial has such coefficients
        "x" * 5000,
        "-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----",
        "-----BEGIN \ud800",
        OTHER_PUBLIC,
    ],
)
def test_what_is_no_public_key_is_refused(wrong: str) -> None:
    with pytest.raises(KeysError):
        PublicKey.parse(wrong)


@pytest.mark.parametrize("text", [PAIR.text(), PAIR.pem()])
def test_whoever_gives_away_a_private_key_is_told(text: str) -> None:
    with pytest.raises(KeysError, match="it is a private key") as told:
        PublicKey.parse(text)
    assert PAIR.text().partition(":")[2] not in str(told.value)


SMALL_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


@pytest.mark.parametrize("point", SMALL_ORDER)
@pytest.mark.parametrize("kem", Kem)
def test_a_point_of_small_order_is_refused(point: bytes, kem: Kem) -> None:
    raw = point if kem is Kem.X25519 else PrivateKey.generate(entropy(), Kem.HYBRID).public.raw[:-32] + point
    public = PublicKey(kem=kem, raw=raw)
    with pytest.raises(KeysError, match="no secret can be agreed on"):
        PublicKey.parse(str(public))
    with pytest.raises(KeysError, match="nothing can be encrypted"):
        wrap(topic_key(), public, reader="user:mary", request="a-random-request-1", seconds=1)


@pytest.mark.parametrize(
    "wrong",
    ["", str(PAIR.public), "x25519-private:AAAA", "x448-private:" + "A" * 43, "x" * 5000, OTHER_PRIVATE, OTHER_PUBLIC],
)
def test_what_is_no_private_key_is_refused(wrong: str) -> None:
    with pytest.raises(KeysError):
        PrivateKey.parse(wrong)
