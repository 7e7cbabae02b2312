"""Whom the certificate of a client speaks for, as the listener has it (`certificate_user`)."""

from __future__ import annotations

from tidegate.policy import Transport
from tidegate.policy.trust_list import subject_text
from tidegate.session import Connection


def certified_name(connection: Connection, transport: Transport) -> str | None:
    """The name that the certificate it showed speaks for on this listener, unless that does not count because the peer
    is degraded."""
    tls = connection.certificate
    if tls is None or not tls["certificate"] or transport.degraded:
        return None
    match getattr(connection.listener, "certificate_user", "common_name"):
        case "none":
            return None
        case "subject":
            return None if tls["verified"] is None else subject_text(tls["verified"].der)
    for relative in tls["certificate"].get("subject", ()):
        for key, value in relative:
            if key == "commonName":
                return str(value)
    return None
