"""Calls of the registry from the event loop: each blocks, so it runs on a thread.

Two pools: one for calls that wait for the database, one for work on documents in memory, which must not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

from tidegate.errors import Problem, StoreError, Uncertain

THREADS: Final = 2

P = ParamSpec("P")
T = TypeVar("T")


class RegistryThreads:
    def __init__(self) -> None:
        self._database = ThreadPoolExecutor(THREADS, thread_name_prefix="registry")
        self._memory = ThreadPoolExecutor(1, thread_name_prefix="documents")

    async def call(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls the database. Raises StoreError if it cannot be reached."""
        return await asyncio.get_running_loop().run_in_executor(self._database, partial(do, *args, **kwargs))

    async def request(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls the database for somebody who asked: a StoreError becomes a Problem."""
        try:
            return await self.call(do, *args, **kwargs)
        except Uncertain as error:
            raise Problem(str(error), problem="uncertain") from error
        except StoreError as error:
            raise Problem(str(error), problem="unavailable") from error

    async def compute(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._memory, partial(do, *args, **kwargs))

    def close(self) -> None:
        for pool in (self._database, self._memory):
            pool.shutdown(wait=False, cancel_futures=True)
