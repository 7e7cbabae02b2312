"""Who is at the other end of a link to a foreign broker, and how well the connection is protected.

TLS has tested the certificate and the name of the broker. It never counts as trusted, because it enforces nothing, nor
as having proven itself to this node in the way that nodes do: its connection has the level that encryption gives.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.policy import Close, Levels, Transport
from tidegate.policy.revocation import REVOKED, PeerCertificate, Revocation
from tidegate.policy.scopes import NodeLink
from tidegate.policy.trust_list import By, Trust, is_fingerprint, subject_text
from tidegate.scope import Refused
from tidegate.scope.link_greeting import Peer
from tidegate.session import Connection


def foreign_broker(connection: Connection, link: NodeLink, levels: Levels, revocation: Revocation) -> Peer | Refused:
    """The broker, or why the link does not take it."""
    tls, site = connection.certificate, connection.site
    transport = Transport(listener=connection.listener.name, address=connection.address)
    shown: PeerCertificate | None = None
    if tls is not None:
        shown = tls["verified"]
        transport = replace(transport, tls_version=tls["version"], tls_cipher=tls["cipher"])
    if shown is not None:
        if link.broker is None or link.broker.ca is None:  # which authorities the system knows is not listed here
            why = revocation.objection(shown.der, transport.listener, site.wall)
        else:
            why = revocation.refuses(shown, transport.listener, site.wall, site.steady)
        if why:
            return Refused(text=f"the certificate is not accepted: {why}", ended=why == REVOKED)
    if link.peer is not None:
        by = By.CERTIFICATE if is_fingerprint(link.peer) else By.SUBJECT
        outcome = Trust(by, (link.peer,)).judge(None if shown is None else shown.der)
        if isinstance(outcome, Close):
            return Refused(text=f"not trusted: {outcome.reason}")
    return Peer(
        subject="" if shown is None else subject_text(shown.der),
        name="",
        certificate=None if shown is None else shown.der,
        address=connection.address,
        listener=transport.listener,
        level=levels.level_of(transport),
        facts=levels.facts_of(transport),
        tls={} if tls is None else {"version": tls["version"], "cipher": tls["cipher"] or ""},
    )
