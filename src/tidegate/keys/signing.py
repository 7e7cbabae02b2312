"""Signatures with the key of a node's certificate, by an algorithm that fits the key.

| key | algorithm |
|---|---|
| Ed25519 | Ed25519 |
| EC on P-256, P-384, P-521 | ECDSA (DER) with SHA-256, SHA-384, SHA-512 |
| RSA of 2048 bits or more | RSASSA-PSS with SHA-256, MGF1 with SHA-256, a salt of 32 bytes |

The kind of the key alone decides the algorithm, so nobody can choose a weaker one. `Signer.short` makes signatures of
64 bytes: Ed25519, or ECDSA on P-256 as two numbers (RFC 7518, 3.4).

It does not know whether a certificate is trusted, or valid now, and for whom it speaks. What is signed has to say for
which purpose it is.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from tidegate.errors import KeysError
from tidegate.lazy import dss, ec, ed25519, exceptions, hashes, padding, rsa, serialization, x509

if TYPE_CHECKING:
    PublicKey: TypeAlias = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey
    PrivateKey: TypeAlias = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

SHORT: Final = 64
P256: Final = "secp256r1"
RSA_BITS: Final = 2048
RSA_MOST: Final = 8192
"""More would take long to verify."""
_KINDS: Final = "use an Ed25519 key, an EC key on P-256, P-384 or P-521, or an RSA key of 2048 to 8192 bits"


class Signer:
    """Signs with the private key that belongs to a certificate."""

    def __init__(self, key: PrivateKey) -> None:
        self._key = key

    @classmethod
    def of_pem(cls, pem: bytes, password: bytes | None = None) -> Signer:
        """KeysError if there is no private key in it that can be used."""
        try:
            key = serialization.load_pem_private_key(pem, password)
        except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
            raise KeysError("it holds no private key in PEM that can be read") from None
        if not isinstance(key, (ed25519.Ed25519PrivateKey, ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
            raise KeysError(f"nothing can be signed with this private key: {_KINDS}")
        _suitable(key.public_key())
        return cls(key)

    def __call__(self, data: bytes) -> bytes:
        """The signature."""
        match self._key:
            case ed25519.Ed25519PrivateKey():
                return self._key.sign(data)
            case ec.EllipticCurvePrivateKey():
                return self._key.sign(data, _ecdsa(self._key.curve.name))
            case _:
                return self._key.sign(data, *_pss())

    @property
    def signs_short(self) -> bool:
        """Whether its signatures can have 64 bytes."""
        key = self._key
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key.curve.name == P256
        return isinstance(key, ed25519.Ed25519PrivateKey)

    def short(self, data: bytes) -> bytes:
        """A signature of 64 bytes. KeysError if its key has none."""
        if not self.signs_short:
            raise KeysError(f"its key makes no signatures of {SHORT} bytes: use an Ed25519 key, or an EC key on P-256")
        signature = self(data)
        if isinstance(self._key, ed25519.Ed25519PrivateKey):
            return signature
        return b"".join(each.to_bytes(SHORT // 2, "big") for each in dss.decode_dss_signature(signature))


def short_signed_by(certificate: bytes, data: bytes, signature: bytes) -> bool:
    """The same as `signed_by` of a signature that `Signer.short` has made."""
    if len(signature) != SHORT:
        return False
    key = _public_key(certificate)
    if isinstance(key, ec.EllipticCurvePublicKey):
        if key.curve.name != P256:
            return False
        first, second = signature[: SHORT // 2], signature[SHORT // 2 :]
        signature = dss.encode_dss_signature(int.from_bytes(first, "big"), int.from_bytes(second, "big"))
    return _signed_with(key, data, signature)


def signed_by(certificate: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the holder of a certificate (DER) has signed this; False also if it cannot be read."""
    return _signed_with(_public_key(certificate), data, signature)


@lru_cache(maxsize=256)
def _public_key(certificate: bytes) -> object:
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
        _suitable(key)
    except (ValueError, exceptions.UnsupportedAlgorithm, KeysError):
        return None
    return key


def _signed_with(key: object, data: bytes, signature: bytes) -> bool:
    try:
        match key:
            case ed25519.Ed25519PublicKey():
                key.verify(signature, data)
            case ec.EllipticCurvePublicKey():
                key.verify(signature, data, _ecdsa(key.curve.name))
            case rsa.RSAPublicKey():
                key.verify(signature, data, *_pss())
            case _:
                return False
    except exceptions.InvalidSignature:
        return False
    return True


def _suitable(key: object) -> None:
    """KeysError unless such a key may sign."""
    match key:
        case ed25519.Ed25519PublicKey():
            return
        case ec.EllipticCurvePublicKey() if key.curve.name in (P256, "secp384r1", "secp521r1"):
            return
        case rsa.RSAPublicKey() if RSA_BITS <= key.key_size <= RSA_MOST:
            return
    raise KeysError(f"nothing can be signed with this key: {_KINDS}")


@cache
def _ecdsa(curve: str) -> ec.ECDSA:
    match curve:
        case "secp256r1":  # P256
            return ec.ECDSA(hashes.SHA256())
        case "secp384r1":
            return ec.ECDSA(hashes.SHA384())
        case _:
            return ec.ECDSA(hashes.SHA512())


@cache
def _pss() -> tuple[padding.PSS, hashes.SHA256]:
    return padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=hashes.SHA256.digest_size), hashes.SHA256()
