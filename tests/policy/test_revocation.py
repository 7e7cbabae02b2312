"""Lists of revoked certificates: what counts, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tidegate.cli import certificates as cli
from tidegate.errors import ConfigError
from tidegate.policy.revocation import REVOKED, Revocation, RevocationLists

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    cli.make_ca(folder, "One CA", days=2)
    cli.make_ca(folder / "other", "Other CA", days=2)
    for name in ("bob", "mary"):
        cli.issue(folder, name, [], client=True, days=2)
    cli.issue(folder / "other", "eve", [], client=True, days=2)
    return folder


def der(folder: Path, name: str) -> bytes:
    certificate = x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())
    return certificate.public_bytes(serialization.Encoding.DER)


def crl(
    folder: Path, *names: str, updated: datetime = NOW, expires: datetime | None = None, critical: bool = False
) -> bytes:
    ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject).last_update(updated)
    builder = builder.next_update(expires or updated + timedelta(days=1))
    for name in names:
        serial = x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes()).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(updated)
        builder = builder.add_revoked_certificate(entry.build())
    if critical:
        builder = builder.add_extension(x509.DeltaCRLIndicator(1), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]


def lists(folder: Path, content: bytes) -> Revocation:
    return Revocation((), {"l": RevocationLists(content, (folder / "ca.pem").read_bytes())})


def objection(revocation: Revocation, certificate: bytes, after: timedelta = timedelta(0), listener: str = "l") -> str:
    return revocation.objection(certificate, listener, (NOW + after).timestamp())


def test_what_is_listed_is_refused(folder: Path) -> None:
    found = lists(folder, crl(folder, "bob"))
    assert objection(found, der(folder, "bob")) == REVOKED
    assert objection(found, der(folder, "mary")) == ""
    assert objection(found, der(folder, "bob"), listener="another") == ""
    assert found.objection(None, "l", NOW.timestamp()) == ""


def test_the_newest_of_several_counts(folder: Path) -> None:
    old, new = crl(folder, "bob", updated=NOW - timedelta(hours=2)), crl(folder, "mary", updated=NOW)
    for content in (old + new, new + old):
        found = lists(folder, content)
        assert objection(found, der(folder, "mary")) == REVOKED
        assert objection(found, der(folder, "bob")) == ""


def test_after_its_next_update_nobody_can_tell(folder: Path) -> None:
    found = lists(folder, crl(folder, "bob", expires=NOW + timedelta(hours=1)))
    assert "expired" in objection(found, der(folder, "mary"), timedelta(hours=1))
    assert objection(found, der(folder, "bob"), timedelta(hours=1)) == REVOKED
    assert list(found.expired((NOW + timedelta(minutes=59)).timestamp())) == []
    assert list(found.expired((NOW + timedelta(hours=1)).timestamp())) == ["l"]


def test_a_certificate_of_an_authority_without_a_list(folder: Path) -> None:
    assert "no revocation list" in objection(lists(folder, crl(folder)), der(folder / "other", "eve"))


def test_der_is_read_as_well(folder: Path) -> None:
    content = x509.load_pem_x509_crl(crl(folder, "bob")).public_bytes(serialization.Encoding.DER)
    assert objection(lists(folder, content), der(folder, "bob")) == REVOKED


@pytest.mark.parametrize("wrong", ["empty", "half", "partial", "of another"])
def test_a_list_that_cannot_be_relied_on(folder: Path, wrong: str) -> None:
    whole = crl(folder, "bob")
    content = {
        "empty": b"",
        "half": whole[: len(whole) // 2],
        "partial": crl(folder, critical=True),
        "of another": crl(folder / "other"),
    }[wrong]
    with pytest.raises(ConfigError):
        lists(folder, content)


def test_one_by_one(folder: Path) -> None:
    pem = (folder / "bob.pem").read_text()
    fingerprint = cli.show(folder / "bob.pem")["fingerprint"]
    for text in (pem, fingerprint, f"sha256:{fingerprint.upper()}"):
        found = Revocation([text])
        assert objection(found, der(folder, "bob"), listener="any") == REVOKED
        assert objection(found, der(folder, "mary"), listener="any") == ""


def test_whether_there_is_more(folder: Path) -> None:
    nothing, bob = lists(folder, crl(folder)), lists(folder, crl(folder, "bob"))
    assert bob.more_than(nothing)
    assert bob.more_than(Revocation())
    assert not nothing.more_than(bob)
    assert not bob.more_than(bob)
    assert Revocation([cli.show(folder / "bob.pem")["fingerprint"]]).more_than(bob)
