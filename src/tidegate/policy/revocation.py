"""Certificates that count no more: revoked, expired, or of an authority that is not trusted any more.

They are revoked one by one, or in certificate revocation lists (RFC 5280, 5).

A list (CRL) counts if its signature is by an authority of the listener. A certificate of an authority without a list,
or with one that is past its next update, is refused: nobody can tell whether it was revoked. Only the certificate of
the peer is looked up, not those of authorities between it and the root.

It reads no files and knows no clock: bytes and the time come in.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import cbor2

from tidegate.errors import ConfigError
from tidegate.lazy import LazyModule
from tidegate.policy.trust_list import Subject, certificate_fingerprint, fingerprint, subject_of

if TYPE_CHECKING:
    from cryptography import x509
else:
    x509 = LazyModule("cryptography.x509")

REVOKED: Final = "it was revoked"
_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN (?:X509 )?CERTIFICATE-----(.+?)-----END (?:X509 )?CERTIFICATE-----", re.DOTALL
)
_PEM: Final = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCertificate:
    """A certificate that TLS has verified."""

    der: bytes
    expires: float
    authorities: frozenset[str]
    """The fingerprint of the authority that its chain ends at; of several if it is not known which of them that is."""

    def left(self, wall: float, steady: float) -> float:
        """Seconds until it expires; it has if there are none."""
        return self.expires - max(wall, steady)

    def encode(self, certified: bool) -> bytes:
        """For the store. `certified`: it said who its client is."""
        return cbor2.dumps([self.der, self.expires, sorted(self.authorities), certified])

    @classmethod
    def decode(cls, data: bytes) -> tuple[PeerCertificate, bool]:
        der, expires, authorities, certified = cbor2.loads(data)
        return cls(der=der, expires=expires, authorities=frozenset(authorities)), certified


def authorities_in(content: bytes) -> frozenset[str]:
    """The fingerprints of the authorities that a file in PEM lists."""
    try:
        return frozenset(fingerprint(a2b_base64(text)) for text in _CERTIFICATE.findall(content))
    except Error as error:
        raise ConfigError(f"`client_ca` holds a certificate that cannot be read: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    """What the newest list of one authority says."""

    updated: float
    expires: float | None
    serials: frozenset[int]


class RevocationLists:
    def __init__(self, content: bytes, authorities: bytes) -> None:
        """From the content of the files, PEM or DER; ConfigError if a list cannot be relied on."""
        self._lists: dict[Subject, _List] = {}
        signers = _authorities(authorities)
        for crl in _crls(content):
            try:
                issuer, newest = _read(crl, signers)
            except ConfigError:
                raise
            except Exception as error:  # what is malformed raises all kinds of errors, each when it is looked at
                raise ConfigError(f"a list in it cannot be read: {error}; write it again") from error
            if issuer not in self._lists or self._lists[issuer].updated <= newest.updated:
                self._lists[issuer] = newest

    @property
    def expires(self) -> float | None:
        """When the first of them does; None: none ever does."""
        return min((each.expires for each in self._lists.values() if each.expires is not None), default=None)

    @property
    def revoked(self) -> frozenset[tuple[Subject, int]]:
        return frozenset((issuer, serial) for issuer, found in self._lists.items() for serial in found.serials)

    def objection(self, certificate: x509.Certificate, now: float) -> str:
        """Why a certificate does not count; empty: it does."""
        found = self._lists.get(subject_of(certificate.issuer))
        if found is None:
            return "there is no revocation list of its authority"
        if certificate.serial_number in found.serials:
            return REVOKED
        if found.expires is not None and found.expires <= now:
            return "the revocation list of its authority has expired"
        return ""


class Revocation:
    """What was revoked: certificates by their fingerprints on all listeners, and lists by listener; and which
    authorities each listener trusts."""

    def __init__(
        self,
        revoked: Iterable[str] = (),
        lists: dict[str, RevocationLists] | None = None,
        authorities: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """`revoked` are fingerprints or certificates in PEM; `lists` and the fingerprints of `authorities`, which has
        all listeners, are by the name of the listener. Without `authorities` those are whatever TLS takes."""
        self._revoked = frozenset(map(certificate_fingerprint, revoked))
        self._lists = lists or {}
        self._authorities = authorities

    def more_than(self, before: Revocation) -> bool:
        """Whether it revokes anything that was not revoked before."""
        if self._revoked - before._revoked:
            return True
        for name, trusted in (before._authorities or {}).items():
            if self._authorities is not None and trusted - self._authorities.get(name, frozenset()):
                return True
        return any(
            lists.revoked - (before._lists[name].revoked if name in before._lists else frozenset())
            for name, lists in self._lists.items()
        )

    def expired(self, now: float) -> Iterator[str]:
        return (name for name, each in self._lists.items() if each.expires is not None and each.expires <= now)

    def refuses(self, certificate: PeerCertificate, listener: str, wall: float, steady: float) -> str:
        """Why the certificate of a connection does not count any more, which it did during the handshake; if the
        listener is gone, why it counts on none."""
        if certificate.left(wall, steady) <= 0:
            return "it has expired"
        if self._authorities is None:
            return self.objection(certificate.der, listener, wall)
        why = "its authority is not trusted any more"
        for name in (listener,) if listener in self._authorities else tuple(self._authorities):
            if certificate.authorities and certificate.authorities <= self._authorities[name]:
                why = self.objection(certificate.der, name, wall)
                if not why:
                    break
        return why

    def objection(self, der: bytes | None, listener: str, now: float) -> str:
        """Why the verified certificate of a peer does not count; empty: it does, or there is none."""
        lists = self._lists.get(listener)
        if der is None or (lists is None and not self._revoked):
            return ""
        if fingerprint(der) in self._revoked:
            return REVOKED
        if lists is None:
            return ""
        try:
            return lists.objection(x509.load_der_x509_certificate(der), now)
        except ValueError as error:
            return f"it cannot be read: {error}"


def _read(crl: x509.CertificateRevocationList, signers: Sequence[x509.Certificate]) -> tuple[Subject, _List]:
    """Whose list it is and what it says; before its signature is verified nothing else is looked at."""
    name, issuer = crl.issuer.rfc4514_string(), subject_of(crl.issuer)
    candidates = [each for each in signers if subject_of(each.subject) == issuer]
    if not any(_signed_by(crl, each) for each in candidates):
        raise ConfigError(f"the list of `{name}` is signed by no authority of `client_ca`; take the right one")
    if any(each.critical for each in crl.extensions):
        raise ConfigError(f"the list of `{name}` covers only a part of its certificates; write a complete one")
    expires = crl.next_update_utc
    return issuer, _List(
        updated=crl.last_update_utc.timestamp(),
        expires=None if expires is None else expires.timestamp(),
        serials=frozenset(each.serial_number for each in crl),
    )


def _crls(content: bytes) -> Sequence[x509.CertificateRevocationList]:
    try:
        texts = _PEM.findall(content)
        lists = [x509.load_pem_x509_crl(each) for each in texts] or [x509.load_der_x509_crl(content)]
    except Exception as error:  # somebody has written it, and may have written anything
        raise ConfigError(f"it holds no revocation list that can be read: {error}") from error
    return lists


def _authorities(content: bytes) -> Sequence[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise ConfigError(f"`client_ca` holds a certificate that cannot be read: {error}") from error


def _signed_by(crl: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    try:
        return crl.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - of an algorithm or a key that cannot be used: it is not valid
        return False
