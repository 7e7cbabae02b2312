"""Signatures with the keys that certificates of nodes have."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from tidegate.errors import KeysError
from tidegate.keys.signing import Signer, signed_by

KINDS: dict[str, Callable[[], Any]] = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "p256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "p521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
}
UNFIT: dict[str, Callable[[], Any]] = {
    "ed448": ed448.Ed448PrivateKey.generate,
    "k256": lambda: ec.generate_private_key(ec.SECP256K1()),
    "rsa1024": lambda: rsa.generate_private_key(65537, 1024),
}


def pem_of(key: Any) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_of(key: Any) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + datetime.timedelta(days=1))
    algorithm = None if isinstance(key, (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.DER)


@cache
def pair(kind: str) -> tuple[Signer, bytes]:
    key = (KINDS | UNFIT)[kind]()
    return Signer.of_pem(pem_of(key)), certificate_of(key)


@pytest.mark.parametrize("kind", KINDS)
def test_the_holder_of_a_certificate_signs(kind: str) -> None:
    signer, certificate = pair(kind)
    signature = signer(b"text")
    assert signed_by(certificate, b"text", signature)
    assert not signed_by(certificate, b"Text", signature)
    assert not signed_by(certificate, b"text", b"")
    for at in range(0, len(signature), 7):
        changed = signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]
        assert not signed_by(certificate, b"text", changed)
    for other in KINDS.keys() - {kind}:
        assert not signed_by(pair(other)[1], b"text", signature)


@pytest.mark.parametrize("kind", UNFIT)
def test_a_key_that_does_not_fit_signs_nothing_and_verifies_nothing(kind: str) -> None:
    key = UNFIT[kind]()
    with pytest.raises(KeysError, match="2048"):
        Signer.of_pem(pem_of(key))
    if kind == "ed448":
        signature = key.sign(b"text")
    elif kind == "k256":
        signature = key.sign(b"text", ec.ECDSA(hashes.SHA256()))
    else:
        signature = Signer(key)(b"text")
    assert not signed_by(certificate_of(key), b"text", signature)


def test_what_is_no_key_and_no_certificate() -> None:
    for pem in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        with pytest.raises(KeysError, match="no private key"):
            Signer.of_pem(pem)
    key = ed25519.Ed25519PrivateKey.generate()
    encrypted = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"pass")
    )
    with pytest.raises(KeysError, match="no private key"):
        Signer.of_pem(encrypted)
    assert signed_by(certificate_of(key), b"text", Signer.of_pem(encrypted, b"pass")(b"text"))
    for certificate in (b"", b"key-7", certificate_of(key)[:-1]):
        assert not signed_by(certificate, b"text", key.sign(b"text"))
