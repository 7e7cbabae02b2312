"""A small certificate authority for trying things out and for the examples: `tidegate cert ca|issue|revoke|show`.

`make_ca` writes `ca.pem` and `ca.key` to a folder, `issue` signs with them, `revoke` keeps the list `ca.crl`, `show`
reads any certificate. Keys are EC P-256. Certificates have what RFC 5280 asks for, so that OpenSSL accepts them with
X509_V_FLAG_X509_STRICT, the default of Python 3.13.

- A key file is made with mode 0600 from the first moment and appears whole under its name or not at all.
- Nothing is overwritten unless `force` says so, and the CA never by issuing a certificate.
- No certificate outlives the CA that signed it.

It will not renew, protect keys with a password, or sign requests of others: that is what a real CA is for.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidegate.errors import TidegateError

CA = "ca"
SKEW = timedelta(hours=1)  # certificates are used at once, also by machines whose clock is slow
LONGEST = 36_500  # days

_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_KEY_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
_USAGE = {ExtendedKeyUsageOID.SERVER_AUTH: "server", ExtendedKeyUsageOID.CLIENT_AUTH: "client"}


def make_ca(folder: Path, name: str, days: int, force: bool = False) -> tuple[Path, Path]:
    """Makes a CA called `name` in `folder`: the paths of its certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    certificate = (
        _builder(subject, subject, key.public_key(), key.public_key(), _until(days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage("key_cert_sign", "crl_sign"), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _save(folder, CA, certificate, key, force)


def issue(
    folder: Path,
    name: str,
    hosts: Sequence[str],
    client: bool,
    days: int,
    out: Path | None = None,
    force: bool = False,
) -> tuple[Path, Path]:
    """Signs a certificate for `name` with the CA in `folder`: the paths of `name.pem` and `name.key` in `out`
    (without it, in `folder`).

    With `hosts` (names or addresses) it is for a server, with `client` for a client; a node that also connects
    to others wants both. It ends with the CA at the latest.
    """
    if not hosts and not client:
        raise TidegateError("a certificate is for a server or a client: name its hosts, or say --client")
    if not re.fullmatch(r"[^\W.][\w.@ +-]*", name) or name == CA:
        raise TidegateError(f"{name!r} cannot be the name of a certificate: it is also the name of its files")
    authority, signer = _load_ca(folder)
    until = min(_until(days), authority.not_valid_after_utc)
    if authority.not_valid_after_utc < datetime.now(UTC):
        raise TidegateError(f"the CA in {folder} expired on {authority.not_valid_after_utc:%Y-%m-%d}: make a new one")
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH] * bool(hosts) + [ExtendedKeyUsageOID.CLIENT_AUTH] * client
    builder = (
        _builder(_subject(name), authority.subject, key.public_key(), signer.public_key(), until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)])
        builder = builder.add_extension(names, critical=False)
    return _save(out or folder, name, builder.sign(signer, hashes.SHA256()), key, force)


def revoke(folder: Path, certificates: Sequence[Path], days: int) -> Path:
    """Adds certificates to the revocation list of the CA in `folder`, `ca.crl`, which is then good for so many days
    more; without any it is only signed again."""
    authority, signer = _load_ca(folder)
    path, now = folder / f"{CA}.crl", datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.subject).last_update(now)
    builder = builder.next_update(_until(days))
    try:
        before = list(x509.load_pem_x509_crl(path.read_bytes())) if path.exists() else []
    except (OSError, ValueError) as error:
        raise TidegateError(f"cannot read {path}: {error}; move it away") from error
    entries = {each.serial_number: each for each in before}
    for each in map(_load_certificate, certificates):
        if each.issuer != authority.subject:
            raise TidegateError(f"{each.subject.rfc4514_string()} is no certificate of the CA in {folder}")
        entry = x509.RevokedCertificateBuilder().serial_number(each.serial_number).revocation_date(now)
        entries.setdefault(each.serial_number, entry.build())
    for revoked in entries.values():
        builder = builder.add_revoked_certificate(revoked)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    number = x509.CRLNumber(int(now.timestamp() * 1000))
    builder = builder.add_extension(identifier, critical=False).add_extension(number, critical=False)
    try:
        data = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        _write(path, data, 0o644, force=True)
    except OSError as error:
        raise TidegateError(f"cannot write to {folder}: {error.strerror or error}") from error
    return path


def show(path: Path, now: datetime | None = None) -> dict[str, Any]:
    """What a certificate file says (PEM or DER; of several in a file, the first)."""
    certificate = _load_certificate(path)
    now = now or datetime.now(UTC)
    return {
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "serial": f"{certificate.serial_number:x}",
        "fingerprint": certificate.fingerprint(hashes.SHA256()).hex(),
        "hosts": _hosts(certificate),
        "usage": [
            _USAGE.get(each, each.dotted_string) for each in _extension(certificate, x509.ExtendedKeyUsage) or ()
        ],
        "ca": _is_ca(certificate),
        "key": _describe(certificate),
        "not_before": certificate.not_valid_before_utc.isoformat(),
        "not_after": certificate.not_valid_after_utc.isoformat(),
        "days_left": (certificate.not_valid_after_utc - now) // timedelta(days=1),
        "valid": certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc,
    }


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    authority: ec.EllipticCurvePublicKey,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False)
    )


def _key_usage(*usages: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in usages for usage in _KEY_USAGES})


def _until(days: int) -> datetime:
    if not 1 <= days <= LONGEST:
        raise TidegateError(f"a certificate is valid for 1 to {LONGEST} days, not {days}")
    return datetime.now(UTC) + timedelta(days=days)


def _subject(name: str) -> x509.Name:
    if not 1 <= len(name) <= 64 or not name.isprintable():  # RFC 5280, A.1: ub-common-name
        raise TidegateError(f"{name!r} cannot be a common name: 1 to 64 printable characters")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass  # a name, then
    try:
        ascii_name = host.encode("idna").decode()
    except UnicodeError:
        ascii_name = ""
    labels = ascii_name.removeprefix("*.").split(".")
    if len(ascii_name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise TidegateError(f"{host!r} is neither the name of a host nor an address")
    return x509.DNSName(ascii_name)


# Files.


def _save(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, force: bool
) -> tuple[Path, Path]:
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if not force and os.path.lexists(path):
                raise _in_the_way(path)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        _write(paths[1], secret, 0o600, force)
        try:
            _write(paths[0], certificate.public_bytes(serialization.Encoding.PEM), 0o644, force)
        except (OSError, TidegateError):
            if not force:
                paths[1].unlink()  # a key without its certificate would only be in the way
            raise
    except OSError as error:
        raise TidegateError(f"cannot write to {folder}: {error.strerror or error}") from error
    return paths


def _write(path: Path, data: bytes, mode: int, force: bool) -> None:
    """Writes aside and moves into place: readers see the old file or the new one, whole."""
    descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        if force:
            os.replace(aside, path)
        else:
            os.link(aside, path)  # unlike a move, refuses to overwrite
    except FileExistsError:
        raise _in_the_way(path) from None
    finally:
        Path(aside).unlink(missing_ok=True)


def _in_the_way(path: Path) -> TidegateError:
    return TidegateError(f"{path} exists already: move it, or overwrite it with --force")


def _load_ca(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate_path, key_path = folder / f"{CA}.pem", folder / f"{CA}.key"
    if not certificate_path.exists() or not key_path.exists():
        raise TidegateError(f"no CA in {folder} (ca.pem and ca.key): make one with `tidegate cert ca`")
    certificate = _load_certificate(certificate_path)
    try:
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except OSError as error:
        raise TidegateError(f"cannot read {key_path}: {error.strerror or error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it is protected by a password
        raise TidegateError(f"{key_path} is not a private key in PEM form without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise TidegateError(f"{key_path} is not the key of {certificate_path}, or not one that `tidegate` made")
    if not _is_ca(certificate):
        raise TidegateError(f"{certificate_path} is not a CA certificate")
    return certificate, key


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TidegateError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        if b"-----BEGIN" in data:
            return x509.load_pem_x509_certificates(data)[0]
        return x509.load_der_x509_certificate(data)
    except ValueError:
        raise TidegateError(f"{path} has no certificate in it") from None


# Reading certificates.


T = TypeVar("T", bound=x509.ExtensionType)


def _extension(certificate: x509.Certificate, kind: type[T]) -> T | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _hosts(certificate: x509.Certificate) -> list[str]:
    names = _extension(certificate, x509.SubjectAlternativeName) or ()
    hosts = [str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress)]
    others = [name for name in names if not isinstance(name, x509.DNSName | x509.IPAddress)]
    return hosts + [f"{type(name).__name__}:{name.value}" for name in others]


def _is_ca(certificate: x509.Certificate) -> bool:
    constraints = _extension(certificate, x509.BasicConstraints)
    return constraints is not None and constraints.ca


def _describe(certificate: x509.Certificate) -> str:
    match certificate.public_key():
        case ec.EllipticCurvePublicKey() as key:
            return f"EC {key.curve.name}"
        case rsa.RSAPublicKey() as key:
            return f"RSA {key.key_size}"
        case dsa.DSAPublicKey() as key:
            return f"DSA {key.key_size}"
        case key:
            return type(key).__name__.removesuffix("PublicKey").removeprefix("_")
