"""What `tidegate check` can try without starting a node: everything that the file refers to is there and fits."""

from __future__ import annotations

from tidegate.audit.journals import check_installed
from tidegate.authentication import jwks
from tidegate.authentication.authentication import load_method
from tidegate.config import Config
from tidegate.node.http import tls_context
from tidegate.node.link_connections import try_certificates
from tidegate.node.listeners import endpoint
from tidegate.node.revocation import read_revocation


def verify(config: Config) -> None:
    """What `tidegate check` can try without starting: certificates, authentication methods and extras are there."""
    check_installed(config)
    for listener in config.listeners:
        if (tls := endpoint(listener).tls) is not None:
            tls.context()
    try_certificates(config)
    tls_context(config.http)
    read_revocation(config)
    for name, place in config.authentication.methods.items():
        load_method(name, place)
    jwks.accepted(config)
