"""The keys of issuers that are at an address (JWKS): fetched at start and at reload, and refreshed while the node runs.

They are refreshed when they are `REFRESH` seconds old, and when a token was signed by a key that is not known; at most
every `PAUSE` seconds, whatever clients show. Keys that cannot be fetched refuse a configuration: a node does not begin
without them. A refresh that fails keeps those that there are.

`accepted` and `fetch` block; call them in a thread. They follow no redirections and use no proxy: the keys decide who
gets in, so they come from where the configuration says or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import structlog

from tidegate.config import Config
from tidegate.config.capabilities import complete
from tidegate.errors import ConfigError
from tidegate.lazy import LazyModule
from tidegate.policy.capability import Accepts
from tidegate.policy.capability.jwk import keys_of_jwks

if TYPE_CHECKING:
    import httpx
else:
    httpx = LazyModule("httpx")

PATIENCE = 5.0  # seconds of silence, and for the content
ALTOGETHER = 15.0  # seconds for one address, however the answer comes: meanwhile nothing else can be changed
LARGEST = 1 << 20  # bytes
REFRESH = 3600.0  # seconds after which keys are fetched again
PAUSE = 60.0  # least seconds between two refreshes

log = structlog.get_logger("tidegate.node")


class IssuerKeys:
    """The key sets as they were fetched last."""

    def __init__(self) -> None:
        self._last: dict[str, bytes] = {}  # by address
        self._wanted = asyncio.Event()

    def accepted(self, config: Config) -> Accepts | None:
        """Which capabilities a configuration takes, with all keys. ConfigError if some cannot be had. Blocks."""
        return accepted(config, self._fetch)

    def want(self) -> None:
        """A token was signed by a key that is not known: its issuer may have a new one."""
        self._wanted.set()

    async def refresh(
        self, config: Callable[[], Config], take_up: Callable[[Config, Accepts], Awaitable[None]]
    ) -> None:
        """Refreshes the keys for as long as the node runs; `take_up` is given what is accepted from then on."""
        while True:
            await asyncio.sleep(PAUSE)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), REFRESH)
            self._wanted.clear()
            current = config()
            if current.capabilities is None or all(each.address is None for each in current.capabilities.issuers):
                continue
            try:
                accepts = await asyncio.to_thread(accepted, current, self._fetch_or_keep)
            except ConfigError as error:
                log.warning("the keys of issuers are not refreshed, the old ones stay", reason=str(error))
                continue
            if accepts is not None:
                await take_up(current, accepts)

    def _fetch(self, address: str) -> bytes:
        content = self._last[address] = fetch(address)
        return content

    def _fetch_or_keep(self, address: str) -> bytes:
        try:
            content = fetch(address)
            keys_of_jwks(content)
        except ConfigError as error:
            if address not in self._last:
                raise
            log.warning("the keys of an issuer are not refreshed, the old ones stay", reason=str(error))
            return self._last[address]
        self._last[address] = content
        return content


def accepted(config: Config, content_at: Callable[[str], bytes] | None = None) -> Accepts | None:
    """Which capabilities a configuration takes, with all keys. ConfigError if some cannot be had.

    `content_at` reads what is at an address; without it, it is fetched.
    """
    read = content_at or fetch
    settings, built = config.capabilities, config.built.capabilities
    if settings is None or built is None:
        return None
    key_sets = {issuer.name: read(issuer.address) for issuer in settings.issuers if issuer.address is not None}
    return complete(built, settings, key_sets) if key_sets else built


def fetch(address: str) -> bytes:
    request = _Request(address)
    request.start()
    request.join(ALTOGETHER)
    if request.is_alive():
        request.abandon()
        raise _failed(address, f"it takes more than {ALTOGETHER:g} s")
    if isinstance(request.outcome, ConfigError):
        raise request.outcome
    return request.outcome


class _Request(threading.Thread):
    """One request. In a thread of its own: a name that is not resolved, or headers that come byte by byte, have no end
    that could be set. Nobody waits for it when the node stops."""

    def __init__(self, address: str) -> None:
        super().__init__(name="jwks", daemon=True)
        self._address = address
        self._socket: socket.socket | None = None
        self.outcome: bytes | ConfigError = _failed(address, "asking for them failed, see the log")

    def run(self) -> None:
        try:
            with httpx.Client(timeout=PATIENCE, trust_env=False, follow_redirects=False) as client:
                self.outcome = _get(client, self._address, self._trace)
        except ConfigError as error:
            self.outcome = error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:  # the last: of a name that is none
            self.outcome = _failed(self._address, str(error) or type(error).__name__)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = info["return_value"].get_extra_info("socket")

    def abandon(self) -> None:
        """Lets it end: what it waits for does not come any more."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                self._socket.shutdown(socket.SHUT_RDWR)


def _get(client: httpx.Client, address: str, trace: Callable[[str, Mapping[str, Any]], None]) -> bytes:
    headers = {"accept-encoding": "identity"}  # what is not compressed is as large as it looks
    with client.stream("GET", address, headers=headers, extensions={"trace": trace}) as response:
        if response.status_code != httpx.codes.OK:
            raise _failed(address, f"it answers {response.status_code}")
        until = time.monotonic() + PATIENCE
        content = b""
        for piece in response.iter_raw():
            content += piece
            if len(content) > LARGEST:
                raise _failed(address, f"it is larger than {LARGEST >> 20} MiB")
            if time.monotonic() > until:
                raise _failed(address, f"it takes more than {PATIENCE:g} s")
        return content


def _failed(address: str, why: str) -> ConfigError:
    return ConfigError(f"the keys at {address} cannot be had: {why}; check the address, or name a file")
