"""Issuers' keys that have to be fetched: once when a configuration is taken up, never while it is in force.

Blocks; call it beside the loop. It follows no redirections and uses no proxy: the keys decide who gets in, so they come
from where the configuration says or not at all.
"""

from __future__ import annotations

import http.client
import ssl
import time
from urllib.parse import urlsplit

from tidegate.config import Config
from tidegate.config.capabilities import complete
from tidegate.errors import ConfigError
from tidegate.policy.capability import Accepts

PATIENCE = 5.0  # seconds
LARGEST = 1 << 20  # bytes


def accepted(config: Config) -> Accepts | None:
    """Which capabilities a configuration takes, with all keys. ConfigError if some cannot be had."""
    said, built = config.capabilities, config.built.capabilities
    if said is None or built is None:
        return None
    fetched = {issuer.name: fetch(issuer.address) for issuer in said.issuers if issuer.address is not None}
    return complete(built, said, fetched) if fetched else built


def fetch(address: str) -> bytes:
    """What is found at an address."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            host, parts.port, timeout=PATIENCE, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=PATIENCE)
    try:
        path = parts.path or "/"
        connection.request("GET", f"{path}?{parts.query}" if parts.query else path)
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise _failed(address, f"it answers {answer.status}")
        return _content(answer, address)
    except (OSError, http.client.HTTPException) as broken:
        raise _failed(address, str(broken) or type(broken).__name__) from None
    finally:
        connection.close()


def _content(answer: http.client.HTTPResponse, address: str) -> bytes:
    until = time.monotonic() + PATIENCE
    content = b""
    while piece := answer.read1(65536):
        content += piece
        if len(content) > LARGEST:
            raise _failed(address, f"it is larger than {LARGEST >> 20} MiB")
        if time.monotonic() > until:
            raise _failed(address, f"it takes more than {PATIENCE:g} s")
    return content


def _failed(address: str, why: str) -> ConfigError:
    return ConfigError(f"the keys at {address} cannot be had: {why}; check the address, or name a file")
