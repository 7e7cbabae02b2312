"""The keys of issuers that are at an address (JWKS): fetched at start and at reload, and refreshed while the node runs.

They are refreshed when they are `REFRESH` seconds old, and when a token was signed by a key that is not known; at most
every `PAUSE` seconds, whatever clients show. Keys that cannot be fetched refuse a configuration: a node does not begin
without them. A refresh that fails keeps those that there are.

`accepted` and `fetch` block; call them in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from tidegate.authentication.outgoing_request import Failed, OutgoingRequest
from tidegate.config import Config
from tidegate.config.capabilities import complete
from tidegate.errors import ConfigError
from tidegate.policy.capability import Accepts
from tidegate.policy.capability.jwk import keys_of_jwks

ALTOGETHER = 15.0  # seconds for one address, however the answer comes: meanwhile nothing else can be changed
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
    try:
        return OutgoingRequest(address).send(ALTOGETHER)
    except Failed as failed:
        raise _failed(address, str(failed)) from None


def _failed(address: str, why: str) -> ConfigError:
    return ConfigError(f"the keys at {address} cannot be had: {why}; check the address, or name a file")
