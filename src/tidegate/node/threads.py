"""The threads of a node for what takes long: one for changes, one for those who only look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidegate.give_way import give_way

T = TypeVar("T")


class Threads:
    """Those of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._change = ThreadPoolExecutor(1, thread_name_prefix="change", initializer=give_way)
        self._query = ThreadPoolExecutor(1, thread_name_prefix="query", initializer=give_way)

    async def change(self, do: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._change, do)

    async def query(self, do: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._query, do)

    def close(self) -> None:
        for executor in (self._change, self._query):
            executor.shutdown(wait=False, cancel_futures=True)
