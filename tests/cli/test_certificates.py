"""Certificates as OpenSSL sees them, in its strictest mode, in a real handshake over a real socket."""

from __future__ import annotations

import os
import random
import socket
import ssl
import stat
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidegate.cli.certificates import issue, make_ca, show
from tidegate.errors import TidegateError

STRICT = ssl.VerifyFlags.VERIFY_X509_STRICT | getattr(ssl.VerifyFlags, "VERIFY_X509_PARTIAL_CHAIN", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    make_ca(folder, "Tidegate test CA", 100)
    issue(folder, "gym", ["localhost", "127.0.0.1", "::1", "*.gym.example", "bücher.example"], False, 50)
    issue(folder, "mary", [], True, 50)
    issue(folder, "node", ["localhost"], True, 50)
    return folder


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


# What is in them.


def test_the_ca(folder: Path) -> None:
    assert sorted(os.listdir(folder)) == [
        "ca.key", "ca.pem", "gym.key", "gym.pem", "mary.key", "mary.pem", "node.key", "node.pem"
    ]  # fmt: skip
    ca = load(folder / "ca.pem")
    assert ca.subject == ca.issuer
    constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    usage = ca.extensions.get_extension_for_class(x509.KeyUsage)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, True, False)
    ca.verify_directly_issued_by(ca)


@pytest.mark.parametrize(
    ("name", "purposes"), [("gym", ["server"]), ("mary", ["client"]), ("node", ["server", "client"])]
)
def test_what_it_signs(folder: Path, name: str, purposes: list[str]) -> None:
    ca, certificate = load(folder / "ca.pem"), load(folder / f"{name}.pem")
    certificate.verify_directly_issued_by(ca)
    names = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}
    extended = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(extended) == [names[purpose] for purpose in purposes]
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.digital_signature, usage.key_cert_sign) == (True, False)
    mine = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    theirs = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert mine.key_identifier == theirs.digest
    assert [attribute.value for attribute in certificate.subject] == [name]
    assert certificate.serial_number != ca.serial_number
    key = serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert key.public_key() == certificate.public_key()


def test_show(folder: Path) -> None:
    certificate = load(folder / "gym.pem")
    shown = show(folder / "gym.pem")
    assert shown["subject"] == "CN=gym"
    assert shown["issuer"] == "CN=Tidegate test CA"
    assert int(shown["serial"], 16) == certificate.serial_number
    assert shown["fingerprint"] == certificate.fingerprint(hashes.SHA256()).hex()
    assert shown["hosts"] == ["localhost", "127.0.0.1", "::1", "*.gym.example", "xn--bcher-kva.example"]
    assert shown["usage"] == ["server"]
    assert shown["key"] == "EC secp256r1"
    assert (shown["ca"], shown["valid"], shown["days_left"]) == (False, True, 49)
    assert datetime.fromisoformat(shown["not_after"]) == certificate.not_valid_after_utc
    assert datetime.fromisoformat(shown["not_before"]) < datetime.now(UTC)
    later = show(folder / "gym.pem", now=datetime.now(UTC) + timedelta(days=60))
    assert (later["valid"], later["days_left"]) == (False, -11)
    ca = show(folder / "ca.pem")
    assert (ca["ca"], ca["hosts"], ca["usage"]) == (True, [], [])


def test_show_what_others_made(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Åben, A/S")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(255)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier("urn:x"), x509.DNSName("a.example")]), False
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "other.der"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.DER))
    shown = show(path)
    assert shown["subject"] == "O=Åben\\, A/S"
    assert (shown["serial"], shown["key"], shown["ca"]) == ("ff", "RSA 2048", False)
    assert shown["hosts"] == ["a.example", "UniformResourceIdentifier:urn:x"]


# A real handshake.


def server_context(folder: Path, name: str = "gym") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_flags |= STRICT
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(folder: Path, name: str | None = "mary") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.verify_flags |= STRICT
    if name:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for port in random.SystemRandom().sample(range(10_000, 32_000), 200):
            try:
                sock.bind(("127.0.0.1", port))
                break
            except OSError:
                continue
        sock.listen()
        sock.settimeout(20)
        yield sock


def handshake(listener: socket.socket, server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> tuple[Any, bytes]:
    """The peer certificate that the server saw, or what it made of it, and what the client read."""
    seen: list[Any] = []

    def serve() -> None:
        raw, _ = listener.accept()
        with raw:
            try:
                with server.wrap_socket(raw, server_side=True) as connection:
                    seen.append(connection.getpeercert())
                    connection.sendall(b"welcome")
            except (ssl.SSLError, ConnectionError) as error:
                seen.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with (
            socket.create_connection(listener.getsockname(), timeout=20) as raw,
            client.wrap_socket(raw, server_hostname=host) as connection,
        ):
            said = connection.recv(100)
    finally:
        thread.join()
    return seen[0], said


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "box.gym.example"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_handshake(listener: socket.socket, folder: Path, host: str, version: ssl.TLSVersion) -> None:
    client = client_context(folder)
    client.minimum_version = client.maximum_version = version
    seen, said = handshake(listener, server_context(folder), client, host)
    assert said == b"welcome"
    assert seen["subject"] == ((("commonName", "mary"),),)


def test_a_node_is_both(listener: socket.socket, folder: Path) -> None:
    seen, said = handshake(listener, server_context(folder, "node"), client_context(folder, "node"), "localhost")
    assert said == b"welcome"
    assert seen["subject"] == ((("commonName", "node"),),)


def test_wrong_host(listener: socket.socket, folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(listener, server_context(folder), client_context(folder), "elsewhere.example")


@pytest.mark.parametrize(("server", "client"), [("gym", "gym"), ("mary", "mary"), ("gym", None)])
def test_wrong_purpose(listener: socket.socket, folder: Path, server: str, client: str | None) -> None:
    """A server's certificate does not make a client, nor the other way round, nor none at all."""
    try:
        seen, said = handshake(listener, server_context(folder, server), client_context(folder, client), "localhost")
    except (ssl.SSLError, ConnectionError):
        return
    assert isinstance(seen, ssl.SSLError)
    assert said == b""


def test_another_ca(listener: socket.socket, folder: Path, tmp_path: Path) -> None:
    make_ca(tmp_path, "Tidegate test CA", 100)  # the same name with another key
    issue(tmp_path, "mary", [], True, 50)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(listener, server_context(folder), client_context(tmp_path), "localhost")


# Files.


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_nobody_else_ever_reads_a_key(tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    opened = os.open

    def watched(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        descriptor = opened(path, flags, mode, **more)
        if flags & os.O_CREAT:
            modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", watched)
    before = os.umask(umask)
    try:
        _, ca_key = make_ca(tmp_path, "CA", 10)
        certificate, key = issue(tmp_path, "mary", [], True, 10)
    finally:
        os.umask(before)
    assert modes == [0o600] * 4
    for path in (ca_key, key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(certificate.stat().st_mode) == 0o644
    assert len(os.listdir(tmp_path)) == 4


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    certificate, key = make_ca(tmp_path, "CA", 10)
    before = certificate.read_bytes(), key.read_bytes()
    with pytest.raises(TidegateError, match=r"ca.pem exists already.*--force"):
        make_ca(tmp_path, "CA", 10)
    certificate.unlink()
    with pytest.raises(TidegateError, match=r"ca.key exists already"):
        make_ca(tmp_path, "CA", 10)
    certificate.write_bytes(before[0])
    assert key.read_bytes() == before[1]
    issue(tmp_path, "mary", [], True, 10)
    with pytest.raises(TidegateError, match=r"mary.pem exists already"):
        issue(tmp_path, "mary", [], True, 10)
    issue(tmp_path, "mary", [], True, 10, force=True)
    for forced in (False, True):
        with pytest.raises(TidegateError, match="cannot be the name"):
            issue(tmp_path, "ca", [], True, 10, force=forced)
    assert (certificate.read_bytes(), key.read_bytes()) == before
    make_ca(tmp_path, "CA", 10, force=True)
    assert key.read_bytes() != before[1]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["ca.key", "ca.pem", "mary.key", "mary.pem"]


def test_force_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    make_ca(tmp_path, "CA", 10)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "mary.key").symlink_to(precious)
    with pytest.raises(TidegateError, match="exists already"):
        issue(tmp_path, "mary", [], True, 10)
    _, key = issue(tmp_path, "mary", [], True, 10, force=True)
    assert precious.read_text() == "precious"
    assert not key.is_symlink()


def test_elsewhere(tmp_path: Path) -> None:
    make_ca(tmp_path / "ca" / "deep", "CA", 10)
    certificate, key = issue(tmp_path / "ca" / "deep", "gym", ["localhost"], False, 10, tmp_path / "out")
    assert (certificate, key) == (tmp_path / "out" / "gym.pem", tmp_path / "out" / "gym.key")
    assert certificate.exists()
    assert key.exists()


def test_no_certificate_outlives_its_ca(tmp_path: Path) -> None:
    ca, _ = make_ca(tmp_path, "CA", 10)
    certificate, _ = issue(tmp_path, "gym", ["localhost"], False, 3650)
    assert load(certificate).not_valid_after_utc == load(ca).not_valid_after_utc


# Saying no.


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../up", "a/b", ".hidden", "nul\0", "new\nline", "-rf", "ca", "x" * 65, "a\\b"]
)
def test_names_that_are_no_file_names(folder: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(TidegateError, match="cannot be"):
        issue(folder, name, [], True, 10, tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("host", ["", "a b", "-a", "a..b", "a.", "*.*.example", "http://a", "a:1883", "x" * 64, "*"])
def test_hosts_that_are_none(folder: Path, tmp_path: Path, host: str) -> None:
    with pytest.raises(TidegateError, match="neither the name of a host nor an address"):
        issue(folder, "gym", [host], False, 10, tmp_path)


@pytest.mark.parametrize("days", [0, -1, 36_501, 10**9])
def test_days(folder: Path, tmp_path: Path, days: int) -> None:
    for make in (lambda: make_ca(tmp_path, "CA", days), lambda: issue(folder, "gym", ["a"], False, days, tmp_path)):
        with pytest.raises(TidegateError, match="1 to 36500 days"):
            make()


@pytest.mark.parametrize("name", ["", "x" * 65, "two\nlines"])
def test_names_of_a_ca(tmp_path: Path, name: str) -> None:
    with pytest.raises(TidegateError, match="common name"):
        make_ca(tmp_path, name, 10)


def test_no_purpose(folder: Path) -> None:
    with pytest.raises(TidegateError, match="server or a client"):
        issue(folder, "nobody", [], False, 10)


def test_a_ca_that_is_not_there_or_not_right(tmp_path: Path) -> None:
    with pytest.raises(TidegateError, match="tidegate cert ca"):
        issue(tmp_path, "gym", ["a"], False, 10)
    certificate, key = make_ca(tmp_path, "CA", 10)
    _, other = make_ca(tmp_path / "other", "CA", 10)
    mine, theirs = key.read_bytes(), other.read_bytes()
    for wrong, says in ((theirs, "not the key of"), (b"junk", "not a private key")):
        key.write_bytes(wrong)
        with pytest.raises(TidegateError, match=says):
            issue(tmp_path, "gym", ["a"], False, 10)
    key.write_bytes(mine)
    leaf, leaf_key = issue(tmp_path, "leaf", ["a"], False, 10)
    certificate.write_bytes(leaf.read_bytes())
    key.write_bytes(leaf_key.read_bytes())
    with pytest.raises(TidegateError, match="not a CA certificate"):
        issue(tmp_path, "gym", ["a"], False, 10)


def test_a_ca_that_expired(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "old")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2021, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "ca.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    with pytest.raises(TidegateError, match="expired on 2021-01-01"):
        issue(tmp_path, "gym", ["a"], False, 10)


def test_files_that_are_no_certificates(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(TidegateError, match="cannot read"):
        show(tmp_path / "missing.pem")
    for data in (b"", b"junk", b"-----BEGIN CERTIFICATE-----\njunk\n", (folder / "ca.key").read_bytes()):
        (tmp_path / "junk.pem").write_bytes(data)
        with pytest.raises(TidegateError, match="no certificate in it"):
            show(tmp_path / "junk.pem")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TidegateError, match="cannot write to"):
        make_ca(tmp_path / "file", "CA", 10)
