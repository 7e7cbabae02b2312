"""Topic keys on their way to a reader: encrypted for the public key that the reader registered (HPKE, RFC 9180).

The suite is base mode with HKDF-SHA256 and AES-256-GCM; the KEM is that of the reader's key: X25519, or the hybrid of
ML-KEM-768 and X25519 against whoever records today and has a quantum computer later.

An answer is JSON: `{"keyId": …, "request": …, "validMs": …, "kem": …, "key": …}`. `key` is the base64 of HPKE's `enc`
and the ciphertext of the 32 secret bytes. `validMs` is for how many milliseconds the key can be read with: clocks need
not agree. HPKE's `info` is `tidegate/wrap/1`, then reader, id of the key, validity as digits, and request, each after
its length in two bytes.

Invariants
- An answer counts for one reader and one request: those for others are refused, and so is one of which anything was
  changed. A reader makes a new random `request` for each question and takes one answer to it.
- Whatever is wrong with keys and answers raises KeysError and nothing else. No error tells a secret.

HPKE takes the randomness of its ephemeral key from the system itself, the one exception in this room. Base mode does
not say who wrapped a key: that the answer comes from the key service is for the connection to prove (TLS).
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import orjson

from tidegate.errors import KeysError
from tidegate.keys.key import SECRET, TopicKey, valid_id
from tidegate.keys.pair import Kem, PrivateKey, PublicKey
from tidegate.keys.sealing import decoded
from tidegate.lazy import exceptions, hpke

MAX: Final = 8192
"""Bytes of an answer: the longest there is has some 2,000."""

_PURPOSE: Final = b"tidegate/wrap/1"
_REQUEST: Final = re.compile(r"[A-Za-z0-9_-]{16,128}")


@cache
def _suite(kem: Kem) -> hpke.Suite:
    mechanism = hpke.KEM.X25519 if kem is Kem.X25519 else hpke.KEM.MLKEM768_X25519
    return hpke.Suite(mechanism, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadKey:
    """What a reader is given: a key to read with, for so many seconds from now."""

    id: str
    secret: bytes = field(repr=False)
    seconds: float


def valid_request(request: str) -> bool:
    """Whether it can be the mark of a request: 16 to 128 letters, digits, `_` and `-`, random."""
    return _REQUEST.fullmatch(request) is not None


def wrap(key: TopicKey, public: PublicKey, *, reader: str, request: str, seconds: float) -> bytes:
    """The answer to a request; `seconds` as of `Ring.left`. Whether the reader may have it was decided before."""
    if not valid_request(request):
        raise KeysError("a request has a mark of 16 to 128 letters, digits, `_` and `-`: make a random one each time")
    if not 0 < seconds < 1e10:
        raise KeysError("the key has ended: ask for the one of a newer message")
    valid = int(seconds * 1000)
    try:
        wrapped = _suite(public.kem).encrypt(key.secret, public.native, _info(reader, key.id, valid, request))
    except ValueError:
        raise KeysError("nothing can be encrypted for this public key: register another one") from None
    return orjson.dumps(
        {
            "keyId": key.id,
            "request": request,
            "validMs": valid,
            "kem": public.kem.value,
            "key": b64encode(wrapped).decode(),
        }
    )


def unwrap(private: PrivateKey, answer: bytes, *, reader: str, request: str) -> ReadKey:
    """The key that an answer brings to this reader for this request."""
    if len(answer) > MAX:
        raise KeysError(f"it is no answer of a key service: {len(answer)} bytes are too many")
    try:
        content = orjson.loads(answer)
    except orjson.JSONDecodeError:
        raise KeysError("it is no answer of a key service: that is JSON") from None
    match content:
        case {
            "keyId": str() as id,
            "request": str() as asked,
            "validMs": int() as valid,
            "kem": str() as kem,
            "key": str() as text,
            **rest,
        } if not rest and valid_id(id) and not isinstance(valid, bool) and valid >= 0:
            pass
        case _:
            raise KeysError("it is no answer of a key service that brings a key")
    if asked != request:
        raise KeysError("it answers another request: an old answer, or somebody else's")
    if kem != private.kem.value:
        raise KeysError(f"it is for a key of another kind than {private.kem.value}: register this one")
    wrapped = decoded(text)
    if wrapped is None:
        raise KeysError("the key in the answer is no base64")
    try:
        secret = _suite(private.kem).decrypt(wrapped, private.native, _info(reader, id, valid, request))
    except (exceptions.InvalidTag, ValueError):
        raise KeysError("it is not for this private key, reader and request, or was changed: ask again") from None
    if len(secret) != SECRET:
        raise KeysError("the answer brings something that is no topic key")
    return ReadKey(id=id, secret=secret, seconds=valid / 1000)


def _info(reader: str, id: str, valid: int, request: str) -> bytes:
    info = _PURPOSE
    for text in (reader, id, str(valid), request):
        try:
            part = text.encode()
        except UnicodeEncodeError:
            raise KeysError("a name is no UTF-8") from None
        if len(part) > 0xFFFF:
            raise KeysError("a name has more than 65,535 bytes")
        info += len(part).to_bytes(2, "big") + part
    return info
