"""Certificates of a node's file, with when they end."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from processes import from_file
from tidegate.net.control_socket import ask

FILE = """
version: 1
node: {name: n, data: data}
listeners: [{url: "mqtts://127.0.0.1:PORT", cert: cert.pem, key: key.pem}]
sys: {interval: 0s}
policies: [{id: p1, subject: "*", topic: "a/#", action: [read, write]}]
"""


def write(folder: Path, days: int) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gym.example")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


async def test_until_when_certificates_are_good(tmp_path: Path) -> None:
    write(tmp_path, days=5)
    async with from_file(tmp_path, FILE) as served:
        path = served.node.config.control_socket
        [found] = (await asyncio.to_thread(ask, path, "certificate_list"))["certificates"]
        assert found["subject"] == "CN=gym.example"
        assert 4 * 86_400 < found["until"] - time.time() < 6 * 86_400
        assert found["used"][0].startswith("listener mqtts://")
        (tmp_path / "cert.pem").unlink()
        [known] = (await asyncio.to_thread(ask, path, "certificate_list"))["certificates"]
        assert known == found  # it was read a moment ago
