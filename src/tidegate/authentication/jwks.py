"""Issuers' keys that have to be fetched: once when a configuration is taken up, never while it is in force.

Blocks; call it beside the loop. It follows no redirections and uses no proxy: the keys decide who gets in, so they come
from where the configuration says or not at all.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from urllib.parse import urlsplit

from tidegate.config import Config
from tidegate.config.capabilities import complete
from tidegate.errors import ConfigError
from tidegate.policy.capability import Accepts

PATIENCE = 5.0  # seconds of silence, and for the content
ALTOGETHER = 15.0  # seconds for one address, however the answer comes: meanwhile nothing else can be changed
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
    fetching = _Fetching(address)
    fetching.start()
    fetching.join(ALTOGETHER)
    if fetching.is_alive():
        fetching.abandon()
        raise _failed(address, f"it takes more than {ALTOGETHER:g} s")
    if isinstance(fetching.outcome, ConfigError):
        raise fetching.outcome
    return fetching.outcome


class _Fetching(threading.Thread):
    """One request. In a thread of its own: a name that is not resolved, or headers that come byte by byte, have no end
    that could be set. Nobody waits for it when the node stops."""

    def __init__(self, address: str) -> None:
        super().__init__(name="jwks", daemon=True)
        self._address = address
        self._connection = _connection(address)
        self.outcome: bytes | ConfigError = _failed(address, "asking for them failed, see the log")

    def run(self) -> None:
        try:
            self.outcome = _fetched(self._address, self._connection)
        except ConfigError as told:
            self.outcome = told

    def abandon(self) -> None:
        """Lets it end: what it waits for does not come any more."""
        waiting = self._connection.sock
        if waiting is not None:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                waiting.shutdown(socket.SHUT_RDWR)


def _connection(address: str) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, parts.port, timeout=PATIENCE, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, parts.port, timeout=PATIENCE)


def _fetched(address: str, connection: http.client.HTTPConnection) -> bytes:
    parts = urlsplit(address)
    try:
        path = parts.path or "/"
        connection.request("GET", f"{path}?{parts.query}" if parts.query else path)
        with connection.getresponse() as answer:
            if answer.status != http.HTTPStatus.OK:
                raise _failed(address, f"it answers {answer.status}")
            return _content(answer, address)
    except (OSError, http.client.HTTPException, UnicodeError) as broken:  # the last: of a name that is none
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
