"""Whom this node vouches for to its neighbours, and what becomes of clients that nobody vouches for any more.

A node vouches for certificates that are on its own trust list, were issued by an authority that its links or listeners
trust, and count now. It does not vouch on the word of others: those are asked, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from tidegate.policy.certificate_packets import Vouched
from tidegate.policy.identities import USER
from tidegate.policy.preference_sets import owner_id
from tidegate.policy.subject import Subject
from tidegate.policy.trust_list import Trusted, common_name, fingerprint
from tidegate.wire import Reason

if TYPE_CHECKING:
    from tidegate.node.node import Node

log = structlog.get_logger("tidegate.link")


class CertificateTrust:
    """Between the trust list of a node and its neighbours."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def start(self) -> None:
        certificates = self._node.realm.node_links.certificates
        certificates.judge, certificates.on_end = self.judge, self._ended
        self._node.authentication.certificates = certificates
        self.arrange()
        certificates.review()  # it may have changed its mind since its last run

    def arrange(self) -> None:
        """Other rules are in force."""
        section = self._node.config.trust
        self._node.realm.node_links.certificates.lifetime = 0.0 if section is None else section.vouch

    def judge(self, certificate: bytes) -> Vouched | None:
        """Who it is made out to; None: this node does not know it."""
        node = self._node
        trust = node.authentication.built.trust
        if trust is None or not isinstance(trust.judge(certificate), Trusted):
            return None
        if not node.signatures.issued(certificate):
            return None
        name = common_name(certificate)
        if not name:
            return None
        return Vouched(domain=node.realm.rules.domain, name=name, seconds=0.0, owner=self._owner(name))

    def _owner(self, name: str) -> tuple[str, int]:
        """As which owner their messages travel, and with which preferences."""
        node = self._node
        travelling = node.realm.node_links.owners.travelling
        if name not in node.authentication.users or travelling is None:
            return owner_id(name, ""), 0  # it is nobody who could have any
        identity = node.identities.table.id(USER, name)
        user = Subject(kind="client", client="", user=name, scope="", node="", identity=identity)
        return travelling.of(user) or (owner_id(name, ""), 0)

    def _ended(self, certificate: str) -> None:
        """Who has come with it has to go, unless it is on the list itself now."""
        node = self._node
        trust = node.authentication.built.trust
        log.info("nobody vouches for a certificate any more", certificate=certificate)
        for scope in node.scopes.values():
            for session in scope.credential_expiry.shown():
                shown, connection = session.certificate, session.connection
                if shown is None or connection is None or fingerprint(shown.der) != certificate:
                    continue
                if trust is not None and trust.asks and not isinstance(trust.judge(shown.der), Trusted):
                    scope.wills.drop(session)
                    connection.close(Reason.NOT_AUTHORIZED, "nobody vouches for your certificate any more")
