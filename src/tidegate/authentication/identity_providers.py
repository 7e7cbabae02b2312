"""The identity providers of a node (`http.oidc`, `http.ldap`), and the threads on which they are asked.

They have threads of their own, few and with a bounded queue: an issuer that hangs keeps nobody waiting but those who
sign in there. A provider whose settings stay the same keeps what it has fetched when the configuration changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

import structlog

from tidegate.authentication.ldap_directory import LdapDirectory
from tidegate.authentication.openid_provider import OpenIdProvider
from tidegate.authentication.outgoing_request import Unreachable
from tidegate.config import Config
from tidegate.config.identity_providers import Ldap, Oidc, providers

THREADS: Final = 4
WAITING: Final = 64
"""Questions at a time, also those that wait for a thread."""

T = TypeVar("T")

log = structlog.get_logger("tidegate.node")


class Busy(Exception):
    """Too many are asking."""


class IdentityProviders:
    """Those of one node."""

    def __init__(self, config: Config) -> None:
        self.issuers: dict[str, OpenIdProvider] = {}
        self.directories: dict[str, LdapDirectory] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="identity")
        self._waiting = 0
        self._refreshing: set[OpenIdProvider] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.change(config)

    def change(self, config: Config) -> None:
        """Those of another configuration from now on."""
        before = self.issuers
        self.issuers, self.directories = {}, {}
        for _, settings in providers(config):
            if isinstance(settings, Oidc):
                same = before.get(settings.name)
                kept = same is not None and same.settings == settings
                self.issuers[settings.name] = same if same is not None and kept else OpenIdProvider(settings)
            elif isinstance(settings, Ldap):
                self.directories[settings.name] = LdapDirectory(settings)

    def place(self, name: str) -> str | None:
        """Where a provider is; None: there is none of that name any more."""
        if (issuer := self.issuers.get(name)) is not None:
            return issuer.settings.issuer
        directory = self.directories.get(name)
        return None if directory is None else str(directory.settings.url)

    @property
    def bearing(self) -> bool:
        """Whether tokens of some issuer are taken over MQTT."""
        return any(issuer.settings.mqtt for issuer in self.issuers.values())

    def issuer_at(self, place: str | None) -> OpenIdProvider | None:
        """The one whose tokens say so, and are taken over MQTT."""
        return next(
            (each for each in self.issuers.values() if each.settings.mqtt and each.settings.issuer == place), None
        )

    def refresh(self, provider: OpenIdProvider) -> None:
        """Has the keys of an issuer asked for again, unless that is being done."""
        if provider not in self._refreshing:
            self._refreshing.add(provider)
            self.keep(asyncio.get_running_loop().create_task(self._refresh(provider)))

    async def _refresh(self, provider: OpenIdProvider) -> None:
        try:
            await self.ask(partial(provider.keys, provider.known_keys()))
        except (Busy, Unreachable) as error:
            log.warning("the keys of an issuer cannot be had", issuer=provider.settings.name, reason=str(error))
        finally:
            self._refreshing.discard(provider)

    def keep(self, task: asyncio.Task[None]) -> None:
        """A task that nobody waits for, until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def ask(self, question: Callable[[], T]) -> T:
        """What a provider answers; Busy if too many are asking."""
        if self._waiting >= WAITING:
            raise Busy
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, question)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Nobody waits for what is still being asked."""
        for task in self._tasks:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
