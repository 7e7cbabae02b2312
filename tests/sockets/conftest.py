"""For all tests of the door: certificates, made once, and a clock that can be put."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tidegate.cli import certificates as cli
from tidegate.link import dialer

CLIENTS = ("alice", "bob", "mary", "sensor")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts the wall clock of the node, in UTC; it stands at noon of a Wednesday. What only measures time goes on."""
    shown = SimpleNamespace(at=0.0)
    stand_in = SimpleNamespace(time=lambda: shown.at, monotonic=time.monotonic)
    monkeypatch.setattr("tidegate.node.turns.time", stand_in)

    def put(moment: str) -> None:
        shown.at = datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()

    put("2026-02-11T12:00:00")
    return put


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for nodes that are linked, with their certificates; links come back soon."""
    monkeypatch.setattr(dialer, "FIRST", 0.02)
    monkeypatch.setattr(dialer, "LONGEST", 0.1)
    cli.make_ca(tmp_path, "Test CA", days=2)
    for name in ("a", "b", "c"):
        cli.issue(tmp_path, name, ["127.0.0.1"], client=True, days=2)
    return tmp_path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CA, the certificate of the node, and those of some clients."""
    folder = tmp_path_factory.mktemp("certificates")
    cli.make_ca(folder, "Test CA", days=2)
    cli.issue(folder, "node", ["127.0.0.1"], client=False, days=2)
    for name in CLIENTS:
        cli.issue(folder, name, [], client=True, days=2)
    return folder


@pytest.fixture(scope="session")
def garbled(certificates: Path) -> Path:
    """The same folder with a client certificate `garbled` that TLS takes but nobody can read.

    Its name is a PrintableString with a character that is not printable in the sense of ASN.1.
    """
    pem, key = cli.issue(certificates, "garbled", [], client=True, days=2)
    certificate = x509.load_pem_x509_certificate(pem.read_bytes())
    signer = serialization.load_pem_private_key((certificates / "ca.key").read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    signed = certificate.tbs_certificate_bytes.replace(b"\x0c\x07garbled", b"\x13\x07gar*led")
    signature = signer.sign(signed, ec.ECDSA(hashes.SHA256()))
    algorithm = bytes.fromhex("300a06082a8648ce3d040302")  # ecdsa-with-SHA256
    body = signed + algorithm + _der(0x03, b"\0" + signature)
    pem.write_text(ssl.DER_cert_to_PEM_cert(_der(0x30, body)))
    assert key.exists()
    return certificates


def _der(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 0x80:
        return bytes((tag, size)) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body
