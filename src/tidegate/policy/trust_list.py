"""Trust lists for TLS peers (SEC-REDS 2.6.2 and 2.6.3; semantics, *Trust*).

A peer with a verified certificate that is on the list is trusted. Any other is closed, or degraded to what its
encryption alone is worth: never `mtls`, never `trusted`.

A list is by subject or by certificate. Subjects are compared name by name, as parsed: the order of the relative names
counts, the order inside one does not; letters of ASCII compare without case and white space is compressed (RFC 5280,
7.1), everything else exactly. A subject with more names than the listed one is another subject.

It does not verify certificates: that is TLS's, and what did not pass there must not be given to it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Final

from tidegate.errors import ConfigError
from tidegate.lazy import oid, serialization, x509
from tidegate.policy.levels import Transport


class By(Enum):
    SUBJECT = "subject"
    CERTIFICATE = "certificate"


class Otherwise(Enum):
    """The connection policy: what happens to peers that are not trusted."""

    CLOSE = "close"
    DEGRADE = "degrade"


@dataclass(frozen=True, slots=True)
class Trusted:
    """On the list, by which entry of it."""

    entry: str


@dataclass(frozen=True, slots=True)
class Degraded:
    """Kept, with the level that its encryption alone gives."""

    reason: str


@dataclass(frozen=True, slots=True)
class Close:
    """Not kept."""

    reason: str


Subject = tuple[frozenset[tuple[str, str | bytes]], ...]

_FINGERPRINT: Final = re.compile(r"(?:sha256:)?([0-9a-f]{2}(?::?[0-9a-f]{2}){31})", re.IGNORECASE)
_ATTRIBUTES: Final = {
    "CN": "COMMON_NAME",
    "L": "LOCALITY_NAME",
    "ST": "STATE_OR_PROVINCE_NAME",
    "O": "ORGANIZATION_NAME",
    "OU": "ORGANIZATIONAL_UNIT_NAME",
    "C": "COUNTRY_NAME",
    "STREET": "STREET_ADDRESS",
    "DC": "DOMAIN_COMPONENT",
    "UID": "USER_ID",
    "emailAddress": "EMAIL_ADDRESS",
    "serialNumber": "SERIAL_NUMBER",
}
"""Short names of attributes (RFC 4514, 3), and what `x509.NameOID` calls them."""
_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def subject_of(name: x509.Name) -> Subject:
    """A name in the form in which names are compared."""
    return tuple(
        frozenset((attribute.oid.dotted_string, _prepared(attribute.value)) for attribute in rdn) for rdn in name.rdns
    )


def _prepared(value: str | bytes) -> str | bytes:
    return " ".join(value.translate(_ASCII_LOWER).split()) if isinstance(value, str) else value


def subject_text(der: bytes) -> str:
    """The subject of a certificate that was verified, as RFC 4514 writes it."""
    return x509.load_der_x509_certificate(der).subject.rfc4514_string()


def common_name(der: bytes) -> str:
    """The name of whom a verified certificate is made out to; empty if it has none, or several."""
    names = x509.load_der_x509_certificate(der).subject.get_attributes_for_oid(oid.NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def fingerprint(der: bytes) -> str:
    """SHA-256 of a certificate, in hexadecimal."""
    return hashlib.sha256(der).hexdigest()


class Trust:
    """A node's list, and what happens to those who are not on it."""

    def __init__(
        self, by: By, accept: Iterable[str], otherwise: Otherwise = Otherwise.CLOSE, *, vouch: float | None = None
    ) -> None:
        """`vouch`: trusted neighbours are asked about others, and their word counts for so many seconds; None: they are
        not."""
        self.by = by
        self.otherwise = otherwise
        self.vouch = vouch
        self._entries: dict[Subject | str, str] = {}
        for text in accept:
            key = _subject(text) if by is By.SUBJECT else certificate_fingerprint(text)
            self._entries[key] = text

    @property
    def asks(self) -> bool:
        return self.vouch is not None

    def judge(self, der: bytes | None) -> Trusted | Degraded | Close:
        """What becomes of a TLS peer that showed this certificate, verified; None if it showed none."""
        if der is None:
            return self._refused("it showed no certificate")
        if self.by is By.CERTIFICATE:
            entry = self._entries.get(fingerprint(der))
            return Trusted(entry) if entry is not None else self._refused("its certificate is not on the trust list")
        try:
            name = x509.load_der_x509_certificate(der).subject
            subject = subject_of(name)
        except ValueError as error:
            return self._refused(f"its certificate cannot be read: {error}")
        entry = self._entries.get(subject)
        if entry is not None:
            return Trusted(entry)
        return self._refused(f"{name.rfc4514_string() or 'an empty subject'} is not on the trust list")

    def _refused(self, reason: str) -> Degraded | Close:
        return Degraded(reason) if self.otherwise is Otherwise.DEGRADE else Close(reason)


def judged(transport: Transport, outcome: Trusted | Degraded) -> Transport:
    """What is known of a connection after the trust list was asked."""
    match outcome:
        case Trusted():
            return replace(transport, certificate=True, trusted=True)
        case Degraded():
            return transport.degrade()


def _subject(text: str) -> Subject:
    try:
        subject = subject_of(x509.Name.from_rfc4514_string(text, _short_names()))
    except ValueError as error:
        raise ConfigError(f"`{text}` is no subject: write it as in `CN=remotegym,O=MyGymBrand`") from error
    if not subject:
        raise ConfigError("an empty subject would trust every certificate without one")
    return subject


@cache
def _short_names() -> dict[str, x509.ObjectIdentifier]:
    """By short name, and by the same in lower case: they have no case, but the parser compares them exactly."""
    known: dict[str, x509.ObjectIdentifier] = {
        name: getattr(oid.NameOID, attribute) for name, attribute in _ATTRIBUTES.items()
    }
    return known | {name.lower(): identifier for name, identifier in known.items()}


def is_fingerprint(text: str) -> bool:
    """Whether this names a certificate by its fingerprint, and not by its subject."""
    return _FINGERPRINT.fullmatch(text.strip()) is not None


def certificate_fingerprint(text: str) -> str:
    """The fingerprint of a certificate that is given by it, or in PEM."""
    if "-----BEGIN CERTIFICATE-----" in text:
        try:
            return fingerprint(x509.load_pem_x509_certificate(text.encode()).public_bytes(serialization.Encoding.DER))
        except ValueError as error:
            raise ConfigError(f"a trusted certificate cannot be read: {error}") from error
    match = _FINGERPRINT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"`{text[:80]}` is no certificate: give its SHA-256 fingerprint in hexadecimal, or PEM")
    return match[1].replace(":", "").lower()
