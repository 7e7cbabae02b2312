"""Follows a registry: catches up whenever somebody has changed it, and tries again after a failure."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from tidegate.errors import StoreError
from tidegate.store.registry import Listener, Registry

RETRY: Final = 5.0  # seconds until a change that could not be put in force is tried again

log = structlog.get_logger("tidegate.node")


class RegistryFollower:
    """Calls `catch_up` after each notice, and every `RETRY` seconds while `failing` says so."""

    def __init__(
        self, registry: Registry, *, catch_up: Callable[[], Awaitable[None]], failing: Callable[[], bool]
    ) -> None:
        self.newest = 0  # the number of the newest change that was noticed
        self._registry = registry
        self._catch_up = catch_up
        self._failing = failing
        self._noticed = asyncio.Event()
        self._listening: Listener | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str | None:
        """Why no notices come at the moment; None: they do."""
        return None if self._listening is None else self._listening.trouble

    def start(self, *, after: int) -> None:
        loop = asyncio.get_running_loop()

        def notice(sequence: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has stopped
                loop.call_soon_threadsafe(self._notice, sequence)

        self._listening = self._registry.listen(notice, after=after)
        self._task = loop.create_task(self._follow())

    def retry(self) -> None:
        """Catches up soon, without a notice."""
        self._noticed.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _notice(self, sequence: int) -> None:
        self.newest = sequence
        self._noticed.set()

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY if self._failing() else None):
                    await self._noticed.wait()
            self._noticed.clear()
            try:
                await self._catch_up()
            except StoreError as error:
                log.warning("the registry has changed and cannot be read", reason=str(error))
                await asyncio.sleep(1)
                self._noticed.set()
            except Exception:
                log.exception("changes of the registry could not be followed")
