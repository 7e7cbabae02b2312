"""Owners' preferences beyond this node: what those of this domain say is numbered and signed, and signatures of other
domains are verified.

A node signs with the key of its own certificate (`node.cert`, else that of its first TLS listener). A signature counts
if its certificate was issued by an authority that links trust, counts now, and names a node of the domain in question
(`trust.domains`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from tidegate.admin.preference_number_store import ROOM as NUMBERS
from tidegate.admin.preference_number_store import NodePreferenceNumbers, NumberedOwners
from tidegate.config import Config
from tidegate.errors import ConfigError, KeysError
from tidegate.keys.signing import Signer, signed_by
from tidegate.lazy import exceptions, serialization, x509
from tidegate.policy.home_preferences import HomePreferences, TravellingPreferences
from tidegate.policy.identities import USER
from tidegate.policy.trust_list import common_name
from tidegate.scope.foreign_preferences import ROOM as SETS
from tidegate.scope.link_signatures import NodeSigner

if TYPE_CHECKING:
    from tidegate.node.node import Node

NOWHERE: Final = ""
"""The listener of a certificate that has come with a signature."""

log = structlog.get_logger("tidegate.node")


class PreferenceSignatures:
    """What goes from a node to others of its owners' preferences, and whose signatures count here."""

    def __init__(self, node: Node, records: Mapping[str, Mapping[str, bytes]]) -> None:
        registry = None if node.administration is None else node.administration.registry
        self._node = node
        self._numbers = NodePreferenceNumbers(records.get(NUMBERS, {}), node.site.store.keep, registry)
        self._sets = records.get(SETS, {})
        self._authorities: tuple[x509.Certificate, ...] = ()

    async def open(self, config: Config) -> None:
        """Before anything is decided."""
        home, taken, read = await self.prepare(config)
        self.adopt(config, home, taken, read)
        dropped = self._node.realm.foreign.restore(self._sets, self.verify)
        if dropped:
            log.warning(
                "preferences of owners elsewhere are not vouched for any more: nobody receives what is theirs",
                owners=len(dropped),
            )

    async def prepare(self, config: Config) -> tuple[HomePreferences, NumberedOwners | None, _Read]:
        """What will be said by this configuration; nothing counts before `adopt`."""
        rules = config.built.rules
        people, node = self._node.identities.table, self._node.site.origin.node
        home = HomePreferences(
            rules.preferences,
            id_of=lambda name: people.id(USER, name),
            name_of=people.name,
            beliefs={name: plain for name, domain in rules.domains.items() if (plain := domain.plain)},
            places={name: f"{name}@{node}" for name in rules.space.scopes},
        )
        if not rules.space.remote and not any(scope.backend for scope in config.scopes.values()):
            return home, None, _Read()
        read = await asyncio.to_thread(_Read.of, config)
        return home, await self._numbers.take_up(home), read

    def adopt(self, config: Config, home: HomePreferences, taken: NumberedOwners | None, read: _Read) -> None:
        """This configuration is in force."""
        self._authorities = read.authorities
        travelling = None
        if taken is not None:
            self._numbers.adopt(taken)
            if read.signer is not None:
                travelling = TravellingPreferences(
                    home, self._numbers.numbers, signer=read.signer, certificate=read.certificate
                )
        realm = self._node.realm
        signer = None if read.signer is None else NodeSigner(read.signer.short, read.certificate)
        realm.node_links.signatures.changed(signer, lambda data: common_name(data) if self.issued(data) else "")
        realm.node_links.travel(travelling, self.verify)
        realm.foreign.review(self.verify)

    def verify(self, signer: bytes, signed: bytes, signature: bytes) -> str | None:
        """For which domain a signer speaks; None: it has not signed this, or speaks for nobody."""
        if not self.issued(signer) or not signed_by(signer, signed, signature):
            return None
        name = common_name(signer)
        domains = self._node.realm.rules.domains
        return next((domain for domain, known in domains.items() if name in known.nodes), None)

    def issued(self, data: bytes) -> bool:
        """Whether a certificate is of an authority that links trust, and counts now."""
        try:
            certificate = x509.load_der_x509_certificate(data)
        except ValueError:
            return False
        now = time.time()
        if not certificate.not_valid_before_utc.timestamp() <= now <= certificate.not_valid_after_utc.timestamp():
            return False
        if self._node.authentication.revocation.objection(data, NOWHERE, now):
            return False
        return any(_issued_by(certificate, authority) for authority in self._authorities)


class _Read:
    """The files that a configuration names: who this node is, and which authorities count."""

    __slots__ = ("authorities", "certificate", "signer")

    def __init__(self) -> None:
        self.signer: Signer | None = None
        self.certificate = b""
        self.authorities: tuple[x509.Certificate, ...] = ()

    @classmethod
    def of(cls, config: Config) -> _Read:
        """Blocks. ConfigError if something cannot be read."""
        read = cls()
        listeners = [each for each in config.listeners if each.cert is not None]
        pairs = [(config.node.cert, config.node.key)] + [(each.cert, each.key) for each in listeners]
        cert, key = next(((cert, key or cert) for cert, key in pairs if cert is not None), (None, None))
        roots = [config.node.ca, *(each.client_ca for each in listeners)]
        try:
            if cert is not None and key is not None:
                read.signer = Signer.of_pem(Path(key).read_bytes())
                first = x509.load_pem_x509_certificate(Path(cert).read_bytes())
                read.certificate = first.public_bytes(serialization.Encoding.DER)
            found = [x509.load_pem_x509_certificates(Path(root).read_bytes()) for root in roots if root is not None]
            if read.signer is not None and any(link.sign for link in config.links) and not read.signer.signs_short:
                raise KeysError(f"{key} cannot sign messages: use an Ed25519 key, or an EC key on P-256")
        except (OSError, ValueError, KeysError) as error:
            raise ConfigError(f"the certificates for links to other nodes cannot be read: {error}") from error
        read.authorities = tuple(authority for each in found for authority in each)
        return read


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, exceptions.InvalidSignature):
        return False
    return True
