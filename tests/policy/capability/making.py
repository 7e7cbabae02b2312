"""Tokens for tests: two kinds of keys, an issuer, and claims that are fine until a test changes them."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tidegate.policy.capability import Capability, Issuers, Key, PrivateKey, Unacceptable, sign, verify
from tidegate.policy.capability.jwk import jwk_of, public_jwk

NOW = 1_700_000_000.0
ED = Ed25519PrivateKey.generate()
P256 = ec.generate_private_key(ec.SECP256R1())
HOLDER = Ed25519PrivateKey.generate()
KEYS: dict[str, PrivateKey] = {"EdDSA": ED, "ES256": P256}
HOLDERS: dict[str, PrivateKey] = {"Ed25519": HOLDER, "P-256": ec.generate_private_key(ec.SECP256R1())}


def key_of(key: PrivateKey, name: str | None = None) -> Key:
    """An issuer's key, as the node has it."""
    return Key.of(public_jwk(jwk_of(key.public_key())), name)


ISSUERS = Issuers({"ward": [key_of(ED), key_of(P256)]})


def claims(**changed: Any) -> dict[str, Any]:
    """Claims that are fine; None takes one away."""
    made: dict[str, Any] = {
        "iss": "ward",
        "sub": "user:mary",
        "jti": "c1",
        "exp": NOW + 100,
        "cnf": {"jwk": jwk_of(HOLDER.public_key())},
        "rights": [{"action": "read", "topic": "angina/#"}, {"action": ["read", "write"], "topic": "ward/+/bed"}],
        **changed,
    }
    return {name: value for name, value in made.items() if value is not None}


def token(key: PrivateKey = ED, **changed: Any) -> str:
    return sign(claims(**changed), key)


def judged(
    text: str, *, wall: float = NOW, steady: float = NOW, issuers: Issuers = ISSUERS
) -> Capability | Unacceptable:
    return verify(text, issuers, wall=wall, steady=steady)


def good(text: str, **more: Any) -> Capability:
    found = judged(text, **more)
    assert isinstance(found, Capability), found
    return found


def why(text: str, **more: Any) -> str:
    found = judged(text, **more)
    assert isinstance(found, Unacceptable), found
    return found.why
