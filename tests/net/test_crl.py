"""A file of revocation lists that a service with mutual TLS watches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from structlog.testing import capture_logs

from processes import on_uvloop, until
from tidegate.cli import certificates
from tidegate.errors import ConfigError
from tidegate.net import crl
from tidegate.net.crl import RevocationFile


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(crl, "LOOK", 0.01)
    certificates.make_ca(tmp_path, "Revoking CA", days=2)
    for name in ("bob", "mary"):
        certificates.issue(tmp_path, name, [], client=True, days=2)
    certificates.revoke(tmp_path, [], days=2)
    return tmp_path


def der(authority: Path, name: str) -> bytes:
    certificate = x509.load_pem_x509_certificate((authority / f"{name}.pem").read_bytes())
    return certificate.public_bytes(serialization.Encoding.DER)


def file(authority: Path, *revoked: str) -> RevocationFile:
    return RevocationFile("here", authority / "ca.crl", authority / "ca.pem", revoked)


def write_list(authority: Path, expires: datetime) -> None:
    ca = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), password=None)
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject)
    builder = builder.last_update(expires - timedelta(days=9)).next_update(expires)
    data = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]
    (authority / "ca.crl").write_bytes(data)


@contextlib.asynccontextmanager
async def watched(lists: RevocationFile) -> AsyncIterator[list[None]]:
    """How often it has called back."""
    calls: list[None] = []
    watching = asyncio.create_task(lists.watch(lambda: calls.append(None)))
    try:
        yield calls
    finally:
        watching.cancel()


@on_uvloop
async def test_a_file_that_changes(authority: Path) -> None:
    lists = file(authority)
    bob, mary = der(authority, "bob"), der(authority, "mary")
    assert (lists.objection(bob), lists.objection(None)) == ("", "")
    async with watched(lists) as calls:
        certificates.revoke(authority, [authority / "bob.pem"], days=2)
        await until(lambda: len(calls) == 1)
        assert lists.objection(bob)
        assert not lists.objection(mary)
        with capture_logs() as logs:
            (authority / "ca.crl").write_text("no list")
            await until(lambda: any("last good" in line["event"] for line in logs))
        assert lists.objection(bob)
        assert not lists.objection(mary)
        assert len(calls) == 1


@on_uvloop
async def test_a_list_that_has_expired(authority: Path) -> None:
    lists, bob = file(authority), der(authority, "bob")
    async with watched(lists) as calls:
        with capture_logs() as logs:
            write_list(authority, datetime.now(UTC) - timedelta(seconds=1))
            await until(lambda: bool(calls))
        assert lists.objection(bob)
        assert [line for line in logs if "has expired" in line["event"] and "crl" in line["remedy"]]
        certificates.revoke(authority, [], days=2)
        await until(lambda: not lists.objection(bob))


def test_what_cannot_be_relied_on(authority: Path) -> None:
    (authority / "ca.crl").write_text("no list")
    with pytest.raises(ConfigError, match=r"ca\.crl"):
        file(authority)
    (authority / "ca.crl").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        file(authority)


def test_single_certificates(authority: Path) -> None:
    fingerprint = certificates.show(authority / "bob.pem")["fingerprint"]
    for lists in (file(authority, fingerprint), RevocationFile("here", None, None, [fingerprint])):
        assert lists.objection(der(authority, "bob"))
        assert not lists.objection(der(authority, "mary"))
