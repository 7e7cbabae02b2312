"""Keys of issuers and of holders: Ed25519 and P-256, and no others.

Only public keys are taken. Whoever writes a private key into a file for the node is told so.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from tidegate.errors import ConfigError
from tidegate.lazy import LazyModule, ec, ed25519, exceptions, serialization, x509
from tidegate.policy.capability.capability import PublicKey

if TYPE_CHECKING:
    from joserfc import errors as jose_errors
    from joserfc import jwk as jwk_types

    PrivateKey: TypeAlias = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
    Jwk: TypeAlias = jwk_types.ECKey | jwk_types.OKPKey
else:
    jose_errors = LazyModule("joserfc.errors")
    jwk_types = LazyModule("joserfc.jwk")
    PrivateKey = Jwk = object


MAX_KEYS: Final = 8  # of one issuer: each may have to be tried
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----", re.DOTALL)
_KINDS: Final = "an Ed25519 or P-256 key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An issuer's public key, and the names of the algorithms that it verifies."""

    jwk: Jwk
    algorithms: tuple[str, ...]
    name: str | None = None
    """Its `kid`, if it has one."""
    thumbprint: str

    @classmethod
    def of(cls, jwk: Jwk, name: str | None = None) -> Key:
        """RFC 9864 calls `Ed25519` what RFC 8037 calls `EdDSA`."""
        algorithms = ("EdDSA", "Ed25519") if isinstance(jwk, jwk_types.OKPKey) else ("ES256",)
        return cls(jwk=jwk, algorithms=algorithms, name=name, thumbprint=jwk.thumbprint())


def public_jwk(jwk: object) -> Jwk:
    """A public key as JSON has it; ConfigError if it is no key that is taken."""
    if not isinstance(jwk, dict):
        raise ConfigError("it is no JSON Web Key: write the public one")
    if "d" in jwk:
        raise ConfigError("it is a private key: write the public one")
    match jwk.get("kty"), jwk.get("crv"):
        case "OKP", "Ed25519":
            wanted: dict[str, Any] = {name: jwk.get(name) for name in ("kty", "crv", "x")}
        case "EC", "P-256":
            wanted = {name: jwk.get(name) for name in ("kty", "crv", "x", "y")}
        case _:
            raise ConfigError(f"it is not {_KINDS}: use one of these")
    try:
        for name in ("x", "y"):
            if name in wanted and not (isinstance(wanted[name], str) and len(decoded(wanted[name]) or b"") == 32):
                raise ValueError(name)
        if wanted["kty"] == "OKP":
            return jwk_types.OKPKey.import_key(wanted)
        return jwk_types.ECKey.import_key(wanted)
    except (jose_errors.JoseError, ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        raise ConfigError("it is a key that cannot be read: write it again") from None


def native(jwk: Jwk) -> PublicKey:
    key = jwk.public_key
    assert isinstance(key, ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey)
    return key


def jwk_of(key: PublicKey) -> dict[str, str]:
    if isinstance(key, ed25519.Ed25519PublicKey):
        return {"kty": "OKP", "crv": "Ed25519", "x": encoded(key.public_bytes_raw())}
    numbers = key.public_numbers()
    x, y = (encoded(number.to_bytes(32, "big")) for number in (numbers.x, numbers.y))
    return {"kty": "EC", "crv": "P-256", "x": x, "y": y}


def public_keys(pem: bytes) -> list[PublicKey]:
    """The public keys in a text in PEM, also those of certificates; ConfigError if there are none or others."""
    keys: list[PublicKey] = []
    for block in _PEM.finditer(pem):
        kind = block[1].decode()
        if "PRIVATE" in kind:
            raise ConfigError("it holds a private key: give away the public one only")
        try:
            if kind == "CERTIFICATE":
                key: object = x509.load_pem_x509_certificate(block[0]).public_key()
            else:
                key = serialization.load_pem_public_key(block[0])
        except (ValueError, exceptions.UnsupportedAlgorithm):
            raise ConfigError("it holds a key that cannot be read: write it again in PEM") from None
        keys.append(_ours(key))
    if not keys:
        raise ConfigError("it holds no public key: write one in PEM into it")
    return keys


def private_key(pem: bytes) -> PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        raise ConfigError("it holds no private key that can be read: write one in PEM, without a password") from None
    if isinstance(key, ed25519.Ed25519PrivateKey) or (
        isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1)
    ):
        return key
    raise ConfigError(f"it is not {_KINDS}: use one of these")


def keys_of_pem(pem: bytes) -> list[Key]:
    return [Key.of(public_jwk(jwk_of(key))) for key in public_keys(pem)]


def keys_of_jwks(text: bytes) -> list[Key]:
    """An issuer's keys in a JSON Web Key Set. Keys of other kinds, or for other uses, are passed over."""
    try:
        key_set = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise ConfigError('it is no JSON: a JSON Web Key Set is `{"keys": [...]}`') from None
    listed = key_set.get("keys") if isinstance(key_set, dict) else None
    if not isinstance(listed, list):
        raise ConfigError('it is no JSON Web Key Set: that is `{"keys": [...]}`')
    keys: list[Key] = []
    for jwk in listed:
        if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
            continue
        if (jwk.get("kty"), jwk.get("crv")) not in (("OKP", "Ed25519"), ("EC", "P-256")):
            continue
        name = jwk.get("kid")
        keys.append(Key.of(public_jwk(jwk), name if isinstance(name, str) else None))
    if not keys:
        raise ConfigError(f"it holds no key for signatures that is {_KINDS}: use one of these")
    return keys


def _ours(key: object) -> PublicKey:
    if isinstance(key, ed25519.Ed25519PublicKey):
        return key
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise ConfigError(f"it holds a key that is not {_KINDS}: use one of these")


_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")


def encoded(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes | None:
    """From base64url; None unless it is just how the same bytes would be written."""
    if not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:
        return None
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return data if encoded(data) == text else None  # the last character has bits that count for nothing
