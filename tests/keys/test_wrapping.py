"""Topic keys on their way to a reader."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64decode, b64encode

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.making import entropy, topic_key
from tidegate.errors import KeysError
from tidegate.keys import Kem, PrivateKey, ReadKey, unwrap, wrap

KEY = topic_key("4f00")
PAIRS = {kem: PrivateKey.generate(entropy(kem), kem) for kem in Kem}
REQUEST = "abcdefghijklmnop_-01"


def answer(
    kem: Kem = Kem.X25519, *, reader: str = "user:mary", request: str = REQUEST, seconds: float = 329.5
) -> bytes:
    return wrap(KEY, PAIRS[kem].public, reader=reader, request=request, seconds=seconds)


@pytest.mark.parametrize("kem", Kem)
def test_a_key_reaches_its_reader(kem: Kem) -> None:
    wrapped = answer(kem)
    assert KEY.secret not in wrapped
    key = unwrap(PAIRS[kem], wrapped, reader="user:mary", request=REQUEST)
    assert key == ReadKey(id="4f00", secret=KEY.secret, seconds=329.5)
    assert repr(KEY.secret) not in repr(key)
    assert answer(kem) != wrapped, "each has an ephemeral key of its own"


@pytest.mark.parametrize("kem", Kem)
def test_an_answer_is_for_one_reader_request_and_key(kem: Kem) -> None:
    wrapped = answer(kem)
    with pytest.raises(KeysError, match="another request"):
        unwrap(PAIRS[kem], wrapped, reader="user:mary", request="another-request-1")
    with pytest.raises(KeysError, match="not for this private key"):
        unwrap(PAIRS[kem], wrapped, reader="user:eve", request=REQUEST)
    with pytest.raises(KeysError, match="not for this private key"):
        unwrap(PrivateKey.generate(entropy("eve"), kem), wrapped, reader="user:mary", request=REQUEST)


@pytest.mark.parametrize("kem", Kem)
@pytest.mark.parametrize(("member", "value"), [("keyId", "4f01"), ("validMs", 10**9), ("request", "another-request-1")])
def test_a_replayed_answer_that_was_made_to_look_right_is_refused(kem: Kem, member: str, value: object) -> None:
    changed = orjson.dumps({**json.loads(answer(kem)), member: value})
    request = "another-request-1" if member == "request" else REQUEST
    with pytest.raises(KeysError, match="not for this private key"):
        unwrap(PAIRS[kem], changed, reader="user:mary", request=request)


def test_names_cannot_be_shifted_into_each_other() -> None:
    wrapped = json.loads(answer(reader="user:mary4"))
    wrapped["keyId"] = "4" + wrapped["keyId"]
    with pytest.raises(KeysError, match="not for this private key"):
        unwrap(PAIRS[Kem.X25519], orjson.dumps(wrapped), reader="user:mary", request=REQUEST)


def test_a_key_of_another_kind_is_named() -> None:
    with pytest.raises(KeysError, match="another kind than mlkem768-x25519"):
        unwrap(PAIRS[Kem.HYBRID], answer(), reader="user:mary", request=REQUEST)


def test_every_bit_counts() -> None:
    wrapped = answer()
    for bit in range(len(wrapped) * 8):
        changed = bytearray(wrapped)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(KeysError):
            unwrap(PAIRS[Kem.X25519], bytes(changed), reader="user:mary", request=REQUEST)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(answer(Kem.HYBRID)) * 8 - 1))
def test_every_bit_of_the_hybrid_counts(bit: int) -> None:
    changed = bytearray(answer(Kem.HYBRID))
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(KeysError):
        unwrap(PAIRS[Kem.HYBRID], bytes(changed), reader="user:mary", request=REQUEST)


@pytest.mark.parametrize("request_", ["", "short", "x" * 129, "a" * 15, "sixteen chars ok", "é" * 20, 'x"' * 10])
def test_a_request_needs_a_mark(request_: str) -> None:
    with pytest.raises(KeysError, match="mark"):
        answer(request=request_)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e11])
def test_a_key_that_has_ended_is_not_wrapped(seconds: float) -> None:
    with pytest.raises(KeysError, match="ended"):
        answer(seconds=seconds)


def test_names_that_are_none_are_refused() -> None:
    for reader in ("\ud800", "x" * 65536):
        with pytest.raises(KeysError, match="name"):
            answer(reader=reader)


GOOD = json.loads(answer())


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"{}",
        b"null",
        b"\xff",
        b"[" * 8000,
        b'{"error":"denied","rule":"p1"}',
        bytes(9000),
        orjson.dumps({**GOOD, "validMs": True}),
        orjson.dumps({**GOOD, "validMs": -1}),
        orjson.dumps({**GOOD, "validMs": 1.5}),
        orjson.dumps({**GOOD, "more": 1}),
        orjson.dumps({**GOOD, "key": ""}),
        orjson.dumps({**GOOD, "key": "AAAA"}),
        orjson.dumps({**GOOD, "key": GOOD["key"].rstrip("=") + "!"}),
        orjson.dumps({**GOOD, "key": b64encode(bytes(80)).decode()}),
        orjson.dumps({**GOOD, "keyId": "a b"}),
    ],
)
def test_what_is_no_answer_is_refused(wrong: bytes) -> None:
    for kem, pair in PAIRS.items():
        text = wrong.replace(b'"x25519"', b'"%b"' % kem.value.encode())
        with pytest.raises(KeysError):
            unwrap(pair, text, reader="user:mary", request=REQUEST)


@given(st.one_of(st.binary(), st.text().map(str.encode)))
def test_whatever_comes_raises_nothing_else(text: bytes) -> None:
    with pytest.raises(KeysError):
        unwrap(PAIRS[Kem.X25519], text, reader="user:mary", request=REQUEST)


# -- RFC 9180 by hand ------------------------------------------------------------------------------------------------


def extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + ikm, "sha256")


def expand(suite: bytes, prk: bytes, label: bytes, info: bytes, size: int) -> bytes:
    info = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    made, block = b"", b""
    while len(made) < size:
        block = hmac.digest(prk, block + info + bytes((len(made) // 32 + 1,)), "sha256")
        made += block
    return made[:size]


def shared_secret(pair: PrivateKey, enc: bytes) -> tuple[int, bytes]:
    """The KEM's number, and what it agrees on."""
    if pair.kem is Kem.X25519:  # RFC 9180, 4.1
        suite = b"KEM" + (0x20).to_bytes(2, "big")
        dh = X25519PrivateKey.from_private_bytes(pair.seed).exchange(X25519PublicKey.from_public_bytes(enc))
        prk = extract(suite, b"", b"eae_prk", dh)
        return 0x20, expand(suite, prk, b"shared_secret", enc + pair.public.raw, 32)
    expanded = hashlib.shake_256(pair.seed).digest(96)  # X-Wing, 5.3
    lattice = MLKEM768PrivateKey.from_seed_bytes(expanded[:64]).decapsulate(enc[:1088])
    point = X25519PrivateKey.from_private_bytes(expanded[64:]).exchange(X25519PublicKey.from_public_bytes(enc[1088:]))
    label = rb"\.//^" + b"\\"
    return 0x647A, hashlib.sha3_256(lattice + point + enc[1088:] + pair.public.raw[1184:] + label).digest()


@pytest.mark.parametrize("kem", Kem)
def test_it_is_hpke(kem: Kem) -> None:
    """Unwrapped by the text of the RFC, without the library's HPKE."""
    wrapped = json.loads(answer(kem))
    assert wrapped.keys() == {"keyId", "request", "validMs", "kem", "key"}
    assert wrapped["validMs"] == 329500
    data = b64decode(wrapped["key"])
    enc, sealed = data[:-48], data[-48:]
    number, secret = shared_secret(PAIRS[kem], enc)
    info = b"tidegate/wrap/1"
    for text in ("user:mary", "4f00", "329500", REQUEST):
        info += len(text).to_bytes(2, "big") + text.encode()
    suite = b"HPKE" + number.to_bytes(2, "big") + b"\x00\x01" + b"\x00\x02"  # HKDF-SHA256, AES-256-GCM
    context = b"\x00" + extract(suite, b"", b"psk_id_hash", b"") + extract(suite, b"", b"info_hash", info)
    prk = extract(suite, secret, b"secret", b"")
    key = expand(suite, prk, b"key", context, 32)
    nonce = expand(suite, prk, b"base_nonce", context, 12)
    assert AESGCM(key).decrypt(nonce, sealed, b"") == KEY.secret
