"""Long work on the loop, in slices: nobody else waits for longer than one. And waiting for the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from tidegate.session import Site
from tidegate.session.packet_costs import Payer

SLICE: Final = 0.0005  # seconds


async def each(site: Site, count: int, do: Callable[[int], None], payer: Payer | None = None) -> None:
    """For each of so many, with pauses for everybody else.

    `payer`: whoever asks for it. If that takes too much of the loop while others publish, it rests as they would.
    """
    site.open()
    begun = time.perf_counter()
    for index in range(count):
        do(index)
        spent = time.perf_counter() - begun
        if spent > SLICE:
            await _turn(site, payer, spent)
            site.open()
            begun = time.perf_counter()
    if payer is not None:
        site.charge(payer, int((time.perf_counter() - begun) * 1e6))


async def _turn(site: Site, payer: Payer | None, spent: float) -> None:
    """Until the next slice may begin."""
    if payer is not None:
        site.charge(payer, int(spent * 1e6))
        if site.rests(payer):
            turn = asyncio.get_running_loop().create_future()
            site.line_up(payer, partial(_begin, site, turn))
            await turn
            return
    await asyncio.sleep(0)


def _begin(site: Site, turn: asyncio.Future[None]) -> None:
    if not turn.done():  # else whoever waited has gone
        price = int(SLICE * 1e6)
        site.effort += price
        site.owed += price  # the loop comes to it after this
        turn.set_result(None)


async def stored(site: Site, patience: float) -> None:
    """When this returns the store has everything that was noted so far. TimeoutError if that takes too long."""
    site.open()
    safe = asyncio.Event()
    site.store.after(safe.set)
    async with asyncio.timeout(patience):
        await safe.wait()
