"""Long work on the loop, in slices: nobody else waits for longer than one. And waiting for the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from tidegate.session import Site

SLICE: Final = 0.0005  # seconds


async def each(site: Site, count: int, do: Callable[[int], None]) -> None:
    """For each of so many, with pauses for everybody else."""
    site.open()
    until = time.perf_counter() + SLICE
    for index in range(count):
        do(index)
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            site.open()
            until = time.perf_counter() + SLICE


async def stored(site: Site, patience: float) -> None:
    """When this returns the store has everything that was noted so far. TimeoutError if that takes too long."""
    site.open()
    safe = asyncio.Event()
    site.store.after(safe.set)
    async with asyncio.timeout(patience):
        await safe.wait()
